"""Moves what was accepted elsewhere into the log: what SQL has pushed, and timers that are due."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from queen.core.backoff import doubled
from queen.core.errors import DatabaseUnavailableError, QueenError
from queen.engine.context import Context
from queen.engine.handlers.push import current_options, laid_out_anew, lay_out, seal
from queen.engine.ports import Moved, OutboxMessage, TimerMessage
from queen.log.append import AppendBatch
from queen.log.requests import PartitionBatch, Push

#: The most messages, and bytes of payloads, of one move.
MESSAGES_MAX, BYTES_MAX = 5_000, 8 << 20
#: The pause after a look that found nothing: the first, and the longest while the source is in use, and else.
_PAUSE_MS, _USED_PAUSE_MS, UNUSED_PAUSE_MS = 1.0, 25.0, 250.0
#: How long after a message a source counts as in use, in seconds.
_USED_S = 60.0


class Source(Protocol):
    """Where accepted messages wait."""

    @property
    def due_in_s(self) -> float:
        """The longest pause before the next look, as of the last one."""

    async def start(self) -> None:
        """Forgets what earlier looks have found."""

    async def move(self) -> int:
        """Moves the next messages; returns their number."""


def push_of(messages: Iterable[OutboxMessage | TimerMessage]) -> Push:
    """The messages as a push: a batch per partition, without the messages of deleted queues."""
    partitions: dict[tuple[str, str], list[OutboxMessage | TimerMessage]] = {}
    for message in messages:
        if message.queue is not None:
            partitions.setdefault((message.queue, message.partition), []).append(message)
    batches = [_batch(queue, name, of_partition) for (queue, name), of_partition in partitions.items()]
    return Push(batches, sum(len(batch.lengths) for batch in batches))


def _batch(queue: str, partition: str, messages: Sequence[OutboxMessage | TimerMessage]) -> PartitionBatch:
    entries = [each.entry for each in messages]
    ids = [each.transaction_id or "" for each in messages]
    lengths = [len(entry) + 1 for entry in entries]
    return PartitionBatch(queue, partition, range(len(entries)), b",".join(entries), lengths, ids if any(ids) else None)


async def append(context: Context, push: Push, move: Callable[[AppendBatch], Awaitable[Moved]]) -> bool:
    """Whether ``move`` has appended the messages, laid out for it; they are laid out again if that is outdated."""
    return await laid_out_anew(partial(_append, context, push, move))


async def _append(context: Context, push: Push, move: Callable[[AppendBatch], Awaitable[Moved]]) -> bool | None:
    options = await current_options(context)
    sealed = seal(context, push, options)
    batch: AppendBatch | None = await lay_out(context, [sealed], options)
    if batch is None:
        return False  # a queue is being deleted: the next read says so
    moved = await move(batch)
    if moved.stale:
        context.cache.forget_push_options()
    if moved.unknown:
        context.cache.forget_partitions(moved.unknown)
    return None if moved.stale or moved.unknown else moved.moved


class Mover:
    """Moves messages from a source into the log.

    Args:
        source: where they wait.
        leads: whether this worker runs the background jobs. Two workers may move at once: one of them in vain.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        source: Source,
        leads: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source, self._leads, self._sleep = source, leads, sleep
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
        await self._source.start()
        pause_ms = 0.0
        while self._leads():
            if await self._source.move():
                self._used_at, pause_ms = time.monotonic(), 0.0
                continue
            is_used = time.monotonic() - self._used_at < _USED_S
            pause_ms = doubled(pause_ms, _PAUSE_MS, _USED_PAUSE_MS if is_used else UNUSED_PAUSE_MS)
            await self._sleep(min(pause_ms / 1000, self._source.due_in_s))
