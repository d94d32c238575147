"""The cost of a message in a system full of messages, of partitions, or of groups, compared with an empty one."""

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

from msgspec import Struct
from typer import Option

from bench import database
from bench.clients import Clients, Work, clients
from bench.messages import Call, MessageSource, carry_out, portions
from bench.scenario import PUSH, TAKE, Progress, Sample, Scenario, Target, in_turn
from bench.segments import Segments
from queen.log.requests import Pop
from queen.postgres.pool import Pool

_QUEUE, _GROUP, _FILLERS = "bench", "bench", 4
#: Messages per segment, and partitions, of the retained messages.
_SEGMENT, _RETAINED_IN = 100, 1_000
#: Share of the progress for filling.
_FILLING = 0.5


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        backlog: maximum of messages that are pushed in advance for consumers.
        works: push or pop + ack, messages per request, and clients.
        step: messages, or partitions, per call when filling a system.
    """

    messages: Annotated[int, Option(help="Retained messages without consumers.", min=100)] = 10_000_000
    partitions: Annotated[int, Option(help="Of one queue, with a consumed message each.", min=100)] = 1_000_000
    groups: Annotated[int, Option(help="Of one queue; they consume nothing.", min=1)] = 100
    seconds: Annotated[float, Option(help="Of each rate in each run.", min=0.01)] = 2.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 5
    backlog: int = 200_000
    works: tuple[Work, ...] = (Work(PUSH, 1, 50), Work(PUSH, 100, 8), Work(TAKE, 1, 8), Work(TAKE, 100, 8))
    step: int = 1_000


class _System(Struct, frozen=True):
    """One database with an engine, its clients, and its contents."""

    pool: Pool
    store: Segments
    clients: Clients


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """Measures in databases of its own, one per system: a full one and the empty one in turns."""
    fillings = {
        f"{settings.messages:,} messages": _messages,
        f"{settings.partitions:,} partitions": _partitions,
        f"{settings.groups} groups": _groups,
    }
    async with AsyncExitStack() as stack:
        empty = await _opened(stack, dsn, settings)
        await _ready(empty)
        full: dict[str, _System] = {}
        for number, (name, fill) in enumerate(fillings.items()):
            progress(f"filling: {name}", _FILLING * number / len(fillings))
            full[name], begin = await _opened(stack, dsn, settings), time.perf_counter()
            await fill(full[name], settings)
            await _ready(full[name])
            yield Sample(name, "full", 0, {"filled in s": time.perf_counter() - begin})
        for system in (empty, *full.values()):
            await system.clients.measured(settings.works[0], settings.seconds / 2)
        steps = list(itertools.product(range(settings.runs), settings.works, enumerate(full.items())))
        for done, (number, work, (place, (name, system))) in enumerate(steps):
            progress(f"run {number + 1}: {work}, {name}", _FILLING + (1 - _FILLING) * done / len(steps))
            for side, each in in_turn((("empty", empty), ("full", system)), number + place):
                taken = await each.clients.measured(work, settings.seconds)
                cpu = 1e6 * ((taken.python_s or 0) + (taken.postgres_s or 0)) / taken.messages
                figures = {"messages/s": taken.messages / taken.seconds, "CPU µs per message": cpu}
                yield Sample(f"{name}: {work}", side, number, figures)
        for system in (empty, *full.values()):
            await system.clients.instance.check(system.clients.pushed)


async def _opened(stack: AsyncExitStack, dsn: str, settings: Settings) -> _System:
    url = await stack.enter_async_context(database.scratch_database(dsn))
    pool = await stack.enter_async_context(database.pool(url, _FILLERS))
    store = Segments(pool, url)
    await store.set_up()
    partitions = max(work.clients for work in settings.works)
    return _System(pool, store, await stack.enter_async_context(clients(url, _QUEUE, partitions, settings.backlog)))


async def _ready(system: _System) -> None:
    """Prepares the clients, and vacuums."""
    await system.clients.start()
    await system.pool.fetch("VACUUM ANALYZE")
    await database.checkpoint(system.pool)


async def _messages(system: _System, settings: Settings) -> None:
    await system.store.make_partitions(_QUEUE, _RETAINED_IN)
    source, numbers = MessageSource(), itertools.cycle(range(_RETAINED_IN))

    def call(count: int) -> Call:
        taken = [source.take(len(some), next(numbers)) for some in portions(count, _SEGMENT)]
        return system.store.push(_QUEUE, [message for some in taken for message in some])

    await carry_out(call(len(some)) for some in portions(settings.messages, settings.step))
    system.clients.pushed += settings.messages


async def _partitions(system: _System, settings: Settings) -> None:
    await system.store.make_partitions(_QUEUE, settings.partitions)
    source = MessageSource()
    numbers = portions(settings.partitions, settings.step)
    await carry_out(system.store.push(_QUEUE, source.one_each(some)) for some in numbers)
    await system.store.subscribe(_QUEUE, _GROUP)
    await system.store.skip_all(_QUEUE, _GROUP)
    system.clients.pushed += settings.partitions


async def _groups(system: _System, settings: Settings) -> None:
    await system.store.make_partitions(_QUEUE, 1)
    for number in range(settings.groups):
        await system.clients.instance.pop(Pop(_QUEUE, group=f"idle-{number}"))


SCENARIO = Scenario(
    "growth",
    "Push, pop and ack in systems full of messages, of partitions and of groups, each beside an empty one.",
    "postgres",
    measure,
    Settings,
    smoke={
        "messages": 2_000, "partitions": 200, "groups": 3, "seconds": 0.05, "runs": 1, "backlog": 2_000,
        "works": (Work(PUSH, 100, 2), Work(TAKE, 100, 2)), "step": 100,
    },
    ratios=(("full", "empty"),),
    targets=(Target("*", "messages/s", "full / empty", ">= 0.8"),),
)  # fmt: skip
