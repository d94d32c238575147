"""Pushes through the engine to PostgreSQL and to the spool, and the replay of the spool."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from uuid import uuid4

from msgspec import Struct
from typer import Option

from bench import database
from bench.clients import Clients, Work
from bench.engine import SETTINGS, Instance
from bench.meter import CpuMeter, Taken
from bench.scenario import PUSH, Progress, Sample, Scenario, Target
from queen.core.limits import REPLAY_LANES
from queen.engine.failover import Failover
from queen.engine.replay import Replay
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.spool_store import SpoolStore
from queen.spool.folder import DiskFolder
from queen.spool.spool import Limits, Spool

#: The batch with a target for the replay.
_BATCH = 100


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        batches: messages per request.
        producers: each waits for its answer before it pushes again.
        drained: messages of the replay at the end.
    """

    seconds: Annotated[float, Option(help="Of each rate in each run.", min=0.01)] = 2.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 5
    batches: tuple[int, ...] = (1, 10, _BATCH)
    producers: int = 50
    drained: int = 1_000_000


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """Normal and spooled pushes in turns with the replay of the latter, and the replay of a large spool."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="queen-bench-spool-"))
        url = await stack.enter_async_context(database.scratch_database(dsn))
        await prepare(url, database.CONNECT_TIMEOUT_MS)
        replaying = await stack.enter_async_context(database.pool(url, REPLAY_LANES))
        bench = _Bench(url, Path(folder), replaying, settings)
        stack.push_async_callback(bench.close)
        await bench.warm_up()
        for number in range(settings.runs):
            for place, batch in enumerate(settings.batches):
                progress(f"{batch} per request", (number + place / len(settings.batches)) / (settings.runs + 1))
                async for side, taken in bench.measure(batch, normal_first=bool(number % 2)):
                    rate = taken.messages / taken.seconds
                    yield Sample(f"push, {batch} per request", side, number, {"messages/s": rate})
        progress("drain", settings.runs / (settings.runs + 1))
        messages, seconds = await bench.drain_backlog()
        figures = {"messages": float(messages), "seconds": seconds}
        yield Sample("from the return of PostgreSQL to an empty spool", "replay", 0, figures)
        await bench.check()


class _Bench:
    """Producers of an engine in which PostgreSQL can be marked as unavailable."""

    def __init__(self, url: str, folder: Path, replaying: Pool, settings: Settings) -> None:
        self._settings, self._replaying = settings, replaying
        self._failover = Failover(Spool(DiskFolder(folder), uuid4(), Limits(bytes_max=1 << 40)))
        self._instance = Instance(url, self._failover)
        store = SpoolStore(replaying)
        self._replay = Replay(self._instance.context, self._failover, store, SETTINGS.spool.batch, 0)
        self._clients = Clients(self._instance, CpuMeter(None), "bench", settings.producers, 0)

    async def close(self) -> None:
        await self._instance.close()
        self._failover.close()

    async def warm_up(self) -> None:
        """Warms up all three ways."""
        await self._push(_BATCH)
        await self._spooled(_BATCH)
        await self._drain()

    async def measure(self, batch: int, *, normal_first: bool) -> AsyncIterator[tuple[str, Taken]]:
        """Rates of all three ways, as neighbours."""
        if normal_first:
            yield "normal", await self._push(batch)
        spooled = await self._spooled(batch)
        yield "spooling", spooled
        # First, because all pushes go to the spool until it is empty.
        yield "replay", Taken(spooled.messages, await self._drain())
        if not normal_first:
            yield "normal", await self._push(batch)

    async def drain_backlog(self) -> tuple[int, float]:
        """Messages, and the time from PostgreSQL's return until the spool is empty, without pushes."""
        messages, self._failover.unavailable = 0, True
        while messages < self._settings.drained:
            messages += (await self._clients.produce(Work(PUSH, _BATCH, self._settings.producers), 0.1)).messages
        self._failover.unavailable = False
        return messages, await self._drain()

    async def check(self) -> None:
        """Checks that every message is stored exactly once."""
        await self._instance.check(self._clients.pushed)

    async def _spooled(self, batch: int) -> Taken:
        self._failover.unavailable = True
        taken = await self._push(batch)
        self._failover.unavailable = False
        return taken

    async def _push(self, batch: int) -> Taken:
        await database.checkpoint(self._replaying)
        return await self._clients.produce(Work(PUSH, batch, self._settings.producers), self._settings.seconds)

    async def _drain(self) -> float:
        await database.checkpoint(self._replaying)
        begin = time.perf_counter()
        await self._replay.drain()
        return time.perf_counter() - begin


SCENARIO = Scenario(
    "spool",
    "Pushes through the engine to PostgreSQL and to the spool, and the replay.",
    "postgres",
    measure,
    Settings,
    smoke={"seconds": 0.05, "runs": 2, "batches": (1, _BATCH), "producers": 4, "drained": 2_000},
    ratios=(("spooling", "normal"), ("replay", "normal")),
    targets=(
        Target("push,*", "messages/s", "spooling / normal", ">= 1"),
        Target(f"push, {_BATCH} per request", "messages/s", "replay / normal", ">= 3"),
    ),
)
