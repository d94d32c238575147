"""``/api/v1/analytics/queue-…`` and ``retention``: what was done in queues."""

from collections.abc import Mapping, Sequence

import falcon
import falcon.asgi
from msgspec import Struct

from queen.core.administration import (
    Apart,
    ParkedRow,
    Period,
    QueueFilter,
    QueueMetricsRow,
    QueueOrder,
    RetentionRow,
)
from queen.engine.context import Context
from queen.http import answers, queries
from queen.http.answers import Administrative, answer
from queen.http.resources.analytics.buckets import DEFAULT_PERIOD, bucket_name
from queen.http.resources.status import TimeRange, per_second, time_range

#: Points of all queues in an answer without a `limit`.
_POINTS = 2500
#: Points of long polls in an answer without a `limit`.
_PARKED_POINTS = 5000


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


class TotalPoint(Struct, rename="camel"):
    """What was done for all queues in a bucket."""

    bucket: str
    push_messages: int
    pop_messages: int
    ack_success: int
    ack_failed: int


class QueueOpsAnswer(Struct, rename="camel"):
    """What was done for queues over a time: series of a page of them, the busiest first, and totals of all.

    ``queueCount``: for how many something was done.
    """

    time_range: TimeRange
    bucket_minutes: int
    series: list[QueueOpsPoint]
    queues: list[str]
    queue_count: int
    totals: list[TotalPoint]
    pagination: queries.Pagination


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
    """Long polls over a time, by worker: a page of points; ``replicas`` are the workers of these."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[ParkedPoint]
    replicas: list[WorkerName]
    pagination: queries.Pagination


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


def _retention_point(row: RetentionRow) -> RetentionPoint:
    r = row
    total = r.retention_messages + r.completed_retention_messages + r.eviction_messages
    return RetentionPoint(
        r.retention_messages, r.completed_retention_messages, r.eviction_messages, total, r.events,
        bucket=bucket_name(r.bucket),
    )  # fmt: skip


class _Series(Struct, frozen=True):
    """Series of a page of queues; ``partitions`` by queue."""

    total: int
    rows: Sequence[QueueMetricsRow]
    totals: Sequence[QueueMetricsRow]
    partitions: Mapping[str, int]


async def _write_down(context: Context) -> None:
    for name, waiting in context.gauges().waiting.items():
        context.meter.parked(name, waiting)
    await answers.record(context)


async def _busiest(
    context: Context, period: Period, queues: Sequence[str] | None, page: queries.Pagination
) -> tuple[int, QueueFilter, list[QueueMetricsRow]]:
    """How many queues there was work for, a page of them, and their series."""
    await _write_down(context)
    metrics = context.administration.metrics
    found = await metrics.busiest(period, queues, page.limit, page.offset)
    chosen = QueueFilter(names=found.names)
    return found.total, chosen, await metrics.queues(period, period.bucket_minutes, chosen, Apart(queue=True))


class QueueLagResource(Administrative):
    """How old messages were when they were popped."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """An array, newest bucket first, with the busiest queues."""
        period, queues = queries.period(req, DEFAULT_PERIOD), queries.names(req, "queue")
        page = queries.page_of_series(req, period, _POINTS)
        _, _, rows = await self.ask(lambda context: _busiest(context, period, queues, page))
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


class QueueOpsResource(Administrative):
    """What was done for queues."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series, newest bucket first, with the busiest queues."""
        period, queues = queries.period(req, DEFAULT_PERIOD), queries.names(req, "queue")
        page = queries.page_of_series(req, period, _POINTS)

        async def look(context: Context) -> _Series:
            total, chosen, rows = await _busiest(context, period, queues, page)
            await answers.refresh(context)
            administration, minutes = context.administration, period.bucket_minutes
            known = await administration.catalogue.queues(chosen, QueueOrder.NEWEST, page.limit, 0)
            totals = await administration.metrics.queues(period, minutes, QueueFilter(names=queues), Apart())
            return _Series(total, rows, totals, {row.name: row.partitions or 0 for row in known})

        seen, minutes = await self.ask(look), period.bucket_minutes
        series = [_queue_ops_point(row, minutes, seen.partitions.get(row.queue or "", 0)) for row in seen.rows]
        names = sorted({row.queue or "" for row in seen.rows})
        totals = [_total_point(row) for row in seen.totals]
        answer(resp, QueueOpsAnswer(time_range(period), minutes, series, names, seen.total, totals, page))


class ParkedResource(Administrative):
    """Long polls that wait."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series by queue and worker, newest bucket first."""
        period, queues = queries.period(req, DEFAULT_PERIOD), queries.names(req, "queue")
        page = queries.page(req, _PARKED_POINTS)

        async def look(context: Context) -> list[ParkedRow]:
            await _write_down(context)
            metrics = context.administration.metrics
            return await metrics.parked(period, period.bucket_minutes, queues, page.limit, page.offset)

        points = []
        for row in await self.ask(look):
            hostname, _, pid = row.worker.rpartition(":")
            points.append(ParkedPoint(bucket_name(row.bucket), row.queue, hostname, int(pid), row.parked))
        replicas = [WorkerName(*key) for key in sorted({(point.hostname, point.worker_id) for point in points})]
        answer(resp, ParkedAnswer(time_range(period), period.bucket_minutes, points, replicas, page))


class RetentionResource(Administrative):
    """What retention and eviction removed."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A series, newest bucket first."""
        period = queries.period(req, DEFAULT_PERIOD)
        rows = await self.ask(lambda context: context.administration.metrics.retention(period, period.bucket_minutes))
        series = [_retention_point(row) for row in rows]
        totals = RetentionTotals(
            *[sum(getattr(point, field) for point in series) for field in RetentionTotals.__struct_fields__]
        )
        answer(resp, RetentionAnswer(time_range(period), period.bucket_minutes, series, totals))
