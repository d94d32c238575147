"""``GET /metrics/prometheus``."""

from collections.abc import Sequence

import falcon
import falcon.asgi
from msgspec import Struct
from prometheus_client.metrics_core import Metric

from queen.core.errors import QueenError
from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.thread import EngineThread
from queen.metrics import instance, simple_mq
from queen.metrics.registry import CONTENT_TYPE, render


class SeriesLimits(Struct, frozen=True):
    """How many queues and consumer groups have series of their own; ``simple_mq``: of that interface's queues."""

    queues: int
    groups: int
    simple_mq: int


class PrometheusResource:
    """All metrics of the instance, and those of its queues, in Prometheus' text format."""

    def __init__(self, engine: EngineThread, limits: SeriesLimits) -> None:
        self._engine, self._limits = engine, limits

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200, while the database is away too: then without what only it knows."""
        families: list[Metric] = await self._engine.submit(JobType.CUSTOM, _of_instance).future
        try:
            families += await self._engine.submit(JobType.CUSTOM, self._of_database).future
        except QueenError:
            families += instance.database(False)
        else:
            families += instance.database(True)
        resp.content_type = CONTENT_TYPE
        resp.set_header("Cache-Control", "no-cache")
        resp.data = render(families)

    async def _of_database(self, context: Context) -> Sequence[Metric]:
        await context.simple_mq.tally.flush()
        limits = self._limits
        log = await context.administration.metrics.figures(limits.queues, limits.groups)
        queues = await context.simple_mq.administration.figures(limits.simple_mq)
        return [*instance.log(log), *simple_mq.families(queues.gauges, queues.outcomes, queues.queues)]


async def _of_instance(context: Context) -> Sequence[Metric]:
    return [] if context.failover is None else list(instance.spool(context.failover.spool.state()))
