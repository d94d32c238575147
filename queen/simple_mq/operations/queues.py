"""Shows and deletes a queue: ``/api/queues/{queue_id}``; and lists them all."""

from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Struct, UnsetType

from queen.core.errors import ConflictError
from queen.http import queries
from queen.http.access import ADMIN, READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.parameters import SEARCH, limit
from queen.http.parsing import parse_integer
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import administration
from queen.simple_mq.interface import SimpleMq, home_of
from queen.simple_mq.operations.messages import query
from queen.simple_mq.operations.paths import LISTED, QUEUE, QUEUE_ID, UUID_SCHEMA, parse_id, unknown_queue
from queen.simple_mq.requests import ListedQueue, QueueInfo

_PAGE, _PAGE_MAX = 100, 1000


class QueueAnswer(Struct):
    """A queue; ``max_message_bytes`` only if the queue has its own limit."""

    queue_id: UUID
    queue_name: str
    queue_size: int
    visibility_timeout: int
    max_deliveries: int
    current_message_count: int
    dlq_id: UUID | None
    max_message_bytes: int | UnsetType = UNSET


class ListedAnswer(QueueAnswer, kw_only=True):
    """A queue in a list; ``parent_id``: the queue whose dead letters it holds, which may be deleted."""

    parent_id: UUID | None


class QueuesAnswer(Struct):
    """A page of queues, and the cursor of the next page."""

    queues: list[ListedAnswer]
    next_cursor: UUID | None


@operation(
    "GET",
    LISTED,
    "listSimpleMqQueues",
    "List queues, dead-letter queues too",
    access=READ_ONLY,
    answers=[Answer("A page, by id, and the cursor of the next page", QueuesAnswer)],
    errors=(400, 503),
    parameters=[
        SEARCH,
        limit(_PAGE, _PAGE_MAX),
        query("cursor", "Cursor of the page, from the previous page", UUID_SCHEMA),
    ],
)
async def list_queues(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Reads one queue more than asked for: if there is one, there is a next page."""
    number, cursor = parse_integer(req.get_param("limit"), "limit", _PAGE, 1, _PAGE_MAX), req.get_param("cursor")
    after = None if cursor is None else parse_id(cursor, "cursor")
    search = (queries.name(req, "search") or "").lower()
    found = await server.run(lambda context: administration.list_queues(context, search, after, number + 1))
    shown = [_listed(each) for each in found[:number]]
    answer(resp, QueuesAnswer(shown, shown[-1].queue_id if len(found) > number else None))


def _listed(queue: ListedQueue) -> ListedAnswer:
    shown = _answer(queue.queue_id, queue.info)
    return ListedAnswer(**msgspec.structs.asdict(shown), parent_id=queue.parent_id)


def _answer(queue: UUID, info: QueueInfo) -> QueueAnswer:
    own_limit = UNSET if info.max_message_bytes is None else info.max_message_bytes
    return QueueAnswer(
        queue, info.name, info.size, info.visibility_timeout, info.max_deliveries, info.messages, info.dlq_id, own_limit
    )


@operation(
    "GET",
    QUEUE,
    "getSimpleMqQueue",
    "Settings and message count of a queue",
    access=READ_ONLY,
    answers=[Answer("The queue", QueueAnswer)],
    errors=(400, 404, 503),
    parameters=[QUEUE_ID],
)
async def get_queue(server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """The dead-letter queue has an id once it has messages."""
    queue = parse_id(queue_id, "queue_id")
    info = await server.ask(lambda context: SimpleMq.of(home_of(context, queue)).administration.describe_queue(queue))
    if info is None:
        raise unknown_queue(queue)
    answer(resp, _answer(queue, info))


@operation(
    "DELETE",
    QUEUE,
    "deleteSimpleMqQueue",
    "Delete a queue with its messages",
    access=ADMIN,
    answers=[Answer("The queue is deleted; its dead-letter queue stays")],
    errors=(400, 404, 409, 503),
    parameters=[QUEUE_ID],
    audited=True,
)
async def delete_queue(server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """The dead-letter queue can be deleted after its source queue."""
    queue = parse_id(queue_id, "queue_id")
    outcome = await server.run(lambda context: administration.delete_queue(context, queue))
    if outcome == "unknown":
        raise unknown_queue(queue)
    if outcome != "deleted":
        raise ConflictError(f"The queue holds the dead letters of queue {outcome}: delete that queue first")
    resp.content_type = falcon.MEDIA_TEXT  # the answer is empty, which is no JSON
