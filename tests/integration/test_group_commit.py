"""A push, an ack and a pop that leave in the same turn of the loop are one transaction, and each its own outcome."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import pytest

from queen.core.errors import DataRejectedError, OutcomeUnknownError, TooSlowError
from queen.core.limits import LOCK_WAIT_S
from queen.engine.failures import call_limit_s
from queen.engine.ports import AckColumns, PopColumns
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of
from tests.support.slowness import slow_segments

T = TypeVar("T")
BLOCKED = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%commit_group_v1%'"


class World:
    """A queue with one message leased, one to be pushed, and a group."""

    def __init__(self, pool: Pool, store: Store) -> None:
        self.pool, self.store = pool, store

    async def begin(self) -> None:
        self.queue = f"group-{uuid4()}"
        first = await flush_of(self.store, self.queue, [b"1"])
        group = await self.store.subscribe(self.queue, "g", "all", None, create_queue=True, create_group=True)
        assert group.grp_id is not None
        self.grp_id, [self.part_id], self.lease = group.grp_id, first.part, uuid4()
        await self.store.push(first, again=False)
        await self.store.pop(self.columns_of_pop(self.lease))
        self.push = await flush_of(self.store, self.queue, [b"2"])

    def columns_of_pop(self, lease: UUID, part_id: int | None = None) -> PopColumns:
        return PopColumns([10], [10], [lease], [60], [1], [self.grp_id], [part_id])

    def columns_of_ack(self) -> AckColumns:
        return AckColumns([self.part_id], [self.grp_id], [self.lease], ["c"], [0], [0], [None], [None])


@pytest.fixture
async def world(postgres: str) -> AsyncIterator[World]:
    await prepare(postgres, 5000)
    pool = Pool(parse(postgres, "queen test", 5000), 4, 30)
    world = World(pool, Store(pool))
    await world.begin()
    yield world
    await pool.close()


async def transactions(world: World, part_id: int) -> list[int]:
    """Which transactions wrote what there is now: the last segment, and the cursor."""
    [row] = await world.pool.fetch(
        "SELECT s.xmin::text::bigint AS segment, c.xmin::text::bigint AS cursor"
        " FROM queen.segments AS s LEFT JOIN queen.partition_consumers AS c ON c.part_id = s.part_id"
        " WHERE s.part_id = $1 ORDER BY s.last_off DESC LIMIT 1",
        part_id,
    )
    return [row["segment"], row["cursor"]]


@checks("G-DUR-1", "G-ORD-1", level=Level.LIVE)
async def test_a_pop_finds_what_a_push_of_its_transaction_has_stored_behind_what_an_ack_has_completed(
    world: World,
) -> None:
    lease = uuid4()
    acked, appended, (delivered, unserved) = await asyncio.gather(
        world.store.ack(world.columns_of_ack()),
        world.store.push(world.push, again=False),
        world.store.pop(world.columns_of_pop(lease)),
    )
    assert [(row.ord, row.problem, row.first, row.released) for row in acked] == [(1, None, 0, True)]
    assert [(row.part_id, row.first) for row in appended] == [(world.part_id, 1)]
    assert [(row.pop, row.part_id, row.upto, row.slice.first) for row in delivered] == [(1, world.part_id, 1, 1)]
    assert delivered[0].slice.data == world.push.data[0]
    assert unserved == []
    segment, cursor = await transactions(world, world.part_id)
    assert segment == cursor


@pytest.mark.parametrize(("items_max", "together"), [(2, True), (1, False)])
async def test_calls_share_a_transaction_up_to_so_many_items(world: World, items_max: int, together: bool) -> None:
    store = Store(world.pool, items_max=items_max)
    await asyncio.gather(store.ack(world.columns_of_ack()), store.push(world.push, again=False))
    segment, cursor = await transactions(world, world.part_id)
    assert (segment == cursor) is together


@checks("G-ISO-1", level=Level.LIVE)
async def test_a_refused_call_fails_no_other_request(world: World) -> None:
    refused = await flush_of(world.store, f"group-{uuid4()}", [b"3"])
    await world.store.push(refused, again=True)  # whatever comes under its id now is too late
    acked, problem, popped = await asyncio.gather(
        world.store.ack(world.columns_of_ack()),
        world.store.push(refused, again=False),
        world.store.pop(world.columns_of_pop(uuid4())),
        return_exceptions=True,
    )
    assert isinstance(problem, DataRejectedError)
    assert isinstance(acked, list)
    assert [row.problem for row in acked] == [None]
    assert isinstance(popped, tuple)
    delivered, _ = popped
    assert delivered == []  # each was made by itself: the one message is done, or still leased


@checks("G-ISO-1", level=Level.LIVE)
async def test_a_slow_call_fails_no_other_request_and_is_repeated_with_a_shorter_limit(
    world: World, postgres: str
) -> None:
    impatient = Pool(parse(postgres, "queen test", 5000), 4, 1)
    store, operator = Store(impatient), await asyncpg.connect(postgres)
    try:
        async with slow_segments(operator, world.part_id):
            acked, problem, popped = await asyncio.gather(
                store.ack(world.columns_of_ack()),
                store.push(world.push, again=False),
                store.pop(world.columns_of_pop(uuid4())),
                return_exceptions=True,
            )
    finally:
        await operator.close()
        await impatient.close()
    assert isinstance(problem, TooSlowError)
    assert (problem.lock, problem.limit_s) == (False, 0.25)
    assert isinstance(acked, list)
    assert [row.problem for row in acked] == [None]
    assert isinstance(popped, tuple)
    assert [row.part_id for row in await world.store.push(world.push, again=True)] == [world.part_id]


async def test_all_calls_of_a_group_commit_that_meets_a_lock_fail_and_those_that_do_not_need_it_succeed_alone(
    world: World, postgres: str
) -> None:
    impatient = Pool(parse(postgres, "queen test", 5000), 4, 30, LOCK_WAIT_S)
    store, operator = Store(impatient), await asyncpg.connect(postgres)

    async def alone(call: Callable[[], Awaitable[T]]) -> T:
        limited = call_limit_s.set(30)
        try:
            return await call()
        finally:
            call_limit_s.reset(limited)

    try:
        async with operator.transaction():
            await operator.execute("SELECT FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE", world.part_id)
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: store.ack(world.columns_of_ack()),
                lambda: store.push(world.push, again=False),
                lambda: store.pop(world.columns_of_pop(uuid4())),
            ]
            problems = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
            assert [isinstance(problem, TooSlowError) and problem.lock for problem in problems] == [True] * 3
            acked, problem, popped = await asyncio.gather(*(alone(call) for call in calls), return_exceptions=True)
    finally:
        await operator.close()
        await impatient.close()
    assert isinstance(acked, list)
    assert [row.problem for row in acked] == [None]
    assert isinstance(problem, TooSlowError)
    assert (problem.lock, problem.limit_s) == (True, 30)
    assert isinstance(popped, tuple)


async def test_a_pop_that_names_a_partition_waits_for_no_lock_and_so_shares_too(world: World) -> None:
    named = world.columns_of_pop(uuid4(), world.part_id)
    await asyncio.gather(world.store.ack(world.columns_of_ack()), world.store.push(world.push, again=False))
    other = await flush_of(world.store, world.queue, [b"3"])
    await asyncio.gather(world.store.push(other, again=False), world.store.pop(named))
    segment, cursor = await transactions(world, world.part_id)
    assert segment == cursor


async def test_a_large_push_is_alone(world: World) -> None:
    await asyncio.gather(world.store.ack(world.columns_of_ack()), world.store.push(world.push, again=False))
    large = await flush_of(world.store, world.queue, [b'"' + b"x" * (300 << 10) + b'"'])
    await asyncio.gather(world.store.push(large, again=False), world.store.pop(world.columns_of_pop(uuid4())))
    segment, cursor = await transactions(world, world.part_id)
    assert segment != cursor


async def test_a_second_push_of_the_same_turn_has_a_transaction_of_its_own(world: World) -> None:
    other = await flush_of(world.store, f"group-{uuid4()}", [b"3"])
    first, second = await asyncio.gather(
        world.store.push(world.push, again=False), world.store.push(other, again=False)
    )
    assert [row.part_id for row in (*first, *second)] == [world.part_id, other.part[0]]
    assert (await transactions(world, world.part_id))[0] != (await transactions(world, other.part[0]))[0]


@checks("G-IDEM-1", level=Level.FAULTS)
async def test_all_of_a_group_whose_connection_breaks_have_an_unknown_outcome_and_may_be_sent_again(
    world: World, postgres: str
) -> None:
    holder = await asyncpg.connect(postgres)
    held = holder.transaction()
    await held.start()
    await holder.execute("SELECT 1 FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE", world.part_id)
    calls = asyncio.gather(
        world.store.ack(world.columns_of_ack()),
        world.store.push(world.push, again=False),
        world.store.pop(world.columns_of_pop(uuid4())),
        return_exceptions=True,
    )
    observer = await asyncpg.connect(postgres)
    while not await observer.fetchval(f"SELECT count(*) {BLOCKED}"):
        await asyncio.sleep(0.01)
    await observer.execute(f"SELECT pg_terminate_backend(pid) {BLOCKED}")
    outcomes = await calls
    await held.rollback()
    await holder.close()
    await observer.close()
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError] * 3
    acked = await world.store.ack(world.columns_of_ack())
    appended = await world.store.push(world.push, again=True)
    assert [row.problem for row in acked] == [None]
    assert [row.first for row in appended] == [1]
