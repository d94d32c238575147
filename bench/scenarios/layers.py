"""The cost of each layer per message: procedures alone, the engine without HTTP, and a server, in turns."""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from math import ceil
from operator import add
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from typer import Option

from bench import database
from bench.clients import Clients, Work, clients
from bench.engine import SETTINGS
from bench.load import k6, runner, scenarios
from bench.load.target import Target as Server
from bench.load.target import started
from bench.messages import Call, MessageSource
from bench.meter import Taken
from bench.scenario import PUSH, TAKE, MismatchError, Progress, Sample, Scenario
from bench.segments import Segments
from queen.core.job_type import JobType

_QUEUE, _GROUP = "bench", "bench"
#: Push calls that a worker has in flight, and prepared calls for each of them before the measurement.
_AT_ONCE, _PREPARED = SETTINGS.policy(JobType.PUSH).in_flight_max, 10
_SCRIPTS = {PUSH: "push", TAKE: "pop-ack"}
#: Python's CPU of a layer beyond that of the layer below; for the lowest one, the driver, all of it.
_OWN = "Python's own, µs per message"


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        backlog: maximum of messages that are pushed in advance for consumers.
        shapes: messages per request, and number of clients.
        http_s: seconds of each run of k6, which counts whole ones.
        http_backlog: messages for the consumers of k6; ``None``: the default of its scenarios.
    """

    seconds: Annotated[float, Option(help="Of each layer in each run.", min=0.01)] = 2.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 5
    http: Annotated[bool, Option(help="Measure a whole server with k6, too.")] = True
    backlog: int = 200_000
    shapes: tuple[tuple[int, int], ...] = ((1, 50), (10, 50), (100, 8), (1000, 8))
    http_s: int = 5
    http_backlog: int | None = None


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """Measures in databases of its own: one for procedures and engine, one for the server."""
    if settings.http:
        k6.program()
    works = [Work(operation, *shape) for operation in (PUSH, TAKE) for shape in settings.shapes]
    partitions, total = max(number for _, number in settings.shapes), settings.runs * len(works)
    async with (
        database.scratch_database(dsn) as url,
        database.scratch_database(dsn) as other,
        database.pool(url, _AT_ONCE) as pool,
    ):
        store = Segments(pool, url)
        await store.set_up()
        async with clients(url, _QUEUE, partitions, settings.backlog) as made:
            await made.start()
            with _server(other if settings.http else None, settings) as server:
                layers = _Layers(made, _Procedures(store, made), server, settings.seconds)
                for done, (number, work) in enumerate(itertools.product(range(settings.runs), works)):
                    progress(f"run {number + 1}: {work}", done / total)
                    for sample in await layers.measured(work, number):
                        yield sample
            await made.instance.check(made.pushed)


class _Layers(Struct, frozen=True):
    """The operations, measured in turns."""

    engine: Clients
    procedures: "_Procedures"
    server: "_Http | None"
    seconds: float

    async def measured(self, work: Work, number: int) -> list[Sample]:
        """A sample per layer. The engine is first, because the procedures use its measured batches."""
        engine = await self.engine.measured(work, self.seconds)
        calls = await self.procedures.measured(work, engine, self.seconds)
        http = await self.server.measured(work, number) if self.server else None
        return list(_samples(work, number, calls, engine, http))


def _samples(work: Work, number: int, calls: Taken, engine: Taken, http: Taken | None) -> Iterator[Sample]:
    fused = {"requests per call": engine.messages / work.batch / max(engine.calls, 1)}
    below = 0.0
    for side, taken in (("procedures", calls), ("engine", engine), ("HTTP", http)):
        if taken is not None:
            figures = taken.figures()
            python = figures.get("Python, µs per message")
            own = {} if python is None else {_OWN: python - below}
            below = python or below
            yield Sample(str(work), side, number, figures | own | (fused if side == "engine" else {}))


class _Procedures:
    """The same work through the procedures alone."""

    def __init__(self, store: Segments, made: Clients) -> None:
        self._store, self._clients, self._source = store, made, MessageSource()

    async def measured(self, work: Work, seen: Taken, seconds: float) -> Taken:
        """Calls with as many requests as the engine's batches had."""
        requests = max(1, ceil(seen.messages / work.batch / max(seen.calls, 1)))
        measured = self._push if work.operation == PUSH else self._take
        all_taken = list[Taken]()
        while sum(each.seconds for each in all_taken) < seconds:
            all_taken.append(await measured(work.batch, requests, seconds))
        if work.operation == PUSH:
            await self._clients.skip()
        return reduce(add, all_taken)

    async def _push(self, batch: int, requests: int, _seconds: float) -> Taken:
        """Some calls in flight, each with this many requests; they are built outside the measurement."""
        await self._store.make_partitions(_QUEUE, requests)
        calls = [self._call(batch, requests) for _ in range(_AT_ONCE * _PREPARED)]

        async def send(some: Sequence[Call]) -> None:
            for call in some:
                await call()

        async def work() -> int:
            await asyncio.gather(*(send(calls[number::_AT_ONCE]) for number in range(_AT_ONCE)))
            return len(calls) * requests * batch

        taken = await self._clients.meter.measured(work)
        self._clients.pushed += taken.messages
        self._clients.left += taken.messages
        return taken

    def _call(self, batch: int, requests: int) -> Call:
        messages = [each for number in range(requests) for each in self._source.take(batch, number)]
        return self._store.push(_QUEUE, messages)

    async def _take(self, batch: int, requests: int, seconds: float) -> Taken:
        """Alternates calls of this many pops and calls with their acks; the messages were pushed before."""
        await self._store.join(_QUEUE, _GROUP)
        await self._clients.fill(batch)

        async def work() -> int:
            loop, taken, got = asyncio.get_running_loop(), 0, 1
            end = loop.time() + seconds
            while got and loop.time() < end:
                got = await self._store.pop_and_ack(_QUEUE, _GROUP, batch, requests)
                taken += got
            return taken

        taken = await self._clients.meter.measured(work)
        self._clients.left -= taken.messages
        return taken


class _Http(Struct, frozen=True):
    """A server with one worker, and a folder for the files of k6."""

    server: Server
    folder: Path
    seconds: int
    backlog: int | None

    async def measured(self, work: Work, number: int) -> Taken:
        """One run of k6, with as many virtual users as the engine had clients.

        Raises:
            MismatchError: not one message was answered.
        """
        [load] = scenarios.chosen([f"{_SCRIPTS[work.operation]}-{work.batch}"])
        settings = {"VUS": str(work.clients)} | ({} if self.backlog is None else {"BACKLOG": str(self.backlog)})
        plan = runner.Plan([load], [self.server], 1, settings, self.seconds, f"{number}-{work.clients}")
        [found] = [each async for each in runner.run(plan, self.folder, lambda _what, _done: None)]
        if not found.messages:
            raise MismatchError(f"{load.name}: not one message was answered in {self.seconds} s")
        # The rate is that of all answers; CPU is sampled each second, and not in a short run.
        cpu = {part: None if (us := found.part_us(part)) is None else us * found.messages / 1e6 for part in found.cpu}
        return Taken(found.messages, found.seconds, cpu.get("server"), cpu.get("postgres"))


@contextmanager
def _server(url: str | None, settings: Settings) -> Iterator[_Http | None]:
    if url is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="queen-bench-k6-") as folder, started(url, workers=1) as server:
        yield _Http(server, Path(folder), max(settings.http_s, round(settings.seconds)), settings.http_backlog)


SCENARIO = Scenario(
    "engine",
    "Procedures alone, the engine without HTTP, and a server, in turns: the cost of each layer per message.",
    "postgres",
    measure,
    Settings,
    smoke={"seconds": 0.05, "runs": 1, "backlog": 2_000, "shapes": ((10, 4),), "http_s": 5, "http_backlog": 2_000},
    ratios=(("engine", "procedures"), ("HTTP", "engine")),
)
