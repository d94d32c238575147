"""The procedures of the hot path compared with a table with one row per message, through asyncpg, in one run."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Annotated, Any, TypeAlias

import asyncpg
from msgspec import Struct
from typer import Option

from bench import database
from bench.messages import Call, MessageSource, portions
from bench.rows import LoggedRows, Rows
from bench.scenario import PUSH, TAKE, MismatchError, Progress, Sample, Scenario, Target, in_turn
from bench.segments import Segments

_Store: TypeAlias = Segments | Rows
_CALLS_MAX, _CALLS_MIN = 500, 8
#: Messages per segment in the backlog, and per call when bytes are measured, independent of the batch of the pops.
_BATCH = 100
_WIDE_STEP, _WARM_UP_POPS = 1000, 3
_IDS = ("server-made ids", "client-chosen ids")
_SIZES = (
    "SELECT sum(pg_total_relation_size(t::regclass))::int8 AS tables,"
    " (pg_current_wal_insert_lsn() - '0/0')::int8 AS wal FROM unnest($1::text[]) AS t"
)


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        batches: messages per call.
        chunk: messages whose calls are built at once, before the measurement.
        backlog: messages of each kind for pops.
        stored: messages of each kind that are pushed to measure bytes.
        partitions, ready: of the pop of any partition.
        pops: timed pops of any partition, per run.
    """

    seconds: Annotated[float, Option(help="Of each rate in each run.", min=0.01)] = 1.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 5
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    connections: tuple[int, ...] = (1, 4)
    chunk: int = 20_000
    backlog: int = 200_000
    stored: int = 50_000
    partitions: int = 100_000
    ready: int = 10
    pops: int = 30


class _Shape(Struct, frozen=True):
    """A measurement of a rate."""

    operation: str
    chosen: bool
    batch: int
    connections: int

    @property
    def messages(self) -> str:
        """The operation and its messages."""
        return f"{self.operation}, {_IDS[self.chosen]}"

    def __str__(self) -> str:
        return f"{self.messages}, {self.batch} per call, {self.connections} connection{'s'[: self.connections - 1]}"


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """All measurements, this many times; the first store changes each time."""
    size = max(settings.connections)
    async with (
        database.scratch_database(dsn) as url,
        database.connection(url) as connection,
        database.pool(url, size) as own,
        database.pool(url, size) as other,
    ):
        stores = Segments(own, url), Rows(other, url)
        bench = _Bench(settings, stores, LoggedRows(other, url), connection)
        progress("backlog and partitions", 0.0)
        await bench.prepare()
        for number in range(settings.runs):
            progress(f"run {number + 1}", (1 + number) / (1 + settings.runs))
            async for sample in bench.measure(number):
                yield sample
        await bench.check()


class _Bench:
    """The stores, and the messages pushed to them so far."""

    def __init__(
        self, settings: Settings, stores: tuple[_Store, _Store], logged: Rows, own: "asyncpg.Connection[Any]"
    ) -> None:
        self._settings, self._stores, self._logged, self._connection = settings, stores, logged, own
        self._source, self._names = MessageSource(), itertools.count()
        self._pushed = {store.name: 0 for store in stores}
        self._shapes = [
            _Shape(operation, chosen, batch, connections)
            for operation in (PUSH, TAKE) for chosen in (False, True)
            for batch in settings.batches for connections in settings.connections
        ]  # fmt: skip

    async def prepare(self) -> None:
        """Fills both stores, opens all connections, and lets each plan its statements."""
        for store in self._stores:
            await store.set_up()
            for chosen in (False, True):
                await self._fill(store, chosen)
            await self._widen(store)
            for operation in (PUSH, TAKE):
                for chosen in (False, True):
                    shape = _Shape(operation, chosen, 1, max(self._settings.connections))
                    await self._rate(store, shape, self._settings.seconds / 2)

    async def measure(self, number: int) -> AsyncIterator[Sample]:
        """All measurements of one run."""
        for chosen in (False, True):
            for store in in_turn(self._stores, number):
                yield Sample(f"{PUSH}, {_IDS[chosen]}", store.name, number, await self._weigh(store, chosen))
        for place, shape in enumerate(self._shapes):
            for store in in_turn(self._stores, number + place):
                rate = await self._rate(store, shape, self._settings.seconds)
                yield Sample(str(shape), store.name, number, {"messages/s": rate})
            if shape.operation == TAKE:
                rate = await self._drain(self._logged, shape, self._settings.seconds)
                yield Sample(str(shape), LoggedRows.name, number, {"messages/s": rate})
        times = await self._time_pops(number)
        case = f"pop of any partition, {self._settings.ready} ready of {self._settings.partitions:,}"
        for name, milliseconds in times.items():
            yield Sample(case, name, number, {"ms in the database": median(milliseconds)})

    async def check(self) -> None:
        """Raises MismatchError unless each store has exactly the messages pushed to it."""
        for store in self._stores:
            if (stored := await store.stored()) != (pushed := self._pushed[store.name]):
                raise MismatchError(f"{store.name}: {pushed} messages were pushed, {stored} are stored")

    def _name(self) -> str:
        return f"bench-{next(self._names)}"

    # ------------------------------------------------------------ rates

    async def _rate(self, store: _Store, shape: _Shape, seconds: float) -> float:
        return await (self._push if shape.operation == PUSH else self._drain)(store, shape, seconds)

    async def _push(self, store: _Store, shape: _Shape, wanted: float) -> float:
        """Each connection pushes to a partition of its own; calls are built outside the measurement."""
        queue, connections = self._name(), shape.connections
        await store.make_partitions(queue, connections)
        calls = max(min(self._settings.chunk // (shape.batch * connections), _CALLS_MAX), _CALLS_MIN)
        messages, seconds = 0, 0.0
        while seconds < wanted:
            lanes = [
                [store.push(queue, self._source.take(shape.batch, lane, chosen=shape.chosen)) for _ in range(calls)]
                for lane in range(connections)
            ]
            begin = time.perf_counter()
            await asyncio.gather(*map(_call_all, lanes))
            seconds += time.perf_counter() - begin
            messages += calls * shape.batch * connections
        self._pushed[store.name] += messages
        return messages / seconds

    async def _drain(self, store: _Store, shape: _Shape, wanted: float) -> float:
        """New groups consume the backlog, one after the other."""
        messages, seconds = 0, 0.0
        while seconds < wanted:
            group = self._name()
            await store.subscribe(_backlog(shape.chosen), group)
            begin = time.perf_counter()
            messages += await self._take(store, shape, group, begin + wanted - seconds)
            seconds += time.perf_counter() - begin
        return messages / seconds

    async def _take(self, store: _Store, shape: _Shape, group: str, end: float) -> int:
        """Consumers of one group consume the backlog, until it is empty or the time is over."""
        taken, backlog = 0, self._backlog

        async def take() -> None:
            nonlocal taken
            while taken < backlog and time.perf_counter() < end:
                got = await store.pop_and_ack(_backlog(shape.chosen), group, shape.batch)
                taken += got

        await asyncio.gather(*(take() for _ in range(shape.connections)))
        return taken

    @property
    def _backlog(self) -> int:
        """Messages of one kind, the same number per partition."""
        each = self._partitions * _BATCH
        return self._settings.backlog // each * each

    @property
    def _partitions(self) -> int:
        return 4 * max(self._settings.connections)

    async def _fill(self, store: _Store, chosen: bool) -> None:
        queue, partitions = _backlog(chosen), self._partitions
        await store.make_partitions(queue, partitions)
        for number in range(self._backlog // _BATCH):
            await store.push(queue, self._source.take(_BATCH, number % partitions, chosen=chosen))()
        self._pushed[store.name] += self._backlog

    # ------------------------------------------------------------ bytes

    async def _weigh(self, store: _Store, chosen: bool) -> dict[str, float]:
        queue, count = self._name(), self._settings.stored // _BATCH
        await store.make_partitions(queue, 1)
        calls = [store.push(queue, self._source.take(_BATCH, 0, chosen=chosen)) for _ in range(count)]
        before = await self._sizes(store)
        await _call_all(calls)
        after = await self._sizes(store)
        self._pushed[store.name] += count * _BATCH
        names = ("bytes stored per message", "bytes of WAL per message")
        return {name: (b - a) / (count * _BATCH) for name, a, b in zip(names, before, after, strict=True)}

    async def _sizes(self, store: _Store) -> tuple[int, int]:
        """Bytes of the tables of a store, and of all WAL so far."""
        row = await self._connection.fetchrow(_SIZES, store.tables)
        assert row is not None
        return row["tables"], row["wal"]

    # ------------------------------------------------------------ pop of any partition

    async def _widen(self, store: _Store) -> None:
        """A queue in which each partition had one message, which is consumed; then a few get another one."""
        count, ready = self._settings.partitions, self._settings.ready
        await store.make_partitions("wide", count)
        await store.subscribe("wide", "wide")
        for numbers in portions(count, _WIDE_STEP):
            await store.push("wide", self._source.one_each(numbers))()
        await store.skip_all("wide", "wide")
        await store.push("wide", self._source.one_each(range(0, count, count // ready)[:ready]))()
        self._pushed[store.name] += count + ready
        for table in store.tables:
            await self._connection.execute(f"VACUUM (ANALYZE) {table}")

    async def _time_pops(self, number: int) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {store.name: [] for store in self._stores}
        for place in range(-_WARM_UP_POPS, self._settings.pops):
            for store in in_turn(self._stores, number + place):
                milliseconds = await self._time_pop(store)
                if place >= 0:
                    times[store.name].append(milliseconds)
        return times

    async def _time_pop(self, store: _Store) -> float:
        """Milliseconds in the executor, without parsing, commit and network; changes nothing."""
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            statement = store.pop_statement("wide", "wide", _BATCH)
            text: str = await self._connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}")
        finally:
            await transaction.rollback()
        [plan] = json.loads(text)
        if plan["Plan"]["Actual Rows"] != 1:
            raise MismatchError(f"{store.name}: a pop found {plan['Plan']['Actual Rows']} messages where one is ready")
        return float(plan["Execution Time"])


def _backlog(chosen: bool) -> str:
    return f"backlog of {_IDS[chosen]}"


async def _call_all(calls: Sequence[Call]) -> None:
    for call in calls:
        await call()


_LEAN, _LOGGED = f"{Segments.name} / {Rows.name}", f"{Segments.name} / {LoggedRows.name}"

SCENARIO = Scenario(
    "procedures",
    "Push, pop and ack through the stored procedures, beside a table with one row per message.",
    "postgres",
    measure,
    Settings,
    smoke={
        "seconds": 0.02, "runs": 2, "batches": (1, 100), "connections": (1, 2), "chunk": 200, "backlog": 2_000,
        "stored": 1_000, "partitions": 300, "pops": 3,
    },
    ratios=((Segments.name, Rows.name), (Segments.name, LoggedRows.name)),
    targets=(
        Target("push, server-made ids, 100 per call,*", "messages/s", _LEAN, ">= 6"),
        Target("push, client-chosen ids, 100 per call,*", "messages/s", _LEAN, ">= 3"),
        Target("pop + ack,* 100 per call,*", "messages/s", _LEAN, ">= 8"),
        Target("pop + ack,* 100 per call,*", "messages/s", _LOGGED, ">= 8"),
        Target("pop of any partition,*", "ms in the database", Segments.name, "< 1"),
        Target("push, server-made ids", "bytes stored per message", Segments.name, "<= 160"),
        Target("push, server-made ids", "bytes of WAL per message", Segments.name, "<= 220"),
        Target("push, client-chosen ids", "bytes stored per message", Segments.name, "<= 300"),
        Target("push, client-chosen ids", "bytes of WAL per message", Segments.name, "<= 400"),
    ),
)  # fmt: skip
