"""The stored size of queues with a maximum: when it is counted again, by which worker, and what makes a count void."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from queen.core.administration import ConfiguredQueue, QueueConfiguration
from queen.core.limits import CURSORS_STEP
from queen.engine.context import Context, ignore_notification
from queen.engine.handlers.pop import Outcome, pop
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import AckColumns
from queen.log.append import AppendBatch
from queen.log.requests import Pop
from queen.postgres.administration import AdministrationStore
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.pool import Pool
from queen.postgres.spool_store import SpoolStore
from queen.postgres.statement import call
from queen.postgres.store import Store, push_arguments
from spec.guarantees import Level, checks
from tests.support.clock import eventually
from tests.support.flushes import flush_of
from tests.support.stored import make_partitions, own_database, value

#: More than a push counts.
MANY = 1010
FILL = """
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
SELECT p.id, 0, 1, now() - interval '1 hour', gen_random_uuid(), NULL, '\\x0000000e', '[{"payload":1}]'
FROM queen.partitions AS p
"""
KNOWN = "SELECT most FROM queen.queue_sizes"
BACKLOG = "SELECT queen.backlog(q.id, NULL) FROM queen.queues AS q"
ASKED = "SELECT asked_at IS NOT NULL FROM queen.queue_sizes"


@pytest.fixture
async def pool(postgres: str) -> AsyncIterator[Pool]:
    """A queue ``q`` for two messages more than it has, one in each of its many partitions; the group ``g`` gets all."""
    async with own_database(postgres, 3) as pool:
        await make_partitions(pool, "q", MANY)
        await pool.fetch(FILL)
        await configure(pool, max_size=MANY + 2)
        while (await Store(pool).subscribe("q", "g", "all", None, create_queue=True, create_group=True)).unfinished:
            pass
        yield pool


async def configure(pool: Pool, **options: int) -> None:
    configured = await AdministrationStore(pool).configure_queue(QueueConfiguration("q", **options))
    if configured.more:
        await settle(pool, configured)


async def settle(pool: Pool, configured: ConfiguredQueue) -> None:
    """The pages of a change of options."""
    while (await AdministrationStore(pool).settle_queue(configured.queue_id))[1]:
        pass


async def flush(pool: Pool) -> AppendBatch:
    """One message, to a partition that is not among the many."""
    store = Store(pool)
    columns, options = await flush_of(store, "q", [b"1"]), await store.read_push_options()
    columns.version, columns.limited = options.version, [each.queue_id for each in options.limited.values()]
    return columns


async def push(pool: Pool) -> int | None:
    """The room that there is, if the push was refused."""
    [row] = await Store(pool).push(await flush(pool), again=False)
    return row.room


async def take(pool: Pool, messages: int) -> None:
    """Completes so many messages."""
    store = Store(pool)
    context = Context(store, AdministrationStore(pool), MetadataCache(store, 1000), ignore_notification, 5)
    [taken] = await pop(context, [Pop("q", group="g", batch=messages, partitions=messages, auto_ack=True)])
    assert isinstance(taken, Outcome)
    assert taken.found


async def count(pool: Pool) -> bool:
    return await MaintenanceStore(pool).count_backlog()


async def count_all(pool: Pool) -> None:
    assert await push(pool) == 0
    assert await count(pool)


async def waits(pool: Pool) -> bool:
    question = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%count_backlog%')"
    )
    return bool(await value(pool, question))


@checks("G-RET-8", level=Level.LIVE)
async def test_what_is_too_much_for_a_push_is_counted_for_it(pool: Pool) -> None:
    """The messages of a new group are not counted yet: the push asks for that, and is told to come again."""
    assert (await value(pool, KNOWN), await count(pool)) == (None, False)
    assert await push(pool) == 0
    assert await count(pool)
    assert (await value(pool, KNOWN), await count(pool)) == (MANY, False)
    assert [await push(pool) for _ in range(3)] == [None, None, 0]
    assert await count(pool)
    assert await push(pool) == 0
    await take(pool, 1)
    assert await push(pool) == 0, "there was no count since"
    assert await count(pool)
    assert await push(pool) is None


async def test_sizes_counted_by_a_push_are_exact(pool: Pool) -> None:
    await count_all(pool)
    await take(pool, MANY - 1000)
    await configure(pool, max_size=1000)
    assert await push(pool) == 0
    assert await value(pool, KNOWN) == 1000
    await take(pool, 1)
    assert [await push(pool) for _ in range(2)] == [None, 0]


async def test_a_push_counts_by_itself_if_the_background_job_does_not(pool: Pool) -> None:
    """No worker leads the services."""
    assert await push(pool) == 0
    await pool.fetch("UPDATE queen.queue_sizes SET asked_at = asked_at - interval '25 s'")
    assert await push(pool) == 0
    await pool.fetch("UPDATE queen.queue_sizes SET asked_at = asked_at - interval '5 s'")
    assert [await push(pool) for _ in range(3)] == [None, None, 0]


async def test_a_transaction_that_was_undone_has_asked_for_a_count(pool: Pool) -> None:
    async def execute() -> bool:
        rows = await Store(pool).execute(await flush(pool), AckColumns(), None, again=False)
        return not rows.undone

    assert (await execute(), await value(pool, ASKED)) == (False, True)
    assert await count(pool)
    assert await execute()


@asynccontextmanager
async def beside_a_count(pool: Pool) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A transaction that has what is known of the size; a count comes meanwhile and does not see what it does."""
    async with pool.connection() as connection:
        async with connection.transaction():
            yield connection
            counting = asyncio.create_task(count(pool))
            await eventually(lambda: waits(pool), "the count waits")
        assert await counting


@checks("G-RET-8", level=Level.LIVE)
async def test_a_push_beside_a_count_is_added_to_it(pool: Pool) -> None:
    assert await push(pool) == 0
    await pool.fetch("UPDATE queen.queue_sizes SET most = $1", MANY)
    columns = await flush(pool)
    arguments = columns.flush, False, *push_arguments(columns), columns.version, columns.limited
    async with beside_a_count(pool) as connection:
        [row] = await connection.fetch(call("push_messages_v1", 12), *arguments)
        assert row["first_off"] == 0
    assert [await value(pool, KNOWN), await value(pool, BACKLOG)] == [MANY + 1] * 2
    assert [await push(pool) for _ in range(2)] == [None, 0]


@checks("G-RET-8", level=Level.LIVE)
async def test_a_count_beside_a_seek_back_is_void(pool: Pool) -> None:
    assert await push(pool) == 0
    assert await count(pool)
    await take(pool, 1)
    assert [await push(pool) for _ in range(4)] == [None, None, 0, 0]
    async with beside_a_count(pool) as connection:
        moved = await connection.fetchrow(
            "SELECT * FROM queen.seek_group_v1('q', 'g', NULL, false, NULL, 0, $1)", CURSORS_STEP
        )
        assert moved["updated"] == CURSORS_STEP
    assert [await value(pool, KNOWN), await value(pool, ASKED)] == [None, True]
    assert await count(pool)
    assert await value(pool, KNOWN) == MANY + 2 == await value(pool, BACKLOG)
    assert await push(pool) == 0


@checks("G-RET-8", level=Level.LIVE)
async def test_replayed_messages_count_for_max_size(pool: Pool) -> None:
    await count_all(pool)
    spool, columns = SpoolStore(pool), await flush(pool)
    for _ in range(2):
        await spool.replay(uuid4(), 0, 1, None, columns)
        columns.flush = uuid4()
    assert [await value(pool, KNOWN), await value(pool, BACKLOG)] == [MANY + 2] * 2
    assert await push(pool) == 0


async def wait_no_longer(pool: Pool) -> None:
    await configure(pool, max_size=3 * MANY)


async def step_forward(pool: Pool) -> None:
    holder = uuid4()
    assert await MaintenanceStore(pool).lead(holder, 60)
    look = "SELECT step FROM queen.note_clock_v1($1, 'boot', $2, $2, queen.clock() + make_interval(secs => $3))"
    assert [await value(pool, look, holder, *at) for at in ((0.0, 0.0), (1.0, 7201.0))] == [
        0,
        pytest.approx(7200, abs=60),
    ]


@checks("G-RET-8", level=Level.LIVE)
@pytest.mark.parametrize("begin_earlier", [wait_no_longer, step_forward])
async def test_what_is_known_is_forgotten_when_a_group_that_is_being_made_begins_earlier(
    pool: Pool, begin_earlier: Callable[[Pool], Awaitable[None]]
) -> None:
    """The group does not get what had waited too long. Now that is no longer too long, or was not measured."""
    await configure(pool, max_size=3 * MANY, max_wait_time_seconds=60)
    await pool.fetch("SELECT queen.delete_group_v1('q', 'g', true, '', 100000)")
    await Store(pool).subscribe("q", "h", "all", None, create_queue=True, create_group=True)
    assert await push(pool) is None
    assert [await value(pool, KNOWN), await value(pool, BACKLOG)] == [1, 1]
    await begin_earlier(pool)
    assert await value(pool, BACKLOG) == MANY - CURSORS_STEP + 1
    assert await value(pool, KNOWN) is None


@checks("G-RET-8", level=Level.LIVE)
async def test_a_count_while_pushes_are_not_judged_is_void(pool: Pool) -> None:
    """It was asked for under an earlier limit; a new one comes to the partitions in pages, and holds after the last."""
    assert await push(pool) == 0
    await configure(pool, max_size=0)
    begun = await AdministrationStore(pool).configure_queue(QueueConfiguration("q", max_size=MANY + 2))
    assert begun.more
    assert await count(pool)
    assert [await push(pool) for _ in range(3)] == [None] * 3
    await settle(pool, begun)
    assert await push(pool) == 0
    assert await count(pool)
    assert await push(pool) == 0


async def test_a_deleted_queue_leaves_nothing_of_its_size(pool: Pool) -> None:
    await AdministrationStore(pool).delete_queue("q")
    assert await value(pool, "SELECT count(*) FROM queen.queue_sizes") == 0


async def test_a_queue_that_was_limited_in_psql_is_counted_at_each_push(pool: Pool) -> None:
    await pool.fetch("DELETE FROM queen.queue_sizes")
    assert [await push(pool) for _ in range(3)] == [None, None, 0]
    await take(pool, 1)
    assert [await push(pool) for _ in range(2)] == [None, 0]
