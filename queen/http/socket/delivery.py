"""Delivers messages to a consumer: batches as they arrive, or complete windows."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from queen.core import limits
from queen.core.backoff import doubled
from queen.http.rendering import timestamp
from queen.http.socket.frames import WindowTimes
from queen.http.socket.subscription import Subscription
from queen.log.requests import Claim, Pop, Popped
from queen.log.segment import decode_entries
from queen.log.window import Cut, Window, cut_first

#: Pause after an answer that came early because the server is shutting down.
_PAUSE_S = 0.05
#: The same for batches: in pop maintenance mode every answer is empty and comes at once.
_EMPTY_PAUSE_S = 0.25
#: Maximum of partitions to examine for complete windows.
_LOOK_PARTITIONS = 100


class Consumer(Protocol):
    """What a delivery needs of the socket."""

    @property
    def is_open(self) -> bool:
        """Whether messages may be delivered."""

    @property
    def room(self) -> int:
        """How many more messages the consumer may get."""

    async def wait(self, seconds: float | None) -> None:
        """Returns when credit or subscription change, or after the given time."""

    async def pop(self, pop: Pop) -> Popped:
        """The answer to a pop; empty if credit or subscription changed meanwhile."""

    async def now(self) -> datetime:
        """The database's clock."""

    async def give_back(self, popped: Popped) -> None:
        """Undoes a pop: releases its messages, without counting the delivery."""

    async def give(self, popped: Popped, window: WindowTimes | None = None) -> None:
        """Sends a batch."""


def messages_of(claim: Claim) -> Iterator[tuple[int, datetime, str | None]]:
    """Offset, ``createdAt`` and, if its producer chose one, transaction id of each message of a claim."""
    for piece in claim.slices:
        offset = piece.first
        for entry in decode_entries(piece.data, piece.ends, piece.start):
            if offset > claim.upto:
                break
            if offset not in claim.skip:
                chosen = None if isinstance(entry, bytes) else entry.transactionId
                yield offset, piece.created_at, msgspec.json.decode(chosen, type=str) if chosen else None
            offset += 1


def count_of(popped: Popped) -> int:
    """The number of messages of a pop."""
    return sum(1 for claim in popped.claims for _ in messages_of(claim))


async def deliver_batches(consumer: Consumer, subscription: Subscription) -> None:
    """Pops whenever there is credit and passes on the messages, until the delivery is closed."""
    while consumer.is_open:
        if not consumer.room:
            await consumer.wait(None)
            continue
        popped = await consumer.pop(subscription.pop_of(consumer.room))
        if not popped.claims:
            await consumer.wait(_EMPTY_PAUSE_S)
        elif count_of(popped) > consumer.room:
            await consumer.give_back(popped)  # the credit was lowered meanwhile
        else:
            await consumer.give(popped)
        del popped  # otherwise it would be kept while the next pop waits


class Candidate(Struct, frozen=True):
    """A partition whose first window is complete."""

    queue: str
    partition: str
    first: int
    cut: Cut


class Windows:
    """Examines the waiting messages, and pops exactly those of a complete window.

    A lease covers all messages that a pop got of a partition, and cannot be reduced afterwards. So a first pop examines
    the partition and is undone, and a second one takes exactly the number of messages of the window. If another
    consumer was faster, the second pop gets other messages; it is undone, too, and the next attempt follows.

    Args:
        first_s: pause after a first attempt without a complete window; it doubles each time.
        limit_s: the longest pause.
    """

    def __init__(
        self, consumer: Consumer, subscription: Subscription, window: Window, first_s: float, limit_s: float
    ) -> None:
        self._consumer, self._subscription, self._window = consumer, subscription, window
        self._first_s, self._limit_s = first_s, limit_s

    async def deliver(self) -> None:
        """Delivers windows until the delivery is closed."""
        consumer, pause_s = self._consumer, 0.0
        while consumer.is_open:
            if consumer.room < self._window.messages:
                await consumer.wait(None)
                continue
            found, over_in_s = await self._look()
            taken = [await self._take(candidate) for candidate in found]
            if any(taken):
                pause_s = 0.0
            else:
                pause_s = _PAUSE_S if found else doubled(pause_s, self._first_s, self._limit_s)
                await consumer.wait(min(pause_s, over_in_s))

    async def _look(self) -> tuple[list[Candidate], float]:
        """Complete windows, and the seconds until the next slot ends."""
        batch = min(self._window.messages * _LOOK_PARTITIONS, limits.BATCH_MESSAGES_MAX)
        pop = msgspec.structs.replace(self._subscription.pop, batch=batch, partitions=_LOOK_PARTITIONS)
        popped = await self._consumer.pop(pop)
        if not popped.claims:
            return [], _PAUSE_S
        await self._consumer.give_back(popped)
        now = await self._consumer.now()
        seen = [self._candidate(claim, now) for claim in popped.claims]
        waits = [(each.cut.over_at - now).total_seconds() for each in seen if each.cut.over_at]
        found = [each for each in seen if each.cut.is_complete]
        return found, max(_PAUSE_S, min(waits, default=self._limit_s))

    def _candidate(self, claim: Claim, now: datetime) -> Candidate:
        messages = list(messages_of(claim))
        cut = cut_first(self._window, [created_at for _, created_at, _ in messages], now)
        return Candidate(claim.queue, claim.partition, messages[0][0], cut)

    async def _take(self, candidate: Candidate) -> bool:
        """Pops the window; true if it was still there, and there was credit for it."""
        count = candidate.cut.count
        if not self._consumer.is_open or self._consumer.room < count:
            return False
        pop = msgspec.structs.replace(
            self._subscription.pop, queue=candidate.queue, partition=candidate.partition, namespace=None, task=None,
            batch=count, partitions=1, wait_ms=0,
        )  # fmt: skip
        popped = await self._consumer.pop(pop)
        if not popped.claims:
            return False
        [first, *rest] = messages_of(popped.claims[0])
        if first[0] != candidate.first or 1 + len(rest) != count or count > self._consumer.room:
            await self._consumer.give_back(popped)
            return False
        await self._consumer.give(popped, _times(candidate.cut))
        return True


def _times(cut: Cut) -> WindowTimes:
    times = WindowTimes(cut.count, "messages" if cut.is_full else "time")
    if cut.slot is not None:
        times.start, times.end = timestamp(cut.slot.start, 3), timestamp(cut.slot.end, 3)
    return times
