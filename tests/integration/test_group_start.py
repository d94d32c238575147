"""The moment at which a group that begins in the future reaches its start, beside a push that is not committed yet."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from queen.log.append import AppendBatch
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of
from tests.support.locks import Connection, prepared_connections, until_waiting

SUBSCRIBE = "SELECT grp_id, starts_in FROM queen.subscribe_v1($1, 'g', 'timestamp', $2, false, true, 100)"


@pytest.fixture
async def connections(postgres: str) -> AsyncIterator[list[Connection]]:
    async with prepared_connections(postgres, 3) as opened:
        yield opened


async def set_clock(connection: Connection, moment: datetime) -> None:
    await connection.execute("SELECT set_config('queen.clock', $1, false)", moment.isoformat())


async def one_message(postgres: str) -> tuple[str, AppendBatch]:
    """A new queue with a partition, and a message for it that is not pushed yet."""
    queue = f"start-{uuid4()}"
    pool = Pool(parse(postgres, "queen test", 5000), 1, 30)
    columns = await flush_of(Store(pool), queue, [b"1"])
    await pool.close()
    return queue, columns


@checks("G-GRP-3", level=Level.LIVE)
async def test_a_push_from_before_the_start_that_commits_after_it_is_passed_over(
    postgres: str, connections: list[Connection]
) -> None:
    pusher, subscriber, observer = connections
    queue, columns = await one_message(postgres)
    start = await observer.fetchval("SELECT clock_timestamp()") + timedelta(hours=1)
    first = await subscriber.fetchrow(SUBSCRIBE, queue, start)
    assert first is not None
    assert first["starts_in"] > 0

    await set_clock(pusher, start - timedelta(seconds=1))
    await set_clock(subscriber, start + timedelta(seconds=1))
    transaction = pusher.transaction()
    await transaction.start()
    await pusher.fetch(
        "SELECT * FROM queen.push_messages_v1($1, false, $2, $3, $4, $5, $6, NULL, NULL, NULL, NULL, NULL)",
        columns.flush, columns.part, columns.n, columns.data, columns.ends, columns.ids,
    )  # fmt: skip
    arrival = asyncio.create_task(subscriber.fetchrow(SUBSCRIBE, queue, start))
    await until_waiting(observer, subscriber, arrival)
    await transaction.commit()
    reached = await arrival
    assert reached is not None
    assert reached["starts_in"] is None
    acked = await observer.fetchval("SELECT acked FROM queen.partition_consumers WHERE grp_id = $1", first["grp_id"])
    assert acked == 0


@checks("G-RET-4", level=Level.LIVE)
async def test_eviction_at_the_start_of_a_group_takes_its_locks_in_the_order_of_all_others(
    postgres: str, connections: list[Connection]
) -> None:
    """The row of the queue comes before the cursors: the other way round, a change of its options and this deadlock."""
    changer, evictor, observer = connections
    queue, _ = await one_message(postgres)
    start = await observer.fetchval("SELECT clock_timestamp()") + timedelta(hours=1)
    await observer.fetchrow(SUBSCRIBE, queue, start)
    queue_id, part_id = await observer.fetchrow(
        "SELECT p.queue_id, p.id FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id"
        " WHERE q.name = $1", queue,
    )  # fmt: skip
    await observer.execute("UPDATE queen.queues SET max_wait_time_seconds = 60 WHERE id = $1", queue_id)
    evict = "SELECT * FROM queen.evict_overdue_v1($1, $2, 100, true)"

    await set_clock(evictor, start + timedelta(seconds=1))
    async with changer.transaction():
        await changer.execute("SELECT FROM queen.queues WHERE id = $1 FOR UPDATE", queue_id)
        eviction = asyncio.create_task(evictor.fetch(evict, queue_id, [part_id]))
        await until_waiting(observer, evictor, eviction)
        assert not eviction.done()
        await changer.execute(
            "SELECT FROM queen.partition_locks AS h JOIN queen.partition_consumers AS c USING (part_id)"
            " WHERE h.part_id = $1 FOR UPDATE NOWAIT", part_id,
        )  # fmt: skip
    assert [row["state"] for row in await eviction] == ["more"], "the group has begun, and holds its cursors"
    assert [row["state"] for row in await evictor.fetch(evict, queue_id, [part_id])] == ["done"]


@checks("G-RET-3", level=Level.LIVE)
async def test_the_deletion_of_a_queue_waits_for_a_group_that_is_making_its_cursors(
    postgres: str, connections: list[Connection]
) -> None:
    """The row of the group comes before the partitions: the other way round, one of both was undone as a deadlock."""
    maker, deleter, observer = connections
    queue, _ = await one_message(postgres)
    await observer.fetch("SELECT * FROM queen.resolve_partitions_v1(ARRAY[$1, $1], ARRAY['a', 'b'], true)", queue)
    begun = await observer.fetchrow(
        "SELECT * FROM queen.subscribe_v1($1, 'g', 'all', NULL, false, true, 1, NULL, NULL)", queue
    )
    assert begun is not None
    assert begun["complete"] is False
    async with maker.transaction():
        # What queen.begin_page begins with.
        await maker.execute(
            "SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.id = $1 FOR UPDATE", begun["grp_id"]
        )
        deletion = asyncio.create_task(deleter.fetchrow("SELECT * FROM queen.delete_queue_v1($1, 100)", queue))
        await until_waiting(observer, deleter, deletion)
        await maker.execute("SELECT queen.begin_page($1, 100)", begun["grp_id"])
    deleted = await deletion
    assert deleted is not None
    assert (deleted["existed"], deleted["more"]) == (True, False)
    left = "SELECT count(*) FROM queen.partition_consumers WHERE grp_id = $1"
    assert await observer.fetchval(left, begun["grp_id"]) == 0


@checks("G-ISO-1", level=Level.LIVE)
async def test_a_pop_that_names_a_partition_does_not_wait_for_a_page_that_waits_for_another(
    postgres: str, connections: list[Connection]
) -> None:
    maker, holder, popper = connections
    queue, _ = await one_message(postgres)
    question = "SELECT * FROM queen.resolve_partitions_v1(ARRAY[$1, $1], ARRAY['a', 'b'], true)"
    held, wanted = [row["part_id"] for row in await popper.fetch(question, queue)]
    subscribe = "SELECT * FROM queen.subscribe_v1($1, 'g', 'all', NULL, false, true, 1, $2, 1)"
    begun = await popper.fetchrow(subscribe, queue, None)
    assert begun is not None
    async with holder.transaction():
        await holder.execute("SELECT 1 FROM queen.partition_locks WHERE part_id = $1 FOR NO KEY UPDATE", held)
        page = asyncio.create_task(maker.fetchrow("SELECT queen.begin_page($1, 100)", begun["grp_id"]))
        await until_waiting(holder, maker, page)
        async with asyncio.timeout(60):
            named = await popper.fetchrow(subscribe, queue, wanted)
        assert named is not None
        assert (named["ready"], named["complete"], page.done()) == (1, False, False)
    await page
    cursors = "SELECT array_agg(part_id ORDER BY part_id) FROM queen.partition_consumers WHERE grp_id = $1"
    assert (await popper.fetchval(cursors, begun["grp_id"]))[-2:] == [held, wanted]
    assert len(await popper.fetchval(cursors, begun["grp_id"])) == 3
    again = await popper.fetchrow(subscribe, queue, wanted)
    assert again is not None
    assert again["complete"]
