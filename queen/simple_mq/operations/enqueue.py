"""Stores messages: ``POST /api/queues/{queue_id}/messages``."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core.errors import BadRequestError, BodyTooLargeError, QueueFullError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.fields import NO_NUL, text_of
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import requests as limits
from queen.simple_mq.metrics import OPERATION_SECONDS
from queen.simple_mq.operations.bodies import either, read_json
from queen.simple_mq.operations.paths import MESSAGES, QUEUE_ID, parse_id, unknown_queue
from queen.simple_mq.requests import Enqueue, Enqueued, NewMessage

_Group = Annotated[str, Meta(extra_json_schema=text_of(1, limits.GROUP_CHARS_MAX))]


class MessageBody(Struct):
    """A message to store.

    Attributes:
        data: a string that is not blank.
        messageGroup: messages of one group are delivered in order, one at a time.
        message_group: the same.
    """

    data: Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": NO_NUL})] | None = None
    messageGroup: _Group | None = None  # noqa: N815 - the interface's name
    message_group: _Group | None = None


class EnqueueBody(MessageBody):
    """One message, or several under `messages`.

    Attributes:
        data: a string that is not blank.
        messageGroup: messages of one group are delivered in order, one at a time.
        message_group: the same.
        messages: up to 100, instead of `data`.
    """

    messages: (
        Annotated[list[MessageBody], Meta(extra_json_schema={"minItems": 1, "maxItems": limits.BATCH_MESSAGES_MAX})]
        | None
    ) = None


class MessageEnqueued(Struct):
    """The id of a single message."""

    message_id: str


class MessagesEnqueued(Struct):
    """The ids of the messages, in the order of the request."""

    message_ids: list[str]


_decoder = msgspec.json.Decoder(EnqueueBody)


@operation(
    "POST",
    MESSAGES,
    "enqueue",
    "Store one message or several",
    access=READ_WRITE,
    answers=[Answer("Their ids", MessageEnqueued | MessagesEnqueued, 201)],
    errors=(400, 404, 413, 415, 422, 429, 503),
    description="Stores all of them or none.",
    parameters=[QUEUE_ID],
    body=EnqueueBody,
)
async def enqueue(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """The answer has one id, or a list of ids, as the request has one message or a list."""
    queue = parse_id(queue_id, "queue_id")
    body = await read_json(req, _decoder, server.body_bytes_max)
    request = _to_enqueue(queue, body, server.settings.simple_mq.message_bytes_max)
    with OPERATION_SECONDS.labels("enqueue").time():
        enqueued: Enqueued = await server.engine.submit(JobType.ENQUEUE, request).future
    match enqueued.outcome:
        case "unknown":
            raise unknown_queue(queue)
        case "full":
            raise QueueFullError("Queue is full")
        case "too_large":
            raise BodyTooLargeError("A message is larger than the queue's maxMessageBytes")
    resp.status = 201
    resp.content_type = falcon.MEDIA_JSON
    # A mapping: msgspec encodes UUIDs, which is faster than to make strings for the structs.
    ids = enqueued.message_ids
    resp.data = msgspec.json.encode({"message_id": ids[0]} if body.messages is None else {"message_ids": ids})


def _to_enqueue(queue: UUID, body: EnqueueBody, bytes_max: int) -> Enqueue:
    """The messages of a request.

    Raises:
        BadRequestError: no data, or too many messages; names the field.
        BodyTooLargeError: a message has more than ``bytes_max`` bytes.
    """
    if body.messages is None:
        return _checked(queue, [body], [""], bytes_max)
    if body.data is not None:
        raise BadRequestError("Give only one of data and messages", "data")
    if not 1 <= len(body.messages) <= limits.BATCH_MESSAGES_MAX:
        raise BadRequestError(
            f"messages must be 1 to {limits.BATCH_MESSAGES_MAX}, not {len(body.messages)}", "messages"
        )
    places = [f"messages[{number}]." for number in range(len(body.messages))]
    return _checked(queue, body.messages, places, bytes_max)


def _checked(queue: UUID, bodies: Sequence[MessageBody], places: Sequence[str], bytes_max: int) -> Enqueue:
    messages, size = [], 0
    for body, place in zip(bodies, places, strict=True):
        message, own = _message(body, place, bytes_max)
        messages.append(message)
        size += own
    return Enqueue(queue, messages, size)


def _message(body: MessageBody, place: str, bytes_max: int) -> tuple[NewMessage, int]:
    data, field = body.data, f"{place}data"
    if data is None or not data.strip():
        raise BadRequestError("Message data is required", field)
    if "\0" in data:
        raise BadRequestError(f"{field} contains U+0000, which cannot be stored", field)
    size = len(data.encode())
    if size > bytes_max:
        raise BodyTooLargeError(f"{field} has {size} bytes, at most {bytes_max} are allowed")
    group = either(body, "messageGroup", "message_group")
    if group is not None:
        _check_group(group, f"{place}messageGroup")
    return NewMessage(data, group), size


def _check_group(group: str, field: str) -> None:
    if not 1 <= len(group) <= limits.GROUP_CHARS_MAX or "\0" in group:
        raise BadRequestError(f"{field} must have 1 to {limits.GROUP_CHARS_MAX} characters and no U+0000", field)
