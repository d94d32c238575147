"""Status of queues: ``GET /api/v1/status/queues`` and ``…/queues/{queue}``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import (
    Page,
    PartitionRow,
    QueueFilter,
    QueueOptions,
    QueueOrder,
    QueueRow,
    keeps_dead_letters,
)
from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import answers, parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, stamp, text
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.queue_rows import (
    PARTITIONS_LIMIT,
    QUEUE_NOT_FOUND,
    MessageCounts,
    counts,
    find_queue,
    matching,
    oldest_age,
)
from queen.operations.queues import QueueElement, queue_element
from queen.operations.server import Server

_LIMIT = 100


class StatusQueueList(Struct, rename="camel"):
    """A page of queues; here ``pending`` includes messages in flight. ``total`` is the number of matches."""

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
    """A queue with its options; ``paused``: it delivers no messages."""

    id: str
    name: str
    namespace: str
    task: str
    priority: int
    created_at: str
    config: StatusConfig
    paused: bool


class DetailCursor(Struct, rename="camel"):
    """The cursor of the slowest group of a partition; deliveries are not counted per partition."""

    total_consumed: int
    batches_consumed: int


class DetailPartition(Struct, rename="camel"):
    """A partition with its counts."""

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
    """Counts of a queue, both nested and flat."""

    messages: MessageCounts
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int


class StatusQueueAnswer(Struct, rename="camel"):
    """A queue with a page of its partitions, of ``partitionsTotal`` that match."""

    queue: DetailQueue
    partitions: list[DetailPartition]
    partitions_total: int
    totals: DetailTotals
    pagination: queries.Pagination
    stats_age: int


def _detail_queue(options: QueueOptions) -> DetailQueue:
    o = options
    buries = keeps_dead_letters(o.dead_letter_queue, o.dlq_after_max_retries)
    config = StatusConfig(o.lease_time or 60, o.retry_limit, o.retry_delay or 0, o.ttl, o.max_size, buries)
    queue_id, created_at = ids.queue_id(o.queue_id), text(o.created_at)
    return DetailQueue(queue_id, o.name, o.namespace, o.task, o.priority, created_at, config, o.paused)


def _detail_partition(row: PartitionRow) -> DetailPartition:
    messages = counts(row)
    return DetailPartition(
        ids.partition_id(row.part_id), row.name, text(row.created_at), messages, messages,
        DetailCursor(row.consumed, 0), stamp(row.newest_at), stamp(row.oldest_at), stamp(row.newest_at),
    )  # fmt: skip


@operation(
    "GET",
    "/api/v1/status/queues",
    "listQueueStatus",
    "Status of queues",
    access=READ_ONLY,
    answers=[Answer("A page, newest first", StatusQueueList)],
    errors=(400, 503),
    parameters=[parameters.NAMESPACE, parameters.TASK, *parameters.page(_LIMIT)],
)
async def list_queue_status(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """As ``listQueues``, but ``pending`` includes messages in flight."""
    wanted = QueueFilter(queries.name(req, "namespace"), queries.name(req, "task"))
    page = queries.page(req, _LIMIT)

    async def look(context: Context) -> tuple[list[QueueRow], int]:
        await answers.refresh(context)
        catalogue = context.reads.catalogue
        rows = await catalogue.queues(wanted, Page(QueueOrder.NEWEST, page.limit, page.offset))
        return rows, (await catalogue.summary(wanted)).queues

    rows, total = await server.ask(look)
    elements = [queue_element(row) for row in rows]
    for element in elements:
        element.messages.pending += element.messages.processing
    answer(resp, StatusQueueList(elements, total, page, oldest_age(rows)))


@operation(
    "GET",
    "/api/v1/status/queues/{queue}",
    "getQueueStatus",
    "Show the status of a queue and its partitions",
    access=READ_ONLY,
    answers=[Answer("A page of partitions; totals are those of the whole queue", StatusQueueAnswer)],
    errors=(400, 404, 503),
    parameters=[parameters.QUEUE_PATH, *parameters.partitions(PARTITIONS_LIMIT)],
)
async def get_queue_status(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """Its options, counts and partitions."""
    check_name(queue, "queue")
    wanted, page = queries.partitions(req, queue, PARTITIONS_LIMIT)
    row, partitions = await server.ask(lambda context: find_queue(context, queue, wanted, page))
    options = await server.ask(lambda context: context.reads.catalogue.queue(queue))
    if options is None:
        raise NotFoundError(QUEUE_NOT_FOUND)
    t = counts(row)
    totals = DetailTotals(t, t.total, t.pending, t.processing, t.completed, t.failed, t.dead_letter)
    elements = [_detail_partition(each) for each in partitions]
    answer(
        resp,
        StatusQueueAnswer(
            _detail_queue(options), elements, matching(row, partitions, wanted), totals, queries.Pagination.of(page),
            oldest_age([row]),
        ),
    )  # fmt: skip
