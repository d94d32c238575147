"""The run: the same offered load twice, first alone, then while retention removes a backlog of the same partitions."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import asyncpg

from queen.db.dsn import connect, parse
from queen.db.maintenance import MaintenanceStore
from queen.db.pool import Pool
from queen.services.ports import Place, Step
from queen.services.sweep import Pacer, Service, sweep
from queen_bench import database, machine
from queen_bench.errors import MismatchError
from queen_bench.procedures.segments import Segments
from queen_bench.procedures.side import MessageSource, portions
from queen_bench.retention.results import Latencies, Profile, Report, Run

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_CALL_TIMEOUT_S = 120.0
_CONNECTIONS = 8
_FILLERS = 4
_GROUP = "group"
_OLD = (
    "UPDATE queen.segments SET created_at = created_at - interval '1 day' WHERE part_id IN"
    " (SELECT p.id FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1)"
)
_KEEP = "UPDATE queen.queues SET retention_enabled = true, retention_seconds = 3600 WHERE name = $1 RETURNING id"


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures everything in a database of its own.

    Raises:
        QueenError: the server cannot be used.
        MismatchError: retention removed too much or too little, so its figures say nothing.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = machine.describe()
    async with database.scratch_database(dsn) as url, _bench(url, profile) as bench:
        runs = []
        for number in range(profile.runs):
            progress(f"run {number + 1}", number / profile.runs)
            runs.append(await bench.measure(f"old-{number}"))
        postgres = await database.describe(bench.connection, embedded=embedded)
    return Report(started_at, profile, facts, postgres, runs)


@asynccontextmanager
async def _bench(url: str, profile: Profile) -> "AsyncIterator[_Bench]":
    target = parse(url, "queen bench", database.CONNECT_TIMEOUT_MS)
    hot, own = Pool(target, _CONNECTIONS, _CALL_TIMEOUT_S), Pool(target, 1, _CALL_TIMEOUT_S)
    side = Segments(hot, url)
    await side.set_up()
    connection = await connect(target)
    try:
        bench = _Bench(profile, side, MaintenanceStore(own), connection)
        yield bench
    finally:
        await connection.close()
        await hot.close()
        await own.close()


class _Bench:
    def __init__(
        self, profile: Profile, side: Segments, store: MaintenanceStore, connection: "asyncpg.Connection[Any]"
    ) -> None:
        self.connection = connection
        self._profile, self._side, self._store = profile, side, store
        self._source = MessageSource()
        self._busy_s = 0.0

    async def measure(self, queue: str) -> Run:
        """Fills a queue, then measures quiet, then beside its removal."""
        queue_id = await self._fill(queue)
        quiet = await self._load(queue, asyncio.sleep(self._profile.quiet_s))
        self._busy_s = 0.0
        pushed_before = await self._side.stored()
        begin = time.perf_counter()
        removal = asyncio.ensure_future(self._remove(queue_id))
        beside = await self._load(queue, removal)
        seconds = removal.result()[1] - begin
        removed = removal.result()[0]
        kept = await self._side.stored()
        if removed != self._profile.messages or kept != pushed_before - removed + len(beside.push_ms):
            raise MismatchError(f"{removed} of {self._profile.messages} messages removed; {kept} are left")
        return Run(quiet, beside, removed, seconds, self._busy_s)

    async def _fill(self, queue: str) -> int:
        """A backlog that is a day old; the number of its queue."""
        profile = self._profile
        await self._side.make_partitions(queue, profile.partitions)
        numbers = itertools.cycle(range(profile.partitions))
        calls = iter([
            self._side.push(queue, self._source.take(size, next(numbers), chosen=True))
            for size in portions(profile.messages, profile.batch)
        ])  # fmt: skip

        async def fill() -> None:
            for call in calls:
                await call()

        await asyncio.gather(*[fill() for _ in range(_FILLERS)])
        await self.connection.execute(_OLD, queue)
        # The quiet load does not pay for the filling.
        await self.connection.execute("VACUUM ANALYZE")
        with suppress(asyncpg.InsufficientPrivilegeError):
            await self.connection.execute("CHECKPOINT")
        await self._side.join(queue, _GROUP)
        return int(await self.connection.fetchval(_KEEP, queue))

    async def _remove(self, queue_id: int) -> tuple[int, float]:
        """What a server's retention does: messages removed, and when it was done."""

        async def apply(queue: int, places: Sequence[Place], wait: bool) -> list[Step]:
            begin = time.perf_counter()
            try:
                return await self._store.remove_expired(queue, places, self._profile.batch_size, wait)
            finally:
                self._busy_s += time.perf_counter() - begin

        service = Service("retention", self._profile.interval_s, self._store.find_expired, apply)
        pacer = Pacer(time.perf_counter, asyncio.sleep, service.interval_s)
        removed = await sweep(service, [queue_id], pacer, lambda: True)
        return removed, time.perf_counter()

    async def _load(self, queue: str, work: Awaitable[object]) -> Latencies:
        """Offers the load until the work is done, in the very partitions that are being emptied."""
        done = asyncio.Event()
        numbers = itertools.cycle(range(self._profile.partitions))

        async def push() -> None:
            await self._side.push(queue, self._source.take(1, next(numbers), chosen=False))()

        async def pop() -> None:
            await self._side.pop_and_ack(queue, _GROUP, 10)

        async def watch() -> None:
            try:
                await work
            finally:
                done.set()

        push_ms: list[float] = []
        pop_ms: list[float] = []
        await asyncio.gather(watch(), self._offer(push, push_ms, done), self._offer(pop, pop_ms, done))
        return Latencies(push_ms, pop_ms)

    async def _offer(self, call: Callable[[], Awaitable[None]], times_ms: list[float], done: asyncio.Event) -> None:
        """Makes a call at each beat; a late one is counted from when it was due."""
        tasks: set[asyncio.Task[None]] = set()
        begin = time.perf_counter()

        async def timed(due: float) -> None:
            await call()
            times_ms.append((time.perf_counter() - due) * 1000)

        for beat in itertools.count():
            due = begin + beat / self._profile.rate
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            if done.is_set():
                break
            tasks.add(asyncio.ensure_future(timed(due)))
        await asyncio.gather(*tasks)
