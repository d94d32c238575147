"""Time ranges, and the buckets of series."""

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from queen.core.administration import Period
from queen.http.answers import text
from queen.http.rendering import timestamp

DEFAULT_PERIOD = timedelta(hours=1)


class TimeRange(Struct, rename={"begin": "from", "end": "to"}):
    """The time range of an answer."""

    begin: str
    end: str


def time_range(period: Period) -> TimeRange:
    """The time range for an answer."""
    return TimeRange(text(period.begin), text(period.end))


def bucket_name(at: datetime | None) -> str:
    """The start of a bucket, without fractions of a second."""
    return timestamp(at.astimezone(UTC), 0).replace(".Z", "Z") if at is not None else ""


def per_second(number: float, minutes: int) -> float:
    """A rate over a bucket."""
    return round(number / (60 * minutes), 3)
