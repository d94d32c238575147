"""Shows messages removed by retention and eviction: ``GET /api/v1/analytics/retention``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import RetentionRow
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, bucket_name, time_range
from queen.operations.server import Server


class RetentionTotals(Struct, rename="camel"):
    """Removed messages, by rule."""

    retention_msgs: int = 0
    completed_retention_msgs: int = 0
    eviction_msgs: int = 0
    total_msgs: int = 0
    event_count: int = 0


class RetentionPoint(RetentionTotals, rename="camel", kw_only=True):
    """Messages removed in a bucket."""

    bucket: str


class RetentionAnswer(Struct, rename="camel"):
    """Messages removed by retention and eviction in a time range."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[RetentionPoint]
    totals: RetentionTotals


def _retention_point(row: RetentionRow) -> RetentionPoint:
    r = row
    total = r.retention_messages + r.completed_retention_messages + r.eviction_messages
    return RetentionPoint(
        r.retention_messages, r.completed_retention_messages, r.eviction_messages, total, r.events,
        bucket=bucket_name(r.bucket),
    )  # fmt: skip


@operation(
    "GET",
    "/api/v1/analytics/retention",
    "getRetention",
    "Show messages removed by retention",
    access=READ_ONLY,
    answers=[Answer("By bucket, and in total", RetentionAnswer)],
    errors=(400, 503),
    parameters=parameters.PERIOD,
)
async def get_retention(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Newest bucket first."""
    period = queries.period(req, DEFAULT_PERIOD)
    rows = await server.ask(lambda context: context.reads.statistics.retention(period, period.bucket_minutes))
    series = [_retention_point(row) for row in rows]
    totals = RetentionTotals(
        *[sum(getattr(point, field) for point in series) for field in RetentionTotals.__struct_fields__]
    )
    answer(resp, RetentionAnswer(time_range(period), period.bucket_minutes, series, totals))
