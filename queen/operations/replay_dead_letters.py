"""Replays dead letters of a queue, a page per request: ``POST /api/v1/dlq/replay``."""

from datetime import UTC
from typing import Annotated

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.administration import DeadLetterFilter, Failure
from queen.core.errors import BadRequestError
from queen.engine.context import Context
from queen.engine.handlers.dead_letters import ReplayedPage, replay_page
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.fields import Name, Time, between
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name, decode, parse_time
from queen.http.rendering import timestamp
from queen.http.request import QueenRequest, read_body
from queen.log import ids
from queen.operations.list_dead_letters import check_error
from queen.operations.noted_letters import noting
from queen.operations.queue_rows import check_queue
from queen.operations.server import Server

_BODY_BYTES_MAX = 64 * 1024
_LIMIT, _LIMIT_MAX = 200, 1000


Limit = Annotated[int, between(1, _LIMIT_MAX)]


class After(Struct, rename="camel"):
    """A dead letter: its id and when it failed."""

    id: str
    failed_at: Time


class ReplayAllBody(Struct, rename="camel"):
    """The dead letters to replay.

    Attributes:
        queue: of this queue.
        consumer_group: only those of this group.
        partition: only those of this partition.
        error: only those with this error text; of a longer one its first 1000 characters.
        after: only what failed after this one, from the ``next`` of the last answer.
        limit: maximum of dead letters that are looked at.
    """

    queue: Name
    consumer_group: Name | None = None
    partition: Name | None = None
    error: str | None = None
    after: After | None = None
    limit: Limit = _LIMIT


class ReplayedAll(Struct, rename="camel"):
    """What became of them.

    Attributes:
        replayed: pushed to the end of their partitions.
        duplicates: were replayed before; nothing was written, and the dead letters are kept.
        failed: could not be replayed and are kept.
        problem: why the first of these could not be replayed.
        next: where the next request begins; null: these were all.
    """

    replayed: int
    duplicates: int
    failed: int
    problem: str | None
    next: After | None


_decoder = msgspec.json.Decoder(ReplayAllBody)


@operation(
    "POST",
    "/api/v1/dlq/replay",
    "replayDeadLetters",
    "Replay the dead letters of a queue",
    access=READ_WRITE,
    answers=[Answer("What became of a page of them", ReplayedAll)],
    errors=(400, 404, 413, 503),
    description="Pushes each to the end of its partition, oldest failure first. Repeat with `next` as `after` until it "
    "is null.",
    body=ReplayAllBody,
    audited=True,
)
async def replay_dead_letters(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """A page of those that match."""
    body = decode(_decoder, await read_body(req, _BODY_BYTES_MAX), {})
    for field, name in (("queue", body.queue), ("consumerGroup", body.consumer_group), ("partition", body.partition)):
        if name is not None:
            check_name(name, field)
    wanted = DeadLetterFilter(body.queue, body.consumer_group, body.partition, check_error(body.error))
    if not 1 <= body.limit <= _LIMIT_MAX:
        raise BadRequestError(f"limit must be from 1 to {_LIMIT_MAX}, not {body.limit}", "limit")
    after = _place(body.after)

    async def replay(context: Context) -> ReplayedPage:
        await context.with_retries(lambda _again: check_queue(context, body.queue))
        return await replay_page(context, wanted, after, body.limit, noting(req))

    done = await server.run(replay)
    answer(resp, ReplayedAll(done.replayed, done.duplicates, done.failed, done.problem, _after(done.next)))


def _after(place: Failure | None) -> After | None:
    if place is None or place.id is None or place.failed_at is None:
        return None
    return After(ids.dead_letter_id(place.id), timestamp(place.failed_at.astimezone(UTC)))


def _place(after: After | None) -> Failure | None:
    if after is None:
        return None
    number = ids.parse_dead_letter_id(after.id)
    if number is None:
        raise BadRequestError("after.id is not the id of a dead letter", "after")
    return Failure(parse_time(after.failed_at, "after"), number)
