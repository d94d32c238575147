"""Replays a dead letter: pushes its payload to a partition and deletes the dead letter, both or neither."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct

from queen.core.administration import DeadLetter, DeadLetterFilter, Failure
from queen.core.errors import (
    DatabaseUnavailableError,
    DecryptionError,
    NoEncryptionKeyError,
    QueenError,
    QueueFullError,
)
from queen.engine.context import Context
from queen.engine.handlers.push import PushAttempt, announce, current_options, laid_out_anew, lay_out, push, seal
from queen.log import ids
from queen.log.requests import PartitionBatch, Push, Pushed
from queen.log.segment import encode_entry
from queen.security.messages import open_payload

#: Before all failures.
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class PutBack(Struct, frozen=True):
    """The message of a replayed dead letter; ``moved`` is false if an earlier replay has stored it."""

    moved: bool
    part_id: int
    offset: int


class Replayed(Struct, frozen=True):
    """A dead letter, the queue and partition that it was pushed to, and the message there."""

    letter: DeadLetter
    queue: str
    partition: str
    put_back: PutBack


#: Finds the dead letter to replay.
Find = Callable[[Context], Awaitable[DeadLetter | None]]
#: Is told of a dead letter before it is replayed, and then what became of it.
Note = Callable[[DeadLetter, Replayed | None], None]


def transaction_id_of(letter: DeadLetter) -> str:
    """The transaction id of a replayed dead letter: a second replay to the same partition is a duplicate."""
    return f"dlq:{ids.dead_letter_id(letter.id)}"


async def find_and_replay(
    context: Context, find: Find, note: Note, queue: str | None = None, partition: str | None = None
) -> Replayed | None:
    """Replays a dead letter, by default to its own queue and partition; ``None``: there is none, or no longer.

    Raises:
        QueenError: as ``replay_dead_letter``.
    """
    letter = await context.with_retries(lambda _again: find(context))
    if letter is None:
        return None
    note(letter, None)
    queue, partition = queue or letter.queue, partition or letter.partition
    source, target = context.at(letter.id), await context.home(queue, partition)
    if target is source:
        put_back = await replay_dead_letter(source, letter, queue, partition)
    else:
        put_back = await _move(source, target, letter, queue, partition)
    if put_back is None:
        return None
    replayed = Replayed(letter, queue, partition, put_back)
    note(letter, replayed)
    return replayed


class ReplayedPage(Struct):
    """What became of a page of dead letters; ``problem``: why the first of ``failed`` could not be replayed.

    ``next``: where the next page begins; ``None``: this was the last.
    """

    next: Failure | None = None
    replayed: int = 0
    duplicates: int = 0
    failed: int = 0
    problem: str | None = None


async def replay_page(
    context: Context, wanted: DeadLetterFilter, after: Failure | None, step: int, note: Note
) -> ReplayedPage:
    """Replays those of a queue that match, oldest failure first, one after the other; it looks at ``step``.

    One that cannot be replayed is kept, and the others go on. Of several databases one comes after the other.
    """
    place = after.id if after is not None and after.id is not None else 0
    letters = context.at(place).administration.dead_letters
    numbers, further = await context.with_retries(lambda _again: letters.match(wanted, after, step))
    if further is None and (begin := context.following(place)) is not None:
        further = Failure(_LONG_AGO, begin)
    page = ReplayedPage(further)
    for number in numbers:
        try:
            replayed = await find_and_replay(context, lambda _context, number=number: letters.find(number), note)  # type: ignore[misc]
        except (QueueFullError, DecryptionError, NoEncryptionKeyError) as error:
            page.failed += 1
            page.problem = page.problem or str(error)
            continue
        if replayed is not None:
            page.replayed += replayed.put_back.moved
            page.duplicates += not replayed.put_back.moved
    return page


async def replay_dead_letter(context: Context, letter: DeadLetter, queue: str, partition: str) -> PutBack | None:
    """Replays a dead letter to a partition; ``None`` if the dead letter does not exist any more.

    Raises:
        DatabaseUnavailableError: PostgreSQL stayed unavailable.
        DecryptionError: the payload cannot be read.
        NoEncryptionKeyError: the queue is encrypted, and there is no key.
        QueueFullError: the queue has no room.
        TooSlowError: the call was too slow, and nothing was done.
    """
    return (await laid_out_anew(partial(_attempt, context, letter, _push(context, letter, queue, partition))))[0]


async def _move(source: Context, target: Context, letter: DeadLetter, queue: str, partition: str) -> PutBack:
    """Pushes a dead letter to another database than its own, and deletes it when it is stored there.

    Between the two it is in both. Then the next replay finds its transaction id there, and only deletes it.
    """
    request = _push(source, letter, queue, partition)
    [answer] = await push(target, PushAttempt([request]))
    if not isinstance(answer, Pushed):
        raise answer if isinstance(answer, QueenError) else DatabaseUnavailableError("The push waits in the spool")
    announce(target, [request])
    await source.tried(lambda _again: source.administration.dead_letters.delete(letter.id))
    [stored] = answer.stored
    return PutBack(True, stored.part_id, stored.offset(0))


async def _attempt(context: Context, letter: DeadLetter, request: Push) -> tuple[PutBack | None] | None:
    options = await current_options(context)
    sealed, [target] = seal(context, request, options), request.batches
    batch = await context.with_retries(lambda _again: context.past_locks(lambda: lay_out(context, [sealed], options)))
    if batch is None:
        return None
    replayed = await context.with_retries(
        lambda again: context.administration.dead_letters.replay(letter.id, batch, again=again)
    )
    match replayed.outcome:
        case "unknown":
            context.cache.forget_queue(target.queue)
            return None
        case "stale":
            context.cache.forget_push_options()
            return None
        case "full":
            raise QueueFullError(
                f"Queue {target.queue!r} is full (maxSize). Try again when its consumers have caught up"
            )
    if replayed.off is None:
        return (None,)
    announce(context, [request])
    return (PutBack(replayed.outcome == "moved", batch.part[0], replayed.off),)


def _push(context: Context, letter: DeadLetter, queue: str, partition: str) -> Push:
    chosen = transaction_id_of(letter)
    headers = msgspec.json.decode(letter.headers, type=dict[str, str]) if letter.headers else None
    entry = encode_entry(_payload(context, letter), chosen, letter.trace_id or None, letter.producer_sub, headers)
    return Push([PartitionBatch(queue, partition, [0], entry, [len(entry) + 1], [chosen])], 1)


def _payload(context: Context, letter: DeadLetter) -> bytes:
    """The payload in clear: the encryption is bound to the partition that it was pushed to."""
    payload = letter.payload.encode()
    if letter.key_id is None:
        return payload
    return open_payload(letter.key_id, payload, letter.queue, letter.partition, context.keys)
