"""The procedures that move timers into the log, fire cron schedules, and show both."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from queen.core.administration import CronSchedule, ScheduleRow, TimerRow
from queen.engine.ports import Moved, TimerMessage, TimersRead
from queen.engine.schedules import DueSchedule, Firing
from queen.log.append import AppendBatch
from queen.postgres.pool import Pool
from queen.postgres.statement import call
from queen.postgres.store import push_arguments

_READ = call("read_timers_v1", 6)
_MOVE = call("move_timers_v1", 12)
_LIST = call("list_timers_v1", 4)
_SET_SCHEDULE = "SELECT queen.set_schedule_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS made"
_LIST_SCHEDULES = call("list_schedules_v1", 3)
_DELETE_SCHEDULE = "SELECT queen.delete_schedule_v1($1, $2) AS deleted"
_READ_SCHEDULES = call("read_schedules_v1", 1)
_FIRE_SCHEDULES = (
    "SELECT queen.fire_schedules_v1($1, $2, $3, $4, $5, $6, $7, $8,"
    " array_replace($9, NULL, 'infinity'::timestamptz), $10, $11) AS fired"
)
_AS_READ = ("queue_id", "name", "cron", "time_zone", "catch_up", "last_at", "next_at")


class DueTimersStore:
    """Implements ``queen.engine.ports.TimersDatabase`` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def read(
        self,
        since: datetime | None,
        messages: int,
        size: int,
        ahead_s: float,
        held: Sequence[tuple[int, str]],
        limit_s: float | None,
    ) -> TimersRead:
        """The next timers that are due: at most so many, and so many bytes of messages, but one at least.

        Args:
            since: leaves out what is due before this time; ``None``: nothing.
            messages: the most timers.
            size: the most bytes.
            ahead_s: how far it looks for the next timer.
            held: leaves out these partitions, by number of the queue and name.
            limit_s: a time limit of its own.
        """
        *rows, end = await self._pool.fetch(
            _READ,
            since,
            messages,
            size,
            ahead_s,
            [queue_id for queue_id, _ in held],
            [name for _, name in held],
            limit_s=limit_s,
        )
        return TimersRead([_message(row) for row in rows], end["due_in"])

    async def move(self, timers: Sequence[TimerMessage], batch: AppendBatch, limit_s: float | None = None) -> Moved:
        """Moves the timers of a read, laid out in a batch."""
        [row] = await self._pool.fetch(
            _MOVE, [timer.deliver_at for timer in timers], [timer.seq for timer in timers], batch.flush,
            *push_arguments(batch), batch.version, limit_s=limit_s,
        )  # fmt: skip
        return Moved(row["moved"], row["unknown"] or (), row["stale"])


def _message(row: Mapping[str, Any]) -> TimerMessage:
    return TimerMessage(
        row["deliver_at"],
        row["seq"],
        row["queue_id"],
        row["queue"],
        row["partition"],
        row["transaction_id"],
        row["message"].encode(),
    )


class SchedulesStore:
    """Implements ``queen.engine.schedules.SchedulesDatabase`` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def due(self, limit: int) -> list[DueSchedule]:
        """Schedules to look at now."""
        return [DueSchedule(*row) for row in await self._pool.fetch(_READ_SCHEDULES, limit)]

    async def fire(self, firings: Sequence[Firing]) -> int:
        """Makes timers of the times; returns how many schedules fired: not those that were done already or changed."""
        read = [[getattr(each.schedule, name) for each in firings] for name in _AS_READ]
        times = [(number, at) for number, each in enumerate(firings, 1) for at in each.times]
        [row] = await self._pool.fetch(
            _FIRE_SCHEDULES, *read, [each.upto for each in firings], [each.next_at for each in firings],
            [number for number, _ in times], [at for _, at in times],
        )  # fmt: skip
        return int(row["fired"])


class TimerStore:
    """Implements ``queen.engine.administration.Timers``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, queue: str, after: str | None, limit: int) -> list[TimerRow]:
        """Timers of a queue by key, after that of the page before."""
        return [TimerRow(*row) for row in await self._pool.fetch(_LIST, queue, None, after, limit)]

    async def find(self, queue: str, key: str) -> TimerRow | None:
        """The timer of a queue with a key."""
        rows = await self._pool.fetch(_LIST, queue, key, None, 1)
        return TimerRow(*rows[0]) if rows else None

    async def set_schedule(
        self, schedule: CronSchedule, message: bytes, now: datetime, next_at: datetime, version: int
    ) -> bool | None:
        """Sets a cron schedule: whether it is new; ``None``: the push options have changed."""
        s = schedule
        [row] = await self._pool.fetch(
            _SET_SCHEDULE, s.queue, s.name, s.cron, s.time_zone, s.catch_up, s.partition, message.decode(), now,
            next_at, version,
        )  # fmt: skip
        made: bool | None = row["made"]
        return made

    async def schedules(self, queue: str | None, limit: int, offset: int) -> list[ScheduleRow]:
        """Cron schedules of a queue, or of all, by queue and name."""
        return [ScheduleRow(*row) for row in await self._pool.fetch(_LIST_SCHEDULES, queue, limit, offset)]

    async def delete_schedule(self, queue: str, name: str) -> bool:
        """Deletes a cron schedule; false if there is none."""
        [row] = await self._pool.fetch(_DELETE_SCHEDULE, queue, name)
        return bool(row["deleted"])
