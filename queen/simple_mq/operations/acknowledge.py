"""Acknowledges messages, which deletes them: several by a list of ids, or one by its path."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from queen.core.errors import BadRequestError
from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.fields import Uuid
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq import requests as limits
from queen.simple_mq.metrics import OPERATION_SECONDS
from queen.simple_mq.operations.bodies import either, read_json
from queen.simple_mq.operations.paths import (
    MESSAGE,
    MESSAGE_ID,
    MESSAGE_NOT_FOUND,
    MESSAGES,
    QUEUE_ID,
    parse_id,
    unknown_message,
    unknown_queue,
)
from queen.simple_mq.requests import Acknowledge, Acknowledged

_MessageIds = Annotated[list[Uuid], Meta(extra_json_schema={"minItems": 1, "maxItems": limits.BATCH_MESSAGES_MAX})]


class AckBody(Struct):
    """Messages to acknowledge.

    Attributes:
        messageIds: up to 100; required, in one of its two spellings.
        message_ids: the same.
    """

    messageIds: _MessageIds | None = None  # noqa: N815 - the interface's name
    message_ids: _MessageIds | None = None


class MessageAcknowledged(Struct):
    """The result of one acknowledgment."""

    message_id: str
    deleted: bool
    error: str | UnsetType = UNSET


class MessagesAcknowledged(Struct):
    """One result per id, in the order of the request."""

    results: list[MessageAcknowledged]


_decoder = msgspec.json.Decoder(AckBody)


@operation(
    "POST",
    f"{MESSAGES}/ack",
    "acknowledgeMessages",
    "Acknowledge messages",
    access=READ_WRITE,
    answers=[Answer("One result per message", MessagesAcknowledged)],
    errors=(400, 404, 413, 415, 503),
    parameters=[QUEUE_ID],
    body=AckBody,
)
async def acknowledge_messages(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
    """A message that does not exist is an error in its result."""
    queue = parse_id(queue_id, "queue_id")
    body = await read_json(req, _decoder, server.body_bytes_max)
    ids = _ids_of(body)
    outcomes = await _acknowledge(server, queue, ids)
    resp.content_type = falcon.MEDIA_JSON
    # Mappings: msgspec encodes UUIDs, which is faster than to make strings for the structs.
    results = [
        {"message_id": id_, "deleted": True}
        if outcome == "deleted"
        else {"message_id": id_, "deleted": False, "error": MESSAGE_NOT_FOUND}
        for id_, outcome in zip(ids, outcomes, strict=True)
    ]
    resp.data = msgspec.json.encode({"results": results})


@operation(
    "DELETE",
    MESSAGE,
    "acknowledgeMessage",
    "Acknowledge a message",
    access=READ_WRITE,
    answers=[Answer("The message is deleted", MessageAcknowledged)],
    errors=(400, 404, 503),
    parameters=[QUEUE_ID, MESSAGE_ID],
)
async def acknowledge_message(
    server: Server, _req: QueenRequest, resp: falcon.asgi.Response, queue_id: str, message_id: str
) -> None:
    """404 if the message does not exist."""
    queue, message = parse_id(queue_id, "queue_id"), parse_id(message_id, "message_id")
    [outcome] = await _acknowledge(server, queue, [message])
    if outcome == "missing":
        raise unknown_message()
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode({"message_id": message, "deleted": True})


def _ids_of(body: AckBody) -> list[UUID]:
    texts = either(body, "messageIds", "message_ids")
    if texts is None:
        raise BadRequestError("message_ids is required", "message_ids")
    if not 1 <= len(texts) <= limits.BATCH_MESSAGES_MAX:
        text = f"message_ids must be 1 to {limits.BATCH_MESSAGES_MAX}, not {len(texts)}"
        raise BadRequestError(text, "message_ids")
    return [parse_id(text, f"message_ids[{number}]") for number, text in enumerate(texts)]


async def _acknowledge(server: Server, queue: UUID, ids: list[UUID]) -> Sequence[str]:
    """The outcome per id: ``deleted`` or ``missing``."""
    with OPERATION_SECONDS.labels("ack").time():
        acknowledged: Acknowledged = await server.engine.submit(JobType.ACKNOWLEDGE, Acknowledge(queue, ids)).future
    if "unknown" in acknowledged.outcomes:
        raise unknown_queue(queue)
    return acknowledged.outcomes
