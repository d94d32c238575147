"""The run: the same work for both sides, in turns, so that a noisy machine hits both alike."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from statistics import median
from typing import Any

import asyncpg

from queen.db.dsn import connect, parse
from queen.db.pool import Pool
from queen_bench import database, machine
from queen_bench.errors import MismatchError
from queen_bench.procedures.results import (
    POP_ACK_CHOSEN_IDS,
    POP_ACK_SERVER_IDS,
    PUSH_CHOSEN_IDS,
    PUSH_SERVER_IDS,
    Profile,
    Rate,
    Report,
    Sample,
    Storage,
    Wildcard,
    targets,
)
from queen_bench.procedures.rows import LoggedRows, Rows
from queen_bench.procedures.segments import Segments
from queen_bench.procedures.side import Call, Consumable, MessageSource, Side

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_CALL_TIMEOUT_S = 120.0
_CALLS_MAX = 500
_CALLS_MIN = 8
#: Messages a segment in the backlog, whatever the batch of the pops.
_BACKLOG_BATCH = 100
_STORAGE_BATCH = 100
_WIDE_STEP = 1000
_WARM_UP_POPS = 3
_POP_BATCH = 100


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures everything in a database of its own.

    Raises:
        QueenError: the server cannot be used.
        MismatchError: a side lost or doubled messages, so its figures say nothing.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = machine.describe()
    async with database.scratch_database(dsn) as url, _sides(url, max(profile.connections)) as (sides, logged):
        target = parse(url, "queen bench", database.CONNECT_TIMEOUT_MS)
        connection = await connect(target)
        try:
            bench = _Bench(profile, sides, logged, connection, progress)
            await bench.measure()
            postgres = await database.describe(connection, embedded=embedded)
        finally:
            await connection.close()
    report = Report(started_at, profile, facts, postgres, bench.rates, bench.wildcard, bench.storage)
    report.targets = targets(report)
    return report


@asynccontextmanager
async def _sides(url: str, connections: int) -> AsyncIterator[tuple[tuple[Side, Side], Consumable]]:
    target = parse(url, "queen bench", database.CONNECT_TIMEOUT_MS)
    pools = [Pool(target, connections, _CALL_TIMEOUT_S) for _ in range(2)]
    rows = Rows(pools[1], url)
    sides = Segments(pools[0], url), rows
    try:
        for side in sides:
            await side.set_up()
        yield sides, LoggedRows(pools[1], rows)
    finally:
        for pool in pools:
            await pool.close()


class _Bench:
    """One benchmark: its sides, and what was measured so far."""

    def __init__(
        self,
        profile: Profile,
        sides: tuple[Side, Side],
        logged: Consumable,
        connection: "asyncpg.Connection[Any]",
        progress: Progress,
    ) -> None:
        self._profile, self._sides, self._logged = profile, sides, logged
        self._connection, self._progress = connection, progress
        self._source = MessageSource()
        self._pushed = {side.name: 0 for side in sides}
        self._names = itertools.count()
        shapes = [(batch, count) for batch in profile.batches for count in profile.connections]
        scenarios = (PUSH_SERVER_IDS, PUSH_CHOSEN_IDS, POP_ACK_SERVER_IDS, POP_ACK_CHOSEN_IDS)
        self.rates = [Rate(scenario, *shape) for scenario in scenarios for shape in shapes]
        self.storage = [Storage(scenario) for scenario in (PUSH_SERVER_IDS, PUSH_CHOSEN_IDS)]
        self.wildcard = Wildcard(profile.partitions, profile.ready)

    async def measure(self) -> None:
        """Everything, ``runs`` times; the side that comes first changes each time."""
        steps = 1 + self._profile.runs * (len(self.rates) + len(self.storage) + 1)
        done = itertools.count()

        def announce(what: str) -> None:
            self._progress(what, next(done) / steps)

        announce("backlog and partitions")
        for side in self._sides:
            await self._fill(side)
            await self._widen(side)
            await self._warm_up(side)
        for number in range(self._profile.runs):
            for storage in self.storage:
                announce(f"run {number + 1}: bytes, {storage.scenario}")
                for side in self._in_turn(number):
                    await self._weigh(side, storage)
            for place, rate in enumerate(self.rates):
                announce(f"run {number + 1}: {rate.scenario}, {rate.batch} a call, {rate.connections} connection(s)")
                for side in self._in_turn(number + place):
                    samples = rate.queen if side.name == "queen" else rate.rows
                    samples.append(await self._rate(side, rate, self._profile.seconds))
                if rate.scenario in (POP_ACK_SERVER_IDS, POP_ACK_CHOSEN_IDS):
                    rate.logged.append(await self._drain(self._logged, rate, self._profile.seconds))
            announce(f"run {number + 1}: pop of any partition")
            await self._look(number)
        for side in self._sides:
            if (stored := await side.stored()) != self._pushed[side.name]:
                raise MismatchError(f"{side.name}: {self._pushed[side.name]} messages were pushed, {stored} are stored")
        self._progress("done", 1.0)

    def _in_turn(self, number: int) -> tuple[Side, ...]:
        return self._sides if number % 2 == 0 else self._sides[::-1]

    def _name(self) -> str:
        return f"bench-{next(self._names)}"

    # ------------------------------------------------------------ rates

    async def _warm_up(self, side: Side) -> None:
        """Opens all connections, and has each plan its statements."""
        for scenario in dict.fromkeys(rate.scenario for rate in self.rates):
            await self._rate(side, Rate(scenario, 1, max(self._profile.connections)), self._profile.seconds / 2)

    async def _rate(self, side: Side, rate: Rate, seconds: float) -> Sample:
        if rate.scenario in (PUSH_SERVER_IDS, PUSH_CHOSEN_IDS):
            return await self._push(side, rate, seconds)
        return await self._drain(side, rate, seconds)

    async def _push(self, side: Side, rate: Rate, wanted: float) -> Sample:
        """Each connection pushes to a partition of its own; calls are prepared while the clock stands."""
        queue, chosen = self._name(), rate.scenario == PUSH_CHOSEN_IDS
        await side.make_partitions(queue, rate.connections)
        calls = max(min(self._profile.chunk // (rate.batch * rate.connections), _CALLS_MAX), _CALLS_MIN)
        messages, seconds = 0, 0.0
        while seconds < wanted:
            lanes = [
                [side.push(queue, self._source.take(rate.batch, lane, chosen=chosen)) for _ in range(calls)]
                for lane in range(rate.connections)
            ]
            begin = time.perf_counter()
            await asyncio.gather(*map(_call_all, lanes))
            seconds += time.perf_counter() - begin
            messages += calls * rate.batch * rate.connections
        self._pushed[side.name] += messages
        return Sample(messages, seconds)

    async def _drain(self, side: Consumable, rate: Rate, wanted: float) -> Sample:
        """New groups, one after the other, take the backlog."""
        messages, seconds = 0, 0.0
        while seconds < wanted:
            group = self._name()
            await side.subscribe(rate.scenario, group)
            drain = _Drain(side, rate.scenario, group, self._backlog(), wanted - seconds)
            begin = time.perf_counter()
            await asyncio.gather(*(drain.take(rate.batch) for _ in range(rate.connections)))
            seconds += time.perf_counter() - begin
            messages += drain.taken
        return Sample(messages, seconds)

    def _backlog(self) -> int:
        """Messages of one kind: the same number in each of its partitions."""
        partitions = self._backlog_partitions()
        return self._profile.backlog // (partitions * _BACKLOG_BATCH) * partitions * _BACKLOG_BATCH

    def _backlog_partitions(self) -> int:
        return 4 * max(self._profile.connections)

    async def _fill(self, side: Side) -> None:
        partitions = self._backlog_partitions()
        for queue in (POP_ACK_SERVER_IDS, POP_ACK_CHOSEN_IDS):
            await side.make_partitions(queue, partitions)
            for number in range(self._backlog() // _BACKLOG_BATCH):
                lane, chosen = number % partitions, queue == POP_ACK_CHOSEN_IDS
                await side.push(queue, self._source.take(_BACKLOG_BATCH, lane, chosen=chosen))()
            self._pushed[side.name] += self._backlog()

    # ------------------------------------------------------------ bytes

    async def _weigh(self, side: Side, storage: Storage) -> None:
        queue, chosen = self._name(), storage.scenario == PUSH_CHOSEN_IDS
        await side.make_partitions(queue, 1)
        count = self._profile.stored // _STORAGE_BATCH
        calls = [side.push(queue, self._source.take(_STORAGE_BATCH, 0, chosen=chosen)) for _ in range(count)]
        table, wal = await self._sizes(side)
        await _call_all(calls)
        table, wal = [after - before for before, after in zip((table, wal), await self._sizes(side), strict=True)]
        messages = count * _STORAGE_BATCH
        self._pushed[side.name] += messages
        tables, wals = (
            (storage.queen_table, storage.queen_wal) if side.name == "queen" else (storage.rows_table, storage.rows_wal)
        )
        tables.append(table / messages)
        wals.append(wal / messages)

    async def _sizes(self, side: Side) -> tuple[int, int]:
        """Bytes of the tables of a side, and of all WAL ever."""
        row = await self._connection.fetchrow(
            "SELECT sum(pg_total_relation_size(t::regclass))::int8, (pg_current_wal_insert_lsn() - '0/0')::int8"
            " FROM unnest($1::text[]) AS t",
            side.tables,
        )
        assert row is not None
        return row[0], row[1]

    # ------------------------------------------------------------ pop of any partition

    async def _widen(self, side: Side) -> None:
        """A queue whose partitions all had a message, which is consumed; then a few have another."""
        count = self._profile.partitions
        await side.make_partitions("wide", count)
        await side.subscribe("wide", "wide")
        for begin in range(0, count, _WIDE_STEP):
            await self._push_one_each(side, range(begin, min(begin + _WIDE_STEP, count)))
        await side.skip_all("wide", "wide")
        await self._push_one_each(side, range(0, count, count // self._profile.ready)[: self._profile.ready])
        for table in side.tables:
            await self._connection.execute(f"VACUUM (ANALYZE) {table}")

    async def _push_one_each(self, side: Side, partitions: Sequence[int]) -> None:
        await side.push("wide", [self._source.take(1, number, chosen=False)[0] for number in partitions])()
        self._pushed[side.name] += len(partitions)

    async def _look(self, number: int) -> None:
        times: dict[str, list[float]] = {side.name: [] for side in self._sides}
        for place in range(-_WARM_UP_POPS, self._profile.pops):
            for side in self._in_turn(number + place):
                milliseconds = await self._time_pop(side)
                if place >= 0:
                    times[side.name].append(milliseconds)
        self.wildcard.queen_ms.append(median(times["queen"]))
        self.wildcard.rows_ms.append(median(times["rows"]))

    async def _time_pop(self, side: Side) -> float:
        """Milliseconds in the executor, without parsing, commit and network; nothing is changed by it."""
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            statement = side.pop_statement("wide", "wide", _POP_BATCH)
            text: str = await self._connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}")
        finally:
            await transaction.rollback()
        [plan] = json.loads(text)
        if plan["Plan"]["Actual Rows"] != 1:
            raise MismatchError(f"{side.name}: a pop found {plan['Plan']['Actual Rows']} messages where one is ready")
        return float(plan["Execution Time"])


async def _call_all(calls: Sequence[Call]) -> None:
    for call in calls:
        await call()


class _Drain:
    """Consumers of one group that take what there is, until it is taken or the time is over."""

    def __init__(self, side: Consumable, queue: str, group: str, backlog: int, seconds: float) -> None:
        self._side, self._queue, self._group, self._backlog = side, queue, group, backlog
        self._end = time.perf_counter() + seconds
        self.taken = 0

    async def take(self, batch: int) -> None:
        """One consumer."""
        while self.taken < self._backlog and time.perf_counter() < self._end:
            got = await self._side.pop_and_ack(self._queue, self._group, batch)
            self.taken += got
