"""Lists, shows and deletes queues: ``/api/v1/resources/queues``."""

from functools import partial

import falcon.asgi
from msgspec import Struct

from queen.core.administration import PartitionRow, QueueFilter, QueueOrder, QueueRow
from queen.engine.context import Context
from queen.engine.handlers.removal import delete_queue as delete
from queen.http import answers, parameters, queries
from queen.http.access import ADMIN, READ_ONLY
from queen.http.answers import answer, stamp, text
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.queue_rows import PARTITIONS_LIMIT, MessageCounts, counts, find_queue, oldest_age
from queen.operations.server import Server


class QueueMessages(Struct, rename="camel"):
    """Message counts of a queue; ``pending`` excludes messages in flight."""

    total: int
    pending: int
    processing: int


class QueueElement(Struct, rename="camel"):
    """A queue in a list; ``paused``: it delivers no messages."""

    id: str
    name: str
    namespace: str
    task: str
    created_at: str
    partitions: int
    messages: QueueMessages
    paused: bool


class QueueList(Struct, rename="camel"):
    """A page of queues; ``total`` is the number of matches.

    ``statsAge``: age of their oldest statistics in seconds, -1: some were never computed.
    """

    queues: list[QueueElement]
    total: int
    pagination: queries.Pagination
    stats_age: int


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


class QueueDeletedAnswer(Struct):
    """A deleted queue; `existed` is false if there was none."""

    deleted: bool
    queue: str
    existed: bool


def queue_element(row: QueueRow) -> QueueElement:
    """The list element of a queue."""
    messages = QueueMessages(row.total or 0, row.pending or 0, row.processing or 0)
    return QueueElement(
        ids.queue_id(row.queue_id), row.name, row.namespace, row.task, text(row.created_at), row.partitions or 0,
        messages, row.paused,
    )  # fmt: skip


def _partition_element(row: PartitionRow) -> PartitionElement:
    return PartitionElement(
        ids.partition_id(row.part_id), row.name, text(row.created_at), counts(row), stamp(row.oldest_at),
        stamp(row.newest_at),
    )  # fmt: skip


@operation(
    "GET",
    "/api/v1/resources/queues",
    "listQueues",
    "List queues",
    access=READ_ONLY,
    answers=[Answer("A page, newest first by default; `total` is the number of matches", QueueList)],
    errors=(400, 503),
    parameters=[
        parameters.NAMESPACE,
        parameters.TASK,
        parameters.QUEUES,
        parameters.SEARCH,
        *parameters.sorting(QueueOrder, QueueOrder.NEWEST),
        *parameters.page(queries.LIMIT),
    ],
)
async def list_queues(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Statistics of small queues are computed for the answer."""
    wanted = QueueFilter(
        queries.name(req, "namespace"), queries.name(req, "task"), queries.names(req, "queue"),
        queries.name(req, "search"),
    )  # fmt: skip
    page = queries.sorted_page(req, QueueOrder.NEWEST, queries.LIMIT)

    async def look(context: Context) -> QueueList:
        await answers.refresh(context)
        catalogue = context.reads.catalogue
        rows = await catalogue.queues(wanted, page)
        total = (await catalogue.summary(wanted)).queues
        return QueueList(
            [queue_element(row) for row in rows], total, queries.Pagination.of(page), oldest_age(rows)
        )  # fmt: skip

    answer(resp, await server.ask(look))


@operation(
    "GET",
    "/api/v1/resources/queues/{queue}",
    "getQueue",
    "Show a queue with its partitions",
    access=READ_ONLY,
    answers=[Answer("Totals are those of the whole queue, whatever the page", QueueAnswer)],
    errors=(400, 404, 503),
    parameters=[parameters.QUEUE_PATH, *parameters.partitions(PARTITIONS_LIMIT)],
)
async def get_queue(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """Statistics are computed for the answer if the queue is small."""
    check_name(queue, "queue")
    wanted, page = queries.partitions(req, queue, PARTITIONS_LIMIT)
    row, partitions = await server.ask(lambda context: find_queue(context, queue, wanted, page))
    answer(
        resp,
        QueueAnswer(
            ids.queue_id(row.queue_id), row.name, row.namespace, row.task, text(row.created_at), row.partitions or 0,
            [_partition_element(each) for each in partitions], counts(row),
            queries.Pagination.of(page), oldest_age([row]),
        ),
    )  # fmt: skip


@operation(
    "DELETE",
    "/api/v1/resources/queues/{queue}",
    "deleteQueue",
    "Delete a queue with all its contents",
    access=ADMIN,
    answers=[Answer("Whether it existed; an unknown queue is not an error", QueueDeletedAnswer)],
    errors=(400, 503),
    parameters=[parameters.QUEUE_PATH],
    audited=True,
)
async def delete_queue(server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """An unknown queue is not an error, because clients delete before they create."""
    existed = await server.run(partial(delete, queue=check_name(queue, "queue")))
    answer(resp, QueueDeletedAnswer(existed, queue, existed))
