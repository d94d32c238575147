"""The procedure that replays a spool file: each request once, whatever is repeated, and however long the outage was."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from queen.engine.ports import Replayed
from queen.log.append import AppendBatch
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.spool_store import SpoolStore
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of

LONG_AGO = datetime.now(UTC) - timedelta(hours=5)


@pytest.fixture
async def pool(postgres: str) -> AsyncIterator[Pool]:
    await prepare(postgres, 5000)
    pool = Pool(parse(postgres, "queen test", 5000), 4, 30)
    yield pool
    await pool.close()


async def flush(pool: Pool, *payloads: bytes) -> AppendBatch:
    return await flush_of(Store(pool), f"replay-{uuid4()}", list(payloads))


async def stored(pool: Pool, columns: AppendBatch) -> list[str]:
    sql = "SELECT payload::text AS payload FROM queen.messages WHERE part_id = $1 ORDER BY off"
    return [row["payload"] for row in await pool.fetch(sql, columns.part[0])]


@checks("G-SPOOL-2", level=Level.LIVE)
async def test_a_call_that_is_repeated_stores_once_and_says_how_far_it_is(pool: Pool) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1", b"2")
    assert await store.replay(file, 0, 2, None, columns) == Replayed(2)
    assert await store.replay(file, 0, 2, None, columns) == Replayed(2)
    assert await store.replay(file, 0, 5, None, columns) == Replayed(2)
    assert await stored(pool, columns) == ["1", "2"]
    await store.forget([file])
    assert await pool.fetch("SELECT 1 FROM queen.spool_lanes WHERE lane = $1", file) == []


@checks("G-SPOOL-2", level=Level.LIVE)
async def test_calls_at_the_same_time_store_once(pool: Pool) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1")
    told = await asyncio.gather(*(store.replay(file, 0, 1, None, columns) for _ in range(4)))
    assert told == [Replayed(1)] * 4
    assert await stored(pool, columns) == ["1"]


@checks("G-SPOOL-2", level=Level.LIVE)
@pytest.mark.parametrize("committed", [True, False])
async def test_a_flush_of_unknown_outcome_is_stored_once_also_after_hours(pool: Pool, committed: bool) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1", b"2")
    if committed:
        await Store(pool).push(columns, again=False)
        await pool.fetch("UPDATE queen.segments SET created_at = $2 WHERE part_id = $1", columns.part[0], LONG_AGO)
    assert await store.replay(file, 0, 1, LONG_AGO, columns) == Replayed(1)
    assert await stored(pool, columns) == ["1", "2"]


@checks("G-SPOOL-2", level=Level.LIVE)
async def test_a_flush_is_found_although_the_clock_of_the_server_was_ahead(pool: Pool) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1", b"2")
    await Store(pool).push(columns, again=False)
    ahead = datetime.now(UTC) + timedelta(days=1)
    assert await store.replay(file, 0, 1, ahead, columns) == Replayed(1)
    assert await stored(pool, columns) == ["1", "2"]


@checks("G-SPOOL-2", level=Level.LIVE)
async def test_the_first_sending_that_arrives_after_the_replay_stores_nothing(pool: Pool) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1")
    await store.replay(file, 0, 1, LONG_AGO, columns)
    with pytest.raises(Exception, match="sent again"):
        await Store(pool).push(columns, again=False)
    assert await stored(pool, columns) == ["1"]


async def test_unknown_partitions_are_named_and_nothing_is_stored(pool: Pool) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1")
    known, columns.part = columns.part, [2**40]
    assert await store.replay(file, 0, 1, None, columns) == Replayed(0, [2**40])
    columns.part = known
    assert await store.replay(file, 0, 1, None, columns) == Replayed(1)
    assert await stored(pool, columns) == ["1"]


@checks("G-SPOOL-2", level=Level.LIVE)
@pytest.mark.parametrize("sent_at", [None, LONG_AGO])
async def test_a_layout_under_options_that_have_changed_stores_nothing_and_the_next_one_does(
    pool: Pool, sent_at: datetime | None
) -> None:
    store, file, columns = SpoolStore(pool), uuid4(), await flush(pool, b"1")
    columns.version = (await Store(pool).read_push_options()).version - 1
    assert await store.replay(file, 0, 1, sent_at, columns) == Replayed(0, stale=True)
    assert await stored(pool, columns) == []
    columns.version += 1
    assert await store.replay(file, 0, 1, sent_at, columns) == Replayed(1)
    assert await stored(pool, columns) == ["1"]
