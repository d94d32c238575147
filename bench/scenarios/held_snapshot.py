"""The same load with and without a transaction that holds a snapshot, or a replication slot that holds an xmin."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

import psutil
from msgspec import Struct
from typer import Option

from bench import database, holders, meter
from bench.messages import MessageSource
from bench.scenario import MismatchError, Progress, Sample, Scenario, Target, in_turn, percentiles
from bench.segments import Segments
from queen.postgres.pool import Pool

_QUEUE, _GROUP = "bench", "bench"
#: The last part of the time counts: a held snapshot hurts more the longer it is held.
_COUNTED = 0.2
#: Seconds before the snapshot is taken: every connection is warm, and every partition has had a message.
_WARM_ROUNDS = 3
#: PostgreSQL 14 publishes them by itself, half a second later.
_CAN_FLUSH = "SELECT to_regproc('pg_stat_force_next_flush') IS NOT NULL AS can"
_FLUSH = "SELECT pg_stat_force_next_flush()"
_BLOCKS = "SELECT blks_hit + blks_read AS blocks FROM pg_stat_database WHERE datname = current_database()"


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        batch: messages per push, and maximum per pop.
        partitions: used in turns.
    """

    seconds: Annotated[float, Option(help="Of each side of a pair; the last fifth counts.", min=1)] = 600.0
    pairs: Annotated[int, Option(help="Number of runs.", min=1)] = 3
    clients: Annotated[int, Option(help="Clients that push, pop and ack, one call after the other.", min=1)] = 4
    slot: Annotated[bool, Option("--slot", help="A replication slot holds an xmin instead.")] = False
    batch: int = 10
    partitions: int = 100


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """Both sides of each pair, each in a database of its own."""
    held = "a slot is held" if settings.slot else "a snapshot is held"
    for number in range(settings.pairs):
        for place, side in enumerate(in_turn(("nothing is held", held), number)):
            progress(f"pair {number + 1}: {side}", (2 * number + place) / (2 * settings.pairs))
            figures = await _measured(dsn, settings, held=side == held)
            yield Sample(_CASE, "held" if side == held else "free", number, figures)


async def _measured(dsn: str, settings: Settings, *, held: bool) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(database.scratch_database(dsn))
        pool = await stack.enter_async_context(database.pool(url, settings.clients + 1))
        store = Segments(pool, url)
        await store.set_up()
        await store.make_partitions(_QUEUE, settings.partitions)
        await store.subscribe(_QUEUE, _GROUP)
        async with database.connection(url) as connection:
            load = _Load(settings, store, pool, await meter.postmaster(connection))
        await load.warm_up()
        if held:
            await stack.enter_async_context(holders.slot(url) if settings.slot else holders.snapshot(url))
        return await load.measure()


class _Load:
    """Clients that push, pop and ack, each waiting for its answers."""

    def __init__(self, settings: Settings, store: Segments, pool: Pool, postmaster: psutil.Process | None) -> None:
        self._settings, self._store, self._pool, self._postmaster = settings, store, pool, postmaster
        self._source, self._partitions = MessageSource(), itertools.cycle(range(settings.partitions))
        self._pushed = self._taken = 0
        self._rounds_ms: list[float] = []

    async def warm_up(self) -> None:
        """Some rounds over all partitions."""
        rounds = _WARM_ROUNDS * self._settings.partitions // self._settings.clients + 1

        async def some() -> None:
            for _ in range(rounds):
                await self._round()

        await asyncio.gather(*(some() for _ in range(self._settings.clients)))

    async def measure(self) -> dict[str, float]:
        """Runs the load; returns the figures of its last part."""
        begin, seconds = time.perf_counter(), self._settings.seconds
        clients = [asyncio.ensure_future(self._until(begin + seconds)) for _ in range(self._settings.clients)]
        await asyncio.wait(clients, timeout=(1 - _COUNTED) * seconds, return_when=asyncio.FIRST_EXCEPTION)
        since, taken = time.perf_counter(), self._taken
        cpu, blocks = meter.postgres_seconds(self._postmaster), await self._blocks()
        self._rounds_ms.clear()
        await asyncio.gather(*clients)
        elapsed, messages = time.perf_counter() - since, self._taken - taken
        spent, seen = meter.postgres_seconds(self._postmaster), await self._blocks()
        if (stored := await self._store.stored()) != self._pushed:
            raise MismatchError(f"{self._pushed} messages were pushed, and {stored} are stored")
        known = {} if cpu is None or spent is None else {"PostgreSQL, µs per message": 1e6 * (spent - cpu) / messages}
        times = percentiles(self._rounds_ms)
        blocks_each = {"blocks per message": (seen - blocks) / messages}
        return {"messages/s": messages / elapsed, "p99 ms": times["p99 ms"], **known, **blocks_each}

    async def _until(self, end: float) -> None:
        while time.perf_counter() < end:
            await self._round()

    async def _round(self) -> None:
        batch = self._settings.batch
        push = self._store.push(_QUEUE, self._source.take(batch, next(self._partitions)))
        begin = time.perf_counter()
        await push()
        self._pushed += batch
        taken = await self._store.pop_and_ack(_QUEUE, _GROUP, batch)
        self._taken += taken
        self._rounds_ms.append(1000 * (time.perf_counter() - begin))

    async def _blocks(self) -> int:
        """Blocks so far, autovacuum's included, after the connections have published their statistics."""
        if (await self._pool.fetch(_CAN_FLUSH))[0]["can"]:
            await asyncio.gather(*(self._pool.fetch(_FLUSH) for _ in range(self._pool.size)))
        [row] = await self._pool.fetch(_BLOCKS)
        return int(row["blocks"])


_CASE = "push + pop + ack"
SCENARIO = Scenario(
    "held-snapshot",
    "Push, pop and ack beside a transaction that holds a snapshot, and without it, in turns.",
    "postgres",
    measure,
    Settings,
    smoke={"seconds": 1.0, "pairs": 2, "clients": 2, "partitions": 10},
    ratios=(("held", "free"),),
    targets=tuple(
        Target(_CASE, figure, "held / free", wanted)
        for figure, wanted in (
            ("messages/s", ">= 0.9"), ("p99 ms", "<= 1.5"), ("PostgreSQL, µs per message", "<= 1.1"),
            ("blocks per message", "<= 1.1"),
        )
    ),
)  # fmt: skip
