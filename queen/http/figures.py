"""The figures of an instance: what its workers have measured, and what only the database knows."""

from collections.abc import Sequence

from msgspec import Struct
from prometheus_client.metrics_core import Metric

from queen.config import Settings
from queen.core.errors import QueenError
from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.thread import EngineThread
from queen.metrics import instance, registry, simple_mq


class SeriesLimits(Struct, frozen=True):
    """How many queues and consumer groups have series of their own; ``simple_mq``: of that interface's queues."""

    queues: int
    groups: int
    simple_mq: int


class Figures:
    """Gathers all metrics, for whoever they are sent to."""

    def __init__(self, engine: EngineThread, limits: SeriesLimits) -> None:
        self._engine, self._limits = engine, limits

    @classmethod
    def of(cls, settings: Settings, engine: EngineThread) -> "Figures":
        """With the limits of the settings."""
        limits = SeriesLimits(settings.metrics_queues, settings.metrics_groups, settings.smq_metrics_queues)
        return cls(engine, limits)

    async def gather(self) -> Sequence[Metric]:
        """All metrics."""
        return [*registry.measured(), *await self.asked()]

    async def asked(self) -> Sequence[Metric]:
        """Those that nobody has counted; while the database is away, without what only it knows."""
        families: list[Metric] = await self._engine.submit(JobType.CUSTOM, _of_instance).future
        try:
            families += await self._engine.submit(JobType.CUSTOM, self._of_database).future
        except QueenError:
            families += instance.database(False)
        else:
            families += instance.database(True)
        return families

    async def _of_database(self, context: Context) -> Sequence[Metric]:
        await context.simple_mq.tally.flush()
        limits = self._limits
        log = await context.administration.metrics.figures(limits.queues, limits.groups)
        clock = await context.administration.metrics.clock()
        queues = await context.simple_mq.administration.figures(limits.simple_mq)
        return [
            *instance.log(log),
            *instance.clock(clock),
            *simple_mq.families(queues.gauges, queues.outcomes, queues.queues),
        ]


async def _of_instance(context: Context) -> Sequence[Metric]:
    return [] if context.failover is None else list(instance.spool(context.failover.spool.state()))
