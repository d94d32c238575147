"""What all series have in common: their time."""

from datetime import UTC, datetime, timedelta

from queen.http.rendering import timestamp

DEFAULT_PERIOD = timedelta(hours=1)


def bucket_name(at: datetime | None) -> str:
    """The beginning of a bucket, without fractions of a second."""
    return timestamp(at.astimezone(UTC), 0).replace(".Z", "Z") if at is not None else ""
