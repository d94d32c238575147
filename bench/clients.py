"""Clients of an engine without HTTP. Each waits for its answer before its next request."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from math import inf
from operator import add
from uuid import UUID

import msgspec
from msgspec import Struct

from bench import database, meter
from bench.engine import Instance
from bench.messages import MessageSource
from bench.meter import CpuMeter, Taken
from bench.scenario import PUSH
from queen.core.job_type import JobType
from queen.log import ids
from queen.log.requests import Claim, Pop

#: Messages per segment of the backlog, independent of the batch of the pops.
_FILL_BATCH, _FILL_AT_ONCE = 100, 16
#: Requests of consumers whose messages are pushed before the measurement.
_FILL_REQUESTS = 4_000
_SKIP_BATCH = 1000
#: Requests of a producer that are built before the measurement; it sends them repeatedly.
_PREPARED = 10
_PAUSE_S = 0.001


class Work(Struct, frozen=True):
    """The load: push or pop + ack, messages per request, and number of clients."""

    operation: str
    batch: int
    clients: int

    def __str__(self) -> str:
        return f"{self.operation}, {self.batch} per request, {self.clients} clients"


class Clients:
    """Producers and consumers of one queue.

    Args:
        partitions: used partitions of the queue, by number; their names are ``0`` and so on.
        backlog: maximum of messages that are pushed in advance for consumers.
        group: consumer group; it begins with messages that are pushed from now on.

    Attributes:
        pushed: messages so far. Other code that pushes to the queue or pops from it updates ``pushed`` and ``left``.
        left: messages that the group has still to pop.
    """

    def __init__(
        self, instance: Instance, meter: CpuMeter, queue: str, partitions: int, backlog: int, group: str = "bench"
    ) -> None:
        self.instance, self.meter, self._backlog = instance, meter, backlog
        self._queue, self._partitions, self._group = queue, partitions, group
        self._source = MessageSource()
        self.pushed = self.left = 0

    async def start(self) -> None:
        """Creates partitions and group."""
        for number in range(self._partitions):
            await self.instance.push(self.body(1, number))
        self.pushed += self._partitions
        await self.instance.pop(Pop(self._queue, group=self._group, mode="new"))

    def body(self, batch: int, partition: int) -> bytes:
        """The body of a push to a partition."""
        item = b'{"queue":"%b","partition":"%d","payload":%b}'
        messages = self._source.take(batch, partition % self._partitions)
        items = [item % (self._queue.encode(), each.partition, each.payload) for each in messages]
        return b'{"items":[%b]}' % b",".join(items)

    async def measured(self, work: Work, seconds: float) -> Taken:
        """One measurement."""
        return await (self.push if work.operation == PUSH else self.take)(work, seconds)

    async def push(self, work: Work, seconds: float) -> Taken:
        """Pushes through the engine, each producer to a partition of its own if there are enough."""
        taken = await self.produce(work, seconds)
        self.left += taken.messages
        await self.skip()
        return taken

    async def produce(self, work: Work, seconds: float) -> Taken:
        """The same for a queue without consumers; requests are built outside the measurement."""
        ready = [[self.body(work.batch, number) for _ in range(_PREPARED)] for number in range(work.clients)]
        before = self.instance.calls(JobType.PUSH)

        async def push() -> int:
            end = time.perf_counter() + seconds
            return work.batch * sum(await asyncio.gather(*(self._produce(bodies, end) for bodies in ready)))

        taken = await self.meter.measured(push)
        self.pushed += taken.messages
        return msgspec.structs.replace(taken, calls=self.instance.calls(JobType.PUSH) - before)

    async def _produce(self, bodies: Sequence[bytes], end: float) -> int:
        """Sends the bodies repeatedly until the time is over; at least one."""
        count = 0
        while not count or time.perf_counter() < end:
            await self.instance.push(bodies[count % _PREPARED])
            count += 1
        return count

    async def take(self, work: Work, seconds: float) -> Taken:
        """Pops and acks through the engine; the messages are pushed outside the measurement."""
        before, all_taken = self.instance.calls(JobType.POP), list[Taken]()
        while sum(each.seconds for each in all_taken) < seconds:
            await self.fill(work.batch)
            all_taken.append(await self.meter.measured(lambda: self._drain(work.batch, work.clients, seconds)))
        return msgspec.structs.replace(reduce(add, all_taken), calls=self.instance.calls(JobType.POP) - before)

    async def fill(self, batch: int) -> None:
        """Pushes until there are enough messages for pops of this size."""
        wanted = min(_FILL_REQUESTS * batch, self._backlog)
        bodies = (self.body(_FILL_BATCH, number) for number in itertools.count())
        while self.left < wanted:
            await asyncio.gather(*(self.instance.push(next(bodies)) for _ in range(_FILL_AT_ONCE)))
            self.left += _FILL_AT_ONCE * _FILL_BATCH
            self.pushed += _FILL_AT_ONCE * _FILL_BATCH

    async def skip(self) -> None:
        """Consumes everything: consumers are not measured with the segments of measured pushes."""
        while self.left > 0:
            await self._drain(_SKIP_BATCH, _FILL_AT_ONCE, inf)

    async def _drain(self, batch: int, consumers: int, seconds: float) -> int:
        end, taken = time.perf_counter() + seconds, 0

        async def consume() -> None:
            nonlocal taken
            while self.left > 0 and (time.perf_counter() < end or not taken):
                popped, _ = await self.instance.pop(Pop(self._queue, group=self._group, batch=batch))
                if not popped.claims:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                with self.meter.client():
                    body, count = _ack_body(popped.claims[0], popped.lease, self._group)
                await self.instance.ack(body)
                taken += count
                self.left -= count

        await asyncio.gather(*(consume() for _ in range(consumers)))
        return taken


def _ack_body(claim: Claim, lease: UUID | None, group: str) -> tuple[bytes, int]:
    """The body that acknowledges all messages of a claim, and their number."""
    prefix, offsets = ids.message_id_prefix(claim.part_id).encode(), range(claim.slices[0].first, claim.upto + 1)
    item = b'{"transactionId":"%b%%012x","partitionId":"%b","leaseId":"%b","status":"completed"}' % (
        prefix, ids.partition_id(claim.part_id).encode(), str(lease).encode(),
    )  # fmt: skip
    acks = b",".join([item % offset for offset in offsets])
    return b'{"acknowledgments":[%b],"consumerGroup":"%b"}' % (acks, group.encode()), len(offsets)


@asynccontextmanager
async def clients(url: str, queue: str, partitions: int, backlog: int) -> AsyncIterator[Clients]:
    """Clients of an engine of their own, on a prepared database."""
    async with database.connection(url) as connection:
        cpu = CpuMeter(await meter.postmaster(connection))
    instance = Instance(url)
    try:
        yield Clients(instance, cpu, queue, partitions, backlog)
    finally:
        await instance.close()
