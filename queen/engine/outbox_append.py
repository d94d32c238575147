"""Appends messages that were accepted before: what SQL has pushed, held back or not, and timers that are due."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from queen.core.errors import ConflictError, OutcomeUnknownError, QueenError
from queen.engine.context import Context
from queen.engine.handlers.push import announce, current_options, laid_out_anew, lay_out, messages_by_queue, seal
from queen.engine.offer import LongPolls, Offer
from queen.engine.ports import Moved, OutboxPartition, PartitionName, WaitingColumns
from queen.log.append import AppendBatch
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import encode_entry, encode_plain, plain_length

#: The most messages, and bytes of payloads, of one move.
MESSAGES_MAX, BYTES_MAX = 5_000, 8 << 20


def push_of(partitions: Iterable[OutboxPartition]) -> Push:
    """The messages as a push: a batch per partition, without the messages of deleted queues."""
    batches = [_batch(each.queue, each) for each in partitions if each.queue is not None and each.payloads]
    return Push(batches, sum(len(batch.lengths) for batch in batches))


def _entry(payload: bytes, transaction_id: str | None, fields: str | None) -> bytes:
    entry = encode_entry(payload, transaction_id, None, None)
    return b"{%b%b" % (fields.encode(), entry[1:]) if fields else entry


def _batch(queue: str, messages: OutboxPartition) -> PartitionBatch:
    ids, payloads = messages.transaction_ids, messages.payloads
    places = range(len(payloads))
    if not any(ids) and not any(messages.fields):
        lengths = [plain_length(payload) for payload in payloads]
        return PartitionBatch(queue, messages.partition, places, encode_plain(payloads), lengths, None)
    entries = [*map(_entry, payloads, ids, messages.fields)]
    lengths, chosen = [len(entry) + 1 for entry in entries], [each or "" for each in ids] if any(ids) else None
    return PartitionBatch(queue, messages.partition, places, b",".join(entries), lengths, chosen)


Move = Callable[[AppendBatch, WaitingColumns | None], Awaitable[Moved]]


async def append(
    context: Context, push: Push, queues: Mapping[str, int], move: Move, long_polls: LongPolls | None = None
) -> bool:
    """Lays messages out and moves them, again while the layout is outdated; tells consumers. False: moved in vain.

    Args:
        context: of the engine.
        push: the messages.
        queues: the numbers of their queues by name: the messages of one that was deleted are not for its successor,
            which may not even encrypt them.
        move: the call.
        long_polls: those of this worker, which the call may serve in its own transaction.

    Raises:
        QueenError: they cannot be moved now.
    """
    size = sum([len(batch.body) for batch in push.batches])
    offer = long_polls.offer(messages_by_queue([push]), size) if long_polls is not None else None
    try:
        moved = await laid_out_anew(partial(_append, context, push, queues, move, offer))
    finally:
        if long_polls is not None and offer is not None:
            long_polls.take_back(offer)
    if moved:
        announce(context, [push], offer)
    return moved


async def _append(
    context: Context, push: Push, queues: Mapping[str, int], move: Move, offer: Offer | None
) -> bool | None:
    options = await current_options(context)
    batch: AppendBatch | None = await lay_out(context, [seal(context, push, options)], options)
    if batch is None:
        raise ConflictError("A queue is being deleted")
    names = await context.cache.names(batch.part)
    if any(queues[name.queue] != name.queue_id for name in names.values()):
        return False
    moved = await (_serve(context, batch, names, move, offer) if offer is not None else move(batch, None))
    if moved.stale:
        context.cache.forget_push_options()
    if moved.unknown:
        context.cache.forget_partitions(moved.unknown)
    return None if moved.stale or moved.unknown else moved.moved


async def _serve(
    context: Context, batch: AppendBatch, names: Mapping[int, PartitionName], move: Move, offer: Offer
) -> Moved:
    """Makes the call, which also serves the long polls that are offered to it."""
    try:
        moved = await move(batch, offer.columns(context.cache))
    except OutcomeUnknownError:
        context.orphans.add(offer.lose())
        raise
    if moved.given:
        offer.serve(moved.given, batch, moved.appended, names)
    return moved


def reason_of(problem: Exception) -> str:
    """Why messages cannot be moved now."""
    return f"{problem.code if isinstance(problem, QueenError) else 'internal'}: {problem}"
