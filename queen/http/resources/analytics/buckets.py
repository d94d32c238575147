"""What all series have in common: their time."""

from datetime import UTC, datetime, timedelta

import falcon.asgi

from queen.core.administration import Period
from queen.http import queries
from queen.http.rendering import timestamp

DEFAULT_PERIOD = timedelta(hours=1)
#: Points that series without a `limit` hold together: less than a mebibyte.
_POINTS = 2500


def page_of_series(req: falcon.asgi.Request, period: Period, points: int = _POINTS) -> queries.Pagination:
    """Which series are wanted: by default as many as make so many points over the time."""
    return queries.page(req, max(points // period.points, 1))


def bucket_name(at: datetime | None) -> str:
    """The beginning of a bucket, without fractions of a second."""
    return timestamp(at.astimezone(UTC), 0).replace(".Z", "Z") if at is not None else ""
