"""Fires cron schedules (``sql/procedures/timers/schedules.sql``): their times become timers that are due."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from queen.core import cron

#: The most schedules of one look, and the pause between two looks.
_LOOK, _PAUSE_S = 1000, 0.25


class DueSchedule(Struct, frozen=True):
    """A schedule to look at: its times up to ``last_at`` are done; ``next_at`` is that of the look, at ``now``."""

    queue_id: int
    name: str
    cron: str
    time_zone: str
    catch_up: int
    last_at: datetime
    next_at: datetime
    now: datetime


class SchedulesDatabase(Protocol):
    """The procedures that fire schedules; they raise what those of ``queen.engine.ports.Database`` raise."""

    async def due(self, limit: int) -> list[DueSchedule]:
        """Schedules to look at now."""

    async def fire(self, schedule: DueSchedule, times: list[datetime], next_at: datetime | None) -> bool:
        """Makes timers of the times; false: it was done already, or the schedule was changed."""


async def fire_due(database: SchedulesDatabase) -> int:
    """Fires what is due; returns how many schedules were looked at."""
    due = await database.due(_LOOK)
    for each in due:
        times = cron.due(each.cron, each.time_zone, each.last_at, each.now, each.catch_up)
        await database.fire(each, times, cron.next_after(each.cron, each.time_zone, each.now))
    return len(due)


class Schedules:
    """Fires schedules while this worker leads. Two workers may do it at once: one of them in vain."""

    def __init__(
        self,
        database: SchedulesDatabase,
        leads: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database, self._leads, self._sleep = database, leads, sleep

    async def run(self) -> None:
        """Fires schedules until this worker does not lead any more.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unavailable.
        """
        while self._leads():
            if not await fire_due(self._database):
                await self._sleep(_PAUSE_S)
