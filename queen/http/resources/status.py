"""``/api/v1/status…``: what happens now and happened lately."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import falcon
import falcon.asgi
from msgspec import Struct

from queen.core import ids
from queen.core.administration import (
    Apart,
    GroupsSummary,
    MessageFilter,
    MessageRow,
    PartitionRow,
    Period,
    QueueFilter,
    QueueMetricsRow,
    QueueOptions,
    QueueOrder,
    QueueRow,
    QueuesSummary,
    UsedQueueRow,
    WorkerFilter,
    WorkerMetricsRow,
)
from queen.core.errors import BadRequestError, NotFoundError
from queen.engine.context import Context
from queen.http import answers, queries
from queen.http.answers import Administrative, answer, stamp, text
from queen.http.parsing import check_name
from queen.http.paths import cut
from queen.http.resources import catalogue
from queen.http.resources.catalogue import MessageCounts, QueueElement, QueueInspector

_ALL_TIME = Period(datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
_RECENT = timedelta(minutes=2)
_DEFAULT_PERIOD = timedelta(hours=1)
INTERVALS = {"minute": 1, "hour": 60, "day": 24 * 60}
_POINTS_MAX = 10_000
#: Workers that an answer about something else holds, those that were seen last.
WORKERS_MAX = 1000


class TimeRange(Struct, rename={"begin": "from", "end": "to"}):
    """The time that an answer is about."""

    begin: str
    end: str


def time_range(period: Period) -> TimeRange:
    """The time as it is answered."""
    return TimeRange(text(period.begin), text(period.end))


class ThroughputPoint(Struct, rename="camel"):
    """What was done in one bucket; ``lag`` is the age of messages when they were popped."""

    timestamp: str
    ingested: int
    processed: int
    pop_messages: int
    ingested_per_second: float
    processed_per_second: float
    pop_per_second: float
    avg_lag_ms: float
    max_lag_ms: float
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    min_free_slots: int
    db_errors: int
    ack_failed: int
    dlq_count: int
    queen_cpu_user_pct: float
    queen_cpu_sys_pct: float
    queen_rss_mb: float
    db_pool_active: int
    db_pool_idle: int
    db_pool_size: int


class StatusQueue(Struct, rename="camel"):
    """A queue that holds or held messages."""

    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    total_consumed: int


class PerOperation(Struct):
    """A figure for each of the three operations."""

    push: float
    pop: float
    ack: float


class StatusMessages(Struct, rename="camel"):
    """Messages by what became of them, requests in the time, and messages a request."""

    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int
    requests: PerOperation
    batch_efficiency: PerOperation


class Leases(Struct, rename="camel"):
    """Live leases: cursors under one, messages under them; ``totalAcked``: messages that groups have done."""

    active: int
    partitions_with_leases: int
    total_batch_size: int
    total_acked: int


class TopError(Struct):
    """An error text and how many of the newest dead letters have it."""

    error: str
    count: int


class DeadLetterSummary(Struct, rename="camel"):
    """Dead letters; partitions and errors are those of the newest 1000."""

    total_messages: int
    affected_partitions: int
    top_errors: list[TopError]


class WorkerElement(Struct, rename="camel"):
    """A worker that has reported within two minutes."""

    hostname: str
    worker_id: int
    avg_event_loop_lag_ms: float
    max_event_loop_lag_ms: float
    free_slots: int
    db_connections: int
    job_queue_size: int
    messages_processed: int


class Errors(Struct, rename="camel"):
    """What went wrong in the time."""

    db_errors: int
    ack_failed: int
    dlq_messages: int


class StatusAnswer(Struct, rename="camel"):
    """The whole installation over a time, with a page of its queues; everything else is of all of them."""

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
    pagination: queries.Pagination
    stats_age: int


class StatusQueueList(Struct, rename="camel"):
    """A page of queues; here ``pending`` includes what is under a live lease. ``total`` counts all that match."""

    queues: list[QueueElement]
    total: int
    pagination: queries.Pagination
    stats_age: int


class StatusConfig(Struct, rename="camel"):
    """Options of a queue."""

    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    max_queue_size: int
    dead_letter_queue: bool


class DetailQueue(Struct, rename="camel"):
    """A queue with its options."""

    id: str
    name: str
    namespace: str
    task: str
    priority: int
    created_at: str
    config: StatusConfig


class DetailCursor(Struct, rename="camel"):
    """How far the slowest group of a partition is; deliveries are not counted by partition."""

    total_consumed: int
    batches_consumed: int


class DetailPartition(Struct, rename="camel"):
    """A partition with its figures."""

    id: str
    name: str
    created_at: str
    messages: MessageCounts
    stats: MessageCounts
    cursor: DetailCursor
    last_activity: str | None
    oldest_message: str | None
    newest_message: str | None


class DetailTotals(Struct, rename="camel"):
    """Figures of a queue, both in a group of their own and flat."""

    messages: MessageCounts
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int


class StatusQueueAnswer(Struct, rename="camel"):
    """A queue with a page of its partitions."""

    queue: DetailQueue
    partitions: list[DetailPartition]
    totals: DetailTotals
    pagination: queries.Pagination
    stats_age: int


class StatusMessage(Struct, rename="camel"):
    """A message of a queue."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    status: str
    created_at: str


class DataPoint(Struct):
    """Messages pushed in one interval."""

    timestamp: str
    messages: int


class AnalyticsAnswer(Struct, rename={"data_points": "dataPoints", "begin": "from", "end": "to"}):
    """Messages pushed over a time, oldest interval first."""

    data_points: list[DataPoint]
    interval: str
    begin: str
    end: str


# ---------------------------------------------------------------- rows into answers


class _Seen(Struct, frozen=True):
    """Everything that the status is made of."""

    queues: Sequence[UsedQueueRow]
    summary: QueuesSummary
    groups: GroupsSummary
    series: Sequence[QueueMetricsRow]
    machines: Sequence[WorkerMetricsRow]
    total: Sequence[QueueMetricsRow]
    workers: Sequence[WorkerMetricsRow]
    worker_work: Sequence[QueueMetricsRow]
    dead: DeadLetterSummary


def per_second(number: float, minutes: int) -> float:
    """A rate over a bucket."""
    return round(number / (60 * minutes), 3)


def _point(
    at: datetime, minutes: int, work: QueueMetricsRow | None, machine: WorkerMetricsRow | None
) -> ThroughputPoint:
    pushed, done, popped = (work.push_messages, work.ack_success, work.pop_messages) if work else (0, 0, 0)
    size, idle = (machine.pool_size, machine.pool_idle) if machine else (0, 0)
    return ThroughputPoint(
        timestamp=text(at),
        ingested=pushed,
        processed=done,
        pop_messages=popped,
        ingested_per_second=per_second(pushed, minutes),
        processed_per_second=per_second(done, minutes),
        pop_per_second=per_second(popped, minutes),
        avg_lag_ms=round(work.lag_ms, 1) if work else 0,
        max_lag_ms=round(work.lag_ms_max, 1) if work else 0,
        avg_event_loop_lag_ms=round(machine.loop_lag_ms, 1) if machine else 0,
        max_event_loop_lag_ms=round(machine.loop_lag_ms_max, 1) if machine else 0,
        min_free_slots=idle,
        db_errors=machine.db_errors if machine else 0,
        ack_failed=work.ack_failed if work else 0,
        dlq_count=work.dead_letters if work else 0,
        queen_cpu_user_pct=round(machine.cpu_user, 1) if machine else 0,
        queen_cpu_sys_pct=round(machine.cpu_system, 1) if machine else 0,
        queen_rss_mb=round(machine.rss_bytes / 2**20, 1) if machine else 0,
        db_pool_active=size - idle,
        db_pool_idle=idle,
        db_pool_size=size,
    )


def _throughput(seen: _Seen, minutes: int) -> list[ThroughputPoint]:
    work = {row.bucket: row for row in seen.series if row.bucket is not None}
    machines = {row.bucket: row for row in seen.machines if row.bucket is not None}
    buckets = sorted(work.keys() | machines.keys(), reverse=True)
    return [_point(at, minutes, work.get(at), machines.get(at)) for at in buckets]


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


def _workers(seen: _Seen) -> list[WorkerElement]:
    done = {row.worker: row.push_messages + row.pop_messages + row.ack_success for row in seen.worker_work}
    return [
        WorkerElement(
            row.hostname or "", row.worker_id or 0, round(row.loop_lag_ms, 1), round(row.loop_lag_ms_max, 1),
            row.pool_idle, row.pool_size, row.queued, done.get(f"{row.hostname}:{row.worker_id}", 0),
        )
        for row in seen.workers
    ]  # fmt: skip


def _status(seen: _Seen, period: Period, page: queries.Pagination) -> StatusAnswer:
    minutes = period.bucket_minutes
    throughput = _throughput(seen, minutes)
    work = seen.total[0] if seen.total else None
    return StatusAnswer(
        time_range=time_range(period),
        bucket_minutes=minutes,
        point_count=len(throughput),
        throughput=throughput,
        queues=[
            StatusQueue(ids.queue_id(row.queue_id), row.name, row.namespace, row.task, row.partitions, row.consumed)
            for row in seen.queues
        ],
        messages=_messages(seen),
        leases=Leases(
            seen.groups.leases, seen.groups.leases, seen.groups.leased_messages, seen.groups.consumed
        ),
        dead_letter_queue=seen.dead,
        workers=_workers(seen),
        errors=Errors(
            sum(row.db_errors for row in seen.machines),
            work.ack_failed if work else 0,
            work.dead_letters if work else 0,
        ),
        pagination=page,
        stats_age=catalogue.summary_age(seen.summary),
    )  # fmt: skip


# ---------------------------------------------------------------- resources


class StatusResource(Administrative):
    """The whole installation."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """What happened over a time, by default the last hour, and how things stand."""
        wanted = _labelled(req)
        period = queries.period(req, _DEFAULT_PERIOD)
        page = queries.page(req, queries.LIMIT)
        answer(resp, _status(await self.ask(lambda context: _look(context, wanted, period, page)), period, page))


def _labelled(req: falcon.asgi.Request) -> QueueFilter:
    queue = queries.name(req, "queue")
    return QueueFilter(queries.name(req, "namespace"), queries.name(req, "task"), None if queue is None else [queue])


async def _look(context: Context, wanted: QueueFilter, period: Period, page: queries.Pagination) -> _Seen:
    await answers.refresh(context)
    await answers.record(context)
    administration, minutes, now = context.administration, period.bucket_minutes, datetime.now(UTC)
    summary = await administration.catalogue.summary(wanted)
    recent = Period(now - _RECENT, now)
    alive = WorkerFilter(
        names=(await administration.metrics.find_workers(recent, WorkerFilter(), WORKERS_MAX, 0)).names
    )
    return _Seen(
        queues=await administration.catalogue.used_queues(wanted, page.limit, page.offset),
        summary=summary,
        groups=await administration.consumer_groups.summary(wanted),
        series=await administration.metrics.queues(period, minutes, wanted, Apart()),
        machines=await administration.metrics.workers(period, minutes, WorkerFilter(), Apart()),
        total=await administration.metrics.queues(period, minutes, wanted, Apart(bucket=False)),
        workers=await administration.metrics.workers(recent, 2, alive, Apart(bucket=False, worker=True)),
        worker_work=await administration.metrics.queues(recent, 2, wanted, Apart(bucket=False, worker=True)),
        dead=await _dead_letters(context, wanted.names[0] if wanted.names else None, summary.dead_letter),
    )


async def _dead_letters(context: Context, queue: str | None, total: int) -> DeadLetterSummary:
    partitions, errors = await context.administration.dead_letters.summarize(queue)
    return DeadLetterSummary(total, partitions, [TopError(error, count) for error, count in errors])


class StatusQueuesResource(Administrative):
    """All queues, in pages."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Newest first."""
        namespace, task = queries.name(req, "namespace"), queries.name(req, "task")
        page = queries.page(req, 100)

        async def look(context: Context) -> tuple[list[QueueRow], int]:
            await answers.refresh(context)
            wanted, queues = QueueFilter(namespace, task), context.administration.catalogue
            rows = await queues.queues(wanted, QueueOrder.NEWEST, page.limit, page.offset)
            return rows, (await queues.summary(wanted)).queues

        rows, total = await self.ask(look)
        elements = [catalogue.queue_element(row) for row in rows]
        for element in elements:
            element.messages.pending += element.messages.processing
        answer(resp, StatusQueueList(elements, total, page, catalogue.oldest_age(rows)))


class StatusQueueResource(Administrative):
    """One queue: ``…/status/queues/<queue>``, and ``/messages`` after it."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """The queue with a page of its partitions, or a page of its newest messages."""
        if names := cut(req, "/api/v1/status/queues", (), "/messages"):
            await self._messages(req, resp, check_name(names[0], "queue"))
        else:
            names = cut(req, "/api/v1/status/queues") or ("",)
            await self._queue(req, resp, check_name(names[0], "queue"))

    async def _queue(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, queue: str) -> None:
        page = queries.page(req, catalogue.PARTITIONS_LIMIT)
        row, partitions = await QueueInspector(self._engine).rows(queue, queries.name(req, "partition"), page)
        options = await self.ask(lambda context: context.administration.catalogue.queue(queue))
        if options is None:
            raise NotFoundError(catalogue.QUEUE_NOT_FOUND)
        t = catalogue.counts(row)
        totals = DetailTotals(t, t.total, t.pending, t.processing, t.completed, t.failed, t.dead_letter)
        elements = [_detail_partition(each) for each in partitions]
        answer(resp, StatusQueueAnswer(_detail_queue(options), elements, totals, page, catalogue.oldest_age([row])))

    async def _messages(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, queue: str) -> None:
        page = queries.page(req, 50, 10_000)

        async def look(context: Context) -> list[MessageRow] | None:
            if await context.administration.catalogue.queue(queue) is None:
                return None
            return await context.administration.messages.page(
                MessageFilter(queue=queue), _ALL_TIME, page.limit, page.offset
            )

        rows = await self.ask(look)
        if rows is None:
            raise NotFoundError(catalogue.QUEUE_NOT_FOUND)
        answer(resp, [_status_message(row) for row in rows])


def _status_message(row: MessageRow) -> StatusMessage:
    return StatusMessage(
        ids.message_id(row.part_id, row.off), row.transaction_id, ids.partition_id(row.part_id),
        f"{row.queue}/{row.partition}", row.queue, row.partition, row.status, text(row.created_at),
    )  # fmt: skip


def _detail_queue(options: QueueOptions) -> DetailQueue:
    o = options
    buries = (o.dead_letter_queue is not False) or (o.dlq_after_max_retries is not False)
    config = StatusConfig(o.lease_time or 60, o.retry_limit, o.retry_delay or 0, o.ttl, o.max_size, buries)
    return DetailQueue(ids.queue_id(o.queue_id), o.name, o.namespace, o.task, o.priority, text(o.created_at), config)


def _detail_partition(row: PartitionRow) -> DetailPartition:
    counts = catalogue.counts(row)
    return DetailPartition(
        ids.partition_id(row.part_id), row.name, text(row.created_at), counts, counts, DetailCursor(row.consumed, 0),
        stamp(row.newest_at), stamp(row.oldest_at), stamp(row.newest_at),
    )  # fmt: skip


class StatusAnalyticsResource(Administrative):
    """Messages pushed over a time."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """By default by hour over the last day; intervals without messages are there with 0."""
        interval = req.get_param("interval") or "hour"
        if interval not in INTERVALS:
            raise BadRequestError(f"interval must be minute, hour or day, not {interval[:40]!r}", "interval")
        minutes = INTERVALS[interval]
        wanted = _labelled(req)
        period = queries.period(req, timedelta(days=1))
        if (period.end - period.begin) / timedelta(minutes=minutes) > _POINTS_MAX:
            raise BadRequestError(f"That are more than {_POINTS_MAX} points: take a longer interval", "interval")

        async def look(context: Context) -> list[QueueMetricsRow]:
            await answers.record(context)
            return await context.administration.metrics.queues(period, minutes, wanted, Apart())

        pushed = {row.bucket: row.push_messages for row in await self.ask(look)}
        points = [DataPoint(text(at), pushed.get(at, 0)) for at in _buckets(period, minutes)]
        answer(resp, AnalyticsAnswer(points, interval, text(period.begin), text(period.end)))


def _buckets(period: Period, minutes: int) -> list[datetime]:
    """The beginnings of all buckets of a time, as ``queen.bucket`` computes them."""
    step = timedelta(minutes=minutes)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    at = epoch + (period.begin - epoch) // step * step
    buckets = []
    while at <= period.end:
        buckets.append(at)
        at += step
    return buckets
