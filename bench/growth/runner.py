"""The run: an empty system and three full ones, measured through the engine, each full one beside the empty one."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime

from queen.core.errors import DataRejectedError
from queen.core.operations import Pop
from queen.db.dsn import parse
from queen.db.pool import Pool
from queen_bench import database, machine, usage
from queen_bench.database import CONNECT_TIMEOUT_MS
from queen_bench.engine.instance import Instance
from queen_bench.engine.load import Clients, CpuMeter
from queen_bench.engine.results import PUSH, Cost
from queen_bench.growth.results import Pair, Profile, Report, System
from queen_bench.procedures.segments import Segments
from queen_bench.procedures.side import Call, MessageSource, portions

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_QUEUE, _GROUP = "bench", "bench"
_CONNECTIONS, _FILLERS = 8, 4
_CALL_TIMEOUT_S = 600.0
#: Messages of a segment, and partitions, of the retained messages.
_SEGMENT, _RETAINED_IN = 100, 1_000
#: Of the time, filling takes so much.
_FILLING = 0.5


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures in databases of its own, one a system.

    Raises:
        QueenError: the PostgreSQL cannot be used.
        MismatchError: what is stored is not what was pushed.
    """
    started_at, facts = datetime.now(UTC).isoformat(timespec="seconds"), machine.describe()
    async with AsyncExitStack() as stack:
        empty = await _opened(stack, dsn, profile)
        await empty.ready(0)
        systems, opened = [], list[_System]()
        fillings = _fillings(profile)
        for number, (name, fill) in enumerate(fillings.items()):
            progress(f"filling: {name}", _FILLING * number / len(fillings))
            system = await _opened(stack, dsn, profile)
            begin = time.perf_counter()
            await system.ready(await fill(system))
            systems.append(System(name, time.perf_counter() - begin))
            opened.append(system)
        await _measure(profile, empty, list(zip(systems, opened, strict=True)), progress)
        for system in (empty, *opened):
            await system.check()
        async with usage.connection(dsn) as connection:
            postgres = await database.describe(connection, embedded=embedded)
    return Report(started_at, facts, postgres, profile, systems)


async def _measure(
    profile: Profile, empty: "_System", systems: "list[tuple[System, _System]]", progress: Progress
) -> None:
    """A full system and the empty one in turns; who begins changes."""
    done, total = itertools.count(), profile.runs * len(profile.operations) * len(systems)
    for system in (empty, *(each for _, each in systems)):
        await system.measure(*profile.operations[0], profile.seconds / 2)
    for number in range(profile.runs):
        for operation, batch, clients in profile.operations:
            for place, (result, full) in enumerate(systems):
                progress(
                    f"run {number + 1}: {operation} of {batch}, {result.name}",
                    _FILLING + (1 - _FILLING) * next(done) / total,
                )
                order = (empty, full) if (number + place) % 2 == 0 else (full, empty)
                costs = {each: await each.measure(operation, batch, clients, profile.seconds) for each in order}
                result.pairs.append(Pair(operation, batch, costs[empty], costs[full]))
    progress("done", 1.0)


class _System:
    """One database with an engine, its clients, and what fills it."""

    def __init__(self, instance: Instance, clients: Clients, pool: Pool, side: Segments) -> None:
        self.instance, self.side = instance, side
        self._clients, self._pool = clients, pool
        self._filled = 0

    async def ready(self, filled: int) -> None:
        """Says how many messages were pushed to fill it, and has PostgreSQL put it in order."""
        self._filled = filled
        await self._clients.start()
        await self._pool.fetch("VACUUM ANALYZE")
        with suppress(DataRejectedError):  # this user may not
            await self._pool.fetch("CHECKPOINT")

    async def measure(self, operation: str, batch: int, clients: int, seconds: float) -> Cost:
        """One measurement."""
        work = self._clients.push if operation == PUSH else self._clients.take
        return await work(batch, clients, seconds)

    async def check(self) -> None:
        """Everything is there, and nothing twice."""
        await self.instance.check(self._filled + self._clients.pushed)


async def _opened(stack: AsyncExitStack, dsn: str, profile: Profile) -> _System:
    url = await stack.enter_async_context(database.scratch_database(dsn))
    pool = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), _FILLERS, _CALL_TIMEOUT_S)
    stack.push_async_callback(pool.close)
    side = Segments(pool, url)
    await side.set_up()
    instance = Instance(url, _CONNECTIONS)
    stack.push_async_callback(instance.close)
    async with usage.connection(url) as connection:
        meter = CpuMeter(await usage.postmaster(connection))
    partitions = max(clients for _, _, clients in profile.operations)
    return _System(instance, Clients(instance, meter, _QUEUE, partitions, profile.backlog, _GROUP), pool, side)


def _fillings(profile: Profile) -> Mapping[str, Callable[[_System], Awaitable[int]]]:
    """What makes a system full; returns how many messages it has pushed."""

    async def messages(system: _System) -> int:
        await system.side.make_partitions(_QUEUE, _RETAINED_IN)
        source, numbers = MessageSource(), itertools.cycle(range(_RETAINED_IN))

        def call(count: int) -> Call:
            taken = [source.take(size, next(numbers), chosen=False) for size in portions(count, _SEGMENT)]
            return system.side.push(_QUEUE, [message for some in taken for message in some])

        await _carry_out(call(count) for count in portions(profile.messages, profile.step))
        return profile.messages

    async def partitions(system: _System) -> int:
        await system.side.make_partitions(_QUEUE, profile.partitions)
        source = MessageSource()

        def call(begin: int) -> Call:
            numbers = range(begin, min(begin + profile.step, profile.partitions))
            return system.side.push(_QUEUE, [source.take(1, number, chosen=False)[0] for number in numbers])

        await _carry_out(call(begin) for begin in range(0, profile.partitions, profile.step))
        await system.side.subscribe(_QUEUE, _GROUP)
        await system.side.skip_all(_QUEUE, _GROUP)
        return profile.partitions

    async def groups(system: _System) -> int:
        await system.side.make_partitions(_QUEUE, 1)
        for number in range(profile.groups):
            await system.instance.pop(Pop(_QUEUE, group=f"idle-{number}"))
        return 0

    return {
        f"{profile.messages:,} messages": messages,
        f"{profile.partitions:,} partitions": partitions,
        f"{profile.groups} groups": groups,
    }


async def _carry_out(calls: Iterable[Call]) -> None:
    """Some at a time; each is made when it is its turn."""
    waiting = iter(calls)

    async def fill() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(fill() for _ in range(_FILLERS)))
