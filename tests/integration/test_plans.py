"""What the procedures of the hot path read: rows by an index, and no table from end to end, however empty it is."""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar
from uuid import UUID, uuid4

import pytest

from queen.engine.ports import AckColumns, CompleteColumns, PopColumns, WaitingColumns
from queen.log.append import AppendBatch
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.statistics import StatisticsStore
from queen.postgres.store import Store
from queen.simple_mq.requests import NewQueue
from queen.simple_mq.storage import EnqueueColumns, SimpleMqAdministrationStore, SimpleMqStore
from tests.support.flushes import flush_of
from tests.support.servers import create_database, drop_database

READ_WHOLE = "SELECT relname::text FROM pg_stat_xact_user_tables WHERE seq_scan > 0 AND schemaname = 'queen'"

READ = """
SELECT c.relname::text, pg_stat_get_xact_blocks_fetched(c.oid) AS n
FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE s.nspname IN ('queen', 'simple_mq') AND c.relkind IN ('r', 'i')
"""
PARTITIONS = 20_000
T = TypeVar("T")
#: 200,000 ids, ten in each partition.
MANY_PARTITIONS = (
    "INSERT INTO queen.transaction_ids (part_id, hash, off) "
    "SELECT -n / 10 - 1, gen_random_uuid(), n FROM generate_series(0, 199999) AS n"
)
IDS_READ = "SELECT pg_stat_get_xact_tuples_returned('queen.transaction_ids_pkey'::regclass) AS n"


@pytest.fixture
async def pool(postgres: str) -> AsyncIterator[Pool]:
    """One connection, so that all calls are of its transaction."""
    await prepare(postgres, 5000)
    pool = Pool(parse(postgres, "queen test", 5000), 1, 30)
    yield pool
    await pool.close()


async def read_whole(pool: Pool, call: Awaitable[object]) -> list[str]:
    """The tables that a call read from end to end."""
    await pool.fetch("BEGIN")
    await call
    rows = await pool.fetch(READ_WHOLE)
    await pool.fetch("COMMIT")
    return [row["relname"] for row in rows]


async def test_push_pop_and_ack_read_no_table_from_end_to_end(pool: Pool) -> None:
    """Planners before PostgreSQL 18 compile such a plan at each call, which takes 15 ms: ADR 38."""
    store, queue, lease = Store(pool), f"plans-{uuid4()}", uuid4()
    flush = await flush_of(store, queue, [b"1"])
    group = await store.subscribe(queue, "g", "all", None, create_queue=True, create_group=True)
    assert group.grp_id is not None
    assert await read_whole(pool, store.push(flush, again=False)) == []
    pop = PopColumns([10], [10], [lease], [60], [1], [group.grp_id], [None])
    assert await read_whole(pool, store.pop(pop)) == []
    ack = AckColumns(flush.part, [group.grp_id], [lease], ["c"], [0], [0], [None], [None])
    assert await read_whole(pool, store.ack(ack)) == []


CURSORS = """
INSERT INTO queen.partition_consumers (part_id, grp_id, acked, upto, seen, ready_at)
SELECT p.id, $1, -1, -1, -1, 'infinity' FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
WHERE q.name = $2 ON CONFLICT DO NOTHING
"""


class Hot:
    """Calls of the hot path, and how many blocks of a table or index each reads for an item."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.store, self.simple_mq = pool, Store(pool), SimpleMqStore(pool)
        self._read: dict[str, int] = {}

    @property
    def reads_much(self) -> dict[str, int]:
        """What reads more than a few blocks."""
        return {what: number for what, number in self._read.items() if number > 25}

    async def count(self, name: str, call: Awaitable[T], items: int = 1) -> T:
        await self.pool.fetch("BEGIN")
        before = await self._rows()
        result = await call
        after = await self._rows()
        await self.pool.fetch("COMMIT")
        self._read |= {f"{name}: {table}": (number - before.get(table, 0)) // items for table, number in after.items()}
        return result

    async def _rows(self) -> dict[str, int]:
        return {row["relname"]: row["n"] for row in await self.pool.fetch(READ)}

    async def group(self, queue: str) -> int:
        group = await self.store.subscribe(queue, "g", "all", None, create_queue=True, create_group=True)
        assert group.grp_id is not None
        return group.grp_id

    async def flush(self, queue: str) -> AppendBatch:
        """Three messages of which the first has an id of its own."""
        flush = await flush_of(self.store, queue, [b"1"] * 3)
        digest = uuid4().bytes
        flush.hash_part, flush.hash_pos, flush.hash = flush.part, [0], [digest]
        flush.ids = [digest + bytes(32)]
        return flush

    async def round(self) -> None:
        queue, leases = f"plans-{uuid4()}", [uuid4() for _ in range(3)]
        await self.count("resolve", self.store.resolve_partitions([(queue, "p")], create=True))
        grp_id, flush = await self.group(queue), await self.flush(queue)
        [part_id] = flush.part
        await self.count("push", self.store.push(flush, again=False))
        await self.count("push again", self.store.push(flush, again=True))
        for lease, named in zip(leases, (None, part_id, None), strict=True):
            pop = PopColumns([1], [1], [lease], [60], [1], [grp_id], [named])
            [delivered], _ = await self.count("pop" if named is None else "pop of a partition", self.store.pop(pop))
            await self.count("renew", self.store.renew_leases([lease], [90]))
            if delivered.slice.first == 0:
                ack = AckColumns([part_id], [grp_id], [lease], ["c"], [None], [None], [flush.hash[0]], [None])
                await self.count("ack by id", self.store.ack(ack))
            elif lease is leases[1]:
                ack = AckColumns([part_id], [grp_id], [lease], ["c"], [1], [1], [None], [None])
                await self.count("ack", self.store.ack(ack))
        await self.count("release", self.store.release_leases([leases[2]]))
        await self.count(
            "pop nothing",
            self.store.pop(PopColumns([1], [2], [uuid4()], [60], [1], [await self.group(f"{queue}-2")], [None])),
        )
        await self.count("pop", self.store.pop(PopColumns([1], [1], [leases[2]], [60], [1], [grp_id], [None])))
        failed = AckColumns([part_id], [grp_id], [leases[2]], ["r"], [2], [2], [None], [None])
        await self.count("ack that fails", self.store.ack(failed))
        await self.count("pop all", self.store.pop(PopColumns([9], [9], [None], [60], [1], [grp_id], [None])))
        await self.count("push that wakes", self.store.push(await self.flush(queue), again=False))
        await self.count("pop of many", self.store.pop(PopColumns([9], [9], [leases[0]], [60], [1], [grp_id], [None])))
        done = AckColumns([part_id], [grp_id], [leases[0]], ["c"], [3], [3], [None], [None])
        rows = await self.count("transaction", self.store.execute(await self.flush(queue), done, None, again=False))
        assert not rows.undone
        rest = AckColumns([part_id], [grp_id], [leases[0]], ["c"], [4], [5], [None], [None])
        await self.count("ack of all", self.store.ack(rest))
        await self.prefetch(queue, part_id, grp_id)

    async def prefetch(self, queue: str, part_id: int, grp_id: int) -> None:
        """A push that serves who waits; then all of it is acknowledged, and more is there."""
        await self.store.pop(PopColumns([9], [9], [None], [60], [1], [grp_id], [None]))
        first, second = uuid4(), uuid4()
        waiting = WaitingColumns([grp_id], [first], [1], [1], [None])
        _, [given] = await self.count("push to waiters", self.store.push_to_waiters(await self.flush(queue), waiting))
        columns = CompleteColumns([part_id], [grp_id], [first], [given.first], [given.upto], [second], [1], [None])
        [row] = await self.count("complete", self.store.complete(columns))
        assert row.slice is not None
        await self.count("prefetched", self.store.prefetched_for(queue, None, None))
        await self.count("prefetched of a cursor", self.store.cursors_prefetched_for([(part_id, grp_id)]))
        last = row.slice.first
        columns = CompleteColumns([part_id], [grp_id], [second], [last], [last], [None], [None], [None])
        assert len(await self.count("complete the last", self.store.complete(columns))) == 1
        await self.count("release", self.store.release_leases([second]))

    async def large_queue(self) -> str:
        queue = f"large-{uuid4()}"
        grp_id = await self.group(queue)
        for number in range(0, PARTITIONS, 1000):
            places = [(queue, f"{number + each}") for each in range(1000)]
            await self.count("resolve many", self.store.resolve_partitions(places, create=True), 1000)
        await self.pool.fetch(CURSORS, grp_id, queue)
        return queue

    async def simple_mq_queue(self) -> UUID:
        queue = uuid4()
        made = SimpleMqAdministrationStore(self.pool).create_queue(NewQueue(queue, f"plans-{queue}", 10_000, 30, 3), 0)
        assert await made
        return queue

    async def simple_mq_round(self) -> None:
        queue = await self.simple_mq_queue()
        for group in (None, "group"):
            columns = EnqueueColumns(uuid4(), [queue], [1, 1], [group] * 2, ["text"] * 2)
            await self.count("enqueue", self.simple_mq.enqueue(columns))
            for _ in range(2):
                polled = await self.count("dequeue", self.simple_mq.dequeue([queue], [1]))
                [message] = polled.answers[0].messages
                named = [queue], [message.message_id]
                await self.count("extend", self.simple_mq.extend_visibility(*named, [60]))
                await self.count("give back", self.simple_mq.give_back(queue, [message]))
                await self.count("dequeue again", self.simple_mq.dequeue([queue], [1]))
                [(outcome, _)] = await self.count("acknowledge", self.simple_mq.acknowledge(*named))
                assert outcome == "deleted"
            await self.count("dequeue nothing", self.simple_mq.dequeue([queue], [1]))


@pytest.fixture
async def hot(postgres: str) -> AsyncIterator[Hot]:
    """Over one connection to a database of its own, whose statistics no other test changes."""
    url = await create_database(postgres)
    try:
        await prepare(url, 5000)
        pool = Pool(parse(url, "queen test", 5000), 1, 30)
        yield Hot(pool)
        await pool.close()
    finally:
        await drop_database(postgres, url)


@pytest.mark.parametrize("emptied", [False, True])
async def test_a_plan_made_while_tables_were_small_is_good_when_they_are_large(hot: Hot, emptied: bool) -> None:
    """What is read does not grow. Autovacuum tells planners of small tables, and a plan stays until it comes again."""
    await hot.round()
    if emptied:
        queue = await hot.large_queue()
        await hot.pool.fetch("SELECT queen.delete_queue_v1($1, 1000000)", queue)
    await hot.pool.fetch("ANALYZE" if emptied else "VACUUM ANALYZE")
    await hot.round()
    await hot.large_queue()
    await hot.count("statistics", StatisticsStore(hot.pool).refresh_page(0, wait=True), PARTITIONS)
    await hot.round()
    assert hot.reads_much == {}


async def test_a_plan_of_simple_mq_made_while_tables_were_small_is_good_when_they_are_large(hot: Hot) -> None:
    await hot.simple_mq_round()
    await hot.pool.fetch("VACUUM ANALYZE")
    await hot.simple_mq_round()
    queue = await hot.simple_mq_queue()
    for number, group in enumerate([None, None, "a", "b"]):
        columns = EnqueueColumns(uuid4(), [queue], [1] * 500, [group] * 500, ["text"] * 500)
        await hot.simple_mq.enqueue(columns)
        await hot.simple_mq.dequeue([queue], [100 * number])
    await hot.simple_mq_round()
    assert hot.reads_much == {}


async def test_what_retention_removes_is_found_by_its_ids_and_not_among_all_of_the_partition(pool: Pool) -> None:
    """A join had the planner read all ids of a partition for each segment: 18 ms with 100,000 of them.

    So had a list of hashes before PostgreSQL 17, where other partitions have few ids.
    """
    store, queue, digests = Store(pool), f"plans-{uuid4()}", [uuid4().bytes for _ in range(2000)]
    await pool.fetch(MANY_PARTITIONS)
    await pool.fetch("ANALYZE queen.transaction_ids")
    for number in range(0, len(digests), 100):
        flush = await flush_of(store, queue, [b"1"] * 100)
        flush.hash_part, flush.hash_pos = flush.part * 100, list(range(100))
        flush.hash = digests[number : number + 100]
        flush.ids = [b"".join(flush.hash)]
        assert len(await store.push(flush, again=False)) == 1
    [part_id] = flush.part
    await pool.fetch("BEGIN")
    await pool.fetch("SELECT queen.remove_upto($1, 99, queen.clock())", part_id)
    [row] = await pool.fetch(IDS_READ)
    await pool.fetch("COMMIT")
    assert row["n"] == 100
    [row] = await pool.fetch("SELECT count(*) AS n FROM queen.transaction_ids WHERE part_id = $1", part_id)
    assert row["n"] == 1900
    await pool.fetch("DELETE FROM queen.transaction_ids WHERE part_id < 0")


async def test_statements_are_not_compiled(postgres: str) -> None:
    """Whatever the setting of the database, which the embedded PostgreSQL has off."""
    url = await create_database(postgres)
    try:
        for asked in ("by nobody", "by the database"):
            pool = Pool(parse(url, "queen test", 5000), 1, 30)
            [row] = await pool.fetch("SELECT current_database() AS name, current_setting('jit') AS jit")
            assert row["jit"] == "off", asked
            await pool.fetch(f"ALTER DATABASE {row['name']} SET jit = on")
            await pool.close()
    finally:
        await drop_database(postgres, url)
