"""Fires cron schedules (``sql/procedures/timers/schedules.sql``): their times become timers that are due."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from queen.core import cron
from queen.core.errors import DatabaseUnavailableError

log = logging.getLogger("queen.timers")

#: The most schedules of one look, and the pause between two looks.
_LOOK, _PAUSE_S = 1000, 0.25
#: The most messages of one call; the next look goes on.
_TIMES = 10


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
        try:
            await _fire(database, each)
        except DatabaseUnavailableError:
            raise
        except Exception:  # such as a time zone that this machine does not have
            log.exception(
                "A schedule cannot be fired; it is tried again in a minute",
                extra={"queue": each.queue_id, "schedule": each.name},
            )
            await database.fire(replace(each, now=each.last_at), [], each.now + cron.MISSED)
    return len(due)


async def _fire(database: SchedulesDatabase, schedule: DueSchedule) -> None:
    times = cron.due(schedule.cron, schedule.time_zone, schedule.last_at, schedule.now, schedule.catch_up)
    if len(times) > _TIMES:
        page = times[:_TIMES]
        await database.fire(replace(schedule, now=page[-1]), page, schedule.now)
    else:
        await database.fire(schedule, times, cron.next_after(schedule.cron, schedule.time_zone, schedule.now))


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
