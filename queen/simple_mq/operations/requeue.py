"""Requeues messages: all of a dead-letter queue, or a single one of any queue."""

import falcon.asgi
from msgspec import Struct

from queen.core.errors import ConflictError, QueueFullError
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import administration
from queen.simple_mq.operations.paths import (
    MESSAGE,
    MESSAGE_ID,
    QUEUE,
    QUEUE_ID,
    parse_id,
    unknown_message,
    unknown_queue,
)


class QueueRequeued(Struct):
    """The number of requeued messages of a dead-letter queue, and their queue."""

    requeued: int
    requeued_to: str


@operation(
    "POST",
    f"{QUEUE}/requeue",
    "requeueSimpleMqQueue",
    "Requeue all messages of a dead-letter queue",
    access=READ_WRITE,
    answers=[Answer("As many as the source queue has room for", QueueRequeued)],
    errors=(400, 404, 409, 503),
    parameters=[QUEUE_ID],
    audited=True,
)
async def requeue_queue(server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """Messages without room stay in the dead-letter queue."""
    queue = parse_id(queue_id, "queue_id")
    done = await server.run(lambda context: administration.requeue_all(context, queue))
    match done.outcome:
        case "unknown":
            raise unknown_queue(queue)
        case "plain":
            raise ConflictError(f"Queue {queue} is not the dead-letter queue of any queue")
    answer(resp, QueueRequeued(done.requeued, str(done.destination)))


class MessageRequeued(Struct):
    """The queue that a message was moved to."""

    message_id: str
    requeued_to: str


@operation(
    "POST",
    f"{MESSAGE}/requeue",
    "requeueMessage",
    "Requeue a message",
    access=READ_WRITE,
    answers=[Answer("The queue that it went to", MessageRequeued)],
    errors=(400, 404, 429, 503),
    parameters=[QUEUE_ID, MESSAGE_ID],
    audited=True,
)
async def requeue_message(
    server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue_id: str, message_id: str
) -> None:
    """It goes to the source queue of a dead-letter queue, or else stays in the queue of the path.

    From a dead-letter queue it may be repeated: if the message is in the source queue, nothing changes.
    """
    queue, message = parse_id(queue_id, "queue_id"), parse_id(message_id, "message_id")
    done = await server.run(lambda context: administration.requeue(context, queue, message))
    match done.outcome:
        case "missing":
            raise unknown_message()
        case "unknown":
            raise unknown_queue(done.destination)
        case "full":
            raise QueueFullError(f"Destination queue is full (capacity: {done.size}, current: {done.messages})")
    answer(resp, MessageRequeued(str(message), str(done.destination)))
