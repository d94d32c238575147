"""``/api/v1/analytics/system-metrics`` and ``worker-metrics``: how workers were, and what they did."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import falcon
import falcon.asgi
from msgspec import Struct

from queen.core.administration import Apart, Period, QueueFilter, QueueMetricsRow, WorkerFilter, WorkerMetricsRow
from queen.engine.context import Context
from queen.http import answers, queries
from queen.http.answers import Administrative, answer, text
from queen.http.parsing import parse_integer
from queen.http.resources.analytics.buckets import DEFAULT_PERIOD, bucket_name
from queen.http.resources.status import WORKERS_MAX, TimeRange, per_second, time_range

_RECENT = timedelta(minutes=5)
_PID_MAX = 2**31 - 1
#: Points of all workers in an answer without a `limit`: one has about a kibibyte.
_POINTS = 900


class Leaf(Struct):
    """A figure over a bucket."""

    avg: float
    min: float
    max: float
    last: float


class Cpu(Struct):
    """Percent of a core, times 100."""

    user_us: Leaf
    system_us: Leaf


class Memory(Struct):
    """Memory of a worker."""

    rss_bytes: Leaf
    virtual_bytes: Leaf


class DatabasePool(Struct):
    """Connections of a worker."""

    pool_size: Leaf
    pool_idle: Leaf
    pool_active: Leaf


class ThreadPool(Struct):
    """Jobs that wait for a call of the database."""

    pool_size: Leaf
    queue_size: Leaf


class ThreadPools(Struct):
    """The engine is one thread: ``db`` are its calls, ``system`` the thread itself."""

    db: ThreadPool
    system: ThreadPool


class Registries(Struct):
    """Requests that wait for an answer: parked long polls."""

    response: Leaf


class SystemFigures(Struct):
    """How a worker was in a bucket."""

    cpu: Cpu
    memory: Memory
    database: DatabasePool
    threadpool: ThreadPools
    registries: Registries
    shared_state: dict[str, Leaf]


class SystemPoint(Struct, rename="camel"):
    """A bucket of a worker."""

    timestamp: str
    sample_count: int
    metrics: SystemFigures


class Replica(Struct, rename="camel"):
    """A worker with its series; all workers of a host share its port."""

    hostname: str
    port: int
    worker_id: int
    time_series: list[SystemPoint]


class SystemMetricsAnswer(Struct, rename="camel"):
    """How workers were over a time: a page of them, the one seen last first; ``replicaCount`` counts all."""

    time_range: TimeRange
    replicas: list[Replica]
    replica_count: int
    bucket_minutes: int
    point_count: int
    pagination: queries.Pagination


class WorkerPoint(Struct, rename="camel"):
    """What all workers did in a bucket."""

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
    """A worker that has reported within five minutes."""

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
    """How old messages of a queue were when they were popped."""

    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: float


class WorkerSummary(Struct, rename="camel"):
    """Sums over the time."""

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
    """What workers did over a time; ``queues`` are a page of those for which most was done."""

    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    time_series: list[WorkerPoint]
    workers: list[WorkerState]
    queues: list[QueueLag]
    summary: WorkerSummary
    pagination: queries.Pagination


def _level(value: float, low: float | None = None, high: float | None = None) -> Leaf:
    return Leaf(value, value if low is None else low, value if high is None else high, value)


def _system_point(row: WorkerMetricsRow) -> SystemPoint:
    busy = row.pool_size - row.pool_idle
    figures = SystemFigures(
        Cpu(
            _level(round(row.cpu_user * 100), high=round(row.cpu_user_max * 100)),
            _level(round(row.cpu_system * 100), high=round(row.cpu_system_max * 100)),
        ),
        Memory(_level(row.rss_bytes, high=row.rss_bytes_max), _level(row.virtual_bytes)),
        DatabasePool(_level(row.pool_size), _level(row.pool_idle), _level(busy)),
        ThreadPools(ThreadPool(_level(row.pool_size), _level(row.queued)), ThreadPool(_level(1), _level(0))),
        Registries(_level(row.waiting)),
        {},
    )
    return SystemPoint(bucket_name(row.bucket), row.samples, figures)


def _replicas(rows: Sequence[WorkerMetricsRow], port: int) -> list[Replica]:
    replicas: dict[tuple[str, int], Replica] = {}
    for row in rows:
        key = row.hostname or "", row.worker_id or 0
        replicas.setdefault(key, Replica(key[0], port, key[1], [])).time_series.append(_system_point(row))
    return list(replicas.values())


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
        avg_free_slots=m.pool_idle if m else 0,
        min_free_slots=m.pool_idle if m else 0,
        db_connections=m.pool_size if m else 0,
        avg_job_queue_size=m.queued if m else 0,
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


def _worker(req: falcon.asgi.Request) -> WorkerFilter:
    number = parse_integer(req.get_param("workerId"), "workerId", -1, 0, _PID_MAX)
    return WorkerFilter(queries.name(req, "hostname"), number if number >= 0 else None)


class SystemMetricsResource(Administrative):
    """How workers were."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series for each worker, newest bucket first."""
        period = queries.period(req, DEFAULT_PERIOD)
        wanted, page = _worker(req), queries.page_of_series(req, period, _POINTS)

        async def look(context: Context) -> tuple[int, list[WorkerMetricsRow]]:
            metrics = context.administration.metrics
            found = await metrics.find_workers(period, wanted, page.limit, page.offset)
            chosen = WorkerFilter(names=found.names)
            return found.total, await metrics.workers(period, period.bucket_minutes, chosen, Apart(worker=True))

        total, rows = await self.ask(look)
        replicas, points = _replicas(rows, req.port), len({row.bucket for row in rows})
        answer(resp, SystemMetricsAnswer(time_range(period), replicas, total, period.bucket_minutes, points, page))


class WorkerMetricsResource(Administrative):
    """What workers did."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """One series over all workers, newest bucket first, and the workers of the last five minutes."""
        period = queries.period(req, DEFAULT_PERIOD)
        wanted, page = _worker(req), queries.page(req, queries.LIMIT)

        async def look(context: Context) -> WorkerMetricsAnswer:
            await answers.refresh(context)
            await answers.record(context)
            metrics, minutes, now = context.administration.metrics, period.bucket_minutes, datetime.now(UTC)
            everything = QueueFilter()
            machines = await metrics.workers(period, minutes, wanted, Apart())
            series = _series(await metrics.queues(period, minutes, everything, Apart()), machines, minutes)
            recent = Period(now - _RECENT, now)
            found = WorkerFilter(names=(await metrics.find_workers(recent, wanted, WORKERS_MAX, 0)).names)
            alive = await metrics.workers(recent, 5, found, Apart(bucket=False, worker=True))
            by_worker = await metrics.queues(recent, 5, everything, Apart(bucket=False, worker=True))
            done = {row.worker: row.push_messages + row.pop_messages + row.ack_success for row in by_worker}
            total = await metrics.queues(period, minutes, everything, Apart(bucket=False))
            busiest = QueueFilter(names=(await metrics.busiest(period, None, page.limit, page.offset)).names)
            by_queue = await metrics.queues(period, minutes, busiest, Apart(bucket=False, queue=True))
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

        answer(resp, await self.ask(look))


def _series(work: Sequence[QueueMetricsRow], machines: Sequence[WorkerMetricsRow], minutes: int) -> list[WorkerPoint]:
    works = {row.bucket: row for row in work if row.bucket is not None}
    others = {row.bucket: row for row in machines if row.bucket is not None}
    buckets = sorted(works.keys() | others.keys(), reverse=True)
    return [_worker_point(at, minutes, works.get(at), others.get(at)) for at in buckets]
