"""Times of cron expressions with five fields, in a time zone."""

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

#: A time that is older when it is looked at was missed.
MISSED = timedelta(seconds=60)
_FIELDS = 5


@cache
def _zones() -> frozenset[str]:
    """The zones of the package tzdata: every machine has these, whatever its own files are."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


@lru_cache(256)
def _zone(time_zone: str) -> ZoneInfo:
    return ZoneInfo(time_zone)


def problem_of(cron: str, time_zone: str) -> str | None:
    """What is wrong with an expression or its time zone; ``None`` if nothing is."""
    if time_zone not in _zones():
        return f"unknown time zone: {time_zone[:60]!r}"
    if len(cron.split()) != _FIELDS:
        return f"a cron expression has five fields, not {len(cron.split())}"
    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=_zone(time_zone)))
    except CronSimError as problem:
        return f"not a cron expression: {problem}"
    return None


def next_after(cron: str, time_zone: str, after: datetime) -> datetime | None:
    """The first time after a time; ``None`` if there is none within decades."""
    found = next(CronSim(cron, after.astimezone(_zone(time_zone))), None)
    return None if found is None else found.astimezone(UTC)


def due(cron: str, time_zone: str, since: datetime, now: datetime, catch_up: int) -> list[datetime]:
    """The times after ``since`` and up to ``now`` that fire: those that were not missed, and the last missed ones."""
    found: list[datetime] = []
    missed = 0
    # Backwards, so that a year without a server costs no more than what fires.
    for moment in CronSim(cron, (now + timedelta(microseconds=1)).astimezone(_zone(time_zone)), reverse=True):
        at = moment.astimezone(UTC)
        missed += at < now - MISSED
        if at <= since or missed > catch_up:
            break
        found.append(at)
    return found[::-1]
