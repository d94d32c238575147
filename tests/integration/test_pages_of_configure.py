"""New options reach the partitions of a large queue in pages: others go on meanwhile, and the next request ends it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from queen.core.administration import ConfiguredQueue, QueueConfiguration
from queen.core.limits import CURSORS_STEP
from queen.engine.context import Context
from queen.engine.handlers.configuration import configure, go_on_with_begun
from queen.engine.handlers.pop import Outcome, pop
from queen.engine.handlers.removal import delete_queue
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Notification
from queen.log.append import AppendBatch
from queen.log.requests import Pop
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.statement import call
from queen.postgres.store import Store, push_arguments
from spec.guarantees import Level, checks
from tests.support.clock import eventually
from tests.support.flushes import flush_of
from tests.support.servers import create_database, drop_database
from tests.support.stored import make_partitions, value

Connection = "asyncpg.Connection[Any]"

PAGES = 3
#: With Default. The last page is not full.
MANY = PAGES * CURSORS_STEP - 500
#: Those of the lowest and of the highest number, as partitions that are made together are numbered by their names.
FIRST, LAST = "p0", "p999"
#: A message of a minute ago in each.
FILL = """
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
SELECT p.id, 0, 1, now() - interval '1 minute', gen_random_uuid(), NULL, '\\x0000000e', '[{"payload":1}]'
FROM queen.partitions AS p
"""
HIDE = "UPDATE queen.partition_consumers SET ready_at = now() + interval '1 hour', ver = ver + 1"
#: How many cursors each transaction has written of those that are there, most first.
WRITTEN = "SELECT count(*) FROM queen.partition_consumers GROUP BY xmin::text ORDER BY 1 DESC"
WAITING = "SELECT count(*) FROM queen.partition_consumers WHERE ready_at > now()"
PENDING = "SELECT count(*) FROM queen.pending_configurations"
BLOCKED = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'queen test' AND wait_event_type = 'Lock')
"""


class Worker:
    """What a worker has, and what it tells of."""

    def __init__(self, pool: Pool, other: Connection) -> None:
        self.pool, self.other = pool, other
        self.store, self.administration = Store(pool), AdministrationStore(pool)
        self.told: list[Notification] = []
        self.context = Context(self.store, self.administration, MetadataCache(self.store, 5000), self._tell, 5)

    def _tell(self, notice: Notification) -> None:
        self.told.append(notice)

    async def configure(self, **options: Any) -> ConfiguredQueue:
        """All of it."""
        return await configure(self.context, QueueConfiguration("q", **options))

    async def begin(self, **options: Any) -> ConfiguredQueue:
        """The first transaction only."""
        return await self.administration.configure_queue(QueueConfiguration("q", **options))

    async def join(self, group: str = "g") -> None:
        """The first pop of a group."""
        while (await self.store.subscribe("q", group, "all", None, create_queue=True, create_group=True)).unfinished:
            pass

    async def pop(self, partition: str | None = None) -> list[str]:
        """The partitions that it takes."""
        [outcome] = await pop(self.context, [Pop("q", partition, group="g")])
        assert isinstance(outcome, Outcome)
        return [claim.partition for claim in outcome.popped.claims]

    async def lay_out(self, partition: str, messages: int = 1) -> AppendBatch:
        """A push, as what is known now says."""
        columns = await flush_of(self.store, "q", [b"1"] * messages, partition)
        options = await self.store.read_push_options()
        columns.version = options.version
        columns.limited = [options.limited["q"].queue_id] if "q" in options.limited else None
        return columns

    async def push(self, columns: AppendBatch) -> list[asyncpg.Record]:
        """A push over the other connection."""
        arguments = columns.flush, False, *push_arguments(columns), columns.version, columns.limited
        return list(await self.other.fetch(call("push_messages_v1", 12), *arguments))

    async def is_blocked(self) -> bool:
        """Whether a call of the worker waits for a lock."""
        return bool(await self.other.fetchval(BLOCKED))


@pytest.fixture
async def worker(postgres: str) -> AsyncIterator[Worker]:
    """A group that waits in all partitions of a queue."""
    url = await create_database(postgres)
    await prepare(url, 5000)
    pool, other = Pool(parse(url, "queen test", 5000), 3, 60), await asyncpg.connect(url)
    try:
        worker = Worker(pool, other)
        await worker.configure(delayed_processing=3600)
        await make_partitions(pool, "q", MANY - 1)
        await pool.fetch(FILL)
        await worker.join()
        await pool.fetch(HIDE)
        worker.told.clear()
        yield worker
    finally:
        await other.close()
        await pool.close()
        await drop_database(postgres, url)


# ---------------------------------------------------------------- waits


async def test_what_waited_under_the_old_delay_is_made_ready_in_pages(worker: Worker) -> None:
    await worker.configure(delayed_processing=30)
    assert [row[0] for row in await worker.pool.fetch(WRITTEN)] == [CURSORS_STEP] * (PAGES - 1) + [MANY % CURSORS_STEP]
    assert [(told.messages, told.changed) for told in worker.told] == [
        (1, True), (CURSORS_STEP, False), (CURSORS_STEP, False), (MANY % CURSORS_STEP, False)
    ]  # fmt: skip
    assert await value(worker.pool, WAITING) == await value(worker.pool, PENDING) == 0


async def test_a_page_has_fewer_partitions_where_there_are_more_groups(worker: Worker) -> None:
    await worker.join("h")
    await worker.pool.fetch(HIDE)
    await worker.configure(window_buffer=30)
    written = [row[0] for row in await worker.pool.fetch(WRITTEN)]
    assert (max(written), sum(written)) == (CURSORS_STEP, 2 * MANY)
    assert await value(worker.pool, WAITING) == 0


async def test_a_queue_that_fits_into_a_page_is_changed_in_one_transaction(worker: Worker) -> None:
    await worker.pool.fetch("DELETE FROM queen.queues")
    await worker.configure(delayed_processing=3600)
    await make_partitions(worker.pool, "q", CURSORS_STEP - 1)
    await worker.join()
    await worker.pool.fetch(HIDE)
    assert not (await worker.begin(max_size=10**6)).more
    assert await value(worker.pool, WAITING) == 0


@checks("G-WAIT-2", "G-WAIT-3", level=Level.LIVE)
async def test_between_two_pages_a_partition_waits_until_it_is_its_turn_and_no_message_comes_early(
    worker: Worker,
) -> None:
    configured = await worker.begin(delayed_processing=30)
    assert configured.more
    assert await worker.pop() == await worker.pop(FIRST) == []
    assert await worker.administration.settle_queue(configured.queue_id) == (CURSORS_STEP, True)
    assert (await worker.pop(FIRST), await worker.pop(LAST)) == ([FIRST], [])
    assert len(await worker.pop()) == 1
    # Longer delays hold for every pop from the first transaction on, wherever the pages are.
    configured = await worker.begin(delayed_processing=3600)
    assert await worker.pop() == []
    await worker.configure(delayed_processing=3600)
    assert await worker.pop() == await worker.pop(LAST) == []
    await worker.configure(window_buffer=30)
    assert await worker.pop(LAST) == [LAST]


@checks("G-LEASE-1", level=Level.LIVE)
async def test_leases_and_the_time_of_a_retry_stay(worker: Worker) -> None:
    leased = "UPDATE queen.partition_consumers SET lease = gen_random_uuid(), ver = ver + 1 WHERE part_id % 2 = 0"
    retried = "UPDATE queen.partition_consumers SET retry_at = ready_at, ver = ver + 1 WHERE part_id % 2 = 1"
    await worker.pool.fetch(leased)
    await worker.pool.fetch(retried)
    times = "SELECT array_agg((lease, ready_at)::text ORDER BY part_id) FROM queen.partition_consumers"
    before = await value(worker.pool, times)
    await worker.configure()
    assert await value(worker.pool, times) == before


async def test_a_pop_that_has_begun_under_the_old_delay_leaves_nothing_that_waits_for_it(worker: Worker) -> None:
    """It holds its cursor: the page waits for it, and judges what it wrote."""
    last = await value(worker.pool, "SELECT max(part_id) FROM queen.partition_consumers")
    async with worker.other.transaction():
        await worker.other.execute(HIDE + " WHERE part_id = $1", last)
        configuring = asyncio.create_task(worker.configure())
        await eventually(worker.is_blocked, "the last page waits for the pop")
        assert await worker.pop(FIRST) == [FIRST], "all others have their turn"
        assert not configuring.done()
    await configuring
    assert await worker.pop(LAST) == [LAST]


# ---------------------------------------------------------------- pushes


@checks("G-RET-8", level=Level.LIVE)
async def test_a_maximum_holds_when_all_pushes_that_do_not_count_are_stored(worker: Worker) -> None:
    under_way = await worker.lay_out(LAST)
    late = await worker.lay_out(FIRST)
    async with worker.other.transaction():
        assert len(await worker.push(under_way)) == 1
        configuring = asyncio.create_task(worker.configure(max_size=MANY, delayed_processing=3600))
        await eventually(worker.is_blocked, "the last page waits for the push")
        assert await worker.push(late) == [], "it does not know the new options"
        # The queue is full. But what is under way will be stored all the same: so the maximum does not hold yet.
        [stored] = await worker.push(await worker.lay_out(FIRST))
        assert (stored["room"], configuring.done()) == (None, False)
    await configuring
    [refused] = await worker.push(await worker.lay_out(FIRST))
    assert refused["room"] == 0
    assert await MaintenanceStore(worker.pool).count_backlog()
    [refused] = await worker.push(await worker.lay_out(FIRST))
    assert refused["room"] == 0
    # A change of the maximum waits for no push: all pushes count.
    assert not (await worker.begin(max_size=MANY + 100, delayed_processing=3600)).more
    assert [row["room"] for row in await worker.push(await worker.lay_out(FIRST))] == [None]


@checks("G-SEC-3", "G-RET-8", level=Level.LIVE)
async def test_encryption_is_answered_when_all_pushes_in_clear_are_stored_and_a_maximum_holds_meanwhile(
    worker: Worker,
) -> None:
    await worker.configure(max_size=1, delayed_processing=3600)
    await worker.pool.fetch("UPDATE queen.partition_consumers SET acked = 0, ver = ver + 1")
    under_way = await worker.lay_out(LAST)
    async with worker.other.transaction():
        assert len(await worker.push(under_way)) == 1
        configuring = asyncio.create_task(
            worker.configure(max_size=1, encryption_enabled=True, delayed_processing=3600)
        )
        await eventually(worker.is_blocked, "it waits for the push")
    await configuring
    configured = await worker.begin(max_size=1, delayed_processing=3600)
    assert configured.more
    [refused] = await worker.push(await worker.lay_out(FIRST))
    assert refused["room"] == 0
    assert await worker.push(under_way) == []


# ---------------------------------------------------------------- cut off


async def test_an_interrupted_configure_is_finished_by_the_next_one_or_by_the_clean_up(worker: Worker) -> None:
    configured = await worker.begin(delayed_processing=30)
    await worker.administration.settle_queue(configured.queue_id)
    await worker.configure(delayed_processing=30)
    assert await value(worker.pool, WAITING) == await value(worker.pool, PENDING) == 0
    await worker.pool.fetch(HIDE)
    await worker.begin(delayed_processing=20)
    await go_on_with_begun(worker.context)
    assert await value(worker.pool, WAITING) == await value(worker.pool, PENDING) == 0
    assert worker.told[-1] == Notification("q", MANY % CURSORS_STEP)


async def test_each_page_is_done_once_by_all_configures_at_once(worker: Worker) -> None:
    await worker.begin(delayed_processing=30)
    await asyncio.gather(*[worker.configure(delayed_processing=30) for _ in range(3)])
    assert [row[0] for row in await worker.pool.fetch(WRITTEN)] == [CURSORS_STEP] * (PAGES - 1) + [MANY % CURSORS_STEP]


async def test_what_was_left_to_do_in_a_queue_that_is_deleted_is_forgotten(worker: Worker) -> None:
    await worker.begin(delayed_processing=30)
    assert await delete_queue(worker.context, "q")
    await go_on_with_begun(worker.context)
    assert await value(worker.pool, PENDING) == 0
