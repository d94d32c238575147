"""The run: procedures alone, the engine, and a server take turns, so that a noisy machine hits them alike."""

import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from math import ceil, nan
from pathlib import Path

from msgspec import Struct

from queen.core.operations import JobType
from queen.db.setup import prepare
from queen_bench import database, machine, usage
from queen_bench.database import CONNECT_TIMEOUT_MS
from queen_bench.engine.instance import SETTINGS, Instance
from queen_bench.engine.load import Clients, CpuMeter, Procedures
from queen_bench.engine.results import PUSH, TAKE, Cost, Profile, Report, Shape
from queen_bench.load import k6, runner, scenarios
from queen_bench.load.target import Target, started

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_QUEUE = "bench"
#: Calls of pushes that a worker has under way, and connections that it may use.
_AT_ONCE = SETTINGS.policy(JobType.PUSH).in_flight_max
CONNECTIONS = 8


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures in databases of its own: one for procedures and engine, one for the server.

    Raises:
        QueenError: the PostgreSQL cannot be used, or k6 is not there.
        MismatchError: what is stored is not what was pushed.
    """
    started_at, facts = datetime.now(UTC).isoformat(timespec="seconds"), machine.describe()
    if profile.http:
        k6.program()
    async with database.scratch_database(dsn) as url, database.scratch_database(dsn) as other:
        await prepare(url, CONNECT_TIMEOUT_MS)
        async with _bench(url, profile) as bench:
            with _http(other if profile.http else None, profile) as http:
                shapes = await _measure(bench, http, profile, progress)
            await bench.check()
        async with usage.connection(url) as connection:
            postgres = await database.describe(connection, embedded=embedded)
    return Report(started_at, facts, postgres, profile, shapes)


async def _measure(bench: "_Bench", http: "_Http | None", profile: Profile, progress: Progress) -> list[Shape]:
    shapes = [Shape(operation, *shape) for operation in (PUSH, TAKE) for shape in profile.shapes]
    done, total = itertools.count(), profile.runs * len(shapes)
    for number in range(profile.runs):
        for shape in shapes:
            progress(f"run {number + 1}: {shape.operation}, {shape.batch} a request", next(done) / total)
            # Second, because it does what the engine was seen to fuse.
            shape.engine.append(await bench.engine(shape))
            shape.calls.append(await bench.procedures(shape))
            if http is not None:
                shape.http.append(await http.measure(shape, number))
    progress("done", 1.0)
    return shapes


class _Bench:
    """Procedures and engine on one database."""

    def __init__(self, instance: Instance, clients: Clients, procedures: Procedures, profile: Profile) -> None:
        self._instance, self._clients, self._procedures, self._profile = instance, clients, procedures, profile

    async def engine(self, shape: Shape) -> Cost:
        """One measurement through the engine."""
        work = self._clients.push if shape.operation == PUSH else self._clients.take
        return await work(shape.batch, shape.clients, self._profile.seconds)

    async def procedures(self, shape: Shape) -> Cost:
        """One measurement of calls as large as those of the engine before."""
        seen = shape.engine[-1]
        requests = max(1, ceil(seen.messages / shape.batch / max(seen.calls, 1)))
        if shape.operation == PUSH:
            return await self._procedures.push(shape.batch, requests, _AT_ONCE, self._profile.seconds)
        return await self._procedures.take(shape.batch, requests, self._profile.seconds)

    async def check(self) -> None:
        """Everything is there, and nothing twice."""
        await self._instance.check(self._clients.pushed)


@asynccontextmanager
async def _bench(url: str, profile: Profile) -> AsyncIterator[_Bench]:
    instance = Instance(url, CONNECTIONS)
    try:
        async with usage.connection(url) as connection:
            meter = CpuMeter(await usage.postmaster(connection))
        clients = Clients(instance, meter, _QUEUE, max(number for _, number in profile.shapes), profile.backlog)
        await clients.start()
        yield _Bench(instance, clients, Procedures(instance.store, clients, meter, _QUEUE), profile)
    finally:
        await instance.close()


class _Http(Struct, frozen=True):
    """A server with one worker, and a folder for the files of k6."""

    target: Target
    folder: Path
    seconds: int
    backlog: int | None

    async def measure(self, shape: Shape, number: int) -> Cost:
        """One run of k6, with as many virtual users as the engine had clients."""
        script = {PUSH: "push", TAKE: "pop-ack"}[shape.operation]
        [scenario] = scenarios.chosen([f"{script}-{shape.batch}"])
        settings = {"VUS": str(shape.clients)}
        if self.backlog is not None:
            settings["BACKLOG"] = str(self.backlog)
        plan = runner.Plan([scenario], [self.target], 1, settings, self.seconds, f"{number}-{shape.clients}")
        [found] = [each async for each in runner.run(plan, self.folder, lambda _what, _done: None)]
        # The rate is that of all answers; CPU is looked at each second, and of a short run not at all.
        python_s, postgres_s = [
            None if (us := found.part_us(part)) is None else us * found.messages / 1e6
            for part in ("server", "postgres")
        ]
        return Cost(found.messages, found.seconds, nan if python_s is None else python_s, postgres_s)


@contextmanager
def _http(url: str | None, profile: Profile) -> Iterator[_Http | None]:
    if url is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="queen-bench-k6-") as folder, started(url, workers=1) as target:
        yield _Http(target, Path(folder), max(profile.http_s, round(profile.seconds)), profile.http_backlog)
