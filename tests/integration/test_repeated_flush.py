"""A flush sent again after an unknown commit: stored once, whichever of the two sendings arrives first."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from queen.core.errors import DataRejectedError
from queen.engine.ports import AckColumns
from queen.log.append import AppendBatch
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of

PAYLOADS = [b"1", b"2", b"3"]


@pytest.fixture
async def pool(postgres: str) -> AsyncIterator[Pool]:
    await prepare(postgres, 5000)
    pool = Pool(parse(postgres, "queen test", 5000), 2, 30)
    yield pool
    await pool.close()


async def flush(store: Store) -> AppendBatch:
    return await flush_of(store, f"repeat-{uuid4()}", PAYLOADS)


async def stored(pool: Pool, columns: AppendBatch) -> list[tuple[int, str]]:
    rows = await pool.fetch(
        "SELECT off, payload::text AS payload FROM queen.messages WHERE part_id = $1 ORDER BY off", columns.part[0]
    )
    return [(row["off"], row["payload"]) for row in rows]


ONCE = [(0, "1"), (1, "2"), (2, "3")]


@checks("G-IDEM-1", level=Level.LIVE)
async def test_a_flush_that_was_committed_is_answered_as_the_first_time(pool: Pool) -> None:
    store = Store(pool)
    columns = await flush(store)
    first = await store.push(columns, again=False)
    assert await store.push(columns, again=True) == first
    assert await stored(pool, columns) == ONCE


@checks("G-IDEM-1", level=Level.LIVE)
async def test_a_flush_of_which_retention_has_removed_a_part_is_answered_as_the_first_time(pool: Pool) -> None:
    store = Store(pool)
    columns = await flush(store)
    first = await store.push(columns, again=False)
    for upto in (0, 1):
        await pool.fetch("SELECT queen.remove_upto($1, $2, queen.clock())", columns.part[0], upto)
        assert await store.push(columns, again=True) == first
    assert await stored(pool, columns) == ONCE[2:]


@checks("G-IDEM-1", level=Level.LIVE)
async def test_a_first_sending_that_arrives_after_its_repetition_stores_nothing(pool: Pool) -> None:
    store = Store(pool)
    columns = await flush(store)
    await store.push(columns, again=True)
    with pytest.raises(DataRejectedError, match="sent again"):
        await store.push(columns, again=False)
    assert await stored(pool, columns) == ONCE


@checks("G-TXN-1", "G-TXN-2", level=Level.LIVE)
async def test_a_transaction_that_was_refused_when_sent_again_is_not_carried_out_by_its_first_sending(
    pool: Pool,
) -> None:
    store = Store(pool)
    columns = await flush(store)
    group = await store.subscribe(f"repeat-{uuid4()}", "g", "all", None, create_queue=True, create_group=True)
    assert group.grp_id is not None
    [part_id] = columns.part
    # An ack of a cursor that does not exist is refused.
    acks = AckColumns([part_id], [group.grp_id], [None], ["c"], [0], [0], [None], [None])
    repeated = await store.execute(columns, acks, None, again=True)
    assert repeated.undone
    with pytest.raises(DataRejectedError, match="sent again"):
        await store.execute(columns, AckColumns(), None, again=False)
    assert await stored(pool, columns) == []


@checks("G-IDEM-1", level=Level.LIVE)
async def test_a_flush_that_was_committed_is_recognised_when_one_of_its_queues_has_been_deleted_since(
    pool: Pool,
) -> None:
    store = Store(pool)
    kept, deleted = f"kept-{uuid4()}", f"deleted-{uuid4()}"
    one, other = [await flush_of(store, queue, PAYLOADS) for queue in (kept, deleted)]
    both = AppendBatch(
        one.flush, one.part + other.part, one.n + other.n, one.data + other.data, one.ends + other.ends, [None, None]
    )
    first = await store.push(both, again=False)
    await pool.fetch("DELETE FROM queen.queues WHERE name = $1", deleted)
    repeated = await store.push(both, again=True)
    assert [row for row in repeated if row.part_id == one.part[0]] == first[:1]
    assert all(row.first is not None for row in repeated), "else it would be laid out and stored again"
    assert await stored(pool, one) == ONCE
