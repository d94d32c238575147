"""Collects the metrics of an instance: those of its workers, and statistics of the database."""

from collections.abc import Sequence

from prometheus_client.metrics_core import Metric

from queen.core.errors import QueenError
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.handle import EngineHandle
from queen.metrics import instance, registry, simple_mq


class MetricsCollector:
    """Collects all metrics, for Prometheus and OpenTelemetry.

    Args:
        engine: reads from the database.
        series_max: maximum of queues, of groups, and of queues of simple-mq that have their own series.
    """

    def __init__(self, engine: EngineHandle, series_max: int) -> None:
        self._engine, self._series_max = engine, series_max

    async def collect(self) -> Sequence[Metric]:
        """All metrics."""
        return [*registry.measured(), *await self.on_request()]

    async def on_request(self) -> Sequence[Metric]:
        """Metrics that are computed on request; without statistics of the database while it is unavailable."""
        families: list[Metric] = await self._engine.submit(JobType.CUSTOM, _of_instance).future
        try:
            families += await self._engine.submit(JobType.CUSTOM, self._of_database).future
        except QueenError:
            families += instance.database(False)
        else:
            families += instance.database(True)
        return families

    async def _of_database(self, context: Context) -> Sequence[Metric]:
        await context.simple_mq.outcomes.flush()
        log = await context.administration.statistics.log(self._series_max, self._series_max)
        clock = await context.administration.statistics.clock()
        queues = await context.simple_mq.administration.statistics(self._series_max)
        return [
            *instance.log(log),
            *instance.clock(clock),
            *simple_mq.families(queues),
        ]


async def _of_instance(context: Context) -> Sequence[Metric]:
    return [] if context.failover is None else list(instance.spool(context.failover.spool.state()))
