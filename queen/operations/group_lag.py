"""Shows the lag of a group over time: ``GET /api/v1/consumer-groups/{consumerGroup}/queues/{queue}/lag``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import GroupLagRow
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, bucket_name, time_range
from queen.operations.consumer_groups import check_group
from queen.operations.queue_rows import check_group_of
from queen.operations.server import Server


class LagPoint(Struct, rename="camel"):
    """The largest lag in a bucket.

    Attributes:
        lag: messages that were not acknowledged.
        oldest_seconds: how long the oldest of them had waited.
    """

    bucket: str
    lag: int
    oldest_seconds: float


class GroupLagAnswer(Struct, rename="camel"):
    """The lag of a group in a time range; a bucket without a lag has no point."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[LagPoint]


@operation(
    "GET",
    "/api/v1/consumer-groups/{consumerGroup}/queues/{queue}/lag",
    "getGroupLag",
    "Show the lag of a group over time",
    access=READ_ONLY,
    answers=[Answer("By bucket, newest first", GroupLagAnswer)],
    errors=(400, 404, 503),
    parameters=[parameters.GROUP_PATH, parameters.QUEUE_PATH, *parameters.PERIOD],
)
async def get_group_lag(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, consumer_group: str, queue: str
) -> None:
    """As the statistics found it, which are computed for the answer if the queue is small."""
    group, name, period = check_group(consumer_group), check_name(queue, "queue"), queries.period(req, DEFAULT_PERIOD)

    async def look(context: Context) -> list[GroupLagRow]:
        await check_group_of(context, name, group)
        await answers.refresh(context)
        return await context.reads.consumer_groups.lag(name, group, period, period.bucket_minutes)

    rows = await server.ask(look)
    points = [LagPoint(bucket_name(row.bucket), row.lag, round(row.oldest_s, 1)) for row in rows]
    answer(resp, GroupLagAnswer(time_range(period), period.bucket_minutes, points))
