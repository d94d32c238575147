"""``GET /metrics/prometheus``."""

import falcon
import falcon.asgi

from queen.core.errors import QueenError
from queen.core.operations import JobType
from queen.core.simple_mq import Figures
from queen.engine.context import Context
from queen.engine.thread import EngineThread
from queen.metrics import simple_mq
from queen.metrics.registry import CONTENT_TYPE, render


class PrometheusResource:
    """All metrics of the instance, and those of its queues, in Prometheus' text format."""

    def __init__(self, engine: EngineThread, queues_max: int) -> None:
        self._engine, self._queues_max = engine, queues_max

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200, while the database is away too: then without what only it knows."""
        resp.content_type = CONTENT_TYPE
        resp.set_header("Cache-Control", "no-cache")
        try:
            figures: Figures = await self._engine.submit(JobType.CUSTOM, self._ask).future
        except QueenError:
            resp.data = render(())
        else:
            resp.data = render(simple_mq.families(figures.gauges, figures.outcomes, figures.queues))

    async def _ask(self, context: Context) -> Figures:
        await context.simple_mq.tally.flush()
        return await context.simple_mq.administration.figures(self._queues_max)
