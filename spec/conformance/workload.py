"""The randomised workload: producers that repeat pushes, consumers that fail and crash, and their history.

Every choice comes from the seed; what the server makes of it does not. At the end all clients become reliable and
drain the queues, so that what is then missing is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from ..history import Ack, AckItem, Call, Configured, Delivery, Drained, History, Pop, PushItem, Record
from .broker import Broker
from .http import Server

SECOND_NS = 1_000_000_000
_GROUPS = (None, "group")
_AUTO_GROUP = "auto"
_IMPATIENCE_S = (0.002, 0.005, 0.02)
_DRAINED_MARGIN_S = 1.5
_DRAINING_POPS_MAX = 200
_REFUSED_PAUSE_S = 0.5
#: The status of a worker class that holds no long polls.
_NOT_CARRIED = 501
#: How long to wait for spooled messages.
_SPOOL_S = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the workload.

    Attributes:
        consumers: consumers with leases, in two groups.
        pushes: requests of each producer, at least.
        server_made: share of the requests whose transaction ids the server makes.
        auto_consumers: consumers of a third group, which take by autoAck only; then the others do not.
        pause_s: how long a client waits after a call without an answer.
        moves: after so many messages a producer leaves one partition for a new one; 0: never.
    """

    producers: int
    consumers: int
    pushes: int
    partitions: int = 6
    lease_s: int = 1
    retry_limit: int = 1
    server_made: float = 0.0
    auto_consumers: int = 0
    pause_s: float = 0.0
    moves: int = 0


async def _at_once() -> None:
    """Nothing to wait for."""


#: What a consumer does with a pop: a deck that is shuffled, dealt, and shuffled again, so that nothing is left out.
_DECK = (
    *("ack all",) * 5,
    *("ack one by one",) * 3,
    *("fail some",) * 3,
    *("forward",) * 3,
    "ack some",
    "ack twice",
    "crash",
    "forward twice",
    "forward in vain",
    "forward late",
    "renew",
    "retry",
)


@dataclass
class Workload:
    """One run.

    Attributes:
        server: the judged one.
        size: of the workload.
        seed: of all choices.
        queue: for producers.
        target: queue that consumers forward to.
        statuses: counts what was answered.
        producing_until: when producers end, whatever they have left; of the monotonic clock.
        lasts: producers do not stop before it returns.
        settles: consumers do not stop, and the queues are not checked to be empty, before it returns.
        over_several: whether the server is over several databases: consumers forward within one of them.
    """

    server: Server
    size: Size
    seed: int
    queue: str
    target: str
    statuses: Counter[tuple[str, int]]
    producing_until: float = inf
    records: list[Record] = field(default_factory=list)
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    lasts: Callable[[], Awaitable[None]] = _at_once
    settles: Callable[[], Awaitable[None]] = _at_once
    over: asyncio.Event = field(default_factory=asyncio.Event)
    over_several: bool = False

    async def run(self) -> None:
        """Fill the records with everything that the clients saw."""
        options = {"leaseTime": self.size.lease_s, "retryLimit": self.size.retry_limit, "retryDelay": 0}
        beside = {"colocateWith": self.queue} if self.over_several else {}
        for queue, more in ((self.queue, {}), (self.target, beside)):
            await Broker(self.server, self.statuses).configure(queue, **options, **more)
            self.records.append(Configured(queue=queue, retry_limit=self.size.retry_limit))
        async with asyncio.TaskGroup() as clients:
            producers = [clients.create_task(_Producer(self, number).run()) for number in range(self.size.producers)]
            for number in range(self.size.consumers):
                clients.create_task(_Consumer(self, number, _GROUPS[number % len(_GROUPS)]).run())
            for number in range(self.size.auto_consumers):
                clients.create_task(_Consumer(self, self.size.consumers + number, _AUTO_GROUP).run())
            await self.lasts()
            self.over.set()
            await asyncio.gather(*producers)
            await self.settles()
            # A part of the load: consumers go on until each lease, also one whose answer was lost, has ended.
            await asyncio.sleep(2 * self.size.lease_s)
            self.stopped.set()
        await asyncio.gather(*(self._drain(self.queue, group) for group in self._groups))
        await self._drain(self.target, None)

    @property
    def _groups(self) -> list[str | None]:
        return [*_GROUPS, _AUTO_GROUP] if self.size.auto_consumers else [*_GROUPS]

    async def wait_of(self, seconds: float) -> float:
        """How long a pop is to wait in the server: where that holds no long polls, its client waits beforehand."""
        if not self.statuses["pop", _NOT_CARRIED]:
            return seconds
        await asyncio.sleep(seconds)
        return 0.0

    async def pause_after(self, call: Call) -> None:
        """Wait a little before trying again."""
        if call.outcome == "unknown" and self.size.pause_s:
            await asyncio.sleep(self.size.pause_s)

    def broker(self, client: str) -> Broker:
        """A client of the broker that records all its calls."""
        return Broker(self.server, self.statuses, strict=False, client=client, records=self.records)

    async def _drain(self, queue: str, group: str | None) -> None:
        """Take and ack until nothing is delivered for longer than any lease can last, or until that is hopeless.

        An empty long poll, and then an empty pop without waiting, show that nothing is left.
        """
        broker, wait_s = self.broker(f"drain {group}"), self.size.lease_s + _DRAINED_MARGIN_S
        # A caller that passes `settles` has waited for the spool already.
        spooled_until = time.monotonic() + (_SPOOL_S if self.settles is _at_once else 0)
        is_quiet = False
        for _ in range(_DRAINING_POPS_MAX):
            asked_s, begin = 0 if is_quiet else wait_s, time.monotonic()
            pop = await broker.pop(
                queue, group=group, batch=500, partitions=100, wait_s=await self.wait_of(asked_s),
                lease_seconds=self.size.lease_s,
            )  # fmt: skip
            # If its answer is late, the end of an unknown lease may be late, too.
            is_late = time.monotonic() - begin > asked_s + _DRAINED_MARGIN_S
            if pop.outcome != "ok":
                await asyncio.sleep(_REFUSED_PAUSE_S)
            elif pop.deliveries:
                await broker.ack(_items(self, pop, pop.deliveries), self.places)
            elif is_quiet and not is_late:
                self.records.append(Drained(at=pop.invoked, queue=queue, group=pop.group))
                return
            is_quiet = pop.outcome == "ok" and not pop.deliveries and not is_late and not (
                time.monotonic() < spooled_until and self._is_something_spooled(queue, pop.group)
            )  # fmt: skip

    def _is_something_spooled(self, queue: str, group: str) -> bool:
        """Whether the server has taken a message that the group has not seen yet."""
        history = History(tuple(self.records))
        items = [item for push in history.pushes for item in push.items if item.spooled and item.queue == queue]
        seen = {
            (each.lane, each.transaction_id) for pop in history.pops if pop.group == group for each in pop.deliveries
        }
        return not seen.issuperset([(item.lane, item.transaction_id) for item in items])


def _items(
    workload: Workload, pop: Pop, deliveries: tuple[Delivery, ...] | list[Delivery], status: str = "completed"
) -> list[AckItem]:
    """Acks of deliveries of a pop, under its lease."""
    workload.places |= {each.lane: each.partition_id for each in deliveries}
    return [
        AckItem(each.queue, each.partition, each.transaction_id, pop.group, status, pop.lease or None)
        for each in deliveries
    ]


class _Producer:
    def __init__(self, workload: Workload, number: int) -> None:
        self._workload, self._name = workload, f"producer {number}"
        self._random = Random(f"{workload.seed}/{self._name}")  # noqa: S311 - a workload, not a secret
        self._broker = workload.broker(self._name)
        self._count = 0
        self._earlier: list[list[PushItem]] = []

    async def run(self) -> None:
        size, count = self._workload.size, 0
        while count < size.pushes or not self._workload.over.is_set():
            if time.monotonic() > self._workload.producing_until:
                return
            count += 1
            if self._random.random() < size.server_made:
                await self._push([replace(item, transaction_id="") for item in self._items(new=True)])
                continue
            items = self._items()
            self._earlier.append(items)
            if self._random.random() < 0.15:
                await self._push_impatiently(items)
            else:
                await self._push(items)
            if self._random.random() < 0.15:
                await self._push(self._random.choice(self._earlier))

    async def _push(self, items: list[PushItem]) -> None:
        await self._workload.pause_after(await self._broker.push(items))

    async def _push_impatiently(self, items: list[PushItem]) -> None:
        """Give up before the answer, most of the time; and then try again, most of the time."""
        self._broker.timeout_s, retry_timeout_s = self._random.choice(_IMPATIENCE_S), self._broker.timeout_s
        try:
            await self._broker.push(items)
        finally:
            self._broker.timeout_s = retry_timeout_s
        if self._random.random() < 0.7:
            await self._push(items)

    def _items(self, *, new: bool = False) -> list[PushItem]:
        return [self._item(new) for _ in range(self._random.randint(1, 6))]

    def _item(self, new: bool) -> PushItem:
        """A message; now and then, unless it must be new, with an id that another partition has already."""
        size = self._workload.size
        number = self._random.randrange(size.partitions) + (self._count // size.moves if size.moves else 0)
        if self._random.random() < 0.05 and self._earlier and not new:
            id_ = self._random.choice(self._random.choice(self._earlier)).transaction_id
        else:
            self._count += 1
            id_ = f"{self._name}-{self._count}"
        partition = f"p{number}"
        payload = {"id": id_, "partition": partition, "text": "é" * self._random.randrange(50)}
        return PushItem(self._workload.queue, partition, id_, payload)


class _Consumer:
    def __init__(self, workload: Workload, number: int, group: str | None) -> None:
        self._workload, self._name, self._group = workload, f"consumer {number}", group
        self._random = Random(f"{workload.seed}/{self._name}")  # noqa: S311
        self._broker = workload.broker(self._name)
        self._deck: list[str] = []
        self._stale: list[Pop] = []
        self._outputs = 0
        #: Half of the consumers work message by message, for whom a server may prefetch.
        self._one_by_one = self._random.random() < 0.5

    async def run(self) -> None:
        while not self._workload.stopped.is_set():
            pop = await self._pop()
            await self._workload.pause_after(pop)
            await self._be_late()
            if pop.deliveries and not pop.auto_ack:
                await self._handle(pop)

    async def _pop(self) -> Pop:
        """A pop, sometimes with autoAck, or one without waiting for its answer."""
        chance, retry_timeout_s = self._random.random(), self._broker.timeout_s
        auto_ack = self._group == _AUTO_GROUP if self._workload.size.auto_consumers else 0.05 < chance < 0.08
        if chance < 0.05:
            self._broker.timeout_s = self._random.choice(_IMPATIENCE_S)
        try:
            return await self._broker.pop(
                self._workload.queue, group=self._group,
                batch=1 if self._one_by_one else self._random.randint(1, 8),
                partitions=1 if self._one_by_one else self._random.randint(1, 3), auto_ack=auto_ack,
                wait_s=await self._workload.wait_of(0.2 if chance > 0.05 else 0),
                lease_seconds=self._workload.size.lease_s,
            )  # fmt: skip
        finally:
            self._broker.timeout_s = retry_timeout_s

    async def _be_late(self) -> None:
        """Come back with a lease that must be over by now."""
        over = time.monotonic_ns() - (self._workload.size.lease_s * SECOND_NS + SECOND_NS // 5)
        if self._stale and self._stale[0].end < over:
            pop = self._stale.pop(0)
            await self._broker.renew(pop.lease, 5)
            await self._ack(pop, status=self._random.choice(["completed", "failed", "dlq"]))

    async def _handle(self, pop: Pop) -> None:
        if not self._deck:
            self._deck = self._random.sample(_DECK, len(_DECK))
        deliveries = self._random.sample(pop.deliveries, len(pop.deliveries))
        match self._deck.pop():
            case "ack all":
                await self._ack(pop, deliveries)
            case "ack one by one":
                for each in deliveries:
                    await self._ack(pop, [each])
            case "ack some":
                await self._ack(pop, deliveries[: len(deliveries) // 2])
            case "ack twice":
                await self._ack(pop, deliveries)
                await self._ack(pop, deliveries, status=self._random.choice(["completed", "failed", "retry"]))
            case "fail some":
                await self._fail_some(pop, deliveries)
            case "retry":
                await self._ack(pop, deliveries[:1], status="retry")
            case "renew":
                await self._broker.renew(pop.lease, self._workload.size.lease_s + 1)
                await self._ack(pop, deliveries)
            case "crash":
                self._stale.append(pop)
            case how:
                await self._forward(pop, how)

    async def _ack(self, pop: Pop, deliveries: list[Delivery] | None = None, status: str = "completed") -> Ack | None:
        items = _items(self._workload, pop, pop.deliveries if deliveries is None else deliveries, status)
        return await self._broker.ack(items, self._workload.places) if items else None

    async def _fail_some(self, pop: Pop, deliveries: list[Delivery]) -> None:
        """One request in which one or two messages fail and the others are completed."""
        count = self._random.randint(1, 2)
        failed = _items(self._workload, pop, deliveries[:count], "failed")
        await self._broker.ack([*failed, *_items(self._workload, pop, deliveries[count:])], self._workload.places)

    async def _forward(self, pop: Pop, how: str) -> None:
        """Consume, transform, produce; a second transaction for the same input must fail."""
        acks = _items(self._workload, pop, pop.deliveries)
        retry_timeout_s = self._broker.timeout_s
        if how == "forward twice":
            self._broker.timeout_s = self._random.choice(_IMPATIENCE_S)
        place = pop.deliveries[0].partition if self._workload.over_several else None
        pushes = [self._output(place or f"p{number}") for number in range(self._random.randint(1, 3))]
        if how == "forward in vain":
            # The same id twice: the transaction must not happen, and the messages come again.
            pushes.append(pushes[0])
        await self._broker.transact(acks, pushes, self._workload.places)
        self._broker.timeout_s = retry_timeout_s
        if how in {"forward twice", "forward late"}:
            await self._broker.transact(acks, [self._output(place or "p0")], self._workload.places)

    def _output(self, partition: str) -> PushItem:
        self._outputs += 1
        id_ = f"{self._name}-{self._outputs}"
        return PushItem(self._workload.target, partition, id_, {"id": id_})
