"""Lists the newest messages of a queue: ``GET /api/v1/status/queues/{queue}/messages``."""

from datetime import UTC, datetime

import falcon.asgi
from msgspec import Struct

from queen.core.administration import MessageFilter, MessageRow, Period
from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.queue_rows import QUEUE_NOT_FOUND
from queen.operations.server import Server

_ALL_TIME = Period(datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
_LIMIT, _OFFSET_MAX = 50, 10_000


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


def _status_message(row: MessageRow) -> StatusMessage:
    return StatusMessage(
        ids.message_id(row.part_id, row.off), row.transaction_id, ids.partition_id(row.part_id),
        f"{row.queue}/{row.partition}", row.queue, row.partition, row.status, text(row.created_at),
    )  # fmt: skip


@operation(
    "GET",
    "/api/v1/status/queues/{queue}/messages",
    "listQueueMessages",
    "List the newest messages of a queue",
    access=READ_ONLY,
    answers=[Answer("A page", list[StatusMessage])],
    errors=(400, 404, 503),
    parameters=[parameters.QUEUE_PATH, parameters.limit(_LIMIT), parameters.offset(_OFFSET_MAX)],
)
async def list_queue_messages(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str) -> None:
    """Without payloads."""
    check_name(queue, "queue")
    page = queries.page(req, _LIMIT, _OFFSET_MAX)

    async def look(context: Context) -> list[MessageRow] | None:
        if await context.reads.catalogue.queue(queue) is None:
            return None
        wanted = MessageFilter(queue=queue)
        return await context.reads.messages.page(wanted, _ALL_TIME, page.limit, page.offset)

    rows = await server.ask(look)
    if rows is None:
        raise NotFoundError(QUEUE_NOT_FOUND)
    answer(resp, [_status_message(row) for row in rows])
