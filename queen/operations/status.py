"""Shows the activity of all queues in a time range: ``GET /api/v1/status``."""

from collections.abc import Sequence

import falcon.asgi
from msgspec import Struct

from queen.core.administration import (
    GroupBy,
    GroupsSummary,
    Period,
    QueueFilter,
    QueueMetricsRow,
    QueuesSummary,
    UsedQueueRow,
    WorkerFilter,
    WorkerMetricsRow,
)
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.queries import Pagination
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, time_range
from queen.operations.live_workers import WorkerElement, live_workers
from queen.operations.queue_rows import summary_age
from queen.operations.server import Server
from queen.operations.throughput import ThroughputPoint, throughput


class StatusQueue(Struct, rename="camel"):
    """A queue that has or had messages."""

    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    total_consumed: int


class PerOperation(Struct):
    """One value per operation: push, pop, ack."""

    push: float
    pop: float
    ack: float


class StatusMessages(Struct, rename="camel"):
    """Message counts by state, requests in the time range, and messages per request."""

    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int
    requests: PerOperation
    batch_efficiency: PerOperation


class Leases(Struct, rename="camel"):
    """Live leases: leased cursors and messages in flight; ``totalAcked``: messages that groups have acknowledged."""

    active: int
    partitions_with_leases: int
    total_batch_size: int
    total_acked: int


class TopError(Struct):
    """An error text, and the number of newest dead letters with it."""

    error: str
    count: int


class DeadLetterSummary(Struct, rename="camel"):
    """Dead letters; partitions and errors are those of the newest 1000."""

    total_messages: int
    affected_partitions: int
    top_errors: list[TopError]


class Errors(Struct, rename="camel"):
    """Errors in the time range."""

    db_errors: int
    ack_failed: int
    dlq_messages: int


class StatusAnswer(Struct, rename="camel"):
    """Activity of all queues in a time range, with a page of queues."""

    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    throughput: list[ThroughputPoint]
    queues: list[StatusQueue]
    messages: StatusMessages
    leases: Leases
    dead_letter_queue: DeadLetterSummary
    workers: list[WorkerElement]
    errors: Errors
    pagination: Pagination
    stats_age: int


class _Seen(Struct, frozen=True):
    """The inputs of the status."""

    queues: Sequence[UsedQueueRow]
    summary: QueuesSummary
    groups: GroupsSummary
    series: Sequence[QueueMetricsRow]
    machines: Sequence[WorkerMetricsRow]
    total: Sequence[QueueMetricsRow]
    workers: list[WorkerElement]
    dead: DeadLetterSummary


def _ratio(messages: int, requests: int) -> float:
    return round(messages / requests, 2) if requests else 0


def _messages(seen: _Seen) -> StatusMessages:
    total = seen.summary
    work = seen.total[0] if seen.total else None
    requests = PerOperation(work.push_requests, work.pop_requests, work.ack_requests) if work else PerOperation(0, 0, 0)
    efficiency = (
        PerOperation(
            _ratio(work.push_messages, work.push_requests),
            _ratio(work.pop_messages, work.pop_requests - work.pop_empty),
            _ratio(work.ack_success + work.ack_failed, work.ack_requests),
        )
        if work
        else PerOperation(0, 0, 0)
    )
    return StatusMessages(
        total.total, total.pending, total.processing, total.completed, total.failed, total.dead_letter, requests,
        efficiency,
    )  # fmt: skip


def _status(seen: _Seen, period: Period, page: Pagination) -> StatusAnswer:
    minutes = period.bucket_minutes
    points = throughput(seen.series, seen.machines, minutes)
    work = seen.total[0] if seen.total else None
    return StatusAnswer(
        time_range=time_range(period),
        bucket_minutes=minutes,
        point_count=len(points),
        throughput=points,
        queues=[
            StatusQueue(ids.queue_id(row.queue_id), row.name, row.namespace, row.task, row.partitions, row.consumed)
            for row in seen.queues
        ],
        messages=_messages(seen),
        leases=Leases(
            seen.groups.leases, seen.groups.leases, seen.groups.leased_messages, seen.groups.consumed
        ),
        dead_letter_queue=seen.dead,
        workers=seen.workers,
        errors=Errors(
            sum(row.db_errors for row in seen.machines),
            work.ack_failed if work else 0,
            work.dead_letters if work else 0,
        ),
        pagination=page,
        stats_age=summary_age(seen.summary),
    )  # fmt: skip


async def _look(context: Context, wanted: QueueFilter, period: Period, page: Pagination) -> _Seen:
    await answers.refresh(context)
    await answers.record(context)
    reads, minutes = context.reads, period.bucket_minutes
    summary = await reads.catalogue.summary(wanted)
    return _Seen(
        queues=await reads.catalogue.used_queues(wanted, page.limit, page.offset),
        summary=summary,
        groups=await reads.consumer_groups.summary(wanted),
        series=await reads.statistics.queues(period, minutes, wanted, GroupBy()),
        machines=await reads.statistics.workers(period, minutes, WorkerFilter(), GroupBy()),
        total=await reads.statistics.queues(period, minutes, wanted, GroupBy(bucket=False)),
        workers=await live_workers(context, wanted),
        dead=await _dead_letters(context, wanted.names[0] if wanted.names else None, summary.dead_letter),
    )


async def _dead_letters(context: Context, queue: str | None, total: int) -> DeadLetterSummary:
    partitions, errors = await context.reads.dead_letters.summarize(queue)
    return DeadLetterSummary(total, partitions, [TopError(error, count) for error, count in errors])


@operation(
    "GET",
    "/api/v1/status",
    "getStatus",
    "Show activity of all queues in a time range",
    access=READ_ONLY,
    answers=[Answer("Throughput of all queues, and a page of queues", StatusAnswer)],
    errors=(400, 503),
    parameters=[
        parameters.QUEUE,
        parameters.NAMESPACE,
        parameters.TASK,
        *parameters.PERIOD,
        *parameters.page(queries.LIMIT),
    ],
)
async def get_status(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Activity in the time range, and current counts."""
    wanted, period = queries.queue_filter(req), queries.period(req, DEFAULT_PERIOD)
    page = queries.page(req, queries.LIMIT)
    answer(resp, _status(await server.ask(lambda context: _look(context, wanted, period, page)), period, page))
