"""A database to measure in. The only place of the growth tests and the hunt that knows columns and procedures.

What is stored gets there through the product's own stores, so that it is what a server would have stored.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg

from bench.meter import Meter, metered
from queen.core.administration import ConfiguredQueue, MessageKey, Period, QueueConfiguration, Registration, Trace
from queen.core.metrics import Counted, QueueCounts, Worker
from queen.engine.ports import (
    AckColumns,
    CompleteColumns,
    Delivered,
    PopColumns,
    StateColumns,
    WaitingColumns,
)
from queen.jobs.ports import Page, Place, State, Step
from queen.log import ids
from queen.log.append import AppendBatch, lay_out
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import encode_entry, encode_plain, plain_length
from queen.postgres.administration import AdministrationStore
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from queen.simple_mq.requests import Message, NewQueue
from queen.simple_mq.storage import EnqueueColumns, SimpleMqAdministrationStore, SimpleMqStore
from tests.support.servers import create_database, database_url, drop_database

GROUP = "g"
#: A call that takes longer is at fault, whatever it was compared with.
LIMIT_S = 20.0
_STEP = 2_000
_TABLES = (
    "SELECT c.oid::regclass::text AS name FROM pg_class AS c"
    " WHERE c.relkind = 'r' AND c.relnamespace IN ('queen'::regnamespace, 'simple_mq'::regnamespace)"
)
_FOREVER_S = 43_200
#: So often in a row a sweep may find nothing to do where something is to be done.
_IDLE_CALLS_MAX = 20
_PAYLOAD = b'{"order":1234,"state":"new"}'

Find = Callable[[int, str, int], Awaitable[Page]]
Apply = Callable[[int, Sequence[Place], int, bool], Awaitable[list[Step]]]


class StuckError(Exception):
    """Calls that are to be repeated until all is done do nothing any more."""


@dataclass
class Stock:
    """A queue of Queen, or several, and what is known of them."""

    queue: str
    parts: list[int] = field(default_factory=list)
    #: The number of the consumer group, or of several of them.
    groups: list[int] = field(default_factory=list)
    lease: UUID | None = None
    #: Messages of its partition, where all have one.
    n: int = 0
    #: When it was filled so far, for what asks by time.
    times: list[datetime] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    #: Another queue like it, which has room.
    roomy: "Stock | None" = None
    #: A stream that reads it.
    stream: int = 0

    @property
    def part(self) -> int:
        """Its partition, where it has one."""
        return self.parts[0]


@dataclass
class Box:
    """A queue of simple-mq, or several, and the messages that were polled from it."""

    queues: list[UUID]
    polled: list[UUID] = field(default_factory=list)
    n: int = 0


class World:
    """An empty database with the schema, and what can be done in it; all over the one connection of the meter."""

    def __init__(self, meter: Meter) -> None:
        self.meter, pool = meter, meter.pool
        self.store, self.administration, self.services = Store(pool), AdministrationStore(pool), MaintenanceStore(pool)
        self.messages, self.letters = self.administration.messages, self.administration.dead_letters
        self.groups, self.traces = self.administration.consumer_groups, self.administration.traces
        self.simple, self.simple_administration = SimpleMqStore(pool), SimpleMqAdministrationStore(pool)
        self._numbers = itertools.count(1)

    # ------------------------------------------------------------------ what is there

    async def settle(self) -> None:
        """Puts statistics and pages in order, so that no call pays for what was done before it."""
        tables = await self.meter.pool.fetch(_TABLES)
        await self.meter.pool.fetch(f"VACUUM (ANALYZE) {', '.join(row['name'] for row in tables)}")

    async def replace(self, sql: str) -> None:
        """Puts other versions of procedures in place of those of the product."""
        async with self.meter.pool.connection() as connection:
            await connection.execute(sql)

    async def now(self, later: timedelta = timedelta()) -> datetime:
        """The clock of the procedures, or a later time."""
        return await self.store.now() + later

    async def set_clock(self, time: datetime) -> None:
        """What the procedures take for now, until the end of the transaction."""
        await self.meter.pool.fetch("SELECT set_config('queen.clock', $1, true)", time.isoformat())

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[None]:
        """What the procedures take for now in the block is later."""
        question = "SELECT set_config('queen.clock', $1, false)"
        await self.meter.pool.fetch(question, (await self.now(by)).isoformat())
        yield
        await self.meter.pool.fetch(question, "")

    async def stock(self, partitions: int, group: bool = True, **options: object) -> Stock:
        """A queue with so many empty partitions, and the group ``g`` on it."""
        stock = Stock(f"q{next(self._numbers)}")
        await self.configure(stock, **options)
        for begin in range(0, partitions, _STEP):
            names = [(stock.queue, f"{number:06}") for number in range(begin, min(begin + _STEP, partitions))]
            stock.parts += [part for _, part in await self.store.resolve_partitions(names, create=True) if part]
        if group:
            await self.join(stock)
        return stock

    async def stocks(self, namespace: str, queues: int) -> Stock:
        """So many queues of a namespace, with one partition, one message and the group ``g`` each."""
        many = Stock(namespace, others=[f"{namespace}.{number}" for number in range(queues)])
        made = await self.store.resolve_partitions([(queue, "p") for queue in many.others], create=True)
        many.parts = [part for _, part in made if part]
        for queue in many.others:
            stock = Stock(queue)
            await self.join(stock)
            many.groups += stock.groups
        await self.fill(many)
        return many

    async def configure(self, stock: Stock, **options: object) -> None:
        """Sets the options of a queue."""
        configured = await self.begin_to_configure(stock, **options)
        more = configured.more
        while more:
            _, more = await self.administration.settle_queue(configured.queue_id)

    async def begin_to_configure(self, stock: Stock, **options: object) -> ConfiguredQueue:
        """Sets the options of a queue, which may have still to come to its partitions."""
        return await self.administration.configure_queue(QueueConfiguration(stock.queue, **options))

    async def forget_size(self, stock: Stock) -> None:
        """What is known of how much is in a queue with a maximum size."""
        await self.meter.pool.fetch(
            "SELECT queen.forget_size(q.id) FROM queen.queues AS q WHERE q.name = $1", stock.queue
        )

    async def ask_for_count(self, stock: Stock) -> None:
        """What is in a queue with a maximum size is to be counted."""
        question = (
            "UPDATE queen.queue_sizes AS s SET asked_at = queen.clock() FROM queen.queues AS q"
            " WHERE q.id = s.queue_id AND q.name = $1"
        )
        await self.meter.pool.fetch(question, stock.queue)

    async def join(self, stock: Stock, name: str = GROUP, mode: str = "all", since: datetime | None = None) -> None:
        """The first pop of a group."""
        complete: bool | None = False
        while not complete:
            made = await self.store.subscribe(stock.queue, name, mode, since, create_queue=True, create_group=True)
            complete = made.complete
        assert made.grp_id is not None
        stock.groups.append(made.grp_id)

    # ------------------------------------------------------------------ push

    def flush(self, stock: Stock, messages: Sequence[tuple[int, str | None]]) -> AppendBatch:
        """One call of push: messages by the number of their partition, with or without a transaction id."""
        by_part: dict[int, list[str | None]] = {}
        for number, text in messages:
            by_part.setdefault(number, []).append(text)
        batches = [_batch(stock.queue, number, texts) for number, texts in by_part.items()]
        numbers = {(stock.queue, str(number)): stock.parts[number] for number in by_part}
        return lay_out(uuid4(), [Push(batches, len(messages))], numbers)

    async def fill(self, stock: Stock, each: int = 1, segments: int = 1, prefix: str | None = "t") -> None:
        """Pushes to each partition so many segments of so many messages; ids are ``t0`` and so on, or the server's."""
        step = max(1, _STEP // each)
        for segment in range(segments):
            for begin in range(0, len(stock.parts), step):
                numbers = range(begin, min(begin + step, len(stock.parts)))
                texts = [f"{prefix}{segment * each + k}" if prefix is not None else None for k in range(each)]
                await self.push(self.flush(stock, [(number, text) for number in numbers for text in texts]))
            if segment in (0, segments // 2):
                stock.times.append(await self.now())

    async def push(self, columns: AppendBatch, *, again: bool = False) -> None:
        """A call of push. What is unknown there, is no push."""
        rows = await self.store.push(columns, again=again)
        assert len(rows) == len(columns.part)
        assert all(row.created_at is not None for row in rows)

    # ------------------------------------------------------------------ pop and ack

    async def pop(
        self, groups: Sequence[int], *, pops: int = 1, batch: int = 1, parts: int = 1, lease: UUID | None = None,
        named: Sequence[int | None] = (None,), auto_ack: bool = False, leased: Sequence[UUID] = (),
    ) -> list[Delivered]:  # fmt: skip
        """One call: so many pops; each of all of these groups, or of partitions by name."""
        leases: list[UUID | None] = [*leased] or [None if auto_ack else lease or uuid4() for _ in range(pops)]
        columns = PopColumns([batch] * pops, [parts] * pops, leases, [_FOREVER_S] * pops)
        for pop in range(1, pops + 1):
            for group in groups:
                columns.pop.append(pop)
                columns.grp.append(group)
                columns.part.append(named[(pop - 1) % len(named)])
        delivered, _ = await self.store.pop(columns)
        return delivered

    @staticmethod
    def count(delivered: Sequence[Delivered]) -> int:
        """Messages, and segments that they are in."""
        claims = {(row.pop, row.part_id): row for row in reversed(delivered)}.values()
        return len(delivered) + sum(row.upto - row.slice.first + 1 for row in claims)

    async def pop_each(self, groups: Sequence[int]) -> list[Delivered]:
        """One call: a pop for each of these groups."""
        n = len(groups)
        pops = list(range(1, n + 1))
        columns = PopColumns([1] * n, [1] * n, [uuid4() for _ in pops], [_FOREVER_S] * n, pops, [*groups], [None] * n)
        delivered, _ = await self.store.pop(columns)
        return delivered

    async def lease(self, stock: Stock, batch: int = 10_000) -> None:
        """Everything of all partitions under one lease."""
        stock.lease = uuid4()
        left = len(stock.parts)
        while left > 0:
            delivered = await self.pop(stock.groups[:1], batch=batch, parts=1_000, lease=stock.lease)
            assert delivered
            left -= len({row.part_id for row in delivered})

    def acks(
        self, stock: Stock, places: Sequence[tuple[int, int]], kinds: str = "c", by_id: bool = False
    ) -> AckColumns:
        """One call of ack: messages by partition and offset, of kinds that come in turns: c, f, r, d."""
        n = len(places)
        kind = list(itertools.islice(itertools.cycle(kinds), n))
        offsets = [None if by_id else offset for _, offset in places]
        hashes = [ids.transaction_hash(f"t{offset}") if by_id else None for _, offset in places]
        lease = [stock.lease] * n
        return AckColumns(
            [part for part, _ in places], [stock.groups[0]] * n, [*lease], kind, [*offsets], [*offsets], hashes,
            [None if each in "cr" else "broken" for each in kind],
        )  # fmt: skip

    def acked_run(self, stock: Stock, first: int, last: int) -> AckColumns:
        """One element that completes a run."""
        return AckColumns(
            [stock.part], [stock.groups[0]], [stock.lease], ["c"], [first], [last], [None], [None]
        )  # fmt: skip

    async def ack(self, columns: AckColumns) -> None:
        """A call of ack, all of which must be accepted."""
        rows = await self.store.ack(columns)
        assert len(rows) == len(columns.part)
        assert [row.problem for row in rows if row.problem] == []

    async def complete(self, delivered: Sequence[Delivered], grp_id: int, leases: Sequence[UUID]) -> int:
        """Completes the first message of each delivery, by pop; so many others were prefetched."""
        rows = sorted(delivered, key=lambda row: row.part_id)
        n, first = len(rows), [row.slice.first for row in rows]
        columns = CompleteColumns(
            [row.part_id for row in rows], [grp_id] * n, [leases[row.pop - 1] for row in rows], first, [*first],
            [uuid4() for _ in rows], [1] * n, [None] * n,
        )  # fmt: skip
        done = await self.store.complete(columns)
        assert len(done) == n
        return len([row for row in done if row.slice is not None])

    async def push_to_waiters(self, columns: AppendBatch, groups: Sequence[int], parts: int = 1) -> int:
        """A call of push for a waiting pop of each of these groups; so many partitions were given to them."""
        n = len(groups)
        waiting = WaitingColumns([*groups], [uuid4() for _ in groups], [10_000] * n, [parts] * n, [_FOREVER_S] * n)
        appended, given = await self.store.push_to_waiters(columns, waiting)
        assert len(appended) == len(columns.part)
        return len(given)

    async def delete_at(self, stock: Stock, offset: int) -> None:
        """Deletes a message of the first partition, named by its message id."""
        name = f"{ids.message_id_prefix(stock.part)}{offset:012x}"
        assert await self.messages.delete(MessageKey(stock.part, name))

    # ------------------------------------------------------------------ transactions

    async def execute(
        self, push: AppendBatch, ack: AckColumns | None = None, required: list[UUID] | None = None,
    ) -> None:  # fmt: skip
        """A transaction, which must succeed."""
        rows = await self.store.execute(push, ack or AckColumns(), required, again=False)
        assert not rows.undone

    def new_partitions(self, stock: Stock, n: int) -> AppendBatch:
        """A push of one message to each of so many partitions that are not there yet."""
        batches = [_batch(stock.queue, number, [f"t{number}"]) for number in range(n)]
        numbers = {(stock.queue, str(number)): -1 - number for number in range(n)}
        batch = lay_out(uuid4(), [Push(batches, n)], numbers)
        batch.new = [(stock.queue, f"new{k}") for k in range(n)]
        return batch

    # ------------------------------------------------------------------ traces and streams

    async def trace(self, key: MessageKey, names: Sequence[str]) -> bool:
        """Records a trace; whether there is such a message."""
        return await self.traces.record(Trace(key, GROUP, "seen", "{}", "w", names)) is not None

    async def register(self, stock: Stock, name: str, *, reset: bool = False) -> int:
        """A stream of a queue."""
        registration = Registration(f"{stock.queue}-{name}", stock.queue, "chain", reset=reset)
        registered = await self.administration.register_stream(registration)
        while registered.more:
            registered = await self.administration.register_stream(registration)
        return registered.stream

    async def cycle(self, stock: Stock, ends: Mapping[str, float], push: AppendBatch | None = None) -> None:
        """A cycle that writes rows of windows with these ends, and pushes."""
        state = StateColumns([*ends], ["{}"] * len(ends), [*ends.values()])
        rows = await self.store.cycle(
            stock.stream, (stock.part, stock.groups[0]), push or self.flush(stock, []), state, None, release=False,
            again=False,
        )  # fmt: skip
        assert not rows.undone, rows.problem

    async def is_state_settled(self) -> bool:
        """Whether no row of a state was changed a moment ago."""
        [row] = await self.meter.pool.fetch(
            "SELECT NOT coalesce(bool_or(queen.is_unsettled(s.updated_at, NULL, queen.clock())), false) AS settled"
            " FROM queen.stream_state AS s"
        )
        return bool(row["settled"])

    async def read_state(
        self, stock: Stock, keys: Sequence[str] | None = None, prefix: str | None = None, ripe: float | None = None
    ) -> Sequence[object]:
        """Rows of the state of a stream."""
        rows = await self.store.stream_state(stock.stream, stock.part, keys, prefix, ripe)
        assert rows is not None
        assert rows.complete
        return rows.rows

    # ------------------------------------------------------------------ metrics

    async def count_work(self, minutes: Sequence[tuple[int, str]]) -> None:
        """What a worker has counted: a push for each of these queues in these minutes since 1970."""
        counted = [Counted(minute, queue, QueueCounts(push_requests=1, push_messages=1)) for minute, queue in minutes]
        await self.administration.statistics.record_queues(Worker("host", 1), counted)

    async def last_hour(self) -> Period:
        """The last hour, with this minute."""
        now = await self.now()
        return Period(now - timedelta(hours=1), now)

    # ------------------------------------------------------------------ services

    async def sweep_expired(self, stock: Stock) -> int:
        """Retention of a queue, as often as it takes; how many messages it removed."""
        return await self._sweep(stock, self.services.find_expired, self.services.remove_expired)

    async def sweep_overdue(self, stock: Stock) -> int:
        """Eviction of a queue, as often as it takes; how many messages were given up."""
        return await self._sweep(stock, self.services.find_overdue, self.services.evict_overdue)

    async def _sweep(self, stock: Stock, find: Find, apply: Apply) -> int:
        queue_id, after, total, idle = await self._queue_id(stock), "", 0, 0
        while True:
            page = await find(queue_id, after, 1_000)
            places = [Place(part) for part in page.part_ids]
            while places:
                steps = await apply(queue_id, places, 1_000, True)
                done = sum(step.count for step in steps)
                places = [step.place for step in steps if step.state is not State.DONE]
                total, idle = total + done, 0 if done else idle + 1
                if idle > _IDLE_CALLS_MAX:
                    raise StuckError
            if page.last_name is None:
                return total
            after = page.last_name

    async def sweep_idle(self, stock: Stock) -> int:
        """Clean-up of a queue; how many partitions it removed."""
        queue_id, after, removed, idle = await self._queue_id(stock), "", 0, timedelta(hours=1)
        while True:
            page = await self.services.find_idle(queue_id, after, 1_000, idle)
            if page.part_ids:
                steps = await self.services.remove_idle(queue_id, [Place(part) for part in page.part_ids], idle)
                removed += sum(step.count for step in steps)
            if page.last_name is None:
                return removed
            after = page.last_name

    async def _queue_id(self, stock: Stock) -> int:
        found = await self.administration.catalogue.queue(stock.queue)
        assert found is not None
        return found.queue_id

    # ------------------------------------------------------------------ simple-mq

    async def box(self, queues: int = 1, **options: int) -> Box:
        """Queues of simple-mq."""
        made = Box([uuid4() for _ in range(queues)])
        settings = {"size": 1_000_000, "visibility_timeout": _FOREVER_S, "max_deliveries": 100} | options
        for queue in made.queues:
            await self.simple_administration.create_queue(NewQueue(queue, queue.hex, **settings), 1_000_000)
        return made

    def enqueued(
        self, queues: Sequence[UUID], groups: Sequence[str | None] = (None,), requests: int = 1
    ) -> EnqueueColumns:
        """One call: a message for each of these queues, in so many requests; groups come in turns."""
        n = len(queues)
        per_request = n // requests
        return EnqueueColumns(
            uuid4(), [queues[number * per_request] for number in range(requests)],
            [1 + number // per_request for number in range(n)],
            list(itertools.islice(itertools.cycle(groups), n)), ['{"order":1234}'] * n,
        )  # fmt: skip

    async def enqueue(self, columns: EnqueueColumns) -> None:
        """A call of enqueue, all of which must be stored."""
        assert {row.outcome for row in await self.simple.enqueue(columns)} == {"stored"}

    async def poll(self, box: Box, limit: int) -> list[UUID]:
        """A call that polls each queue; the messages."""
        polled = await self.simple.dequeue(box.queues, [limit] * len(box.queues))
        return [message.message_id for answer in polled.answers for message in answer.messages]

    async def give_back(self, box: Box) -> None:
        """Takes the deliveries of what was polled back."""
        now = await self.now()
        messages = [Message(message, "", 1, now, now, None) for message in box.polled]
        await self.simple.give_back(box.queues[0], messages)


def _batch(queue: str, number: int, texts: Sequence[str | None]) -> PartitionBatch:
    places = range(len(texts))
    if all(text is None for text in texts):
        body = encode_plain([_PAYLOAD for _ in texts])
        return PartitionBatch(queue, str(number), places, body, [plain_length(_PAYLOAD) for _ in texts], None)
    entries = [encode_entry(_PAYLOAD, text, None, None) for text in texts]
    chosen = [text or "" for text in texts]
    return PartitionBatch(queue, str(number), places, b",".join(entries), [len(entry) + 1 for entry in entries], chosen)


@asynccontextmanager
async def template(dsn: str) -> AsyncIterator[str]:
    """A database with the schema to make worlds from, dropped at the end of the block; its connection string."""
    url = await create_database(dsn)
    try:
        await prepare(url, 5000)
        yield url
    finally:
        await drop_database(dsn, url)


@asynccontextmanager
async def world(dsn: str, template: str) -> AsyncIterator[World]:
    """A world of its own, dropped at the end of the block. Nothing in it waits for the disk: that is no cost here."""
    name = f"queen_growth_{uuid4().hex[:12]}"
    await _execute(dsn, f"CREATE DATABASE {name} TEMPLATE {urlsplit(template).path.lstrip('/')}")
    url = database_url(dsn, name)
    try:
        await _execute(dsn, f"ALTER DATABASE {name} SET synchronous_commit = off")
        async with metered(url, LIMIT_S) as meter:
            yield World(meter)
    finally:
        await drop_database(dsn, url)


async def _execute(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
