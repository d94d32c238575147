"""A dead letter that is put back: its payload to the tail of a partition, and the dead letter away, both or nothing."""

from msgspec import Struct

from queen.core import ids
from queen.core.administration import DeadLetter
from queen.core.errors import DatabaseUnavailableError, QueueFullError
from queen.core.operations import Lot, Push
from queen.core.segment import encode_entry
from queen.engine.context import Context
from queen.engine.handlers.push import CHANGES_TOO_OFTEN, LAYOUTS_MAX, current_options, lay_out_in, seal
from queen.engine.ports import Notice
from queen.security.messages import open_payload


class PutBack(Struct, frozen=True):
    """The message that a dead letter has become, or, if it was not moved, that became of it earlier."""

    moved: bool
    part_id: int
    offset: int


def transaction_id_of(letter: DeadLetter) -> str:
    """Under which a dead letter is pushed again: a second replay to the same partition is a duplicate."""
    return f"dlq:{ids.dead_letter_id(letter.id)}"


async def replay_dead_letter(context: Context, letter: DeadLetter, queue: str, partition: str) -> PutBack | None:
    """What became of a replay to that partition; ``None``: the dead letter is gone.

    Raises:
        DatabaseUnavailableError: PostgreSQL stayed away.
        DecryptionError: the payload cannot be read.
        NoEncryptionKeyError: the queue is encrypted, and there is no key.
        QueueFullError: the queue has no room.
        TooSlowError: the call was too slow, and nothing was done.
    """
    request = _push(context, letter, queue, partition)
    for _ in range(LAYOUTS_MAX):
        options = await current_options(context)
        part_ids = await context.patiently(
            lambda _again: context.past_locks(lambda: context.directory.partitions([(queue, partition)], create=True))
        )
        if not part_ids:
            continue
        flush = await lay_out_in(context, [seal(context, request, options)], part_ids, options)
        replayed = await context.patiently(
            lambda again, f=flush: context.administration.dead_letters.replay(letter.id, f.columns, again=again)  # type: ignore[misc]
        )
        if replayed.outcome == "unknown":
            context.directory.forget_queue(queue)
            continue
        if replayed.outcome == "stale":
            context.directory.forget_push_options()
            continue
        if replayed.outcome == "full":
            raise QueueFullError(f"Queue {queue!r} is full (maxSize): try again when its consumers have caught up")
        if replayed.off is None:
            return None
        context.heard(Notice(queue, 1))
        return PutBack(replayed.outcome == "moved", part_ids[queue, partition], replayed.off)
    raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)


def _push(context: Context, letter: DeadLetter, queue: str, partition: str) -> Push:
    chosen = transaction_id_of(letter)
    entry = encode_entry(_payload(context, letter), chosen, letter.trace_id or None, letter.producer_sub)
    return Push([Lot(queue, partition, [0], entry, [len(entry) + 1], [chosen])], 1)


def _payload(context: Context, letter: DeadLetter) -> bytes:
    """In clear: what is encrypted is bound to the partition that it was pushed to."""
    payload = letter.payload.encode()
    if letter.key_id is None:
        return payload
    return open_payload(letter.key_id, payload, letter.queue, letter.partition, context.keys)
