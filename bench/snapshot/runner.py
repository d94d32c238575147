"""The run: the same load without and with something that is held, in turns, each in a database of its own."""

import asyncio
import itertools
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import psutil

from queen.db.dsn import parse
from queen.db.pool import Pool
from queen_bench import database, machine, usage
from queen_bench.database import CONNECT_TIMEOUT_MS
from queen_bench.errors import MismatchError
from queen_bench.procedures.segments import Segments
from queen_bench.procedures.side import MessageSource
from queen_bench.snapshot import holders
from queen_bench.snapshot.results import COUNTED, Pair, Profile, Report, Side, p99

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_QUEUE, _GROUP = "bench", "bench"
_CALL_TIMEOUT_S = 120.0
#: Every connection is warm, and every partition has had a message, when something begins to be held.
_WARM_ROUNDS = 3
#: PostgreSQL 14 tells by itself, half a second later.
_CAN_FLUSH = "SELECT to_regproc('pg_stat_force_next_flush') IS NOT NULL AS can"
_FLUSH = "SELECT pg_stat_force_next_flush()"
_BLOCKS = "SELECT blks_hit + blks_read AS blocks FROM pg_stat_database WHERE datname = current_database()"


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures all pairs; which side comes first changes.

    Raises:
        QueenError: the server cannot be used.
        MismatchError: nothing was held, or messages are missing, so that the figures say nothing.
    """
    started_at, facts = datetime.now(UTC).isoformat(timespec="seconds"), machine.describe()
    pairs = []
    for number in range(profile.pairs):
        sides: dict[bool, Side] = {}
        for place, held in enumerate((False, True) if number % 2 == 0 else (True, False)):
            done = (2 * number + place) / (2 * profile.pairs)
            progress(f"pair {number + 1}: {'held' if held else 'nothing held'}", done)
            sides[held] = await _measured(dsn, profile, held=held)
        pairs.append(Pair(sides[False], sides[True]))
    async with usage.connection(dsn) as connection:
        postgres = await database.describe(connection, embedded=embedded)
    return Report(started_at, profile, facts, postgres, pairs)


async def _measured(dsn: str, profile: Profile, *, held: bool) -> Side:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(database.scratch_database(dsn))
        pool = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), profile.clients + 1, _CALL_TIMEOUT_S)
        stack.push_async_callback(pool.close)
        side = Segments(pool, url)
        await side.set_up()
        await side.make_partitions(_QUEUE, profile.partitions)
        await side.subscribe(_QUEUE, _GROUP)
        async with usage.connection(url) as connection:
            load = _Load(profile, side, pool, await usage.postmaster(connection))
        await load.warm_up()
        if held:
            await stack.enter_async_context(holders.slot(url) if profile.slot else holders.snapshot(url))
        return await load.measure()


class _Load:
    """Clients that push, pop and ack, each waiting for its answers."""

    def __init__(self, profile: Profile, side: Segments, pool: Pool, postmaster: psutil.Process | None) -> None:
        self._profile, self._side, self._pool, self._postmaster = profile, side, pool, postmaster
        self._source = MessageSource()
        self._partitions = itertools.cycle(range(profile.partitions))
        self._pushed = self._taken = 0
        self._rounds_ms: list[float] = []

    async def warm_up(self) -> None:
        """Some rounds over all partitions."""
        rounds = _WARM_ROUNDS * self._profile.partitions // self._profile.clients + 1
        await asyncio.gather(*(self._some(rounds) for _ in range(self._profile.clients)))

    async def measure(self) -> Side:
        """The load for its time; the figures of the last part of it.

        Raises:
            MismatchError: messages are missing.
        """
        begin, seconds = time.perf_counter(), self._profile.seconds
        clients = [asyncio.ensure_future(self._until(begin + seconds)) for _ in range(self._profile.clients)]
        await asyncio.wait(clients, timeout=(1 - COUNTED) * seconds, return_when=asyncio.FIRST_EXCEPTION)
        since, taken, cpu, blocks = time.perf_counter(), self._taken, self._cpu_s(), await self._blocks()
        self._rounds_ms.clear()
        await asyncio.gather(*clients)
        elapsed, spent = time.perf_counter() - since, self._cpu_s()
        figures = Side(
            self._taken - taken, elapsed, p99(self._rounds_ms), None if cpu is None or spent is None else spent - cpu,
            await self._blocks() - blocks,
        )  # fmt: skip
        if await self._side.stored() != self._pushed:
            raise MismatchError(f"{self._pushed} messages were pushed, and {await self._side.stored()} are stored")
        return figures

    async def _some(self, rounds: int) -> None:
        for _ in range(rounds):
            await self._round()

    async def _until(self, end: float) -> None:
        while time.perf_counter() < end:
            await self._round()

    async def _round(self) -> None:
        batch = self._profile.batch
        push = self._side.push(_QUEUE, self._source.take(batch, next(self._partitions), chosen=False))
        begin = time.perf_counter()
        await push()
        self._pushed += batch
        taken = await self._side.pop_and_ack(_QUEUE, _GROUP, batch)
        self._taken += taken
        self._rounds_ms.append(1000 * (time.perf_counter() - begin))

    def _cpu_s(self) -> float | None:
        return None if self._postmaster is None else usage.cpu_seconds(usage.family(self._postmaster))

    async def _blocks(self) -> int:
        """So far; what connections have not told yet they tell first."""
        if (await self._pool.fetch(_CAN_FLUSH))[0]["can"]:
            await asyncio.gather(*(self._pool.fetch(_FLUSH) for _ in range(self._pool.size)))
        [row] = await self._pool.fetch(_BLOCKS)
        return int(row["blocks"])
