"""Messages that retention removes per second, and its effect on producers and consumers of the same partitions."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

import asyncpg
from msgspec import Struct
from typer import Option

from bench import database
from bench.messages import MessageSource, carry_out, portions
from bench.scenario import MismatchError, Progress, Sample, Scenario, Target, percentiles
from bench.segments import Segments
from queen.jobs.ports import Place, Step
from queen.jobs.sweep import Pacer, Service, sweep
from queen.postgres.maintenance import MaintenanceStore

_CONNECTIONS, _GROUP = 8, "group"
_OLD = (
    "UPDATE queen.segments SET created_at = created_at - interval '1 day' WHERE part_id IN"
    " (SELECT p.id FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1)"
)
_KEEP = "UPDATE queen.queues SET retention_enabled = true, retention_seconds = 3600 WHERE name = $1 RETURNING id"


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        batch: messages per removed segment.
        partitions: of the removed messages.
        rate: pushes per second, and pops with acks per second, of one message each, sent regardless of answers.
        quiet_s: length of the measurement without retention in each run.
    """

    messages: Annotated[int, Option(help="To remove in each run.", min=1000)] = 1_000_000
    batch_size: Annotated[int, Option(help="RETENTION_BATCH_SIZE of the service.", min=1)] = 1000
    interval: Annotated[
        float,
        Option(
            help="RETENTION_INTERVAL of the service, in seconds: a sweep that lasts longer takes more of the time.",
            min=0.1,
        ),
    ] = 300.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 3
    batch: int = 100
    partitions: int = 100
    rate: float = 100.0
    quiet_s: float = 10.0


class _Latencies(Struct, frozen=True):
    """Milliseconds from when each call was due to its answer."""

    push: list[float]
    pop: list[float]


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """The same load twice, first alone, then while retention removes a backlog of the same partitions."""
    async with (
        database.scratch_database(dsn) as url,
        database.connection(url) as connection,
        database.pool(url, _CONNECTIONS) as hot,
        database.pool(url, 1) as own,
    ):
        store = Segments(hot, url)
        await store.set_up()
        bench = _Bench(settings, store, MaintenanceStore(own), connection)
        for number in range(settings.runs):
            progress(f"run {number + 1}", number / settings.runs)
            async for sample in bench.measure(number):
                yield sample


class _Bench:
    def __init__(
        self, settings: Settings, store: Segments, service: MaintenanceStore, own: "asyncpg.Connection[Any]"
    ) -> None:
        self._settings, self._store, self._maintenance, self._connection = settings, store, service, own
        self._source = MessageSource()
        self._busy_s = 0.0

    async def measure(self, number: int) -> AsyncIterator[Sample]:
        """Fills a queue, then measures without and with its removal."""
        queue, wanted = f"old-{number}", self._settings.messages
        queue_id = await self._fill(queue)
        quiet = await self._load(queue, asyncio.sleep(self._settings.quiet_s))
        before, self._busy_s, begin = await self._store.stored(), 0.0, time.perf_counter()
        removal = asyncio.ensure_future(self._remove(queue_id))
        beside = await self._load(queue, removal)
        removed, end = removal.result()
        kept = await self._store.stored()
        if removed != wanted or kept != before - removed + len(beside.push):
            raise MismatchError(f"{removed} of {wanted} messages removed; {kept} are left")
        for side, latencies in (("quiet", quiet), ("beside retention", beside)):
            yield Sample("push", side, number, percentiles(latencies.push))
            yield Sample("pop + ack", side, number, percentiles(latencies.pop))
        busy = self._busy_s / (end - begin)
        figures = {"messages removed/s": removed / (end - begin), "share of the time in calls": busy}
        yield Sample("retention", "beside retention", number, {"messages removed": float(removed), **figures})

    async def _fill(self, queue: str) -> int:
        """Creates a backlog that is a day old; returns the number of its queue."""
        settings = self._settings
        await self._store.make_partitions(queue, settings.partitions)
        numbers = itertools.cycle(range(settings.partitions))
        sizes = [len(some) for some in portions(settings.messages, settings.batch)]
        await carry_out(self._store.push(queue, self._source.take(n, next(numbers), chosen=True)) for n in sizes)
        await self._connection.execute(_OLD, queue)
        # The load without retention must not pay for the filling.
        await self._connection.execute("VACUUM ANALYZE")
        with suppress(asyncpg.InsufficientPrivilegeError):
            await self._connection.execute("CHECKPOINT")
        await self._store.join(queue, _GROUP)
        return int(await self._connection.fetchval(_KEEP, queue))

    async def _remove(self, queue_id: int) -> tuple[int, float]:
        """Runs a server's retention: the removed messages, and when it was done."""

        async def apply(queue: int, places: Sequence[Place], wait: bool) -> list[Step]:
            begin = time.perf_counter()
            try:
                return await self._maintenance.remove_expired(queue, places, self._settings.batch_size, wait)
            finally:
                self._busy_s += time.perf_counter() - begin

        service = Service("retention", self._settings.interval, self._maintenance.find_expired, apply)
        pacer = Pacer(time.perf_counter, asyncio.sleep, service.interval_s)
        removed = await sweep(service, [queue_id], pacer, lambda: True)
        return removed, time.perf_counter()

    async def _load(self, queue: str, work: Awaitable[object]) -> _Latencies:
        """Sends the load until the work is done, to the same partitions."""
        done, found = asyncio.Event(), _Latencies([], [])
        numbers = itertools.cycle(range(self._settings.partitions))

        async def push() -> None:
            await self._store.push(queue, self._source.take(1, next(numbers)))()

        async def pop() -> None:
            await self._store.pop_and_ack(queue, _GROUP, 10)

        async def watch() -> None:
            try:
                await work
            finally:
                done.set()

        await asyncio.gather(watch(), self._offer(push, found.push, done), self._offer(pop, found.pop, done))
        return found

    async def _offer(self, call: Callable[[], Awaitable[None]], times_ms: list[float], done: asyncio.Event) -> None:
        """Makes a call at each interval; a late one counts from when it was due."""
        tasks: set[asyncio.Task[None]] = set()
        begin = time.perf_counter()

        async def timed(due: float) -> None:
            await call()
            times_ms.append((time.perf_counter() - due) * 1000)

        for beat in itertools.count():
            due = begin + beat / self._settings.rate
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            if done.is_set():
                break
            tasks.add(asyncio.ensure_future(timed(due)))
        await asyncio.gather(*tasks)


SCENARIO = Scenario(
    "retention",
    "Messages that retention removes per second, and pushes and pops with and without it.",
    "postgres",
    measure,
    Settings,
    # Not a whole number of segments.
    smoke={"messages": 5_023, "partitions": 10, "rate": 50.0, "quiet_s": 0.5, "runs": 2},
    ratios=(("beside retention", "quiet"),),
    targets=(Target("*", "p99 ms", "beside retention / quiet", "<= 2"),),
)
