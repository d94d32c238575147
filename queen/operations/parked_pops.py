"""Shows waiting long polls: ``GET /api/v1/analytics/queue-parked-replicas``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import ParkedRow
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, bucket_name, time_range
from queen.operations.server import Server

#: Default limit for points.
_POINTS = 5000


class ParkedPoint(Struct, rename="camel"):
    """Maximum of waiting long polls of a queue in a worker."""

    bucket: str
    queue_name: str
    hostname: str
    worker_id: int
    parked_count: int


class WorkerName(Struct, rename="camel"):
    """A worker."""

    hostname: str
    worker_id: int


class ParkedAnswer(Struct, rename="camel"):
    """Long polls in a time range, by worker: a page of points; ``replicas`` are their workers."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[ParkedPoint]
    replicas: list[WorkerName]
    pagination: queries.Pagination


async def record_parked(context: Context) -> None:
    """Stores the counts of this worker, with the long polls that wait now."""
    for _, each in context.named():
        for name, waiting in each.state().by_queue().items():
            each.counters.parked(name, waiting)
    await answers.record(context)


@operation(
    "GET",
    "/api/v1/analytics/queue-parked-replicas",
    "getParkedPops",
    "Show waiting long polls",
    access=READ_ONLY,
    answers=[Answer("By queue, worker and bucket: a page of points", ParkedAnswer)],
    errors=(400, 503),
    parameters=[parameters.QUEUES, *parameters.PERIOD, *parameters.page(_POINTS)],
)
async def get_parked_pops(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Newest bucket first."""
    period, queues = queries.period(req, DEFAULT_PERIOD), queries.names(req, "queue")
    page = queries.page(req, _POINTS)

    async def look(context: Context) -> list[ParkedRow]:
        await record_parked(context)
        metrics = context.reads.statistics
        return await metrics.parked(period, period.bucket_minutes, queues, page.limit, page.offset)

    points = []
    for row in await server.ask(look):
        hostname, _, pid = row.worker.rpartition(":")
        points.append(ParkedPoint(bucket_name(row.bucket), row.queue, hostname, int(pid), row.parked))
    replicas = [WorkerName(*key) for key in sorted({(point.hostname, point.worker_id) for point in points})]
    answer(resp, ParkedAnswer(time_range(period), period.bucket_minutes, points, replicas, page))
