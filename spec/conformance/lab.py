"""Tools of a scenario: its own queues, short names for calls, and assertions.

A server may show a message some time after it has answered its push. So steps that prepare something wait for what they
need, and if it does not come, nothing has been shown; and an absence is judged only where a later message is there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..history import QUEUE_MODE, Ack, AckItem, Delivery, Pop, Push, PushItem, Transaction
from .broker import NOT_OFFERED, Broker, NoLongPollError, NotCarriedOutError, NotOfferedError

DEFAULT = "Default"
#: How often a server is asked that does not wait by itself, and for how long if it should have something.
_LOOK_S, _PATIENCE_S = 0.05, 2.0
#: A group that sees messages before the groups that a scenario is about, and what is pushed behind all others.
_WATCHER, _FENCE = "watcher", "behind all others"
#: A time that a few slow answers may exceed.
_SHORT = {"leaseTime": 10, "delayedProcessing": 10, "windowBuffer": 10, "retryDelay": 10_000}


class RefutedError(Exception):
    """The server violated a guarantee."""


class MissingError(RefutedError):
    """Something is not there that should be; a slower look might find it."""


class NotPreparedError(NotCarriedOutError):
    """A step that prepares something did not find what it needs: nothing has been shown."""


class SkippedError(Exception):
    """The server does not support what the check needs."""


def expect(good: bool, text: str) -> None:
    """Refute the guarantee unless something holds."""
    if not good:
        raise RefutedError(text)


def expect_equal(got: object, wanted: object, what: str) -> None:
    """Refute the guarantee unless two things, of the JSON kind, are the same.

    Raises:
        MissingError: something is missing, but what is there is right.
        RefutedError: something is there that should not be.
    """
    if not _are_equal(got, wanted):
        is_short = isinstance(got, list) and isinstance(wanted, list) and _is_part(got, wanted)
        raise (MissingError if is_short else RefutedError)(f"{what}: got {_short(got)}, wanted {_short(wanted)}")


def _are_equal(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _is_part(part: list[object], whole: list[object]) -> bool:
    """Whether these are elements of the whole in its order."""
    rest = iter(whole)
    return all(any(_are_equal(each, other) for other in rest) for each in part)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def payloads(pop: Pop | Iterable[Delivery]) -> list[object]:
    """The payloads that a pop delivered, or those of deliveries."""
    return [delivery.payload for delivery in (pop.deliveries if isinstance(pop, Pop) else pop)]


@dataclass
class Lab:
    """The environment of one scenario.

    Attributes:
        broker: a strict one: a failed call ends the scenario without a result.
        name: prefix of its queues.
        short_s: a time that is short for people, and long enough for a few answers: longer in each further attempt.
        settle_s: how long it waits after each push, where the last attempt missed something.
        made: the names of all queues that it may have created.
        notes: remarks for the report.
        is_timed: whether the result depends on the speed of answers.
        misses: whether it ended because something was not there.
        over_several: whether the server is over several databases.
    """

    broker: Broker
    name: str
    made: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_timed: bool = False
    misses: bool = False
    short_s: int = 1
    settle_s: float = 0.0
    over_several: bool = False
    _count: int = 0
    _places: dict[tuple[str, str], str] = field(default_factory=dict)

    def queue_name(self) -> str:
        """An unused name; its queue is deleted at the end."""
        self._count += 1
        self.made.append(f"{self.name}-{self._count}")
        return self.made[-1]

    async def queue(self, **options: object) -> str:
        """A new queue with options."""
        name = self.queue_name()
        self.is_timed |= any(0 < float(str(options.get(name, 0))) < limit for name, limit in _SHORT.items())
        await self.broker.configure(name, **options)
        return name

    async def beside(self, queue: str) -> str:
        """A new queue for transactions with another one."""
        return await self.queue(**({"colocateWith": queue} if self.over_several else {}))

    async def push(
        self, queue: str, *values: object, partition: str = DEFAULT, ids: Iterable[str | None] | None = None
    ) -> Push:
        """Push payloads in one request; all are to be accepted."""
        given = list(ids) if ids is not None else [None] * len(values)
        items = [PushItem(queue, partition, id_ or "", value) for id_, value in zip(given, values, strict=True)]
        push = await self.broker.push(items)
        await asyncio.sleep(self.settle_s)
        return push

    async def pop(self, queue: str, partition: str | None = None, **how: Any) -> Pop:  # noqa: ANN401 - of Broker.pop
        """Take up to 100 messages of one partition, unless told otherwise; ask again while there is nothing.

        It gives up after two seconds, or after a longer time that it is given as `wait_s`.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            pop = await self.look(queue, partition, **how)
            if pop.deliveries or time.monotonic() > until:
                return pop
            await asyncio.sleep(_LOOK_S)

    async def look(self, queue: str, partition: str | None = None, **how: Any) -> Pop:  # noqa: ANN401 - as above
        """The same, and it may well find nothing: it asks once; without long polls, for the time that it is given."""
        try:
            return await self.long_poll(queue, partition, **how)
        except SkippedError:
            until = time.monotonic() + how.pop("wait_s")
            while True:
                pop = await self.long_poll(queue, partition, **how)
                if pop.deliveries or time.monotonic() > until:
                    return pop
                await asyncio.sleep(_LOOK_S)

    async def take(self, queue: str, *values: object, partition: str | None = None, **how: Any) -> Pop:  # noqa: ANN401
        """A pop that only prepares something, with the payloads that it has to get.

        Raises:
            NotPreparedError: it got others; the scenario has no result.
        """
        pop = await self.pop(queue, partition, **how)
        if not _are_equal(payloads(pop), list(values)):
            raise NotPreparedError(f"to begin with, a pop got {_short(payloads(pop))}, wanted {_short(list(values))}")
        return pop

    async def shown(self, queue: str, count: int) -> None:
        """Wait until so many messages are shown, to a group that no scenario is about.

        Raises:
            NotPreparedError: they are not; the scenario has no result.
        """
        seen = 0
        while seen < count:
            pop = await self.pop(queue, group=_WATCHER, auto_ack=True)
            if not pop.deliveries:
                raise NotPreparedError(f"of {count} messages {seen} were shown to a group")
            seen += len(pop.deliveries)

    async def contents(self, queue: str, partition: str = DEFAULT) -> list[Delivery]:
        """All that a partition still has, by autoAck: what comes before a message that is pushed behind it.

        Raises:
            NotPreparedError: that message does not come; what is there, is not known.
        """
        await self.push(queue, _FENCE, partition=partition)
        found: list[Delivery] = []
        while True:
            pop = await self.pop(queue, partition, auto_ack=True)
            if not pop.deliveries:
                raise NotPreparedError(f"the last message of {queue}/{partition} did not come")
            found += pop.deliveries
            if found[-1].payload == _FENCE:
                return found[:-1]

    async def long_poll(self, queue: str, partition: str | None = None, **how: Any) -> Pop:  # noqa: ANN401 - as above
        """One pop; with `wait_s` a long poll: the server waits.

        Raises:
            SkippedError: the server does not support long polls.
        """
        self.is_timed |= bool(how.get("wait_s"))
        try:
            pop = await self.broker.pop(queue, partition, **{"batch": 100, **how})
        except NoLongPollError as problem:
            raise SkippedError(f"the server holds no long polls: {problem}") from problem
        self._places |= {delivery.lane: delivery.partition_id for delivery in pop.deliveries}
        return pop

    async def ack(
        self,
        pop: Pop,
        *numbers: int,
        status: str = "completed",
        lease: str | None = None,
        error: str | None = None,
    ) -> Ack:
        """Ack deliveries of a pop by their place in it, or all; under its lease unless another is given."""
        if len(pop.deliveries) <= max(numbers, default=0):
            raise NotPreparedError(f"a pop delivered {len(pop.deliveries)} messages, too few for what was to follow")
        chosen = [pop.deliveries[number] for number in numbers] if numbers else pop.deliveries
        return await self.ack_items([self.item(pop, each, status, lease, error) for each in chosen])

    async def ack_items(self, items: Sequence[AckItem]) -> Ack:
        """Ack as given, in one request."""
        return await self.broker.ack(items, self._places)

    def item(
        self,
        pop: Pop,
        delivery: Delivery,
        status: str = "completed",
        lease: str | None = None,
        error: str | None = None,
    ) -> AckItem:
        """The ack of one delivery."""
        return AckItem(
            delivery.queue, delivery.partition, delivery.transaction_id, pop.group, status,
            pop.lease if lease is None else lease, error=error,
        )  # fmt: skip

    async def transact(
        self, pop: Pop, *pushes: PushItem, lease: str | None = None, required: Sequence[str] = ()
    ) -> Transaction:
        """Ack the deliveries of a pop, and push."""
        if not pop.deliveries:
            raise NotPreparedError("a pop delivered nothing that a transaction could ack")
        acks = [self.item(pop, each, lease=lease) for each in pop.deliveries]
        try:
            transaction = await self.broker.transact(acks, pushes, self._places, required)
        except NotOfferedError as problem:
            raise SkippedError(f"the server has no transactions: {problem}") from problem
        await asyncio.sleep(self.settle_s)
        return transaction

    async def administer(self, method: str, path: str, body: object = None) -> None:
        """Ask for something that not every server offers.

        Raises:
            SkippedError: this one does not.
        """
        answer = await self.broker.send(method, path, body)
        if answer.status in NOT_OFFERED:
            raise SkippedError(f"the server does not offer {method} {path}")
        if answer.status >= 300:
            raise NotCarriedOutError(f"{method} {path} was answered {answer}")

    async def expect_nothing(self, queue: str, text: str, **how: Any) -> None:  # noqa: ANN401 - of Broker.pop
        """Refute the guarantee if a pop delivers something.

        What must not be delivered has been shown before, or the pop waits; otherwise `contents` has to say.
        """
        pop = await self.look(queue, **how)
        expect(not pop.deliveries, f"{text}: {_short(payloads(pop))} was delivered")


def all_accepted(ack: Ack) -> bool:
    """Whether every ack of the request was."""
    return all(item.outcome == "ok" for item in ack.items)


def none_accepted(ack: Ack) -> bool:
    """Whether every ack of the request was refused."""
    return all(item.outcome == "fail" for item in ack.items)


__all__ = [
    "DEFAULT",
    "QUEUE_MODE",
    "Lab",
    "MissingError",
    "NotPreparedError",
    "RefutedError",
    "SkippedError",
    "all_accepted",
    "expect",
    "expect_equal",
    "none_accepted",
    "payloads",
]
