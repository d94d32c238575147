"""Shows the activity of workers: ``GET /api/v1/analytics/worker-metrics``."""

from datetime import UTC, datetime, timedelta

import falcon.asgi
from msgspec import Struct

from queen.core.administration import GroupBy, Period, QueueFilter, QueueMetricsRow, WorkerFilter, WorkerMetricsRow
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.buckets import (
    DEFAULT_PERIOD,
    NO_WORK,
    TimeRange,
    bucket_name,
    per_second,
    side_by_side,
    time_range,
)
from queen.operations.server import Server

_RECENT = timedelta(minutes=5)
#: Maximum of live workers, the last seen.
_WORKERS_MAX = 1000


class WorkerPoint(Struct, rename="camel"):
    """Activity of all workers in a bucket."""

    timestamp: str
    push_messages: int
    pop_messages: int
    ack_messages: int
    push_requests: int
    pop_requests: int
    ack_requests: int
    jobs_done: int
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    avg_free_slots: int
    min_free_slots: int
    db_connections: int
    avg_job_queue_size: int
    max_job_queue_size: int
    backoff_size: int
    avg_lag_ms: float
    max_lag_ms: float
    lag_count: int
    db_errors: int
    ack_success: int
    ack_failed: int
    dlq_count: int


class WorkerState(Struct, rename="camel"):
    """A worker that reported in the last five minutes."""

    hostname: str
    worker_id: int
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    free_slots: int
    db_connections: int
    job_queue_size: int
    backoff_size: int
    messages_processed: int
    last_seen: str


class QueueLag(Struct, rename="camel"):
    """Age of messages of a queue at delivery."""

    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: float


class WorkerSummary(Struct, rename="camel"):
    """Sums over the time range."""

    total_push_messages: int
    total_pop_messages: int
    total_ack_messages: int
    total_push_requests: int
    total_pop_requests: int
    total_ack_requests: int
    total_db_errors: int
    total_ack_failed: int
    total_dlq: int
    pending_messages: int


class WorkerMetricsAnswer(Struct, rename="camel"):
    """Activity of workers in a time range; ``queues`` is a page of the busiest queues."""

    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    time_series: list[WorkerPoint]
    workers: list[WorkerState]
    queues: list[QueueLag]
    summary: WorkerSummary
    pagination: queries.Pagination


def _worker_point(at: datetime, work: QueueMetricsRow, workers: WorkerMetricsRow, minutes: int) -> WorkerPoint:
    acked = work.ack_success + work.ack_failed
    return WorkerPoint(
        timestamp=bucket_name(at),
        push_messages=work.push_messages,
        pop_messages=work.pop_messages,
        ack_messages=acked,
        push_requests=work.push_requests,
        pop_requests=work.pop_requests,
        ack_requests=work.ack_requests,
        jobs_done=workers.jobs,
        push_per_second=per_second(work.push_messages, minutes),
        pop_per_second=per_second(work.pop_messages, minutes),
        ack_per_second=per_second(acked, minutes),
        avg_event_loop_lag_ms=round(workers.loop_lag_ms, 1),
        max_event_loop_lag_ms=round(workers.loop_lag_ms_max, 1),
        avg_free_slots=round(workers.pool_idle_avg),
        min_free_slots=workers.pool_idle,
        db_connections=workers.pool_size,
        avg_job_queue_size=round(workers.queued_avg),
        max_job_queue_size=workers.queued,
        backoff_size=workers.waiting,
        avg_lag_ms=round(work.lag_ms, 1),
        max_lag_ms=round(work.lag_ms_max, 1),
        lag_count=work.pop_messages,
        db_errors=workers.db_errors,
        ack_success=work.ack_success,
        ack_failed=work.ack_failed,
        dlq_count=work.dead_letters,
    )


def _worker_state(row: WorkerMetricsRow, messages: int) -> WorkerState:
    return WorkerState(
        row.hostname or "", row.worker_id or 0, round(row.loop_lag_ms, 1), round(row.loop_lag_ms_max, 1), row.pool_idle,
        row.pool_size, row.queued, row.waiting, messages, text(row.last_seen),
    )  # fmt: skip


def _summary(work: QueueMetricsRow, db_errors: int, pending: int) -> WorkerSummary:
    return WorkerSummary(
        work.push_messages, work.pop_messages, work.ack_success + work.ack_failed, work.push_requests,
        work.pop_requests, work.ack_requests, db_errors, work.ack_failed, work.dead_letters, pending,
    )  # fmt: skip


def _queue_lag(row: QueueMetricsRow) -> QueueLag:
    return QueueLag(row.queue or "", row.pop_messages, round(row.lag_ms, 1), round(row.lag_ms_max, 1))


@operation(
    "GET",
    "/api/v1/analytics/worker-metrics",
    "getWorkerMetrics",
    "Show the activity of workers",
    access=READ_ONLY,
    answers=[Answer("One series over all workers, the live workers, and a page of queues", WorkerMetricsAnswer)],
    errors=(400, 503),
    parameters=[*parameters.PERIOD, parameters.HOSTNAME, parameters.WORKER, *parameters.page(queries.LIMIT)],
)
async def get_worker_metrics(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Newest bucket first; live workers are those of the last five minutes."""
    period = queries.period(req, DEFAULT_PERIOD)
    wanted, page = queries.worker_filter(req), queries.page(req, queries.LIMIT)

    async def look(context: Context) -> WorkerMetricsAnswer:
        await answers.refresh(context)
        await answers.record(context)
        metrics, minutes, now = context.reads.statistics, period.bucket_minutes, datetime.now(UTC)
        everything = QueueFilter()
        machines = await metrics.workers(period, minutes, wanted, GroupBy())
        work = await metrics.queues(period, minutes, everything, GroupBy())
        series = [_worker_point(*each, minutes) for each in side_by_side(work, machines)]
        recent = Period(now - _RECENT, now)
        found = WorkerFilter(names=(await metrics.find_workers(recent, wanted, _WORKERS_MAX, 0)).names)
        alive = await metrics.workers(recent, 5, found, GroupBy(bucket=False, worker=True))
        by_worker = await metrics.queues(recent, 5, everything, GroupBy(bucket=False, worker=True))
        done = {row.worker: row.push_messages + row.pop_messages + row.ack_success for row in by_worker}
        total = await metrics.queues(period, minutes, everything, GroupBy(bucket=False))
        busiest = QueueFilter(names=(await metrics.busiest(period, None, page.limit, page.offset)).names)
        by_queue = await metrics.queues(period, minutes, busiest, GroupBy(bucket=False, queue=True))
        pending = (await context.reads.catalogue.summary()).pending
        return WorkerMetricsAnswer(
            time_range=time_range(period),
            bucket_minutes=minutes,
            point_count=len(series),
            time_series=series,
            workers=[_worker_state(row, done.get(f"{row.hostname}:{row.worker_id}", 0)) for row in alive],
            queues=[_queue_lag(row) for row in by_queue],
            summary=_summary(total[0] if total else NO_WORK, sum(row.db_errors for row in machines), pending),
            pagination=page,
        )

    answer(resp, await server.ask(look))
