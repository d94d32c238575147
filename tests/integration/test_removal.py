"""Deleting what is large: in pages that make progress, can be taken up again, and show nothing torn to others."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from queen.core.administration import (
    DeadLetterFilter,
    MessageKey,
    Page,
    PartitionFilter,
    PartitionOrder,
    Registered,
    Registration,
)
from queen.postgres.administration import AdministrationStore
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.pool import Pool
from queen.postgres.rotation import RotationStore
from queen.postgres.statistics import StatisticsStore
from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.stored import make_partitions, own_database, value

#: More than two pages of each deletion.
MANY = 12_000
#: Blocks that a call may read for one thing that it finds by an index.
FEW_BLOCKS = 100

BURY = """
INSERT INTO queen.dead_letter_queue (queue_id, part_id, off, grp_id, consumer_group, transaction_id, payload, error,
    retry_count, created_at, failed_at)
SELECT p.queue_id, p.id, n, 0, CASE WHEN n <= $3 THEN 'rare' ELSE 'common' END, format('t-%s', n), '1', 'broken', 0,
    now(), now() + make_interval(secs => n)
FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id, generate_series(1, $2::int) AS n
WHERE q.name = $1
"""
READ = """
SELECT sum(pg_stat_get_xact_blocks_fetched(c.oid)) FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE s.nspname = 'queen' AND c.relkind IN ('r', 'i')
"""
TABLES_OF_PARTITIONS = (
    "SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) "
    "WHERE table_schema = 'queen' AND column_name = 'part_id' AND table_type = 'BASE TABLE'"
)


@pytest.fixture
async def pool(postgres: str) -> AsyncIterator[Pool]:
    """One connection, so that all calls are of its transaction."""
    async with own_database(postgres) as pool:
        yield pool


async def blocks(pool: Pool, question: Any) -> int:
    """How many blocks a call reads."""
    await pool.fetch("BEGIN")
    before = await value(pool, READ)
    await question
    read = await value(pool, READ) - before
    await pool.fetch("COMMIT")
    return int(read)


# ---------------------------------------------------------------- dead letters


async def test_dead_letters_are_deleted_in_pages_and_each_goes_on(pool: Pool) -> None:
    await make_partitions(pool, "q", 1)
    await pool.fetch(BURY, "q", MANY, 10)
    letters = AdministrationStore(pool).dead_letters
    deleted, place, left = 0, None, MANY
    while True:
        page, place = await letters.purge(DeadLetterFilter("q", "rare"), place)
        # The oldest are those of the group: pages without one go on too.
        deleted += page
        left = await value(pool, "SELECT count(*) FROM queen.dead_letter_queue")
        assert left == MANY - deleted
        if place is None:
            break
    assert (deleted, left) == (10, MANY - 10)
    page, place = await letters.purge(DeadLetterFilter("q"), None)
    assert 0 < page < MANY // 2
    assert place is not None
    # Interrupted here, and begun again; what fails meanwhile stays.
    second, place = await letters.purge(DeadLetterFilter("q"), None)
    await pool.fetch(
        "UPDATE queen.dead_letter_queue SET failed_at = now() + interval '1 year' WHERE transaction_id = 't-20'"
    )
    while place is not None:
        last, place = await letters.purge(DeadLetterFilter("q"), place)
        second += last
    assert page + second == MANY - 11
    assert await value(pool, "SELECT array_agg(transaction_id) FROM queen.dead_letter_queue") == ["t-20"]


async def test_one_dead_letter_among_many_is_found_by_an_index(pool: Pool) -> None:
    await make_partitions(pool, "q", 1)
    await make_partitions(pool, "other", 1)
    await pool.fetch(BURY, "q", 50_000, 0)
    await pool.fetch(BURY, "other", 3, 0)
    await pool.fetch("VACUUM ANALYZE")
    letters = AdministrationStore(pool).dead_letters
    part_id = await value(pool, "SELECT part_id FROM queen.dead_letter_queue WHERE queue_id = 1 LIMIT 1")
    other = DeadLetterFilter(queue="other")
    for _ in range(7):  # also with the plan for any arguments
        assert await blocks(pool, letters.find_newest(MessageKey(part_id, "t-25000"))) < FEW_BLOCKS
        assert await blocks(pool, letters.find(1)) < FEW_BLOCKS
        assert await blocks(pool, letters.page(other, 100, 0)) < FEW_BLOCKS
        assert await blocks(pool, letters.count(other)) < FEW_BLOCKS
        assert await blocks(pool, letters.summarize("other")) < FEW_BLOCKS
        assert await blocks(pool, letters.page(DeadLetterFilter(queue="q"), 5, 0)) < FEW_BLOCKS
        assert await blocks(pool, letters.delete(10**9)) < FEW_BLOCKS
    found = await letters.find_newest(MessageKey(part_id, "t-25000"))
    assert found is not None
    assert found.transaction_id == "t-25000"
    assert [row.transaction_id for row in await letters.page(other, 100, 0)] == ["t-3", "t-2", "t-1"]


async def test_a_page_of_large_dead_letters_ends_sooner_and_the_next_goes_on(pool: Pool) -> None:
    await make_partitions(pool, "q", 1)
    await pool.fetch(BURY, "q", 20, 0)
    await pool.fetch("UPDATE queen.dead_letter_queue SET payload = to_json(repeat('x', 3000000))")
    letters, seen = AdministrationStore(pool).dead_letters, []
    while page := await letters.page(DeadLetterFilter(), 100, len(seen)):
        assert len(page) <= 5
        seen += [row.transaction_id for row in page]
    assert seen == [f"t-{n}" for n in range(20, 0, -1)]
    await pool.fetch("UPDATE queen.dead_letter_queue SET payload = to_json(repeat('x', 20000000)) WHERE id = 1")
    assert len(await letters.page(DeadLetterFilter(), 100, 19)) == 1


# ---------------------------------------------------------------- streams


async def test_a_reset_of_a_large_state_goes_on_and_until_it_is_done_no_chain_fits(pool: Pool) -> None:
    store = AdministrationStore(pool)
    stream = (await store.register_stream(Registration("s", "q", "old"))).stream
    rows = (
        "INSERT INTO queen.stream_state"
        " SELECT 1, $1, format('k%s', n), '{}', NULL, now() FROM generate_series(1, $2::int) AS n"
    )
    await pool.fetch(rows, stream, MANY)
    await pool.fetch(rows, stream + 1, 1)
    reset, left = Registration("s", "q", "new", reset=True), []
    assert await store.register_stream(reset) == Registered(stream, fresh=False, conflict=False, more=True)
    for chain in ("old", "new"):
        assert (await store.register_stream(Registration("s", "q", chain))).conflict
    while (await store.register_stream(reset)).more:
        left.append(await value(pool, "SELECT count(*) FROM queen.stream_state WHERE stream_id = $1", stream))
    assert left == [MANY - 10_000]
    assert await value(pool, "SELECT count(*) FROM queen.stream_state") == 1
    assert not (await store.register_stream(Registration("s", "q", "new"))).conflict


# ---------------------------------------------------------------- queues


async def rows_of_partitions(pool: Pool) -> int:
    tables = [row["table_name"] for row in await pool.fetch(TABLES_OF_PARTITIONS)]
    assert len(tables) > 8
    return sum([await value(pool, f"SELECT count(*) FROM queen.{table}") for table in tables])


async def test_a_large_queue_goes_partition_by_partition_and_can_be_taken_up_again(pool: Pool) -> None:
    await make_partitions(pool, "q", MANY)
    await pool.fetch(
        "INSERT INTO queen.segments SELECT p.id, 0, 1, now(), gen_random_uuid(), NULL, '\\x00000003', '{}' "
        "FROM queen.partitions AS p"
    )
    await pool.fetch(BURY, "q", 1, 0)
    administration, services = AdministrationStore(pool), MaintenanceStore(pool)
    assert await administration.delete_queue("q") == (True, True)
    left = await value(pool, "SELECT count(*) FROM queen.partitions")
    assert MANY / 3 < left < MANY
    # Others see whole partitions, or none; what is made meanwhile goes too.
    assert len(
        await administration.catalogue.partitions(PartitionFilter("q"), Page(PartitionOrder.NAME, 10_000))
    ) == min(left, 10_000)
    await make_partitions(pool, "q", 100)
    while (await administration.delete_queue("q"))[1]:
        pass
    assert await administration.delete_queue("q") == (False, False)
    assert await value(pool, "SELECT count(*) FROM queen.messages") == 0
    assert await administration.dead_letters.page(DeadLetterFilter(), 100, 0) == []
    # The request was cut off here: the clean-up removes the rest, some thousand rows a time.
    before, pages = await rows_of_partitions(pool), 0
    assert before > 2 * MANY
    while await services.purge_partitions():
        pages += 1
        now = await rows_of_partitions(pool)
        assert before - 11_000 < now <= before
        before = now
    assert pages > 2
    assert await rows_of_partitions(pool) == 0


@checks("G-RET-3", level=Level.LIVE)
async def test_a_queue_of_many_partitions_is_gone_with_all_it_held(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    for first in range(0, MANY, 2000):
        items = [{"queue": queue, "partition": f"p{n}", "payload": n} for n in range(first, first + 2000)]
        await api.push_items(items)
    numbers = (
        "SELECT array_agg(p.id) FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id "
        "WHERE q.name = $1"
    )
    parts = await database.fetchval(numbers, queue)
    assert len(parts) == MANY
    pushes = asyncio.create_task(keep_pushing(api, queue))
    body = await api.delete(queue)
    assert not pushes.done(), "no push is refused meanwhile"
    pushes.cancel()
    assert (body["existed"], body["deleted"]) == (True, True)
    for row in await database.fetch(TABLES_OF_PARTITIONS):
        left = f"SELECT count(*) FROM queen.{row['table_name']} WHERE part_id = ANY($1)"
        assert (row["table_name"], await database.fetchval(left, parts)) == (row["table_name"], 0)
    await api.delete(queue)


async def keep_pushing(api: Api, queue: str) -> None:
    while True:
        await api.push(queue, 1, partition="p5")


# ---------------------------------------------------------------- groups

CURSORS = """
INSERT INTO queen.partition_consumers (part_id, grp_id, acked, upto, seen, ready_at)
SELECT p.id, g.id, 5, 5, 5, 'infinity'
FROM queen.partitions AS p JOIN queen.consumer_groups_metadata AS g USING (queue_id)
"""


async def make_group(pool: Pool) -> int:
    await pool.fetch(
        "INSERT INTO queen.consumer_groups_metadata "
        "(queue_id, name, subscription_mode, since, created_at, subscribed_upto) "
        "SELECT q.id, 'g', 'all', '-infinity', now(), 9223372036854775807 FROM queen.queues AS q"
    )
    await pool.fetch(CURSORS)
    return int(await value(pool, "SELECT id FROM queen.consumer_groups_metadata"))


async def test_a_group_with_many_cursors_is_deleted_in_pages(pool: Pool) -> None:
    await make_partitions(pool, "q", MANY)
    group = await make_group(pool)
    groups, total, after = AdministrationStore(pool).consumer_groups, 0, ""
    while True:
        cursors, last = await groups.delete("q", "g", after, subscription=True)
        assert cursors is not None
        assert cursors < MANY
        total += cursors
        if last is None:
            break
        after = last
    assert total == MANY
    assert await groups.delete("q", "g", "", subscription=True) == (None, None)
    assert await value(pool, "SELECT id FROM queen.retired_groups") == group


async def test_a_group_is_put_back_in_pages(pool: Pool) -> None:
    await make_partitions(pool, "q", MANY)
    await make_group(pool)
    groups, total, after = AdministrationStore(pool).consumer_groups, 0, ""
    while True:
        cursors, last = await groups.delete("q", "g", after, subscription=False)
        assert cursors is not None
        assert cursors < MANY
        total += cursors
        if last is None:
            break
        after = last
    assert total == MANY
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers WHERE acked <> -1") == 0


# ---------------------------------------------------------------- traces, statistics, metrics, keys


async def test_a_message_with_many_traces_is_deleted_in_pages(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    (pushed,) = await api.push(queue, 1)
    copies = (
        "INSERT INTO queen.traces (queue_id, part_id, off, consumer_group, event_type, data, worker, created_at) "
        "SELECT p.queue_id, p.id, 0, 'g', 'e', '1', 'w', now() FROM queen.partitions AS p JOIN queen.queues AS q "
        "ON q.id = p.queue_id, generate_series(1, $2::int) WHERE q.name = $1"
    )
    await database.execute(copies, queue, MANY)
    path = f"/api/v1/traces/{pushed['partition_id']}/{pushed['message_id']}"
    traces = (await api.http.get(path)).json()["traces"]
    assert len(traces) == 1000
    following = (await api.http.get(path, params={"limit": 10_000, "offset": 11_000})).json()["traces"]
    assert len(following) == MANY - 11_000
    message = f"/api/v1/messages/{pushed['partition_id']}/{pushed['message_id']}"
    assert (await api.http.delete(message)).status_code == 200
    left = "SELECT count(*) FROM queen.traces AS t JOIN queen.queues AS q ON q.id = t.queue_id WHERE q.name = $1"
    assert await database.fetchval(left, queue) == 0


async def test_statistics_are_refreshed_in_pages(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queen.postgres.statistics.REFRESH_ROWS", 50)
    for number in range(30):
        await make_partitions(pool, f"q{number}", 1 + 10 * (number % 3))
    store, after, pages = StatisticsStore(pool), 0, 0
    await store.refresh_smallest(10**6)
    await pool.fetch("UPDATE queen.queue_stats SET computed_at = now() - interval '1 day', partitions = partitions")
    seen = 0
    while True:
        page = await store.refresh_page(after, wait=True)
        pages += 1
        seen += page.queues or 0
        if page.last is None:
            break
        assert page.last > after
        after = page.last
    assert (seen, pages > 5) == (30, True)
    assert (
        await value(pool, "SELECT count(*) FROM queen.queue_stats WHERE computed_at > now() - interval '1 hour'") == 30
    )


async def test_a_queue_larger_than_a_page_of_statistics_is_one_by_itself(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queen.postgres.statistics.REFRESH_ROWS", 50)
    store = StatisticsStore(pool)
    for name, partitions in (("small", 1), ("large", 500), ("last", 1)):
        await make_partitions(pool, name, partitions)
    await store.refresh_smallest(10**6)
    first = await store.refresh_page(0, wait=True)
    assert first.last is not None
    second = await store.refresh_page(first.last, wait=True)
    assert second.last is not None
    third = await store.refresh_page(second.last, wait=True)
    assert [(page.queues, page.last is None) for page in (first, second, third)] == [(1, False), (1, False), (1, True)]


async def test_old_metrics_are_removed_in_pages(pool: Pool) -> None:
    await pool.fetch(
        "INSERT INTO queen.queue_metrics SELECT now() - interval '9 days', format('q%s', n), 'w', "
        "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 FROM generate_series(1, 50000) AS n"
    )
    record = (
        "SELECT queen.record_worker_metrics_v1(now(), 'w', 'h', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, interval '1 day', "
        "1, 1, '{1}', '{1}', '{1}', '{1}')"
    )
    left = [50_000]
    while left[-1]:
        await pool.fetch(record)
        left.append(await value(pool, "SELECT count(*) FROM queen.queue_metrics"))
        assert left[-2] - 25_000 < left[-1] < left[-2]
    assert len(left) > 3


async def test_a_rotation_looks_at_what_is_encrypted_however_much_is_not(pool: Pool) -> None:
    """Of 50,000 dead letters one is under another key, and of 20,000 segments one is of an encrypted queue."""
    await make_partitions(pool, "plain", 1)
    await make_partitions(pool, "sealed", 1)
    await pool.fetch("UPDATE queen.queues SET ever_encrypted = true, encryption_enabled = true WHERE name = 'sealed'")
    await pool.fetch(
        "INSERT INTO queen.segments SELECT p.id, n, 1, now(), gen_random_uuid(), NULL, '\\x00000003', '{}' "
        "FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id, generate_series(1, 20000) AS n "
        "WHERE q.name = 'plain' OR n = 1"
    )
    await pool.fetch(BURY, "sealed", 50_000, 0)
    await pool.fetch("UPDATE queen.dead_letter_queue SET key_id = CASE WHEN id = 49999 THEN 'old' ELSE 'new' END")
    await pool.fetch("VACUUM ANALYZE")
    store = RotationStore(pool)
    [place] = await store.find_partitions(-1)
    assert (place.queue, place.plain_too) == ("sealed", True)
    assert await blocks(pool, store.find_partitions(-1)) < FEW_BLOCKS
    assert len(await store.find_segments(place, -1)) == 1
    assert await blocks(pool, store.find_segments(place, -1)) < FEW_BLOCKS
    found, after, looks = [], -1, 0
    while True:
        upto = await store.end_of_letters(after)
        found += [letter.id for letter in await store.find_letters(after, upto, "new")]
        looks += 1
        if upto is None:
            break
        assert upto - after <= 11_000
        after = upto
    assert (found, looks > 3) == ([49_999], True)
