"""Cursors of a group are made, moved and deleted in pages: each begins where the last has ended, in any worker."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from queen.core.administration import MessageKey, Seek
from queen.core.limits import CURSORS_STEP
from queen.engine.context import Context, ignore_notification
from queen.engine.handlers.consumer_groups import go_on, seek_group, update_subscription
from queen.engine.handlers.give_up import ensure_cursors
from queen.engine.handlers.pop import Outcome, pop
from queen.engine.handlers.removal import delete_group
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Subscription
from queen.log import ids
from queen.log.requests import Pop
from queen.postgres.administration import AdministrationStore
from queen.postgres.pool import Pool
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.integration.test_removal import blocks
from tests.support.stored import make_partitions, own_database, value

PAGES = 4
#: The last page is not full.
MANY = PAGES * CURSORS_STEP - 500
#: Two messages of a push an hour ago, and two of one a minute ago.
FILL = """
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
SELECT p.id, 2 * k - 1, 2, now() - make_interval(hours => 3 - k), gen_random_uuid(), NULL, '\\x0000000e0000001c',
    '[{"payload":1},{"payload":2}]'
FROM queen.partitions AS p, generate_series(1, 2) AS k
"""
MANY_SEGMENTS = """
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
SELECT p.id, k, 1, now(), gen_random_uuid(), NULL, '\\x0000000e', '[{"payload":1}]'
FROM queen.partitions AS p, generate_series(0, 19999) AS k
"""
#: How many cursors each transaction has written of those that are there, most first.
WRITTEN = "SELECT count(*) FROM queen.partition_consumers WHERE grp_id = $1 GROUP BY xmin::text ORDER BY 1 DESC"
PLACES = "SELECT array_agg(DISTINCT acked) FROM queen.partition_consumers WHERE grp_id = $1"


@pytest.fixture
async def pool(postgres: str) -> AsyncIterator[Pool]:
    async with own_database(postgres) as pool:
        await make_partitions(pool, "q", MANY)
        await pool.fetch(FILL)
        yield pool


def context_of(pool: Pool) -> Context:
    """That of a worker."""
    store = Store(pool)
    return Context(store, AdministrationStore(pool), MetadataCache(store, 1000), ignore_notification, 5)


async def page(
    pool: Pool, group: str = "g", mode: str = "all", since: datetime | None = None, wanted: int | None = None
) -> Subscription:
    """A call of subscribe."""
    return await Store(pool).subscribe("q", group, mode, since, create_queue=True, create_group=True, wanted=wanted)


async def all_pages(pool: Pool, group: str = "g", mode: str = "all", since: datetime | None = None) -> Subscription:
    while (made := await page(pool, group, mode, since)).unfinished:
        pass
    return made


async def written(pool: Pool, grp_id: int | None) -> list[int]:
    return [row[0] for row in await pool.fetch(WRITTEN, grp_id)]


# ---------------------------------------------------------------- the first pop


@checks("G-GRP-1", level=Level.LIVE)
async def test_workers_that_subscribe_at_once_make_each_page_once(postgres: str) -> None:
    async with own_database(postgres, 4) as pool:
        await make_partitions(pool, "q", MANY)
        await pool.fetch(FILL)
        made = await asyncio.gather(*[all_pages(pool) for _ in range(4)])
        assert {each.grp_id for each in made} == {made[0].grp_id}
        assert await written(pool, made[0].grp_id) == [CURSORS_STEP] * (PAGES - 1) + [MANY % CURSORS_STEP]
        distinct = "SELECT count(DISTINCT part_id) FROM queen.partition_consumers"
        assert await value(pool, distinct) == MANY


@checks("G-GRP-1", "G-GRP-3", level=Level.LIVE)
async def test_a_subscription_that_was_cut_off_is_taken_up_and_nothing_is_missed(pool: Pool) -> None:
    first = await page(pool)
    assert (first.unfinished, await written(pool, first.grp_id)) == (True, [CURSORS_STEP])
    # A partition that is made meanwhile has its cursor already.
    await make_partitions(pool, "q", 2, "later")
    assert (await all_pages(pool)).grp_id == first.grp_id
    assert await value(pool, "SELECT count(DISTINCT part_id) FROM queen.partition_consumers") == MANY + 2
    assert sum(await written(pool, first.grp_id)) == MANY + 2
    assert max(await written(pool, first.grp_id)) == CURSORS_STEP
    assert await value(pool, PLACES, first.grp_id) == [-1]


@checks("G-POP-2", "G-POP-3", level=Level.LIVE)
async def test_a_pop_is_served_when_there_is_as_much_as_it_has_room_for(pool: Pool) -> None:
    context = context_of(pool)

    async def look(**fields: int) -> Outcome:
        [outcome] = await pop(context, [Pop("q", group="g", **fields)])
        assert isinstance(outcome, Outcome)
        return outcome

    assert (await look()).found
    assert context.unfinished == {("q", "g")}
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers") == CURSORS_STEP
    # There are enough cursors for these pops, so they make no page: the first caller makes it.
    for _ in range(3):
        assert (await look(batch=2, partitions=10)).found
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers") == CURSORS_STEP
    # Not for these: a page has enough for one of them, so that the other looks again, and makes another.
    wide = Pop("q", group="g", batch=10_000, partitions=1000)
    one, other = await pop(context, [wide, wide])
    assert isinstance(one, Outcome)
    assert isinstance(other, Outcome)
    assert (len(one.popped.claims), other.found, other.ready_in) == (1000, False, float("-inf"))
    assert len((await look(batch=10_000, partitions=1000)).popped.claims) == 1000
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers") == 3 * CURSORS_STEP
    while context.unfinished:
        await go_on(context)
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers") == MANY
    assert (await look()).found
    assert context.cache.known_group("q", None, "g") is not None


@checks("G-POP-2", level=Level.LIVE)
async def test_a_pop_of_one_partition_does_not_wait_for_the_others(pool: Pool) -> None:
    context = context_of(pool)
    last = f"p{MANY - 1}"
    [outcome] = await pop(context, [Pop("q", last, group="g", batch=10)])
    assert isinstance(outcome, Outcome)
    assert [(claim.partition, claim.upto) for claim in outcome.popped.claims] == [(last, 3)]
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers") == 1
    while context.unfinished:
        await go_on(context)
    assert await value(pool, "SELECT count(DISTINCT part_id) FROM queen.partition_consumers") == MANY
    assert await value(pool, "SELECT count(*) FROM queen.partition_consumers") == MANY


@checks("G-GRP-3", level=Level.LIVE)
async def test_a_group_begins_where_it_should_in_every_page(pool: Pool) -> None:
    now = await Store(pool).now()
    for group, mode, since, place in (
        ("new", "new", None, 3),
        ("between", "timestamp", now - timedelta(hours=1, minutes=30), 1),
        ("before", "timestamp", now - timedelta(hours=5), -1),
    ):
        made = await page(pool, group, mode, since)
        assert made.unfinished
        made = await all_pages(pool, group, mode, since)
        assert (group, await value(pool, PLACES, made.grp_id)) == (group, [place])


# ---------------------------------------------------------------- a start that comes


@checks("G-GRP-3", level=Level.LIVE)
async def test_a_start_that_has_come_moves_cursors_in_pages_and_serves_no_pop_before(pool: Pool) -> None:
    now = await Store(pool).now()
    start = now + timedelta(hours=1, minutes=30)
    made = await all_pages(pool, "g", "timestamp", start)
    assert made.starts_in is not None
    later = FILL.replace("2 * k - 1", "2 * k + 3").replace(
        "- make_interval(hours => 3 - k)", "+ make_interval(hours => k)"
    )
    await pool.fetch(later)
    await pool.fetch("UPDATE queen.partition_consumers SET ready_at = now(), ver = ver + 1")
    await pool.fetch("SELECT set_config('queen.clock', $1, false)", (start + timedelta(hours=3)).isoformat())
    # In each partition two messages lie before the start, and two behind it.
    left = [MANY]
    while (step := await page(pool, "g", wanted=1)).unfinished:
        assert step.ready == 0
        left.append(await value(pool, "SELECT count(*) FROM queen.partition_consumers WHERE acked = 3"))
    assert left == [*range(MANY, 0, -CURSORS_STEP)]
    assert step.starts_in is None
    assert await value(pool, PLACES, step.grp_id) == [5]
    assert await value(pool, "SELECT starts_at FROM queen.consumer_groups_metadata") is None


# ---------------------------------------------------------------- seek


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_seek_goes_in_pages_and_one_that_was_cut_off_is_made_good_by_asking_again(pool: Pool) -> None:
    made = await all_pages(pool)
    groups = AdministrationStore(pool).consumer_groups
    sought, after = await groups.seek(Seek("g", "q", to_end=True), 0)
    assert (sought.updated, await value(pool, PLACES, made.grp_id)) == (CURSORS_STEP, [-1, 3])
    assert after is not None
    found = await seek_group(context_of(pool), Seek("g", "q", to_end=True))
    assert (found.updated, await value(pool, PLACES, made.grp_id)) == (MANY, [3])
    assert await written(pool, made.grp_id) == [CURSORS_STEP] * (PAGES - 1) + [MANY % CURSORS_STEP]
    parked = "SELECT count(*) FROM queen.partition_consumers WHERE ready_at = 'infinity'"
    assert await value(pool, parked) == MANY


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_seek_of_a_group_that_has_not_all_its_cursors_makes_them_first(pool: Pool) -> None:
    made = await page(pool, "g", "new")
    groups = AdministrationStore(pool).consumer_groups
    sought, after = await groups.seek(Seek("g", "q"), 0)
    assert (sought.updated, after) == (0, 0)
    assert await written(pool, made.grp_id) == [CURSORS_STEP] * 2
    found = await seek_group(context_of(pool), Seek("g", "q"))
    assert (found.updated, await value(pool, PLACES, made.grp_id)) == (MANY, [-1])


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_seek_of_one_partition_of_a_group_to_come_begins_it_in_the_others(pool: Pool) -> None:
    start = await Store(pool).now() + timedelta(hours=1)
    made = await all_pages(pool, "g", "timestamp", start)
    found = await seek_group(context_of(pool), Seek("g", "q", "p7"))
    assert (found.updated, await value(pool, PLACES, made.grp_id)) == (1, [-1, 3])
    assert not (await page(pool)).unfinished


async def test_a_seek_ends_when_its_group_is_being_deleted(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queen.postgres.consumer_groups.DELETE_STEP", CURSORS_STEP)
    await all_pages(pool)
    groups = AdministrationStore(pool).consumer_groups
    _, after = await groups.seek(Seek("g", "q", to_end=True), 0)
    assert after is not None
    cursors, rest = await groups.delete("q", "g", "", subscription=True)
    assert (cursors, rest) == (CURSORS_STEP, "rest")
    sought, last = await groups.seek(Seek("g", "q", to_end=True), after)
    assert (sought.updated, last) == (0, None)


@checks("G-COST-1", level=Level.LIVE)
async def test_where_a_seek_has_moved_to_is_said_without_reading_the_log(postgres: str) -> None:
    async with own_database(postgres) as pool:
        await make_partitions(pool, "q", 1)
        await pool.fetch(MANY_SEGMENTS)
        await all_pages(pool)
        groups = AdministrationStore(pool).consumer_groups
        for to_end in (True, False):
            assert await blocks(pool, groups.seek(Seek("g", "q", to_end=to_end), 0)) < 150


@checks("G-GRP-6", level=Level.LIVE)
async def test_a_new_subscription_time_moves_no_cursor_that_is_still_to_be_made(pool: Pool) -> None:
    made = await page(pool)
    assert await update_subscription(context_of(pool), "q", "g", await Store(pool).now())
    assert (await page(pool)).complete
    assert await value(pool, PLACES, made.grp_id) == [-1]
    assert await value(pool, "SELECT subscription_mode FROM queen.consumer_groups_metadata") == "timestamp"


# ---------------------------------------------------------------- deletion


@checks("G-GRP-7", level=Level.LIVE)
async def test_a_pop_deletes_the_rest_of_a_group_before_it_creates_it_again(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queen.postgres.consumer_groups.DELETE_STEP", CURSORS_STEP)
    old = await all_pages(pool)
    groups = AdministrationStore(pool).consumer_groups
    cursors, rest = await groups.delete("q", "g", "", subscription=True)
    assert (cursors, rest) == (CURSORS_STEP, "rest")
    # A caller that knows the number of the group, as for an ack, is told that there is none.
    known = await Store(pool).subscribe("q", "g", "all", None, create_queue=False, create_group=False)
    assert (known.grp_id, known.unfinished) == (None, False)
    left = [MANY - CURSORS_STEP]
    while (made := await page(pool, "g", "new")).grp_id is None:
        assert made.unfinished
        left.append(await value(pool, "SELECT count(*) FROM queen.partition_consumers"))
    assert left == [*range(MANY - CURSORS_STEP, 0, -CURSORS_STEP), 0]
    made = await all_pages(pool, "g", "new")
    assert (made.grp_id, await value(pool, PLACES, made.grp_id)) == (old.grp_id, [3])
    # The deletion that had begun finds its work done, and leaves the new group alone.
    assert await groups.delete("q", "g", rest, subscription=True) == (None, None)
    assert await delete_group(context_of(pool), "q", "g", subscription=True) == MANY


# ---------------------------------------------------------------- what is measured by cursors


@checks("G-RET-8", level=Level.LIVE)
async def test_the_backlog_counts_what_a_group_that_has_begun_has_still_to_get(pool: Pool) -> None:
    await all_pages(pool, "done", "new")
    assert await value(pool, "SELECT queen.backlog(id, NULL) FROM queen.queues") == 0
    await page(pool, "g", "timestamp", await Store(pool).now() - timedelta(hours=1, minutes=30))
    assert await value(pool, "SELECT queen.backlog(id, NULL) FROM queen.queues") == 2 * MANY
    await all_pages(pool)
    assert await value(pool, "SELECT queen.backlog(id, NULL) FROM queen.queues") == 2 * MANY


@checks("G-DLQ-6", level=Level.LIVE)
async def test_a_message_is_given_up_by_a_group_that_has_no_cursor_there_yet(pool: Pool) -> None:
    await page(pool)
    last = await value(pool, "SELECT max(id) FROM queen.partitions")
    context, key = context_of(pool), MessageKey(last, ids.message_id(last, 2))
    assert await context.administration.consumer_groups.without_cursor(last) == ["g"]
    await ensure_cursors(context, key)
    assert await context.administration.consumer_groups.without_cursor(last) == []
    assert context.unfinished == {("q", "g")}
    moved = await context.administration.messages.give_up(key, None, "no")
    assert moved.groups == ["g"]
