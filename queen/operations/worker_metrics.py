"""Shows the activity of workers: ``GET /api/v1/analytics/worker-metrics``."""

from collections.abc import Sequence
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
from queen.operations.buckets import DEFAULT_PERIOD, TimeRange, bucket_name, per_second, time_range
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


def _worker_point(
    at: datetime, minutes: int, work: QueueMetricsRow | None, machine: WorkerMetricsRow | None
) -> WorkerPoint:
    w, m = work, machine
    acked = w.ack_success + w.ack_failed if w else 0
    return WorkerPoint(
        timestamp=bucket_name(at),
        push_messages=w.push_messages if w else 0,
        pop_messages=w.pop_messages if w else 0,
        ack_messages=acked,
        push_requests=w.push_requests if w else 0,
        pop_requests=w.pop_requests if w else 0,
        ack_requests=w.ack_requests if w else 0,
        jobs_done=m.jobs if m else 0,
        push_per_second=per_second(w.push_messages if w else 0, minutes),
        pop_per_second=per_second(w.pop_messages if w else 0, minutes),
        ack_per_second=per_second(acked, minutes),
        avg_event_loop_lag_ms=round(m.loop_lag_ms, 1) if m else 0,
        max_event_loop_lag_ms=round(m.loop_lag_ms_max, 1) if m else 0,
        avg_free_slots=round(m.pool_idle_avg) if m else 0,
        min_free_slots=m.pool_idle if m else 0,
        db_connections=m.pool_size if m else 0,
        avg_job_queue_size=round(m.queued_avg) if m else 0,
        max_job_queue_size=m.queued if m else 0,
        backoff_size=m.waiting if m else 0,
        avg_lag_ms=round(w.lag_ms, 1) if w else 0,
        max_lag_ms=round(w.lag_ms_max, 1) if w else 0,
        lag_count=w.pop_messages if w else 0,
        db_errors=m.db_errors if m else 0,
        ack_success=w.ack_success if w else 0,
        ack_failed=w.ack_failed if w else 0,
        dlq_count=w.dead_letters if w else 0,
    )


def _worker_state(row: WorkerMetricsRow, messages: int) -> WorkerState:
    return WorkerState(
        row.hostname or "", row.worker_id or 0, round(row.loop_lag_ms, 1), round(row.loop_lag_ms_max, 1), row.pool_idle,
        row.pool_size, row.queued, row.waiting, messages, text(row.last_seen),
    )  # fmt: skip


def _summary(work: QueueMetricsRow | None, db_errors: int, pending: int) -> WorkerSummary:
    if work is None:
        return WorkerSummary(0, 0, 0, 0, 0, 0, db_errors, 0, 0, pending)
    return WorkerSummary(
        work.push_messages, work.pop_messages, work.ack_success + work.ack_failed, work.push_requests,
        work.pop_requests, work.ack_requests, db_errors, work.ack_failed, work.dead_letters, pending,
    )  # fmt: skip


def _queue_lag(row: QueueMetricsRow) -> QueueLag:
    return QueueLag(row.queue or "", row.pop_messages, round(row.lag_ms, 1), round(row.lag_ms_max, 1))


def _series(work: Sequence[QueueMetricsRow], machines: Sequence[WorkerMetricsRow], minutes: int) -> list[WorkerPoint]:
    works = {row.bucket: row for row in work if row.bucket is not None}
    others = {row.bucket: row for row in machines if row.bucket is not None}
    buckets = sorted(works.keys() | others.keys(), reverse=True)
    return [_worker_point(at, minutes, works.get(at), others.get(at)) for at in buckets]


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
        metrics, minutes, now = context.administration.statistics, period.bucket_minutes, datetime.now(UTC)
        everything = QueueFilter()
        machines = await metrics.workers(period, minutes, wanted, GroupBy())
        series = _series(await metrics.queues(period, minutes, everything, GroupBy()), machines, minutes)
        recent = Period(now - _RECENT, now)
        found = WorkerFilter(names=(await metrics.find_workers(recent, wanted, _WORKERS_MAX, 0)).names)
        alive = await metrics.workers(recent, 5, found, GroupBy(bucket=False, worker=True))
        by_worker = await metrics.queues(recent, 5, everything, GroupBy(bucket=False, worker=True))
        done = {row.worker: row.push_messages + row.pop_messages + row.ack_success for row in by_worker}
        total = await metrics.queues(period, minutes, everything, GroupBy(bucket=False))
        busiest = QueueFilter(names=(await metrics.busiest(period, None, page.limit, page.offset)).names)
        by_queue = await metrics.queues(period, minutes, busiest, GroupBy(bucket=False, queue=True))
        pending = (await context.administration.catalogue.summary()).pending
        return WorkerMetricsAnswer(
            time_range=time_range(period),
            bucket_minutes=minutes,
            point_count=len(series),
            time_series=series,
            workers=[_worker_state(row, done.get(f"{row.hostname}:{row.worker_id}", 0)) for row in alive],
            queues=[_queue_lag(row) for row in by_queue],
            summary=_summary(total[0] if total else None, sum(row.db_errors for row in machines), pending),
            pagination=page,
        )

    answer(resp, await server.ask(look))
