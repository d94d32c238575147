"""Time ranges, and the buckets of series."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from queen.core.administration import Period, QueueMetricsRow, WorkerMetricsRow
from queen.http.answers import text
from queen.http.rendering import timestamp

DEFAULT_PERIOD = timedelta(hours=1)
#: The rows of a time without work, and of one without workers.
NO_WORK = QueueMetricsRow(None, None, None, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
_NO_WORKERS = WorkerMetricsRow(
    None, None, None, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, datetime.min.replace(tzinfo=UTC), 0, 0
)


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


def side_by_side(
    work: Sequence[QueueMetricsRow], workers: Sequence[WorkerMetricsRow]
) -> Iterator[tuple[datetime, QueueMetricsRow, WorkerMetricsRow]]:
    """Each bucket that has work or workers, with both; the newest first."""
    works = {row.bucket: row for row in work if row.bucket is not None}
    others = {row.bucket: row for row in workers if row.bucket is not None}
    for at in sorted(works.keys() | others.keys(), reverse=True):
        yield at, works.get(at, NO_WORK), others.get(at, _NO_WORKERS)
