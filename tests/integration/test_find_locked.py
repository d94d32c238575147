"""Finds the rows that others have locked, for which a call would wait. It never waits itself, and locks nothing."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from queen.engine.ports import Lock, LockKind, PopColumns
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.store import Store
from queen.simple_mq.requests import NewQueue
from queen.simple_mq.storage import SimpleMqAdministrationStore
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of
from tests.support.locks import Connection, prepared_connections


class World:
    """A queue with two partitions: in the first a cursor with a lease, in the second one that is parked."""

    def __init__(self, pool: Pool) -> None:
        self.store, self.simple_mq = Store(pool), SimpleMqAdministrationStore(pool)

    async def begin(self) -> None:
        self.queue, self.lease, self.other = f"find-{uuid4()}", uuid4(), uuid4()
        [(self.queue_id, self.leased), (_, self.parked)] = await self.store.resolve_partitions(
            [(self.queue, "p"), (self.queue, "parked")], create=True
        )
        group = await self.store.subscribe(self.queue, "g", "all", None, create_queue=False, create_group=True)
        assert group.grp_id is not None
        self.grp_id = group.grp_id
        flush = await flush_of(self.store, self.queue, [b"1"])
        await self.store.push(flush, again=False)
        await self.store.pop(PopColumns([1], [1], [self.lease], [60], [1], [self.grp_id], [self.leased]))
        await self.simple_mq.create_queue(NewQueue(self.other, "q", 10, 30, 3, 1000), 0)

    @property
    def locks(self) -> dict[str, Lock]:
        """What calls may need, by name."""
        return {
            "limited": Lock(LockKind.LIMITED, self.queue_id),
            "making": Lock(LockKind.MAKING, name=self.queue),
            "known group": Lock(LockKind.SUBSCRIBING, name=self.queue, group="g"),
            "new group": Lock(LockKind.SUBSCRIBING, name=self.queue, group="new"),
            "partition": Lock(LockKind.PARTITION, self.leased),
            "partition with a parked cursor": Lock(LockKind.PARTITION, self.parked),
            "cursor": Lock(LockKind.CURSOR, self.leased, self.grp_id),
            "parked cursor": Lock(LockKind.CURSOR, self.parked, self.grp_id),
            "lease": Lock(LockKind.LEASE, name=str(self.lease)),
            "simple-mq": Lock(LockKind.ENQUEUING, name=str(self.other)),
        }

    async def found(self) -> set[str]:
        locked = await self.store.find_locked([*self.locks.values(), *NOTHING])
        return {name for name, lock in self.locks.items() if lock in locked} | {
            "nothing" for lock in NOTHING if lock in locked
        }


#: What does not exist is not locked.
NOTHING = [
    Lock(LockKind.LIMITED, -1), Lock(LockKind.MAKING, name="nothing"), Lock(LockKind.PARTITION, -1),
    Lock(LockKind.SUBSCRIBING, name="nothing", group="nothing"), Lock(LockKind.CURSOR, -1, -1),
    Lock(LockKind.LEASE, name=str(UUID(int=1))), Lock(LockKind.ENQUEUING, name=str(UUID(int=1))),
]  # fmt: skip


@pytest.fixture
async def world(postgres: str) -> AsyncIterator[World]:
    pool = Pool(parse(postgres, "queen test", 5000), 1, 30, 0.05)
    async with prepared_connections(postgres, 1):
        world = World(pool)
        await world.begin()
        yield world
    await pool.close()


@pytest.fixture
async def holder(postgres: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(postgres)
    yield connection
    await connection.close()


@checks("G-ISO-1", level=Level.LIVE)
@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("queen.queues WHERE id = {queue_id} FOR UPDATE", {"limited", "making", "new group"}),
        ("queen.queues WHERE id = {queue_id} FOR NO KEY UPDATE", {"limited", "making", "new group"}),
        ("queen.queues WHERE id = {queue_id} FOR SHARE", {"limited", "new group"}),
        ("queen.queues WHERE id = {queue_id} FOR KEY SHARE", {"new group"}),
        ("queen.consumer_groups_metadata WHERE id = {grp_id} FOR UPDATE", {"known group"}),
        ("queen.partition_locks WHERE part_id = {leased} FOR NO KEY UPDATE", {"partition"}),
        ("queen.partition_locks WHERE part_id = {parked} FOR UPDATE", {"partition with a parked cursor"}),
        ("queen.partition_locks WHERE part_id = {parked} FOR KEY SHARE", set()),
        ("queen.partition_consumers WHERE part_id = {leased} FOR UPDATE", {"cursor", "lease"}),
        (
            "queen.partition_consumers WHERE part_id = {parked} FOR UPDATE",
            {"parked cursor", "partition with a parked cursor"},
        ),
        ("simple_mq.counts WHERE queue_id = '{other}' AND shard = 0 FOR UPDATE", {"simple-mq"}),
        ("simple_mq.counts WHERE queue_id = '{other}' AND shard = 1 FOR UPDATE", set()),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(sorted(value)) or "nothing",
)
async def test_find_locked_finds_exactly_the_locked_rows(
    world: World, holder: Connection, rows: str, found: set[str]
) -> None:
    assert await world.found() == set()
    async with holder.transaction():
        await holder.execute(f"SELECT FROM {rows.format(**vars(world))}")
        assert await world.found() == found
    assert await world.found() == set()
    async with holder.transaction():
        await holder.execute(f"SELECT FROM {rows.format(**vars(world))} NOWAIT")


async def test_many_are_asked_for_at_once(world: World, holder: Connection) -> None:
    part_ids = [
        part_id or 0
        for _, part_id in await world.store.resolve_partitions(
            [(world.queue, f"p{number}") for number in range(300)], create=True
        )
    ]
    asked = [Lock(LockKind.PARTITION, part_id) for part_id in part_ids]
    async with holder.transaction():
        await holder.execute("SELECT FROM queen.partition_locks WHERE part_id = ANY($1) FOR UPDATE", part_ids[::7])
        assert await world.store.find_locked(asked) == frozenset(asked[::7])
