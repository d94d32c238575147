"""Statistics of queues and groups, and what workers counted and sampled over time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import structs

from queen.core.administration import (
    Found,
    GroupBy,
    ParkedRow,
    Period,
    QueueFilter,
    QueueMetricsRow,
    Refreshed,
    RetentionRow,
    WorkerFilter,
    WorkerLevelsRow,
    WorkerMetricsRow,
)
from queen.core.metrics import Connected, Counted, Level, Sample, Worker
from queen.core.statistics import (
    ClockState,
    GroupStatistics,
    LogStatistics,
    OutboxState,
    QueueStatistics,
    TimersState,
)
from queen.postgres.pool import Pool
from queen.postgres.statement import call

_REFRESH = call("refresh_statistics_v1", 3)
_RECORD_QUEUES = call("record_queue_metrics_v1", 16)
_RECORD_CONSUMERS = call("record_consumers_v1", 10)
_RECORD_WORKER = call("record_worker_metrics_v1", 22)
_QUEUES = call("list_queue_metrics_v1", 9)
_BUSIEST = call("find_busiest_v1", 5)
_PARKED = call("list_parked_v1", 6)
_WORKERS = call("list_worker_metrics_v1", 8)
_LEVELS = call("list_worker_levels_v1", 4)
_FIND_WORKERS = call("find_workers_v1", 6)
_RETENTION = call("list_retention_metrics_v1", 3)
_SUMMARY = call("summarize_figures_v1", 0)
_QUEUE_STATISTICS = call("list_queue_figures_v1", 1)
_GROUP_STATISTICS = call("list_group_figures_v1", 1)
_CLOCK = call("clock_state_v1", 0)
_OUTBOX = call("count_outbox_v1", 1)
_TIMERS = call("count_timers_v1", 1)
#: Up to how many messages of the outbox, and timers, are counted.
_WAITING_MOST = 100_000
_POSTGRES = "SELECT queen.postgres_statistics_v1()::text AS statistics"


#: Maximum of partitions and cursors per page of a refresh; a larger queue is a page of its own.
REFRESH_ROWS = 100_000


def _time(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


class StatisticsStore:
    """Implements ``queen.engine.administration.Statistics``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def refresh_smallest(self, rows_max: int) -> None:
        """Refreshes the statistics of the smallest queues that have this many partitions and cursors together."""
        await self._pool.fetch(_REFRESH, rows_max, True, None)

    async def refresh_page(self, after: int, *, wait: bool) -> Refreshed:
        """Refreshes the statistics of the next queues, in the order of their numbers."""
        [row] = await self._pool.fetch(_REFRESH, REFRESH_ROWS, wait, after)
        return Refreshed(*row)

    async def record_queues(self, worker: Worker, counted: Sequence[Counted]) -> None:
        """Adds the counts of a worker."""
        columns: list[list[object]] = [[structs.astuple(each.counts)[n] for each in counted] for n in range(13)]
        buckets, queues = [_time(each.minute) for each in counted], [each.queue for each in counted]
        await self._pool.fetch(_RECORD_QUEUES, worker.name, buckets, queues, *columns)

    async def record_worker(self, worker: Worker, sample: Sample, keep: timedelta) -> None:
        """Adds one sample of a worker; removes metrics older than ``keep``."""
        s = sample
        columns = [[getattr(level, name) for level in s.levels.each] for name in Level.__struct_fields__]
        await self._pool.fetch(
            _RECORD_WORKER, _time(s.minute), worker.name, worker.hostname, worker.pid, s.jobs, s.db_errors,
            s.loop_lag_ms, s.cpu_user_ms, s.cpu_system_ms, s.rss_bytes, s.virtual_bytes, s.pool_size, s.pool_idle,
            s.queued, s.waiting, keep, worker.port, s.levels.seconds, *columns,
        )  # fmt: skip

    async def record_consumers(self, worker: Worker, connected: Sequence[Connected], seconds: float) -> None:
        """Replaces the connected consumers of a worker; the report counts for ``seconds``."""
        columns = [[getattr(each, name) for each in connected] for name in Connected.__struct_fields__]
        await self._pool.fetch(_RECORD_CONSUMERS, worker.name, seconds, *columns)

    async def queues(self, period: Period, minutes: int, wanted: QueueFilter, apart: GroupBy) -> list[QueueMetricsRow]:
        """The counts of queues, newest bucket first; ``wanted`` names queues, namespace or task."""
        rows = await self._pool.fetch(
            _QUEUES, period.begin, period.end, minutes, wanted.names, wanted.namespace, wanted.task, apart.bucket,
            apart.queue, apart.worker,
        )  # fmt: skip
        return [QueueMetricsRow(*row) for row in rows]

    async def busiest(self, period: Period, queues: Sequence[str] | None, limit: int, offset: int) -> Found:
        """A page of the queues with activity, busiest first."""
        [row] = await self._pool.fetch(_BUSIEST, period.begin, period.end, queues, limit, offset)
        return Found(*row)

    async def parked(
        self, period: Period, minutes: int, queues: Sequence[str] | None, limit: int, offset: int
    ) -> list[ParkedRow]:
        """Waiting long polls, by queue and worker, newest bucket first."""
        rows = await self._pool.fetch(_PARKED, period.begin, period.end, minutes, queues, limit, offset)
        return [ParkedRow(*row) for row in rows]

    async def workers(
        self, period: Period, minutes: int, wanted: WorkerFilter, apart: GroupBy
    ) -> list[WorkerMetricsRow]:
        """The state of workers, newest bucket first."""
        rows = await self._pool.fetch(
            _WORKERS, period.begin, period.end, minutes, wanted.hostname, wanted.pid, wanted.names, apart.bucket,
            apart.worker,
        )  # fmt: skip
        return [WorkerMetricsRow(*row) for row in rows]

    async def worker_levels(self, period: Period, minutes: int, workers: Sequence[str]) -> list[WorkerLevelsRow]:
        """What these workers measured once a second, newest bucket first."""
        rows = await self._pool.fetch(_LEVELS, period.begin, period.end, minutes, workers)
        return [WorkerLevelsRow(*row) for row in rows]

    async def find_workers(self, period: Period, wanted: WorkerFilter, limit: int, offset: int) -> Found:
        """A page of the workers that reported, the latest report first."""
        [row] = await self._pool.fetch(
            _FIND_WORKERS, period.begin, period.end, wanted.hostname, wanted.pid, limit, offset
        )
        return Found(*row)

    async def retention(self, period: Period, minutes: int) -> list[RetentionRow]:
        """Messages that retention and eviction removed, newest bucket first."""
        return [RetentionRow(*row) for row in await self._pool.fetch(_RETENTION, period.begin, period.end, minutes)]

    async def postgres(self) -> str:
        """Statistics of PostgreSQL, as JSON: see ``queen.postgres_statistics_v1``."""
        [row] = await self._pool.fetch(_POSTGRES)
        return str(row["statistics"])

    async def clock(self) -> ClockState:
        """The steps of PostgreSQL's clock."""
        [row] = await self._pool.fetch(_CLOCK)
        return ClockState(*row)

    async def outbox(self) -> OutboxState:
        """What waits in the outbox."""
        [row] = await self._pool.fetch(_OUTBOX, _WAITING_MOST)
        return OutboxState(*row)

    async def timers(self) -> TimersState:
        """Timers that are due and not in the log yet."""
        [row] = await self._pool.fetch(_TIMERS, _WAITING_MOST)
        return TimersState(*row)

    async def log(self, queues_max: int, groups_max: int) -> LogStatistics:
        """The numbers of queues and groups, and statistics of those that were created first."""
        [summary] = await self._pool.fetch(_SUMMARY)
        queues = [QueueStatistics(*row) for row in await self._pool.fetch(_QUEUE_STATISTICS, queues_max)]
        groups = [GroupStatistics(*row) for row in await self._pool.fetch(_GROUP_STATISTICS, groups_max)]
        return LogStatistics(
            summary["queues"], summary["groups"], summary["oldest_s"], summary["statistics_age_s"], queues, groups
        )
