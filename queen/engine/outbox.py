"""Moves what SQL has pushed (``sql/procedures/outbox``) into the log: in the order of transactions, once each."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from queen.core.backoff import doubled
from queen.core.errors import DatabaseUnavailableError, QueenError
from queen.engine.context import Context
from queen.engine.handlers.push import announce, current_options, laid_out_anew, lay_out, seal
from queen.engine.ports import OutboxDatabase, OutboxMessage, OutboxRead
from queen.log.append import AppendBatch
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import encode_entry

#: The most messages, and bytes of payloads, of one move.
_MESSAGES_MAX, _BYTES_MAX = 5_000, 8 << 20
#: The pause after a look that found nothing: the first, and the longest while the outbox is in use, and else.
_PAUSE_MS, _USED_PAUSE_MS, _UNUSED_PAUSE_MS = 1.0, 25.0, 250.0
#: How long after a message the outbox counts as in use, in seconds.
_USED_S = 60.0


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


class Outbox:
    """Moves messages from the outbox into the log.

    Args:
        context: of the engine.
        database: the procedures.
        leads: whether this worker runs the background jobs. Two workers may move at once: one of them in vain.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        context: Context,
        database: OutboxDatabase,
        leads: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context, self._database, self._leads, self._sleep = context, database, leads, sleep
        self._used_at = -_USED_S

    async def run(self) -> None:
        """Moves messages until this worker does not lead any more.

        Raises:
            DatabaseUnavailableError: messages could not be moved now; the next run goes on.
        """
        try:
            await self._run()
        except QueenError as problem:
            raise DatabaseUnavailableError(str(problem)) from problem

    async def _run(self) -> None:
        await self._database.restart()
        pause_ms = 0.0
        while self._leads():
            if await self.move():
                self._used_at, pause_ms = time.monotonic(), 0.0
                continue
            is_used = time.monotonic() - self._used_at < _USED_S
            pause_ms = doubled(pause_ms, _PAUSE_MS, _USED_PAUSE_MS if is_used else _UNUSED_PAUSE_MS)
            await self._sleep(pause_ms / 1000)

    async def move(self) -> int:
        """Moves the next messages; returns their number."""
        read = await self._database.read(_MESSAGES_MAX, _BYTES_MAX)
        if read is None:
            return 0
        push = push_of(read.messages)
        if not await laid_out_anew(partial(self._move, read, push)):
            return 0
        announce(self._context, [push])
        return len(read.messages)

    async def _move(self, read: OutboxRead, push: Push) -> bool | None:
        options = await current_options(self._context)
        sealed = seal(self._context, push, options)
        batch: AppendBatch | None = await lay_out(self._context, [sealed], options)
        if batch is None:
            return False  # a queue is being deleted: the next read says so
        moved = await self._database.move(read, batch)
        if moved.stale:
            self._context.cache.forget_push_options()
        if moved.unknown:
            self._context.cache.forget_partitions(moved.unknown)
        return None if moved.stale or moved.unknown else moved.moved
