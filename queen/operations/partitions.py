"""Lists partitions of one queue or of all: ``GET /api/v1/resources/partitions``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import PartitionRow
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, stamp, text
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.queue_rows import MessageCounts, counts
from queen.operations.server import Server

_LIMIT = 100


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
    """A page of partitions."""

    partitions: list[PartitionOfQueue]
    pagination: queries.Pagination


def _partition_of_queue(row: PartitionRow) -> PartitionOfQueue:
    return PartitionOfQueue(
        ids.partition_id(row.part_id), row.queue, row.name, text(row.created_at), counts(row), stamp(row.oldest_at),
        stamp(row.newest_at),
    )  # fmt: skip


@operation(
    "GET",
    "/api/v1/resources/partitions",
    "listPartitions",
    "List partitions",
    access=READ_ONLY,
    answers=[Answer("A page, by default by queue and name", PartitionList)],
    errors=(400, 503),
    parameters=[parameters.QUEUE, *parameters.partitions(_LIMIT)],
)
async def list_partitions(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """An unknown queue or partition gives an empty page."""
    wanted, page = queries.partitions(req, queries.name(req, "queue"), _LIMIT)
    rows = await server.ask(lambda context: context.reads.catalogue.partitions(wanted, page))
    answer(resp, PartitionList([_partition_of_queue(row) for row in rows], queries.Pagination.of(page)))
