"""Replays a dead letter, found by its id or by its message: ``/api/v1/dlq/{deadLetterId}/replay``, ``…/retry``."""

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import NotFoundError
from queen.engine.handlers.dead_letters import Replayed, find_and_replay, transaction_id_of
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.fields import Name
from queen.http.operation import Answer, operation
from queen.http.parameters import DEAD_LETTER_ID, PARTITION_ID, TRANSACTION_ID
from queen.http.parsing import check_name, decode
from queen.http.queries import DEAD_LETTER_NOT_FOUND, MESSAGE_NOT_FOUND, dead_letter_number, message_key
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.noted_letters import noting
from queen.operations.server import Server

_BODY_BYTES_MAX = 64 * 1024


class ReplayBody(Struct):
    """The target of a replay.

    Attributes:
        queue: by default the queue of the dead letter.
        partition: by default the partition of the dead letter.
    """

    queue: Name | None = None
    partition: Name | None = None


class ReplayedAs(Struct):
    """The message that a replay pushed; field names are those of a push."""

    index: int
    message_id: str
    transaction_id: str
    queueName: str  # noqa: N815 - the interface's name
    status: str
    offset: int


class ReplayAnswer(Struct, rename="camel"):
    """The result of a replay: ``moved``, or ``duplicate`` (nothing was written, and the dead letter is kept)."""

    success: bool
    result: str
    queue: str
    partition: str
    consumer_group: str
    dlq_id: str
    original_transaction_id: str
    replayed_as: ReplayedAs
    dlq_row_removed: bool


_decoder = msgspec.json.Decoder(ReplayBody)
_ANSWERS = [Answer("Queue and partition of the new message", ReplayAnswer)]
_ERRORS = (400, 404, 422, 429, 503)


@operation(
    "POST",
    "/api/v1/dlq/{deadLetterId}/replay",
    "replayDeadLetter",
    "Replay a dead letter",
    access=READ_WRITE,
    answers=_ANSWERS,
    errors=_ERRORS,
    description="Pushes it to the end of its partition, or of the partition given in the body.",
    parameters=[DEAD_LETTER_ID],
    body=ReplayBody,
    needs_body=False,
    audited=True,
)
async def replay_dead_letter(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, dead_letter_id: str
) -> None:
    """Pushes it to the end of its partition, or of the partition given in the body."""
    number = dead_letter_number(dead_letter_id)
    raw = bytes(await req.stream.read(_BODY_BYTES_MAX))
    target = decode(_decoder, raw, {}) if raw else ReplayBody()
    for field in ("queue", "partition"):
        if (name := getattr(target, field)) is not None:
            check_name(name, field)
    replayed = await server.run(
        lambda context: find_and_replay(
            context,
            lambda context: context.reads.dead_letters.find(number),
            noting(req),
            target.queue,
            target.partition,
        )
    )
    if replayed is None:
        raise NotFoundError(DEAD_LETTER_NOT_FOUND)
    answer(resp, _answer(replayed))


@operation(
    "POST",
    "/api/v1/messages/{partitionId}/{transactionId}/retry",
    "retryMessage",
    "Replay the newest dead letter of a message",
    access=READ_WRITE,
    answers=_ANSWERS,
    errors=_ERRORS,
    parameters=[PARTITION_ID, TRANSACTION_ID],
    audited=True,
)
async def retry_message(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, partition_id: str, transaction_id: str
) -> None:
    """Pushes it to the end of its partition."""
    key = message_key(partition_id, transaction_id)
    replayed = await server.run(
        lambda context: find_and_replay(
            context, lambda context: context.reads.dead_letters.find_newest(key), noting(req)
        )
    )
    if replayed is None:
        raise NotFoundError(MESSAGE_NOT_FOUND)
    answer(resp, _answer(replayed))


def _answer(replayed: Replayed) -> ReplayAnswer:
    letter, put_back = replayed.letter, replayed.put_back
    return ReplayAnswer(
        True,
        "moved" if put_back.moved else "duplicate",
        replayed.queue,
        replayed.partition,
        letter.consumer_group,
        ids.dead_letter_id(letter.id),
        letter.transaction_id,
        ReplayedAs(
            0,
            ids.message_id(put_back.part_id, put_back.offset),
            transaction_id_of(letter),
            replayed.queue,
            "queued" if put_back.moved else "duplicate",
            put_back.offset,
        ),
        put_back.moved,
    )
