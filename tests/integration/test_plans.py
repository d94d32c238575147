"""What the procedures of the hot path read: rows by an index, and no table from end to end, however empty it is."""

from collections.abc import AsyncIterator, Awaitable
from uuid import uuid4

import pytest

from queen.db.dsn import parse
from queen.db.pool import Pool
from queen.db.setup import prepare
from queen.db.store import Store
from queen.engine.ports import AckColumns, PopColumns
from tests.support.flushes import flush_of
from tests.support.servers import create_database, drop_database

READ_WHOLE = "SELECT relname::text FROM pg_stat_xact_user_tables WHERE seq_scan > 0 AND schemaname = 'queen'"

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


async def test_what_retention_removes_is_found_by_its_ids_and_not_among_all_of_the_partition(pool: Pool) -> None:
    """A join had the planner read all ids of a partition for each segment: 18 ms with 100,000 of them."""
    store, queue, digests = Store(pool), f"plans-{uuid4()}", [uuid4().bytes for _ in range(2000)]
    for number in range(0, len(digests), 100):
        flush = await flush_of(store, queue, [b"1"] * 100)
        flush.hash_part, flush.hash_pos = flush.part * 100, list(range(100))
        flush.hash = digests[number : number + 100]
        flush.ids = [b"".join(flush.hash)]
        assert len(await store.push(flush, again=False)) == 1
    [part_id] = flush.part
    await pool.fetch("ANALYZE queen.transaction_ids")
    await pool.fetch("BEGIN")
    await pool.fetch("SELECT queen.remove_segments($1, 99, queen.clock())", part_id)
    [row] = await pool.fetch(IDS_READ)
    await pool.fetch("COMMIT")
    assert row["n"] == 100
    [row] = await pool.fetch("SELECT count(*) AS n FROM queen.transaction_ids WHERE part_id = $1", part_id)
    assert row["n"] == 1900


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
