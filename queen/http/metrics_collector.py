"""Collects the metrics of an instance: those of its workers, and statistics of the database."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from prometheus_client.metrics_core import Metric

from queen.core.errors import QueenError
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.handle import EngineHandle
from queen.metrics import instance, registry

#: Metrics from the statistics of another interface, for at most so many queues.
StatisticsOf = Callable[[Context, int], Awaitable[Iterable[Metric]]]


class MetricsCollector:
    """Collects all metrics, for Prometheus and OpenTelemetry.

    Args:
        engine: reads from the database.
        series_max: maximum of queues, of groups, and of queues of each other interface that have their own series.
        others: the statistics of other interfaces.
    """

    def __init__(self, engine: EngineHandle, series_max: int, others: Sequence[StatisticsOf]) -> None:
        self._engine, self._series_max, self._others = engine, series_max, others

    async def collect(self) -> Sequence[Metric]:
        """All metrics."""
        return [*registry.measured(), *await self.on_request()]

    async def on_request(self) -> Sequence[Metric]:
        """Metrics that are computed on request; without statistics of the database while it is unavailable."""
        families: list[Metric] = await self._engine.submit(JobType.CUSTOM, _of_instance).future
        try:
            families += await self._engine.submit(JobType.CUSTOM, self._of_database).future
        except QueenError:
            answered = False
        else:
            answered = True
        up = await self._engine.submit(JobType.CUSTOM, _databases).future
        families += instance.database(up if len(up) > 1 else [("", answered)])
        return families

    async def _of_database(self, context: Context) -> Sequence[Metric]:
        log = await context.reads.statistics.log(self._series_max, self._series_max)
        clock = await context.reads.statistics.clock()
        outbox = await context.reads.statistics.outbox()
        timers = await context.reads.statistics.timers()
        families = [*instance.log(log), *instance.clock(clock), *instance.outbox(outbox), *instance.timers(timers)]
        for statistics_of in self._others:
            families += await statistics_of(context, self._series_max)
        return families


async def _of_instance(context: Context) -> Sequence[Metric]:
    states = [(name, each.failover.spool.state()) for name, each in context.named() if each.failover is not None]
    return list(instance.spool(states)) if states else []


async def _databases(context: Context) -> Sequence[tuple[str, bool]]:
    return [(name, not each.unavailable) for name, each in context.named()]
