"""Moves timers that are due (``sql/procedures/timers``) into the log: in the order of their times, once each.

What cannot be moved holds back its own partitions, which are tried again after pauses that grow.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from queen.core.backoff import doubled
from queen.core.errors import DatabaseUnavailableError, NoEncryptionKeyError, TooSlowError
from queen.core.limits import REPLAY_CALL_S
from queen.engine.context import Context
from queen.engine.handlers.push import current_options
from queen.engine.outbox_append import BYTES_MAX, MESSAGES_MAX, append, reason_of
from queen.engine.ports import TimerMessage, TimersDatabase
from queen.log.requests import PartitionBatch, Push

log = logging.getLogger("queen.timers")

#: The pause after a look that found nothing, unless a timer is due before: the first, and the longest.
_PAUSE_S, _PAUSE_MAX_S = 0.001, 0.25
#: A read begins so long before the last timer that was moved: one that was accepted late may be due before it.
_MARGIN = timedelta(seconds=0.5)
#: A read of everything that is due comes each second, or after so many times as long as the last one took.
_WHOLE_S, _WHOLE_SHARE = 1.0, 20
#: The pause before a partition is tried again: the first, and the longest.
_HELD_S, _HELD_MAX_S = 1.0, 60.0
#: The longest time limit of a call. One message may be as large as a request.
_LIMIT_MAX_S = 64.0

Place = tuple[int, str]


class _Held(Struct):
    """A partition that is held back, for a pause, until a time, after so many tries."""

    pause_s: float
    until: float
    tries: int


def push_of(messages: Sequence[TimerMessage]) -> Push:
    """The messages as a push: a batch per partition, without the messages of deleted queues."""
    partitions: dict[tuple[str, str], list[TimerMessage]] = {}
    for message in messages:
        if message.queue is not None:
            partitions.setdefault((message.queue, message.partition), []).append(message)
    return Push([_batch(*place, of_place) for place, of_place in partitions.items()], len(messages))


def _batch(queue: str, partition: str, messages: Sequence[TimerMessage]) -> PartitionBatch:
    entries = [each.entry for each in messages]
    lengths, ids = [len(entry) + 1 for entry in entries], [each.transaction_id for each in messages]
    return PartitionBatch(queue, partition, range(len(entries)), b",".join(entries), lengths, ids)


class Timers:
    """Moves timers into the log.

    Args:
        context: of the engine.
        database: the procedures.
        leads: whether this worker runs the background jobs. Two workers may move at once: one of them in vain.
        clock: monotonic, in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        context: Context,
        database: TimersDatabase,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context, self._database, self._leads = context, database, leads
        self._clock, self._sleep = clock, sleep
        self._since: datetime | None = None
        self._whole_at = -math.inf
        self._most = MESSAGES_MAX
        self._due_in_s = math.inf
        self._held: dict[Place, _Held] = {}
        self._read_at = -math.inf
        self._slow_reads = 0

    async def run(self) -> None:
        """Moves timers until this worker does not lead any more.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unavailable.
        """
        self._whole_at, pause_s = -math.inf, 0.0
        while self._leads():
            if await self.move():
                pause_s = 0.0
            else:
                pause_s = doubled(pause_s, _PAUSE_S, _PAUSE_MAX_S)
                await self._sleep(min(pause_s, self._due_in_s))

    async def move(self) -> int:
        """Moves the next timers; returns their number."""
        read = await self._read()
        messages = await self._with_keys(read)
        # What has failed twice would make the others fail.
        apart = [each for each in messages if self._tries(each) > 1]
        together = [each for each in messages if self._tries(each) <= 1]
        moved = await self._move_apart(apart) if apart else 0
        moved += await self._move_together(together) if together else 0
        return moved or len(read) - len(messages)

    async def _with_keys(self, messages: Sequence[TimerMessage]) -> Sequence[TimerMessage]:
        """The messages without those that must be encrypted and cannot be: their partitions are held back."""
        if self._context.keys is not None or not messages:
            return messages
        encrypted = (await current_options(self._context)).encrypted
        keyless = {_place(each): each for each in messages if each.queue in encrypted}
        for each in keyless.values():
            self._hold(each, f"{NoEncryptionKeyError.code}: the servers have no key", tried=False)
        return [each for each in messages if _place(each) not in keyless] if keyless else messages

    def _tries(self, message: TimerMessage) -> int:
        held = self._held.get(_place(message)) if self._held else None
        return held.tries if held is not None else 0

    async def _move_together(self, messages: Sequence[TimerMessage]) -> int:
        try:
            moved = await self._move(messages)
        except DatabaseUnavailableError:
            raise
        except Exception as problem:  # any: a message that cannot be moved must not stop the others
            log.warning("Timers are moved one partition at a time: %s", reason_of(problem))
            return await self._move_apart(messages)
        # If one of them is being changed or cancelled, nothing was moved. If many are, fewer at once get through.
        if moved:
            self._since = messages[-1].deliver_at - _MARGIN
            for message in messages if self._held else ():
                self._held.pop(_place(message), None)
        elif self._most == 1:
            self._hold(messages[0], "another transaction has locked the timer", tried=False)
        self._most = MESSAGES_MAX if moved else max(self._most // 2, 1)
        return len(messages) if moved else 0

    async def _read(self) -> Sequence[TimerMessage]:
        began = self._clock()
        held = [place for place, each in self._held.items() if each.until > began]
        # What was held back until now has been due for long.
        whole = began >= self._whole_at or any(self._read_at < each.until <= began for each in self._held.values())
        self._read_at = began
        limit_s = _limit_s(self._slow_reads)
        try:
            read = await self._database.read(
                None if whole else self._since, self._most, BYTES_MAX, _PAUSE_MAX_S, held, limit_s
            )
        except TooSlowError:
            self._slow_reads += 1
            raise
        self._slow_reads = 0
        if whole:
            ended = self._clock()
            self._whole_at = ended + max(_WHOLE_S, _WHOLE_SHARE * (ended - began))
        self._due_in_s = math.inf if read.due_in_s is None else read.due_in_s
        return read.messages

    async def _move(self, messages: Sequence[TimerMessage], limit_s: float | None = None) -> bool:
        queues = {message.queue: message.queue_id for message in messages if message.queue is not None}
        return await append(
            self._context,
            push_of(messages),
            queues,
            lambda batch, _: self._database.move(messages, batch, limit_s=limit_s),
        )

    async def _move_apart(self, messages: Sequence[TimerMessage]) -> int:
        """Moves the timers of each partition by themselves, and holds back those that cannot be moved."""
        places: dict[Place, list[TimerMessage]] = {}
        for message in messages:
            places.setdefault(_place(message), []).append(message)
        moved = 0
        for place, of_place in places.items():
            try:
                if await self._move(of_place, _limit_s(self._tries(of_place[0]))):
                    moved += len(of_place)
                    self._held.pop(place, None)
            except DatabaseUnavailableError:
                raise
            except Exception as problem:  # see above
                self._hold(of_place[0], reason_of(problem))
        return moved

    def _hold(self, message: TimerMessage, reason: str, *, tried: bool = True) -> None:
        held = self._held.get(_place(message), _Held(0.0, 0.0, 0))
        pause_s = doubled(held.pause_s, _HELD_S, _HELD_MAX_S)
        self._held[_place(message)] = _Held(pause_s, self._clock() + pause_s, held.tries + tried)
        log.warning("Timers of a partition are held back: %s", reason, extra={"queue": message.queue})


def _place(message: TimerMessage) -> Place:
    return message.queue_id, message.partition


def _limit_s(failures: int) -> float | None:
    """The time limit of a call after so many failures of it; ``None``: that of all calls."""
    return min(REPLAY_CALL_S * 2.0**failures, _LIMIT_MAX_S) if failures else None
