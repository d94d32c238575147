"""Times for people."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def utc(microseconds: int) -> str:
    """A time in microseconds since 1970, in UTC; of a year after 9999 the number."""
    if microseconds > _LAST:
        return f"{microseconds} µs after 1970"
    return f"{_EPOCH + timedelta(microseconds=microseconds):%Y-%m-%d %H:%M:%S.%f} UTC"
