"""Moves a message to the dead letters: ``POST /api/v1/messages/{partitionId}/{transactionId}/dlq``."""

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import ConflictError, NotFoundError
from queen.core.limits import ERROR_TEXT_CHARS_MAX
from queen.engine.handlers.give_up import give_up
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.fields import GroupName
from queen.http.operation import Answer, operation
from queen.http.parameters import PARTITION_ID, TRANSACTION_ID
from queen.http.parsing import check_group, decode
from queen.http.queries import MESSAGE_NOT_FOUND, message_key
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.server import Server

_BODY_BYTES_MAX = 64 * 1024


class GiveUpBody(Struct, rename="camel"):
    """The group for which a message becomes a dead letter, and the error.

    Attributes:
        consumer_group: by default all that have not acknowledged it.
        error: stored with the dead letter, up to 10,000 characters.
    """

    consumer_group: GroupName | None = None
    error: str | None = None


class GivenUpAnswer(Struct, rename="camel"):
    """A message that is now a dead letter of some groups."""

    success: bool
    partition_id: str
    transaction_id: str
    consumer_groups: list[str]
    message: str


_decoder = msgspec.json.Decoder(GiveUpBody)


@operation(
    "POST",
    "/api/v1/messages/{partitionId}/{transactionId}/dlq",
    "giveUpMessage",
    "Move a message to the dead letters",
    access=READ_WRITE,
    answers=[Answer("The groups for which the message is now a dead letter", GivenUpAnswer)],
    errors=(400, 404, 409, 503),
    description="Applies to the given group, or to all that have not acknowledged the message.",
    parameters=[PARTITION_ID, TRANSACTION_ID],
    body=GiveUpBody,
    needs_body=False,
    audited=True,
)
async def give_up_message(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, partition_id: str, transaction_id: str
) -> None:
    """Answers the groups; 409 if there is none for which it can become a dead letter."""
    key = message_key(partition_id, transaction_id)
    raw = bytes(await req.stream.read(_BODY_BYTES_MAX))
    body = decode(_decoder, raw, {}) if raw else GiveUpBody()
    group = check_group(body.consumer_group, "consumerGroup", "") or None
    error = (body.error or "Moved to the dead letters on request")[:ERROR_TEXT_CHARS_MAX]
    error = error.replace("\0", "\N{REPLACEMENT CHARACTER}")
    moved = await server.run(lambda context: give_up(context, key, group, error))
    if not moved.known:
        raise NotFoundError(MESSAGE_NOT_FOUND)
    if not moved.groups:
        raise ConflictError(
            f"The consumer group {group} does not exist or has completed the message"
            if group
            else "Every consumer group has completed the message"
        )
    text = "Message moved to the dead letters"
    answer(resp, GivenUpAnswer(True, ids.partition_id(key.part_id), transaction_id, list(moved.groups), text))
