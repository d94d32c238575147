"""Counts pushed messages over a time range: ``GET /api/v1/status/analytics``."""

from datetime import UTC, datetime, timedelta

import falcon.asgi
from msgspec import Struct

from queen.core.administration import GroupBy, Period, QueueMetricsRow
from queen.core.errors import BadRequestError
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, Parameter, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server

#: Lengths of intervals in minutes.
_INTERVALS = {"minute": 1, "hour": 60, "day": 24 * 60}
_POINTS_MAX = 10_000


class DataPoint(Struct):
    """Messages pushed in one interval."""

    timestamp: str
    messages: int


class AnalyticsAnswer(Struct, rename={"data_points": "dataPoints", "begin": "from", "end": "to"}):
    """Pushed messages in a time range, oldest interval first."""

    data_points: list[DataPoint]
    interval: str
    begin: str
    end: str


def _buckets(period: Period, minutes: int) -> list[datetime]:
    """The start times of all buckets of a range, as ``queen.bucket`` computes them."""
    step = timedelta(minutes=minutes)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    at = epoch + (period.begin - epoch) // step * step
    buckets = []
    while at <= period.end:
        buckets.append(at)
        at += step
    return buckets


@operation(
    "GET",
    "/api/v1/status/analytics",
    "getAnalytics",
    "Count pushed messages over a time range",
    access=READ_ONLY,
    answers=[Answer("Oldest interval first, including intervals without messages", AnalyticsAnswer)],
    errors=(400, 503),
    parameters=[
        Parameter("interval", "Length of an interval; `hour` by default", {"type": "string", "enum": list(_INTERVALS)}),
        parameters.QUEUE,
        parameters.NAMESPACE,
        parameters.TASK,
        Parameter("from", "Start of the time range; by default a day before `to`", parameters.TIME),
        parameters.TO,
    ],
)
async def get_analytics(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The counts include what this worker has not stored yet."""
    interval = req.get_param("interval") or "hour"
    if interval not in _INTERVALS:
        raise BadRequestError(f"interval must be minute, hour or day, not {interval[:40]!r}", "interval")
    minutes = _INTERVALS[interval]
    wanted, period = queries.queue_filter(req), queries.period(req, timedelta(days=1))
    if (period.end - period.begin) / timedelta(minutes=minutes) > _POINTS_MAX:
        raise BadRequestError(
            f"The answer would have more than {_POINTS_MAX} points: choose a longer interval", "interval"
        )

    async def look(context: Context) -> list[QueueMetricsRow]:
        await answers.record(context)
        return await context.reads.statistics.queues(period, minutes, wanted, GroupBy())

    pushed = {row.bucket: row.push_messages for row in await server.ask(look)}
    points = [DataPoint(text(at), pushed.get(at, 0)) for at in _buckets(period, minutes)]
    answer(resp, AnalyticsAnswer(points, interval, text(period.begin), text(period.end)))
