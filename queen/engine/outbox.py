"""Moves what SQL has pushed (``sql/procedures/outbox``) into the log: in the order of transactions, once each.

The worker that leads the background jobs moves. If what waits is not moved for a second, because that worker was killed
or does not get on, another one stands in for it. Two may move at once: one of them in vain.

What cannot be moved is *held back*, with what comes later in its partitions: it goes to a table of its own, and is
tried again there, after pauses that grow (``queen.engine.outbox_held``).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable

from queen.core.errors import DatabaseUnavailableError, NoEncryptionKeyError, TooSlowError
from queen.engine.context import Context
from queen.engine.handlers.push import current_options
from queen.engine.offer import LongPolls
from queen.engine.outbox_append import BYTES_MAX, MESSAGES_MAX, append, push_of, reason_of
from queen.engine.outbox_held import HeldOutbox
from queen.engine.ports import OutboxDatabase, OutboxPartition, OutboxRead, PushOptions

log = logging.getLogger("queen.outbox")

#: The pause after a look that found nothing: a part of the time since the last message, at least, and at most while the
#: outbox is in use, and else.
_PAUSE_SHARE, _PAUSE_S, _USED_PAUSE_S, _UNUSED_PAUSE_S = 1 / 8, 0.001, 0.025, 0.25
#: For how long PostgreSQL may look again and again, in a call; longer pauses are made here.
_LOOKS_MS = 10
#: How long after a message the outbox counts as in use, in seconds.
_USED_S = 60.0
#: How often a worker that does not move looks whether anybody does, and the pause after a failure.
_WATCH_S = 1.0


class Outbox:
    """Moves messages from the outbox into the log.

    Args:
        context: of the engine.
        database: the procedures.
        long_polls: those of this worker, which a move serves in its own transaction.
        leads: whether this worker runs the background jobs.
        clock: monotonic, in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        context: Context,
        database: OutboxDatabase,
        long_polls: LongPolls,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context, self._database, self._long_polls, self._leads = context, database, long_polls, leads
        self._clock, self._sleep = clock, sleep
        self._moving = asyncio.Lock()
        self._held = HeldOutbox(context, database, self._moving, sleep)
        self._led = self._stands_in = False
        self._waiting_at: int | None = None
        self._used_at = -_USED_S
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task that moves, if this worker is to."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                if await self._is_to_move():
                    await self._move_on()
            except (DatabaseUnavailableError, TooSlowError) as problem:
                log.warning("The outbox could not be moved: %s", problem)
            except Exception:
                log.exception("The outbox could not be moved")
            await self._sleep(_WATCH_S)

    async def _is_to_move(self) -> bool:
        """Whether this worker leads, or nothing was moved since it last looked although messages waited."""
        if self._leads():
            if not self._led:
                await self._database.restart()
                self._led = True
            return True
        self._led = False
        read = await self._database.read(1, 1)
        before, self._waiting_at = self._waiting_at, read.moves if read is not None else None
        self._stands_in = read is not None and read.moves == before
        return self._stands_in

    async def _move_on(self) -> None:
        """Moves for as long as this worker is to: one that stands in, until another one moves as well."""
        retrying = asyncio.ensure_future(self._held.keep_retrying())
        try:
            while self._leads() or self._stands_in:
                if retrying.done():
                    retrying.result()
                async with self._moving:
                    moved = await self.move()
                if moved:
                    self._used_at = self._clock()
                elif (pause_s := self._pause_s()) >= _LOOKS_MS / 1000:
                    await self._sleep(pause_s)
        finally:
            self._stands_in = False
            retrying.cancel()
            await asyncio.gather(retrying, return_exceptions=True)

    def _pause_s(self) -> float:
        unused_s = self._clock() - self._used_at
        longest_s = _USED_PAUSE_S if unused_s < _USED_S else _UNUSED_PAUSE_S
        return min(max(unused_s * _PAUSE_SHARE, _PAUSE_S), longest_s)

    async def move(self) -> int:
        """Moves the next messages, or holds them back; returns their number."""
        pause_ms = int(1000 * self._pause_s())
        read = await self._database.read(MESSAGES_MAX, BYTES_MAX, pause_ms, max(1, _LOOKS_MS // pause_ms))
        if read is None:
            return 0
        partitions = [each for each in read.partitions if not each.held and each.queue is not None]
        keyless = self._keyless(partitions, await current_options(self._context))
        try:
            moved = await self._move(read, partitions, keyless, f"{NoEncryptionKeyError.code}: the servers have no key")
        except DatabaseUnavailableError:
            raise
        except Exception as problem:
            moved = await self._move(read, partitions, frozenset(map(_place, partitions)), reason_of(problem))
        self._stands_in = self._stands_in and moved
        if not moved:
            await self._sleep(_PAUSE_S)  # another worker moves
        return read.rows if moved else 0

    def _keyless(self, partitions: Iterable[OutboxPartition], options: PushOptions) -> frozenset[tuple[int, str]]:
        """The partitions whose messages must be encrypted, and cannot be."""
        if self._context.keys is not None:
            return frozenset()
        return frozenset([_place(each) for each in partitions if each.queue in options.encrypted])

    async def _move(
        self, read: OutboxRead, partitions: Iterable[OutboxPartition], hold: Collection[tuple[int, str]], reason: str
    ) -> bool:
        if hold:
            log.warning("Messages of the outbox of %d partitions are held back: %s", len(hold), reason)
        movable = [each for each in partitions if _place(each) not in hold]
        queues = {each.queue: each.queue_id for each in movable if each.queue is not None}
        moved = await append(
            self._context,
            push_of(movable),
            queues,
            lambda batch, waiting: self._database.move(read, batch, waiting, hold, reason),
            self._long_polls,
        )
        if moved and hold:
            self._held.look()
        return moved


def _place(messages: OutboxPartition) -> tuple[int, str]:
    return messages.queue_id, messages.partition
