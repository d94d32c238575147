"""The procedures of the background jobs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from queen.jobs.clock import Bounded, boot, seconds_since_boot
from queen.jobs.ports import ClockStep, Page, Place, State, Step
from queen.postgres.administration import PURGE_STEP
from queen.postgres.pool import Pool

#: Maximum per step of a repair: partitions, and segments or messages.
_REPAIRED = 500, 1000


class MaintenanceStore:
    """Implements ``queen.jobs.ports.Maintenance``, over a pool of its own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._boot = boot()
        self._bounded = Bounded()

    @property
    def not_after(self) -> datetime | None:
        """An upper bound of PostgreSQL's clock; ``None`` before its first check."""
        return self._bounded.at(seconds_since_boot())

    async def look_at_clock(self, holder: UUID) -> ClockStep:
        """Compares PostgreSQL's clock with this machine's, and stores the result, if the worker leads."""
        began = seconds_since_boot()
        [seen] = await self._pool.fetch("SELECT queen.clock() AS at")
        ended = seconds_since_boot()
        [row] = await self._pool.fetch(
            "SELECT * FROM queen.note_clock_v1($1, $2, $3, $4, $5)", holder, self._boot, began, ended, seen["at"]
        )
        if row["step"] is None:
            return ClockStep(0, False)
        # Only after the step is stored: what is removed meanwhile is still judged by the previous check.
        self._bounded.learn(seen["at"], ended)
        return ClockStep(row["step"], row["repairs"])

    async def repair_times(self) -> bool:
        """Does the next step of a repair; whether there is more to do."""
        [row] = await self._pool.fetch("SELECT queen.repair_times_v1($1, $2) AS more", *_REPAIRED)
        return bool(row["more"])

    async def lead(self, holder: UUID, seconds: float) -> bool:
        """Makes a worker the leader of the background jobs, or keeps it; whether it leads."""
        [row] = await self._pool.fetch("SELECT queen.lead_services_v1($1, $2) AS led", holder, seconds)
        return bool(row["led"])

    async def resign(self, holder: UUID) -> None:
        """Ends the leadership of a worker."""
        await self._pool.fetch("SELECT queen.resign_services_v1($1)", holder)

    async def find_queues(self, service: str) -> list[int]:
        """The queues in which a job may find work."""
        rows = await self._pool.fetch("SELECT * FROM queen.find_serviced_queues_v1($1) AS q (id)", service)
        return [row["id"] for row in rows]

    async def find_expired(self, queue_id: int, after: str, limit: int) -> Page:
        """The next partitions in which retention has work."""
        return await self._find("SELECT * FROM queen.find_expired_v1($1, $2, $3, $4)", queue_id, after, limit)

    async def remove_expired(self, queue_id: int, places: Sequence[Place], messages: int, wait: bool) -> list[Step]:
        """Removes about this many expired messages."""
        part_ids = [place.part_id for place in places]
        rows = await self._pool.fetch(
            "SELECT * FROM queen.remove_expired_v1($1, $2, $3, $4, $5, $6)",
            queue_id, part_ids, [place.empty_upto for place in places], messages, wait, self.not_after,
        )  # fmt: skip
        known = {place.part_id: place.empty_upto for place in places}
        return [
            Step(
                Place(row["part_id"], known[row["part_id"]] if row["upto"] is None else row["upto"]),
                row["messages"],
                State(row["state"]),
            )
            for row in rows
        ]

    async def find_overdue(self, queue_id: int, after: str, limit: int) -> Page:
        """The next partitions with messages that have waited too long."""
        return await self._find("SELECT * FROM queen.find_overdue_v1($1, $2, $3, $4)", queue_id, after, limit)

    async def evict_overdue(self, queue_id: int, places: Sequence[Place], messages: int, wait: bool) -> list[Step]:
        """Evicts messages that have waited too long."""
        rows = await self._pool.fetch(
            "SELECT * FROM queen.evict_overdue_v1($1, $2, $3, $4, $5)",
            queue_id, [place.part_id for place in places], messages, wait, self.not_after,
        )  # fmt: skip
        return [Step(Place(row["part_id"]), row["messages"], State(row["state"])) for row in rows]

    async def find_idle(self, queue_id: int, after: str, limit: int, idle: timedelta) -> Page:
        """The next partitions that have been empty for long."""
        return await self._find(
            "SELECT * FROM queen.find_idle_partitions_v1($1, $2, $3, $4, $5)", queue_id, after, limit, idle
        )

    async def remove_idle(self, queue_id: int, places: Sequence[Place], idle: timedelta) -> list[Step]:
        """Removes partitions that are still empty."""
        rows = await self._pool.fetch(
            "SELECT * FROM queen.remove_idle_partitions_v1($1, $2, $3, $4)",
            queue_id, [place.part_id for place in places], idle, self.not_after,
        )  # fmt: skip
        return [Step(Place(row["part_id"]), int(row["removed"]), State(row["state"])) for row in rows]

    async def purge_partitions(self) -> bool:
        """Removes a page of the data of deleted queues; whether there is more."""
        [row] = await self._pool.fetch("SELECT queen.purge_partitions_v1($1) AS more", PURGE_STEP)
        return bool(row["more"])

    async def count_backlog(self) -> bool:
        """Counts the backlog of one queue that is waiting for a count; whether there was one."""
        [row] = await self._pool.fetch("SELECT queen.count_backlog_v1() AS counted")
        return bool(row["counted"])

    async def forget_fenced_flushes(self) -> None:
        """Deletes the records of calls that were sent again long ago."""
        await self._pool.fetch("SELECT queen.forget_fenced_flushes_v1($1)", self.not_after)

    async def _find(self, question: str, *arguments: object) -> Page:
        [row] = await self._pool.fetch(question, *arguments, self.not_after)
        return Page(row["last_name"], row["part_ids"] or ())
