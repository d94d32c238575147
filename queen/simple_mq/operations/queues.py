"""Shows and deletes a queue: ``/api/queues/{queue_id}``."""

from uuid import UUID

import falcon
import falcon.asgi
from msgspec import UNSET, Struct, UnsetType

from queen.core.errors import ConflictError
from queen.http.access import ADMIN, READ_ONLY
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import administration
from queen.simple_mq.interface import SimpleMq, home_of
from queen.simple_mq.operations.paths import QUEUE, QUEUE_ID, parse_id, unknown_queue


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
    own_limit = UNSET if info.max_message_bytes is None else info.max_message_bytes
    found = QueueAnswer(
        queue, info.name, info.size, info.visibility_timeout, info.max_deliveries, info.messages, info.dlq_id, own_limit
    )
    answer(resp, found)


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
