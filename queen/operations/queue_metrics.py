"""Shows the activity of queues: ``GET /api/v1/analytics/queue-lag`` and ``…/queue-ops``."""

from collections.abc import Mapping, Sequence

import falcon.asgi
from msgspec import Struct

from queen.core.administration import GroupBy, Page, Period, QueueFilter, QueueMetricsRow, QueueOrder
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, bucket_name, per_second, time_range
from queen.operations.parked_pops import record_parked
from queen.operations.server import Server

#: Default limit for points of all queues.
_POINTS = 2500
_PARAMETERS = [
    parameters.QUEUES,
    *parameters.PERIOD,
    *parameters.series(
        f"Maximum of queues, the busiest first; by default as many as give {_POINTS:,} points in the time range, "
        "at most 10,000"
    ),
]


class QueueLagPoint(Struct, rename="camel"):
    """The lag of a queue in a bucket."""

    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: float
    bucket_time: str


class QueueOpsPoint(Struct, rename="camel"):
    """Activity of a queue in a bucket; partitions are the current ones."""

    bucket: str
    queue_name: str
    push_requests: int
    push_messages: int
    pop_messages: int
    pop_empty: int
    ack_requests: int
    ack_success: int
    ack_failed: int
    transactions: int
    partitions_created: int
    partitions_deleted: int
    partition_count: int
    avg_lag_ms: float
    max_lag_ms: float
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    empty_per_second: float
    parked_count: int


class TotalPoint(Struct, rename="camel"):
    """Activity of all queues in a bucket."""

    bucket: str
    push_messages: int
    pop_messages: int
    ack_success: int
    ack_failed: int


class QueueOpsAnswer(Struct, rename="camel"):
    """Activity of queues in a time range: series of a page of queues, the busiest first, and totals of all.

    ``queueCount``: number of active queues.
    """

    time_range: TimeRange
    bucket_minutes: int
    series: list[QueueOpsPoint]
    queues: list[str]
    queue_count: int
    totals: list[TotalPoint]
    pagination: queries.Pagination


def _queue_ops_point(row: QueueMetricsRow, minutes: int, partitions: int) -> QueueOpsPoint:
    return QueueOpsPoint(
        bucket=bucket_name(row.bucket),
        queue_name=row.queue or "",
        push_requests=row.push_requests,
        push_messages=row.push_messages,
        pop_messages=row.pop_messages,
        pop_empty=row.pop_empty,
        ack_requests=row.ack_requests,
        ack_success=row.ack_success,
        ack_failed=row.ack_failed,
        transactions=row.transactions,
        partitions_created=0,
        partitions_deleted=0,
        partition_count=partitions,
        avg_lag_ms=round(row.lag_ms, 1),
        max_lag_ms=round(row.lag_ms_max, 1),
        push_per_second=per_second(row.push_messages, minutes),
        pop_per_second=per_second(row.pop_messages, minutes),
        ack_per_second=per_second(row.ack_success + row.ack_failed, minutes),
        empty_per_second=per_second(row.pop_empty, minutes),
        parked_count=row.parked,
    )


def _total_point(row: QueueMetricsRow) -> TotalPoint:
    return TotalPoint(
        bucket_name(row.bucket), row.push_messages, row.pop_messages, row.ack_success, row.ack_failed
    )  # fmt: skip


class _Series(Struct, frozen=True):
    """Series of a page of queues; ``partitions`` by queue."""

    total: int
    rows: Sequence[QueueMetricsRow]
    totals: Sequence[QueueMetricsRow]
    partitions: Mapping[str, int]


async def _busiest(
    context: Context, period: Period, queues: Sequence[str] | None, page: queries.Pagination
) -> tuple[int, QueueFilter, list[QueueMetricsRow]]:
    """The number of active queues, a page of them, and their series."""
    await record_parked(context)
    metrics = context.reads.statistics
    found = await metrics.busiest(period, queues, page.limit, page.offset)
    chosen = QueueFilter(names=found.names)
    return found.total, chosen, await metrics.queues(period, period.bucket_minutes, chosen, GroupBy(queue=True))


@operation(
    "GET",
    "/api/v1/analytics/queue-lag",
    "getQueueLag",
    "Show the age of messages at delivery",
    access=READ_ONLY,
    answers=[Answer("By queue and bucket, for the busiest queues", list[QueueLagPoint])],
    errors=(400, 503),
    parameters=_PARAMETERS,
)
async def get_queue_lag(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Newest bucket first."""
    period, queues = queries.period(req, DEFAULT_PERIOD), queries.names(req, "queue")
    page = queries.page_of_series(req, period, _POINTS)
    _, _, rows = await server.ask(lambda context: _busiest(context, period, queues, page))
    points = [
        QueueLagPoint(
            row.queue or "",
            row.pop_messages,
            round(row.lag_ms, 1),
            round(row.lag_ms_max, 1),
            bucket_name(row.bucket),
        )
        for row in rows
    ]
    answer(resp, points)


@operation(
    "GET",
    "/api/v1/analytics/queue-ops",
    "getQueueOperations",
    "Show the activity of queues",
    access=READ_ONLY,
    answers=[Answer("By queue and bucket for the busiest queues, and totals of all", QueueOpsAnswer)],
    errors=(400, 503),
    parameters=_PARAMETERS,
)
async def get_queue_operations(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Newest bucket first."""
    period, queues = queries.period(req, DEFAULT_PERIOD), queries.names(req, "queue")
    page = queries.page_of_series(req, period, _POINTS)

    async def look(context: Context) -> _Series:
        total, chosen, rows = await _busiest(context, period, queues, page)
        await answers.refresh(context)
        reads, minutes = context.reads, period.bucket_minutes
        known = await reads.catalogue.queues(chosen, Page(QueueOrder.NEWEST, page.limit))
        totals = await reads.statistics.queues(period, minutes, QueueFilter(names=queues), GroupBy())
        return _Series(total, rows, totals, {row.name: row.partitions or 0 for row in known})

    seen, minutes = await server.ask(look), period.bucket_minutes
    series = [_queue_ops_point(row, minutes, seen.partitions.get(row.queue or "", 0)) for row in seen.rows]
    names = sorted({row.queue or "" for row in seen.rows})
    totals = [_total_point(row) for row in seen.totals]
    answer(resp, QueueOpsAnswer(time_range(period), minutes, series, names, seen.total, totals, page))
