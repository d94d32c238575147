"""Clients of an engine, and of the procedures alone, with the CPU that their messages take."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from uuid import UUID, uuid4

import psutil

from queen.core import ids
from queen.core.operations import Claim, JobType, Pop, Push
from queen.db.store import Store
from queen.engine.flush import Flush
from queen.engine.ports import AckColumns, Delivered, PopColumns, PushColumns
from queen.http.parsing import parse_push_items, to_push
from queen_bench import usage
from queen_bench.engine.instance import Instance
from queen_bench.engine.results import Cost
from queen_bench.procedures.side import MessageSource

#: Messages of a segment that consumers find, whatever the batch of their pops.
_FILL_BATCH, _FILL_AT_ONCE = 100, 16
#: Requests of consumers for which there are messages before the clock runs.
_FILL_REQUESTS = 4_000
_SKIP_BATCH = 1000
#: Requests of a producer that are made before the clock runs; it sends them again and again.
_PREPARED = 10
_PAUSE_S = 0.001


class CpuMeter:
    """CPU of this process and of PostgreSQL, without what the clients of a measurement need for themselves."""

    def __init__(self, postmaster: psutil.Process | None) -> None:
        self._postmaster = postmaster
        self._clients_s = 0.0

    @contextmanager
    def client(self) -> Iterator[None]:
        """What is done in the block is a client's work. Nothing is awaited in it."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self._clients_s += time.thread_time() - begin

    async def measured(self, work: Callable[[], Awaitable[int]]) -> Cost:
        """The cost of work that returns how many messages it was about."""
        clients, postgres = self._clients_s, self._postgres_s()
        python, begin = time.process_time(), time.perf_counter()
        messages = await work()
        seconds, spent = time.perf_counter() - begin, time.process_time() - python
        grown = self._postgres_s() - postgres if self._postmaster is not None else None
        return Cost(messages, seconds, spent - (self._clients_s - clients), grown)

    def _postgres_s(self) -> float:
        return usage.cpu_seconds(usage.family(self._postmaster)) if self._postmaster is not None else 0.0


def summed(costs: Sequence[Cost]) -> Cost:
    """Several measurements as one."""
    known = [cost.postgres_s for cost in costs if cost.postgres_s is not None]
    return Cost(
        sum(cost.messages for cost in costs), sum(cost.seconds for cost in costs),
        sum(cost.python_s for cost in costs), sum(known) if known else None, sum(cost.calls for cost in costs),
    )  # fmt: skip


class Clients:
    """Producers and consumers of one queue; each waits for its answer before it asks again.

    Args:
        partitions: of the queue that are used, by number: ``0`` and so on are their names.
        backlog: most messages that are pushed at once for consumers to take.
        group: that consumes; it begins with what is pushed from now on.
    """

    def __init__(
        self, instance: Instance, meter: CpuMeter, queue: str, partitions: int, backlog: int, group: str = "bench"
    ) -> None:
        self._instance, self._meter, self._backlog = instance, meter, backlog
        self._queue, self._partitions, self._group = queue, partitions, group
        self._source = MessageSource()
        self._left = 0
        self.pushed = 0

    async def start(self) -> None:
        """Makes partitions and group."""
        for number in range(self._partitions):
            await self._instance.push(self.body(1, number))
        self.pushed += self._partitions
        await self._instance.pop(Pop(self._queue, group=self._group, mode="new"))

    def body(self, batch: int, partition: int) -> bytes:
        """The body of a push to a partition."""
        messages = self._source.take(batch, partition, chosen=False)
        item = b'{"queue":"%b","partition":"%d","payload":%b}'
        items = [item % (self._queue.encode(), partition % self._partitions, each.payload) for each in messages]
        return b'{"items":[%b]}' % b",".join(items)

    async def push(self, batch: int, producers: int, seconds: float) -> Cost:
        """Pushes through the engine, each producer to a partition of its own where there are enough."""
        ready = [[self.body(batch, number) for _ in range(_PREPARED)] for number in range(producers)]
        _, calls = self._instance.calls(JobType.PUSH)

        async def work() -> int:
            end = time.perf_counter() + seconds
            return batch * sum(await asyncio.gather(*(self._produce(bodies, end) for bodies in ready)))

        cost = _with_calls(await self._meter.measured(work), self._instance.calls(JobType.PUSH)[1] - calls)
        self.pushed += cost.messages
        self._left += cost.messages
        await self.skip()
        return cost

    async def _produce(self, bodies: Sequence[bytes], end: float) -> int:
        """Sends the bodies, and again, until it is time; at least one."""
        count = 0
        while not count or time.perf_counter() < end:
            await self._instance.push(bodies[count % _PREPARED])
            count += 1
        return count

    async def take(self, batch: int, consumers: int, seconds: float) -> Cost:
        """Pops and acks through the engine; what there is to take is pushed while the clock stands."""
        _, calls = self._instance.calls(JobType.POP)
        costs: list[Cost] = []
        while not costs or summed(costs).seconds < seconds:
            await self.fill(batch)
            costs.append(await self._meter.measured(lambda: self._drain(batch, consumers, seconds)))
        return _with_calls(summed(costs), self._instance.calls(JobType.POP)[1] - calls)

    async def fill(self, batch: int) -> None:
        """Pushes until enough is there for pops of so many messages."""
        wanted = min(_FILL_REQUESTS * batch, self._backlog)
        bodies = (self.body(_FILL_BATCH, number) for number in itertools.count())
        while self._left < wanted:
            await asyncio.gather(*(self._instance.push(next(bodies)) for _ in range(_FILL_AT_ONCE)))
            self._left += _FILL_AT_ONCE * _FILL_BATCH
            self.pushed += _FILL_AT_ONCE * _FILL_BATCH

    async def skip(self) -> None:
        """Consumes everything: segments of pushes that were measured are none that consumers are measured with."""
        while self._left > 0:
            await self._drain(_SKIP_BATCH, _FILL_AT_ONCE, inf)

    def took(self, messages: int) -> None:
        """So many were consumed by somebody else."""
        self._left -= messages

    def stored(self, messages: int) -> None:
        """So many were pushed by somebody else."""
        self.pushed += messages
        self._left += messages

    async def _drain(self, batch: int, consumers: int, seconds: float) -> int:
        end, taken = time.perf_counter() + seconds, 0

        async def consume() -> None:
            nonlocal taken
            while self._left > 0 and (time.perf_counter() < end or not taken):
                popped, _ = await self._instance.pop(Pop(self._queue, group=self._group, batch=batch))
                if not popped.claims:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                with self._meter.client():
                    body, count = _ack_body(popped.claims[0], popped.lease, self._group)
                await self._instance.ack(body)
                taken += count
                self._left -= count

        await asyncio.gather(*(consume() for _ in range(consumers)))
        return taken


def _ack_body(claim: Claim, lease: UUID | None, group: str) -> tuple[bytes, int]:
    """The body that says that all of a claim is done, and of how many messages."""
    prefix, offsets = ids.message_id_prefix(claim.part_id).encode(), range(claim.slices[0].first, claim.upto + 1)
    item = b'{"transactionId":"%b%%012x","partitionId":"%b","leaseId":"%b","status":"completed"}' % (
        prefix, ids.partition_id(claim.part_id).encode(), str(lease).encode(),
    )  # fmt: skip
    acks = b",".join([item % offset for offset in offsets])
    return b'{"acknowledgments":[%b],"consumerGroup":"%b"}' % (acks, group.encode()), len(offsets)


def _with_calls(cost: Cost, calls: int) -> Cost:
    return Cost(cost.messages, cost.seconds, cost.python_s, cost.postgres_s, calls)


class Procedures:
    """The same work through the procedures alone: columns are made while the clock stands."""

    def __init__(self, store: Store, clients: Clients, meter: CpuMeter, queue: str, group: str = "bench") -> None:
        self._store, self._clients, self._meter = store, clients, meter
        self._queue, self._group = queue, group
        self._part_ids: dict[tuple[str, str], int] = {}

    async def push(self, batch: int, requests: int, at_once: int, seconds: float) -> Cost:
        """Calls of so many requests each, some at a time."""
        pushes = [to_push(parse_push_items(self._clients.body(batch, number))) for number in range(requests)]
        await self._know(pushes)
        costs: list[Cost] = []
        while not costs or summed(costs).seconds < seconds:
            columns = [
                Flush(uuid4(), pushes, self._part_ids, {}, frozenset()).columns for _ in range(at_once * _PREPARED)
            ]
            work = partial(self._send, columns, at_once, requests * batch)
            costs.append(_with_calls(await self._meter.measured(work), len(columns)))
        found = summed(costs)
        self._clients.stored(found.messages)
        await self._clients.skip()
        return found

    async def _send(self, columns: Sequence[PushColumns], at_once: int, messages: int) -> int:
        """Calls of so many messages each, some at a time; returns how many were pushed."""

        async def send(calls: Sequence[PushColumns]) -> None:
            for each in calls:
                await self._store.push(each, again=False)

        await asyncio.gather(*(send(columns[number::at_once]) for number in range(at_once)))
        return len(columns) * messages

    async def take(self, batch: int, requests: int, seconds: float) -> Cost:
        """A call of so many pops, a call with the acks of what they got, and so on; what is there was pushed before."""
        made = await self._store.subscribe(self._queue, self._group, "new", None, create_queue=False, create_group=True)
        assert made.grp_id is not None
        group, costs = made.grp_id, list[Cost]()

        async def work() -> int:
            taken, end = 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                leases = [uuid4() for _ in range(requests)]
                n = len(leases)
                columns = PopColumns(
                    [batch] * n, [1] * n, list(leases), [None] * n, list(range(1, n + 1)), [group] * n, [None] * n
                )
                delivered, *_ = await self._store.pop(columns)
                if not delivered:
                    break
                await self._store.ack(_acks(delivered, leases))
                taken += _messages(delivered)
            return taken

        while not costs or summed(costs).seconds < seconds:
            await self._clients.fill(batch)
            costs.append(await self._meter.measured(work))
            self._clients.took(costs[-1].messages)
        return summed(costs)

    async def _know(self, pushes: Sequence[Push]) -> None:
        names = [(lot.queue, lot.partition) for push in pushes for lot in push.lots]
        missing = [name for name in dict.fromkeys(names) if name not in self._part_ids]
        for name, (_, part_id) in zip(
            missing, await self._store.resolve_partitions(missing, create=True) if missing else (), strict=True
        ):
            assert part_id is not None
            self._part_ids[name] = part_id


def _acks(delivered: Sequence[Delivered], leases: Sequence[UUID]) -> AckColumns:
    columns = AckColumns()
    for row in _runs(delivered):
        columns.part.append(row.part_id)
        columns.grp.append(row.grp_id)
        columns.lease.append(leases[row.pop - 1])
        columns.kind.append("c")
        columns.first.append(row.slice.first)
        columns.last.append(row.upto)
        columns.hash.append(None)
        columns.error.append(None)
    return columns


def _messages(delivered: Sequence[Delivered]) -> int:
    return sum(row.upto - row.slice.first + 1 for row in _runs(delivered))


def _runs(delivered: Sequence[Delivered]) -> Collection[Delivered]:
    """The first slice of what each pop got of a partition."""
    return {(row.pop, row.part_id): row for row in reversed(delivered)}.values()
