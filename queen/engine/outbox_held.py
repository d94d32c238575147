"""Tries to move messages of the outbox that are held back, one partition at a time.

A try that fails postpones the next one of its partition, which has fewer messages and more time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from queen.core.errors import DatabaseUnavailableError, NoEncryptionKeyError, TooSlowError
from queen.core.limits import REPLAY_CALL_S
from queen.engine.context import Context
from queen.engine.outbox_append import BYTES_MAX, MESSAGES_MAX, append, push_of, reason_of
from queen.engine.ports import OutboxDatabase

log = logging.getLogger("queen.outbox")

#: How often due partitions are looked for, and how many tries may fail each time.
_LOOK_S, _FAILURES_MAX = 1.0, 20
#: The most tries until partitions are let go: the mover has to read again after that.
_TRIES_MAX = 200
#: The most tries for which the mover pauses.
_LAST_TRIES_MAX = 5
#: The longest time limit of a try.
_LIMIT_S = 3600.0


class HeldOutbox:
    """Moves messages that are held back, once they can be.

    Args:
        context: of the engine.
        database: the procedures.
        moving: locked while this worker moves.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        context: Context,
        database: OutboxDatabase,
        moving: asyncio.Lock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context, self._database, self._moving, self._sleep = context, database, moving, sleep
        self._news = asyncio.Event()

    def look(self) -> None:
        """More is held back: it is tried at once."""
        self._news.set()

    async def keep_retrying(self) -> None:
        """Tries what is due, until cancelled.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unavailable.
        """
        while True:
            self._news.clear()
            try:
                is_over = await self._try_some()
            except DatabaseUnavailableError:
                raise
            except Exception as problem:  # any: the mover goes on
                log.warning("Messages of the outbox that are held back are tried later: %s", reason_of(problem))
                is_over = True
            if is_over:
                await self._rest()

    async def _try_some(self) -> bool:
        """Tries what is due, then lets partitions go; says whether nothing more is to be done now."""
        moved = failures = 0
        for _ in range(_TRIES_MAX):
            tried = await self.retry()
            moved, failures = moved + (tried is True), failures + (tried is False)
            if tried is None or failures >= _FAILURES_MAX:
                break
        if moved and failures < _FAILURES_MAX:
            # While the mover is at work, a partition to which messages come all the time is never empty.
            async with self._moving:
                for _ in range(_LAST_TRIES_MAX):
                    if not await self.retry(failed=False):
                        break
                await self._let_go()
        else:
            await self._let_go()
        return tried is None or failures >= _FAILURES_MAX

    async def _let_go(self) -> None:
        try:
            if number := await self._database.let_go():
                log.info("Messages of the outbox of %d partitions are no longer held back", number)
        except TooSlowError as problem:  # the mover is at work
            log.debug("Partitions are held back a little longer: %s", problem)

    async def _rest(self) -> None:
        waits = [asyncio.ensure_future(self._news.wait()), asyncio.ensure_future(self._sleep(_LOOK_S))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def retry(self, *, failed: bool = True) -> bool | None:
        """Tries the partition that is due longest; says whether it got on. ``None``: none is due.

        Args:
            failed: also if its last try failed, so that this one may take long.
        """
        read = await self._database.read_held(MESSAGES_MAX, BYTES_MAX)
        if read is None or (read.tries and not failed):
            return None
        limit_s = min(REPLAY_CALL_S * 2**read.tries, _LIMIT_S) if read.tries else None
        try:
            if read.messages.payloads and not await append(
                self._context,
                push_of([read.messages]),
                {read.messages.queue or "": read.messages.queue_id},
                lambda batch, _: self._database.move_held(read, batch, limit_s),
            ):
                return False
        except DatabaseUnavailableError:
            raise
        except Exception as problem:
            if isinstance(problem, NoEncryptionKeyError):
                # The notification of a change of the queue may have been lost.
                self._context.cache.forget_push_options()
            await self._database.postpone_held(read, reason_of(problem))
            return False
        return True
