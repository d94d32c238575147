"""``GET /api/v1/resources/…``: queues, partitions, namespaces, tasks and the overview."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import falcon
import falcon.asgi
from msgspec import Struct

from queen.core import ids
from queen.core.administration import (
    Apart,
    Depth,
    PartitionRow,
    Period,
    QueueFilter,
    QueueMetricsRow,
    QueueOrder,
    QueueRow,
    QueuesSummary,
)
from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import answers, queries
from queen.http.answers import Administrative, age_s, answer, stamp, text

#: Partitions of a queue that an answer holds when none are asked for.
PARTITIONS_LIMIT = 1000
#: Over which the throughput of the overview is measured.
_THROUGHPUT = timedelta(minutes=5)

QUEUE_NOT_FOUND = "Queue not found"


class QueueMessages(Struct, rename="camel"):
    """Messages of a queue; ``pending`` leaves out what is under a live lease."""

    total: int
    pending: int
    processing: int


class QueueElement(Struct, rename="camel"):
    """A queue in a list."""

    id: str
    name: str
    namespace: str
    task: str
    created_at: str
    partitions: int
    messages: QueueMessages


class QueueList(Struct, rename="camel"):
    """A page of queues; ``total`` counts all that match.

    ``statsAge``: seconds since the oldest of their figures was computed, -1: some never were.
    """

    queues: list[QueueElement]
    total: int
    pagination: queries.Pagination
    stats_age: int


class MessageCounts(Struct, rename="camel"):
    """Messages by what became of them; where groups differ, as far as the slowest group is."""

    total: int = 0
    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0


class PartitionElement(Struct, rename="camel"):
    """A partition of a queue."""

    id: str
    name: str
    created_at: str
    stats: MessageCounts
    oldest_message: str | None
    newest_message: str | None


class QueueAnswer(Struct, rename="camel"):
    """A queue with a page of its partitions; ``totals`` are those of the whole queue."""

    id: str
    name: str
    namespace: str
    task: str
    created_at: str
    partition_count: int
    partitions: list[PartitionElement]
    totals: MessageCounts
    pagination: queries.Pagination
    stats_age: int


class PartitionOfQueue(Struct, rename="camel"):
    """A partition in a list over queues."""

    id: str
    queue: str
    name: str
    created_at: str
    stats: MessageCounts
    oldest_message: str | None
    newest_message: str | None


class PartitionList(Struct, rename="camel"):
    """A page of partitions, by queue and name."""

    partitions: list[PartitionOfQueue]
    pagination: queries.Pagination


class LabelMessages(Struct):
    """Messages of the queues of a label."""

    total: int
    pending: int


class NamespaceElement(Struct):
    """A namespace."""

    namespace: str
    queues: int
    partitions: int
    messages: LabelMessages


class NamespaceList(Struct):
    """A page of namespaces; ``total`` counts all."""

    namespaces: list[NamespaceElement]
    total: int
    pagination: queries.Pagination


class TaskElement(Struct):
    """A task."""

    task: str
    queues: int
    partitions: int
    messages: LabelMessages


class TaskList(Struct):
    """A page of tasks; ``total`` counts all."""

    tasks: list[TaskElement]
    total: int
    pagination: queries.Pagination


class Distribution(Struct):
    """Mean, middle, smallest and largest of some figures."""

    avg: float
    median: float
    min: float
    max: float


class LagAnswer(Struct):
    """How far queues are behind: seconds since the oldest undone message, and undone messages of a partition."""

    time: Distribution
    offset: Distribution


class Throughput(Struct, rename="camel"):
    """Messages a second over the last five minutes."""

    ingested_per_second: float
    processed_per_second: float


class OverviewAnswer(Struct, rename="camel"):
    """The whole installation at a glance."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    messages: MessageCounts
    lag: LagAnswer
    throughput: Throughput
    timestamp: str
    stats_age: int


class PartitionDepth(Struct):
    """What a group has still to do in a partition."""

    partition: str
    pending: int
    processing: int
    ready: int


class DepthAnswer(Struct, rename="camel"):
    """What a group has still to do in a queue; ``pending`` includes what is under a live lease, ``ready`` does not."""

    queue: str
    group: str | None
    pending: int
    processing: int
    ready: int
    partitions_pending: int
    partitions_ready: int
    conflation: bool
    effective_pending: int
    effective_ready: int
    partitions: list[PartitionDepth]
    stats_age: int


# ---------------------------------------------------------------- rows into answers


def queue_element(row: QueueRow) -> QueueElement:
    """A queue as it stands in lists."""
    messages = QueueMessages(row.total or 0, row.pending or 0, row.processing or 0)
    return QueueElement(
        ids.queue_id(row.queue_id),
        row.name,
        row.namespace,
        row.task,
        text(row.created_at),
        row.partitions or 0,
        messages,
    )


def oldest_age(rows: Iterable[QueueRow]) -> int:
    """Seconds since the oldest figures of some queues were computed; -1 when some never were; 0 for no queues."""
    return max((age_s(row.computed_at) for row in rows), key=lambda age: (age < 0, age), default=0)


def counts(row: QueueRow | PartitionRow | QueuesSummary) -> MessageCounts:
    """The figures of a queue or partition, or of queues together."""
    return MessageCounts(
        row.total or 0, row.pending or 0, row.processing or 0, row.completed or 0, row.failed or 0, row.dead_letter or 0
    )


def _partition_element(row: PartitionRow) -> PartitionElement:
    return PartitionElement(
        ids.partition_id(row.part_id), row.name, text(row.created_at), counts(row), stamp(row.oldest_at),
        stamp(row.newest_at),
    )  # fmt: skip


def _partition_of_queue(row: PartitionRow) -> PartitionOfQueue:
    return PartitionOfQueue(
        ids.partition_id(row.part_id), row.queue, row.name, text(row.created_at), counts(row), stamp(row.oldest_at),
        stamp(row.newest_at),
    )  # fmt: skip


def summary_age(summary: QueuesSummary) -> int:
    """What ``oldest_age`` is for the queues together."""
    return age_s(summary.computed_at) if summary.queues else 0


def _overview(all_: QueuesSummary, recent: Sequence[QueueMetricsRow]) -> OverviewAnswer:
    seconds = _THROUGHPUT.total_seconds()
    pushed, done = sum(row.push_messages for row in recent), sum(row.ack_success for row in recent)
    return OverviewAnswer(
        queues=all_.queues,
        partitions=all_.partitions,
        namespaces=all_.namespaces,
        tasks=all_.tasks,
        messages=counts(all_),
        lag=LagAnswer(
            Distribution(round(all_.age_mean, 3), all_.age_median, all_.age_min, all_.age_max),
            Distribution(round(all_.lag_mean, 3), all_.lag_median, all_.lag_min, all_.lag_max),
        ),
        throughput=Throughput(round(pushed / seconds, 3), round(done / seconds, 3)),
        timestamp=text(datetime.now(UTC)),
        stats_age=summary_age(all_),
    )


# ---------------------------------------------------------------- resources


def wanted_queues(req: falcon.asgi.Request) -> QueueFilter:
    """The queues that a query chooses."""
    return QueueFilter(
        queries.name(req, "namespace"), queries.name(req, "task"), queries.names(req, "queue"),
        queries.name(req, "search"),
    )  # fmt: skip


class QueueListResource(Administrative):
    """All queues."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A page, by default the newest."""
        wanted, order = wanted_queues(req), queries.choice(req, "order", QueueOrder.NEWEST)
        page = queries.page(req, queries.LIMIT)

        async def look(context: Context) -> QueueList:
            await answers.refresh(context)
            catalogue = context.administration.catalogue
            rows = await catalogue.queues(wanted, order, page.limit, page.offset)
            total = (await catalogue.summary(wanted)).queues
            return QueueList([queue_element(row) for row in rows], total, page, oldest_age(rows))

        answer(resp, await self.ask(look))


class QueueInspector(Administrative):
    """One queue."""

    async def describe(self, req: falcon.asgi.Request, queue: str) -> QueueAnswer:
        """The queue with a page of its partitions; raises NotFoundError."""
        page = queries.page(req, PARTITIONS_LIMIT)
        wanted = queries.name(req, "partition")
        row, partitions = await self.rows(queue, wanted, page)
        return QueueAnswer(
            ids.queue_id(row.queue_id), row.name, row.namespace, row.task, text(row.created_at), row.partitions or 0,
            [_partition_element(each) for each in partitions], counts(row), page, oldest_age([row]),
        )  # fmt: skip

    async def rows(
        self, queue: str, partition: str | None, page: queries.Pagination
    ) -> tuple[QueueRow, list[PartitionRow]]:
        """The figures of a queue and of a page of its partitions; raises NotFoundError."""

        async def look(context: Context) -> tuple[list[QueueRow], list[PartitionRow]]:
            await answers.refresh(context)
            catalogue = context.administration.catalogue
            rows = await catalogue.queues(QueueFilter(names=[queue]), QueueOrder.NEWEST, 1, 0)
            return rows, await catalogue.partitions(queue, partition, None, page.limit, page.offset) if rows else []

        rows, partitions = await self.ask(look)
        if not rows:
            raise NotFoundError(QUEUE_NOT_FOUND)
        return rows[0], partitions

    async def depth(self, req: falcon.asgi.Request, queue: str) -> DepthAnswer:
        """What a group, or the slowest, has still to do; raises NotFoundError."""
        group = queries.name(req, "group", "consumerGroup")
        page = queries.page(req, PARTITIONS_LIMIT)

        async def look(context: Context) -> tuple[Depth | None, list[PartitionRow]]:
            await answers.refresh(context)
            catalogue = context.administration.catalogue
            depth = await catalogue.depth(queue, group)
            return depth, await catalogue.partitions(queue, None, group, page.limit, page.offset)

        depth, rows = await self.ask(look)
        if depth is None:
            raise NotFoundError(QUEUE_NOT_FOUND)
        partitions = [
            PartitionDepth(row.name, row.pending + row.processing, row.processing, row.pending)
            for row in rows
            if row.pending + row.processing
        ]
        ready = depth.pending - depth.processing
        busy = sum(1 for each in partitions if not each.ready)
        return DepthAnswer(
            queue, group, depth.pending, depth.processing, ready, depth.partitions_pending,
            max(depth.partitions_pending - busy, 0), False, depth.pending, ready, partitions, age_s(depth.computed_at),
        )  # fmt: skip


class PartitionListResource(Administrative):
    """Partitions of one queue or of all."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A page, by queue and name."""
        queue, partition = queries.name(req, "queue"), queries.name(req, "partition")
        page = queries.page(req, 100)
        rows = await self.ask(
            lambda context: context.administration.catalogue.partitions(queue, partition, None, page.limit, page.offset)
        )
        answer(resp, PartitionList([_partition_of_queue(row) for row in rows], page))


class NamespacesResource(Administrative):
    """All namespaces."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A page, in the order of the alphabet."""
        page = queries.page(req, queries.LIMIT)

        async def look(context: Context) -> NamespaceList:
            await answers.refresh(context)
            catalogue = context.administration.catalogue
            rows = await catalogue.namespaces(page.limit, page.offset)
            elements = [
                NamespaceElement(r.label, r.queues, r.partitions, LabelMessages(r.total, r.pending)) for r in rows
            ]
            return NamespaceList(elements, (await catalogue.summary()).namespaces, page)

        answer(resp, await self.ask(look))


class TasksResource(Administrative):
    """All tasks."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """A page, in the order of the alphabet."""
        page = queries.page(req, queries.LIMIT)

        async def look(context: Context) -> TaskList:
            await answers.refresh(context)
            catalogue = context.administration.catalogue
            rows = await catalogue.tasks(page.limit, page.offset)
            elements = [TaskElement(r.label, r.queues, r.partitions, LabelMessages(r.total, r.pending)) for r in rows]
            return TaskList(elements, (await catalogue.summary()).tasks, page)

        answer(resp, await self.ask(look))


class OverviewResource(Administrative):
    """The whole installation."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Figures over all queues."""

        async def look(context: Context) -> OverviewAnswer:
            await answers.refresh(context)
            await answers.record(context)
            now = datetime.now(UTC)
            recent = await context.administration.metrics.queues(
                Period(now - _THROUGHPUT, now), 5, QueueFilter(), Apart(bucket=False)
            )
            return _overview(await context.administration.catalogue.summary(), recent)

        answer(resp, await self.ask(look))
