"""Metrics over time of all databases, and the states of their clocks, outboxes and timers.

Every worker reports to every database: what it has one of (CPU, memory, long polls) is counted once, and what it has
for each database (connections, calls) is added up.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from queen.core.administration import (
    Found,
    GroupBy,
    ParkedRow,
    Period,
    QueueFilter,
    QueueMetricsRow,
    RetentionRow,
    WorkerFilter,
    WorkerLevelsRow,
    WorkerMetricsRow,
)
from queen.core.statistics import ClockState, LogStatistics, OutboxState, TimersState
from queen.engine.context import Context
from queen.shards.merging import (
    ROWS_MAX,
    Rule,
    any_of,
    as_one,
    combined,
    cut,
    each_of,
    in_order,
    largest,
    mean_by,
    total,
)

_WORK: dict[str, Rule] = {
    **each_of(
        total, "push_requests", "push_messages", "pop_requests", "pop_messages", "pop_empty", "ack_requests",
        "ack_success", "ack_failed", "dead_letters", "transactions", "lag_ms_sum",
    ),
    **each_of(largest, "lag_ms_max", "parked"),
}  # fmt: skip
_WORKER: dict[str, Rule] = {
    "loop_lag_ms": mean_by("samples"),
    **each_of(total, "jobs", "db_errors", "pool_size", "pool_idle", "queued", "pool_idle_avg", "queued_avg"),
    **each_of(
        largest, "samples", "loop_lag_ms_max", "cpu_user", "cpu_user_max", "cpu_system", "cpu_system_max", "rss_bytes",
        "rss_bytes_max", "virtual_bytes", "waiting", "last_seen",
    ),
}  # fmt: skip
#: The connections and calls among what ``queen.core.metrics.Levels`` lists.
_OF_EACH_DATABASE = frozenset(range(4, 8))


def _levels(rows: Sequence[WorkerLevelsRow], name: str) -> list[float]:
    columns = zip(*[getattr(row, name) for row in rows], strict=True)
    return [sum(values) if n in _OF_EACH_DATABASE else max(values) for n, values in enumerate(columns)]


LEVELS: dict[str, Rule] = {"seconds": largest, **each_of(_levels, "averages", "lows", "highs", "lasts")}
_RETENTION = each_of(total, "retention_messages", "completed_retention_messages", "eviction_messages", "events")
_OUTBOX: dict[str, Rule] = {
    **each_of(total, "messages", "held_partitions"),
    **each_of(largest, "oldest_s", "held_s"),
}
_TIMERS: dict[str, Rule] = {"overdue": total, "oldest_s": largest}
_QUEUE: dict[str, Rule] = {
    **each_of(total, "partitions", "messages", "pending", "leased", "dead_letters"),
    "paused": any_of,
}
_GROUP: dict[str, Rule] = {**each_of(total, "lag", "leases", "leased"), "lag_s": largest, "paused": any_of}


def clock_of_all(states: Sequence[ClockState]) -> ClockState:
    """The steps of all clocks; the last one of them."""
    stepped = [state for state in states if state.last_step_at is not None]
    last = max(stepped, key=lambda state: state.last_step_at or 0, default=ClockState())
    return ClockState(
        sum(state.steps for state in states), last.last_step_s, last.last_step_at,
        max(state.distrusted_s for state in states), any(state.repairing for state in states),
    )  # fmt: skip


def log_of_all(parts: Sequence[LogStatistics], queues_max: int, groups_max: int) -> LogStatistics:
    """Statistics of queues and groups.

    Of more queues than have figures of their own, those of the database with the most are counted.
    """
    queues = combined([part.of_queues for part in parts], ["queue"], _QUEUE)
    groups = combined([part.of_groups for part in parts], ["queue", "group"], _GROUP)
    return LogStatistics(
        max(len(queues), *[part.queues for part in parts]),
        max(len(groups), *[part.groups for part in parts]),
        max(part.oldest_s for part in parts),
        largest(parts, "statistics_age_s"),
        queues[:queues_max],
        groups[:groups_max],
    )


def names_in_turn(parts: Iterable[Sequence[str]]) -> list[str]:
    """The names of all lists: the first of each, then the second of each, and so on."""
    return list(dict.fromkeys(name for place in zip_longest(*parts) for name in place if name is not None))


def busiest_first(rows: Iterable[QueueMetricsRow]) -> list[str]:
    """The names of queues, by the number of their messages."""
    found = in_order(
        rows,
        (lambda row: row.push_messages + row.pop_messages + row.ack_success + row.ack_failed, True),
        (lambda row: row.queue, False),
    )
    return [row.queue or "" for row in found]


class StatisticsOfAll:
    """Implements ``queen.engine.administration.StatisticsReads``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def queues(self, period: Period, minutes: int, wanted: QueueFilter, apart: GroupBy) -> list[QueueMetricsRow]:
        """The counts of queues, newest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.statistics.queues(period, minutes, wanted, apart)
        )
        found = combined(parts, ["bucket", "queue", "worker"], _WORK)
        names = in_order(found, (lambda row: row.queue or "", False), (lambda row: row.worker or "", False))
        return in_order(names, (lambda row: row.bucket, True)) if apart.bucket else names

    async def busiest(self, period: Period, queues: Sequence[str] | None, limit: int, offset: int) -> Found:
        """A page of the active queues: of those that are among the busiest on some database."""
        found = await self._context.everywhere(
            lambda each: each.administration.statistics.busiest(period, queues, ROWS_MAX, 0)
        )
        number = len({name for part in found for name in part.names})
        candidates = list(dict.fromkeys(name for part in found for name in part.names[: limit + offset]))
        minutes = int((period.end - period.begin).total_seconds()) // 60 + 1
        rows = await self.queues(period, minutes, QueueFilter(names=candidates), GroupBy(bucket=False, queue=True))
        return Found(number, busiest_first(rows)[offset : offset + limit])

    async def parked(
        self, period: Period, minutes: int, queues: Sequence[str] | None, limit: int, offset: int
    ) -> list[ParkedRow]:
        """The most long polls that waited at once, newest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.statistics.parked(period, minutes, queues, limit + offset, 0)
        )
        found = combined(parts, ["bucket", "queue", "worker"], {"parked": largest})
        rows = in_order(
            found, (lambda row: row.bucket, True), (lambda row: row.queue, False), (lambda row: row.worker, False)
        )
        return cut(rows, limit, offset)

    async def workers(
        self, period: Period, minutes: int, wanted: WorkerFilter, apart: GroupBy
    ) -> list[WorkerMetricsRow]:
        """The state of workers, newest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.statistics.workers(period, minutes, wanted, apart)
        )
        found = combined(parts, ["bucket", "hostname", "worker_id"], _WORKER)
        names = in_order(found, (lambda row: row.hostname or "", False), (lambda row: row.worker_id or 0, False))
        return in_order(names, (lambda row: row.bucket, True)) if apart.bucket else names

    async def worker_levels(self, period: Period, minutes: int, workers: Sequence[str]) -> list[WorkerLevelsRow]:
        """What workers measured once a second, newest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.statistics.worker_levels(period, minutes, workers)
        )
        return in_order(
            combined(parts, ["bucket", "hostname", "worker_id"], LEVELS),
            (lambda row: row.bucket, True),
            (lambda row: row.hostname, False),
            (lambda row: row.worker_id, False),
        )

    async def find_workers(self, period: Period, wanted: WorkerFilter, limit: int, offset: int) -> Found:
        """A page of the workers, the last seen first, as far as the databases agree about that."""
        found = await self._context.everywhere(
            lambda each: each.administration.statistics.find_workers(period, wanted, ROWS_MAX, 0)
        )
        names = names_in_turn([part.names for part in found])
        return Found(len(names), names[offset : offset + limit])

    async def retention(self, period: Period, minutes: int) -> list[RetentionRow]:
        """What was removed, newest first."""
        parts = await self._context.everywhere(lambda each: each.administration.statistics.retention(period, minutes))
        return in_order(combined(parts, ["bucket"], _RETENTION), (lambda row: row.bucket, True))

    async def clock(self) -> ClockState:
        """The steps of all clocks."""
        return clock_of_all(await self._context.everywhere(lambda each: each.administration.statistics.clock()))

    async def outbox(self) -> OutboxState:
        """What waits in the outboxes."""
        return as_one(await self._context.everywhere(lambda each: each.administration.statistics.outbox()), _OUTBOX)

    async def timers(self) -> TimersState:
        """The timers that are late."""
        return as_one(await self._context.everywhere(lambda each: each.administration.statistics.timers()), _TIMERS)

    async def log(self, queues_max: int, groups_max: int) -> LogStatistics:
        """Statistics of queues and groups."""
        parts = await self._context.everywhere(lambda each: each.administration.statistics.log(queues_max, groups_max))
        return log_of_all(parts, queues_max, groups_max)
