"""Appends messages that SQL has pushed, whether they come from the outbox or were held back."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from queen.core.errors import ConflictError, QueenError
from queen.engine.context import Context
from queen.engine.handlers.push import announce, current_options, laid_out_anew, lay_out, seal
from queen.engine.ports import Moved, OutboxMessage
from queen.log.append import AppendBatch
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import encode_entry

#: The most messages, and bytes of payloads, of one move.
MESSAGES_MAX, BYTES_MAX = 5_000, 8 << 20


def push_of(messages: Sequence[OutboxMessage]) -> Push:
    """The messages as a push: a batch per partition, without the messages of deleted queues."""
    partitions: dict[tuple[str, str], list[OutboxMessage]] = {}
    for message in messages:
        if message.queue is not None:
            partitions.setdefault((message.queue, message.partition), []).append(message)
    batches = [_batch(queue, name, of_partition) for (queue, name), of_partition in partitions.items()]
    return Push(batches, sum(len(batch.lengths) for batch in batches))


def _batch(queue: str, partition: str, messages: Sequence[OutboxMessage]) -> PartitionBatch:
    entries = [encode_entry(each.payload.encode(), each.transaction_id, None, None) for each in messages]
    ids = [each.transaction_id or "" for each in messages]
    lengths = [len(entry) + 1 for entry in entries]
    return PartitionBatch(queue, partition, range(len(entries)), b",".join(entries), lengths, ids if any(ids) else None)


async def append(
    context: Context, messages: Sequence[OutboxMessage], move: Callable[[AppendBatch], Awaitable[Moved]]
) -> bool:
    """Lays messages out and moves them, again while the layout is outdated; tells consumers. False: moved in vain.

    Raises:
        QueenError: they cannot be moved now.
    """
    push = push_of(messages)
    if not await laid_out_anew(partial(_append, context, push, move)):
        return False
    announce(context, [push])
    return True


async def _append(context: Context, push: Push, move: Callable[[AppendBatch], Awaitable[Moved]]) -> bool | None:
    options = await current_options(context)
    batch: AppendBatch | None = await lay_out(context, [seal(context, push, options)], options)
    if batch is None:
        raise ConflictError("A queue is being deleted")
    moved = await move(batch)
    if moved.stale:
        context.cache.forget_push_options()
    if moved.unknown:
        context.cache.forget_partitions(moved.unknown)
    return None if moved.stale or moved.unknown else moved.moved


def reason_of(problem: Exception) -> str:
    """Why messages cannot be moved now."""
    return f"{problem.code if isinstance(problem, QueenError) else 'internal'}: {problem}"
