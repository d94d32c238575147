"""The procedures of the background services."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from queen.db.administration import PURGE_STEP
from queen.db.pool import Pool
from queen.services.ports import Page, Place, State, Step


class MaintenanceStore:
    """Implements ``queen.services.ports.Maintenance``, over a pool of its own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def lead(self, holder: UUID, seconds: float) -> bool:
        """Makes or keeps a worker the one that runs the services; whether it is."""
        [row] = await self._pool.fetch("SELECT queen.lead_services_v1($1, $2) AS led", holder, seconds)
        return bool(row["led"])

    async def resign(self, holder: UUID) -> None:
        """Ends the leadership of a worker."""
        await self._pool.fetch("SELECT queen.resign_services_v1($1)", holder)

    async def find_queues(self, service: str) -> list[int]:
        """The queues in which a service may find work."""
        rows = await self._pool.fetch("SELECT * FROM queen.find_serviced_queues_v1($1) AS q (id)", service)
        return [row["id"] for row in rows]

    async def find_expired(self, queue_id: int, after: str, limit: int) -> Page:
        """The next partitions in which retention has something to do."""
        return _page(await self._pool.fetch("SELECT * FROM queen.find_expired_v1($1, $2, $3)", queue_id, after, limit))

    async def remove_expired(self, queue_id: int, places: Sequence[Place], messages: int, wait: bool) -> list[Step]:
        """Removes about so many messages whose time is over, whole segments at a time."""
        part_ids = [place.part_id for place in places]
        rows = await self._pool.fetch(
            "SELECT * FROM queen.remove_expired_v1($1, $2, $3, $4, $5)",
            queue_id, part_ids, [place.empty_upto for place in places], messages, wait,
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
        """The next partitions in which messages have waited too long."""
        return _page(await self._pool.fetch("SELECT * FROM queen.find_overdue_v1($1, $2, $3)", queue_id, after, limit))

    async def evict_overdue(self, queue_id: int, places: Sequence[Place], messages: int, wait: bool) -> list[Step]:
        """Gives up messages that have waited too long."""
        rows = await self._pool.fetch(
            "SELECT * FROM queen.evict_overdue_v1($1, $2, $3, $4)",
            queue_id, [place.part_id for place in places], messages, wait,
        )  # fmt: skip
        return [Step(Place(row["part_id"]), row["messages"], State(row["state"])) for row in rows]

    async def find_idle(self, queue_id: int, after: str, limit: int, idle: timedelta) -> Page:
        """The next partitions that are empty and have been so for long."""
        rows = await self._pool.fetch(
            "SELECT * FROM queen.find_idle_partitions_v1($1, $2, $3, $4)", queue_id, after, limit, idle
        )
        return _page(rows)

    async def remove_idle(self, queue_id: int, places: Sequence[Place], idle: timedelta) -> list[Step]:
        """Removes partitions that are still empty."""
        rows = await self._pool.fetch(
            "SELECT * FROM queen.remove_idle_partitions_v1($1, $2, $3)",
            queue_id, [place.part_id for place in places], idle,
        )  # fmt: skip
        return [Step(Place(row["part_id"]), int(row["removed"]), State(row["state"])) for row in rows]

    async def purge_partitions(self) -> bool:
        """Removes a page of what deleted queues have held; whether there is more."""
        [row] = await self._pool.fetch("SELECT queen.purge_partitions_v1($1) AS more", PURGE_STEP)
        return bool(row["more"])

    async def forget_fenced_flushes(self) -> None:
        """Forgets flushes that were sent again long ago."""
        await self._pool.fetch("SELECT queen.forget_fenced_flushes_v1()")


def _page(rows: Sequence[Any]) -> Page:
    return Page(rows[0]["last_name"], rows[0]["part_ids"] or ())
