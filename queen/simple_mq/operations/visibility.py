"""Sets the visibility timeout of a message: ``POST /api/queues/{queue_id}/messages/{message_id}/visibility``."""

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import ConflictError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq.operations.bodies import Visibility, read_json, visibility_of
from queen.simple_mq.operations.messages import local_time
from queen.simple_mq.operations.paths import (
    MESSAGE,
    MESSAGE_ID,
    QUEUE_ID,
    parse_id,
    unknown_message,
    unknown_queue,
)
from queen.simple_mq.requests import Extended, ExtendVisibility


class VisibilityBody(Struct):
    """A new visibility timeout; the field is required, in one of its two spellings.

    Attributes:
        visibilityTimeout: seconds from now.
        visibility_timeout: the same.
    """

    visibilityTimeout: Visibility | None = None  # noqa: N815 - the interface's name
    visibility_timeout: Visibility | None = None


class VisibilityExtended(Struct):
    """When a message becomes visible."""

    message_id: str
    invisible_until: str


_decoder = msgspec.json.Decoder(VisibilityBody)


@operation(
    "POST",
    f"{MESSAGE}/visibility",
    "extendVisibility",
    "Set the visibility timeout of a message",
    access=READ_WRITE,
    answers=[Answer("When the message becomes visible", VisibilityExtended)],
    errors=(400, 404, 409, 413, 415, 503),
    parameters=[QUEUE_ID, MESSAGE_ID],
    body=VisibilityBody,
)
async def extend_visibility(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str, message_id: str
) -> None:
    """Only a message in flight has a visibility timeout."""
    queue, message = parse_id(queue_id, "queue_id"), parse_id(message_id, "message_id")
    body = await read_json(req, _decoder, server.body_bytes_max)
    request = ExtendVisibility(queue, message, visibility_of(body))
    extended: Extended = await server.engine.submit(JobType.EXTEND_VISIBILITY, request).future
    match extended.outcome:
        case "unknown":
            raise unknown_queue(queue)
        case "missing":
            raise unknown_message()
    if extended.visible_at is None:
        raise ConflictError("Message is not in flight: its visibility timeout has expired, or it was never polled")
    answer(resp, VisibilityExtended(str(message), local_time(extended.visible_at)))
