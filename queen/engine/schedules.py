"""Fires cron schedules (``sql/procedures/timers/schedules.sql``): their times become timers that are due."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from queen.core import cron
from queen.core.errors import DatabaseUnavailableError

log = logging.getLogger("queen.timers")

#: The most schedules of one look, and the pause between two looks that found nothing.
_LOOK, _PAUSE_S = 100, 0.25
#: The most messages of a schedule and look; the next look goes on.
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


class Firing(Struct, frozen=True):
    """What a look has found: the times of a schedule that fire, up to when it is done, and when to look again."""

    schedule: DueSchedule
    times: Sequence[datetime]
    upto: datetime
    next_at: datetime | None


class SchedulesDatabase(Protocol):
    """The procedures that fire schedules; they raise what those of ``queen.engine.ports.Database`` raise."""

    async def due(self, limit: int) -> list[DueSchedule]:
        """Schedules to look at now."""

    async def fire(self, firings: Sequence[Firing]) -> int:
        """Makes timers of the times; returns how many schedules fired: not those that were done already or changed."""


async def fire_due(database: SchedulesDatabase) -> int:
    """Fires what is due; returns how many schedules were looked at."""
    firings = [_firing(each) for each in await database.due(_LOOK)]
    if firings:
        try:
            await database.fire(firings)
        except DatabaseUnavailableError:
            raise
        except Exception as problem:  # any: one whose messages are too large must not stop the others
            log.warning("Schedules are fired one by one: %s", problem)
            for each in firings:
                await _fire_alone(database, each)
    return len(firings)


def _firing(schedule: DueSchedule) -> Firing:
    s = schedule
    try:
        times = cron.due(s.cron, s.time_zone, s.last_at, s.now, s.catch_up)
        if len(times) > _TIMES:
            return Firing(s, times[:_TIMES], times[_TIMES - 1], s.now)
        return Firing(s, times, s.now, cron.next_after(s.cron, s.time_zone, s.now))
    except Exception as problem:  # such as a time zone that this machine does not have
        return _postponed(s, problem)


def _postponed(schedule: DueSchedule, problem: Exception) -> Firing:
    log.error(
        "A schedule cannot be fired; it is tried again in a minute: %s", problem,
        extra={"queue": schedule.queue_id, "schedule": schedule.name},
    )  # fmt: skip
    return Firing(schedule, [], schedule.last_at, schedule.now + cron.MISSED)


async def _fire_alone(database: SchedulesDatabase, firing: Firing) -> None:
    try:
        await database.fire([firing])
    except DatabaseUnavailableError:
        raise
    except Exception as problem:  # see above
        await database.fire([_postponed(firing.schedule, problem)])


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
