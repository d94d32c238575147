"""``/api/v1/analytics/…``: series of what workers and queues did."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import falcon
import falcon.asgi
import msgspec
from msgspec import Raw, Struct

from queen.core.administration import (
    Apart,
    MessageFilter,
    Period,
    QueueMetricsRow,
    QueueRow,
    RetentionRow,
    WorkerMetricsRow,
)
from queen.engine.context import Context
from queen.http import answers, queries
from queen.http.answers import Administrative, answer, text
from queen.http.parsing import parse_integer
from queen.http.rendering import timestamp
from queen.http.resources.status import TimeRange, per_second, time_range

_DEFAULT_PERIOD = timedelta(hours=1)
_RECENT = timedelta(minutes=5)
_PID_MAX = 2**31 - 1


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
    """How workers were over a time."""

    time_range: TimeRange
    replicas: list[Replica]
    replica_count: int
    bucket_minutes: int
    point_count: int


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
    """What workers did over a time."""

    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    time_series: list[WorkerPoint]
    workers: list[WorkerState]
    queues: list[QueueLag]
    summary: WorkerSummary


class QueueLagPoint(Struct, rename="camel"):
    """The lag of a queue in a bucket."""

    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: float
    bucket_time: str


class QueueOpsPoint(Struct, rename="camel"):
    """What was done for a queue in a bucket; partitions are those of now."""

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


class QueueOpsAnswer(Struct, rename="camel"):
    """What was done for queues over a time."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[QueueOpsPoint]
    queues: list[str]


class ParkedPoint(Struct, rename="camel"):
    """Most long polls of a queue that waited at once in a worker."""

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
    """Long polls over a time, by worker."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[ParkedPoint]
    replicas: list[WorkerName]


class RetentionTotals(Struct, rename="camel"):
    """Messages that were removed, by rule."""

    retention_msgs: int = 0
    completed_retention_msgs: int = 0
    eviction_msgs: int = 0
    total_msgs: int = 0
    event_count: int = 0


class RetentionPoint(RetentionTotals, rename="camel", kw_only=True):
    """Messages that were removed in a bucket."""

    bucket: str


class RetentionAnswer(Struct, rename="camel"):
    """What retention and eviction removed over a time."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[RetentionPoint]
    totals: RetentionTotals


class PostgresAnswer(Struct, rename="camel"):
    """What PostgreSQL says of itself: see ``queen.postgres_statistics_v1``."""

    timestamp: str
    database: str
    database_cache: dict[str, str | int | float]
    table_cache: list[dict[str, str | int | float]]
    index_cache: list[dict[str, str | int | float]]
    cache_summary: dict[str, dict[str, int | float]]
    dead_tuples: list[dict[str, str | int | float | None]]
    hot_updates: list[dict[str, str | int | float | None]]
    active_queries: list[dict[str, str | int | float | None]]
    autovacuum_status: list[dict[str, str | int | float | None]]
    buffer_config: dict[str, str]
    buffer_usage: list[Raw]
    table_sizes: list[dict[str, str | int]]


_postgres_decoder = msgspec.json.Decoder(PostgresAnswer)


# ---------------------------------------------------------------- rows into answers


def _bucket(at: datetime | None) -> str:
    """The beginning of a bucket, without fractions of a second."""
    return timestamp(at.astimezone(UTC), 0).replace(".Z", "Z") if at is not None else ""


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
    return SystemPoint(_bucket(row.bucket), row.samples, figures)


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
        timestamp=_bucket(at),
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


def _queue_ops_point(row: QueueMetricsRow, minutes: int, partitions: int) -> QueueOpsPoint:
    return QueueOpsPoint(
        bucket=_bucket(row.bucket),
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


def _retention_point(row: RetentionRow) -> RetentionPoint:
    r = row
    total = r.retention_messages + r.completed_retention_messages + r.eviction_messages
    return RetentionPoint(
        r.retention_messages, r.completed_retention_messages, r.eviction_messages, total, r.events,
        bucket=_bucket(r.bucket),
    )  # fmt: skip


# ---------------------------------------------------------------- resources


def _worker(req: falcon.asgi.Request) -> tuple[str | None, int | None]:
    number = parse_integer(req.get_param("workerId"), "workerId", -1, 0, _PID_MAX)
    return queries.name(req, "hostname"), number if number >= 0 else None


class SystemMetricsResource(Administrative):
    """How workers were."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series for each worker, newest bucket first."""
        period = queries.period(req, _DEFAULT_PERIOD)
        hostname, pid = _worker(req)
        rows = await self.ask(
            lambda context: context.administration.metrics.workers(
                period, period.bucket_minutes, hostname, pid, Apart(worker=True)
            )
        )
        replicas = _replicas(rows, req.port)
        points = len({row.bucket for row in rows})
        answer(resp, SystemMetricsAnswer(time_range(period), replicas, len(replicas), period.bucket_minutes, points))


class WorkerMetricsResource(Administrative):
    """What workers did."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """One series over all workers, newest bucket first, and the workers of the last five minutes."""
        period = queries.period(req, _DEFAULT_PERIOD)
        hostname, pid = _worker(req)

        async def look(context: Context) -> WorkerMetricsAnswer:
            await answers.refresh(context)
            await answers.record(context)
            metrics, minutes, now = context.administration.metrics, period.bucket_minutes, datetime.now(UTC)
            everything = MessageFilter()
            machines = await metrics.workers(period, minutes, hostname, pid, Apart())
            series = _series(await metrics.queues(period, minutes, everything, Apart()), machines, minutes)
            recent = Period(now - _RECENT, now)
            alive = await metrics.workers(recent, 5, hostname, pid, Apart(bucket=False, worker=True))
            by_worker = await metrics.queues(recent, 5, everything, Apart(bucket=False, worker=True))
            done = {row.worker: row.push_messages + row.pop_messages + row.ack_success for row in by_worker}
            total = await metrics.queues(period, minutes, everything, Apart(bucket=False))
            by_queue = await metrics.queues(period, minutes, everything, Apart(bucket=False, queue=True))
            pending = sum(row.pending or 0 for row in await context.administration.catalogue.queues())
            return WorkerMetricsAnswer(
                time_range=time_range(period),
                bucket_minutes=minutes,
                point_count=len(series),
                time_series=series,
                workers=[_worker_state(row, done.get(f"{row.hostname}:{row.worker_id}", 0)) for row in alive],
                queues=[_queue_lag(row) for row in by_queue],
                summary=_summary(total[0] if total else None, sum(row.db_errors for row in machines), pending),
            )

        answer(resp, await self.ask(look))


def _series(work: Sequence[QueueMetricsRow], machines: Sequence[WorkerMetricsRow], minutes: int) -> list[WorkerPoint]:
    works = {row.bucket: row for row in work if row.bucket is not None}
    others = {row.bucket: row for row in machines if row.bucket is not None}
    buckets = sorted(works.keys() | others.keys(), reverse=True)
    return [_worker_point(at, minutes, works.get(at), others.get(at)) for at in buckets]


class _QueueSeries(Administrative):
    """A series by queue."""

    async def rows(self, period: Period, queue: str | None, *, worker: bool = False) -> list[QueueMetricsRow]:
        """What was done for queues over a time."""
        apart = Apart(queue=True, worker=worker)

        async def look(context: Context) -> list[QueueMetricsRow]:
            for name, waiting in context.gauges().waiting.items():
                context.meter.parked(name, waiting)
            await answers.record(context)
            return await context.administration.metrics.queues(
                period, period.bucket_minutes, MessageFilter(queue=queue), apart
            )

        return await self.ask(look)


class QueueLagResource(_QueueSeries):
    """How old messages were when they were popped."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """An array, newest bucket first."""
        rows = await self.rows(queries.period(req, _DEFAULT_PERIOD), queries.name(req, "queue"))
        points = [
            QueueLagPoint(
                row.queue or "", row.pop_messages, round(row.lag_ms, 1), round(row.lag_ms_max, 1), _bucket(row.bucket)
            )
            for row in rows
        ]
        answer(resp, points)


class QueueOpsResource(_QueueSeries):
    """What was done for queues."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series, newest bucket first."""
        period, queue = queries.period(req, _DEFAULT_PERIOD), queries.name(req, "queue")
        rows = await self.rows(period, queue)

        async def look(context: Context) -> list[QueueRow]:
            await answers.refresh(context)
            return await context.administration.catalogue.queues(queue=queue)

        partitions = {row.name: row.partitions or 0 for row in await self.ask(look)}
        minutes = period.bucket_minutes
        series = [_queue_ops_point(row, minutes, partitions.get(row.queue or "", 0)) for row in rows]
        names = sorted({row.queue or "" for row in rows})
        answer(resp, QueueOpsAnswer(time_range(period), minutes, series, names))


class ParkedResource(_QueueSeries):
    """Long polls that wait."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series by queue and worker, newest bucket first."""
        period = queries.period(req, _DEFAULT_PERIOD)
        rows = await self.rows(period, queries.name(req, "queue"), worker=True)
        points = []
        for row in rows:
            hostname, _, pid = (row.worker or "").rpartition(":")
            if row.parked:
                points.append(ParkedPoint(_bucket(row.bucket), row.queue or "", hostname, int(pid), row.parked))
        replicas = [WorkerName(*key) for key in sorted({(point.hostname, point.worker_id) for point in points})]
        answer(resp, ParkedAnswer(time_range(period), period.bucket_minutes, points, replicas))


class RetentionResource(Administrative):
    """What retention and eviction removed."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series, newest bucket first."""
        period = queries.period(req, _DEFAULT_PERIOD)
        rows = await self.ask(lambda context: context.administration.metrics.retention(period, period.bucket_minutes))
        series = [_retention_point(row) for row in rows]
        totals = RetentionTotals(
            *[sum(getattr(point, field) for point in series) for field in RetentionTotals.__struct_fields__]
        )
        answer(resp, RetentionAnswer(time_range(period), period.bucket_minutes, series, totals))


class PostgresResource(Administrative):
    """What PostgreSQL says of itself."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Caches, dead rows, sizes and what runs now."""
        found = await self.ask(lambda context: context.administration.metrics.postgres())
        answer(resp, _postgres_decoder.decode(found))
