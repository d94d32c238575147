"""Retention beside pushes and seeks that are not committed yet: what waits for what, and what does not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from queen.log.append import AppendBatch
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of
from tests.support.locks import Connection, prepared_connections, until_waiting

HASH = UUID(int=7)


class Old:
    """A queue with one message, which retention may remove, and another one to push."""

    def __init__(self, name: str, queue_id: int, columns: AppendBatch) -> None:
        self.name, self.queue_id, self.columns = name, queue_id, columns
        self.part_id = columns.part[0]

    async def push(self, connection: Connection, hash_: UUID | None = None) -> list[Any]:
        """What a flush of one message answers."""
        c = replace(self.columns, flush=uuid4())
        hashes = ([self.part_id], [0], [hash_]) if hash_ else (None, None, None)
        return await connection.fetch(
            "SELECT * FROM queen.push_messages_v1("
            "$1, false, $2, $3, $4, $5, $6, $7, $8, $9, (SELECT version FROM queen.push_options), NULL)",
            c.flush, c.part, c.n, c.data, c.ends, [hash_.bytes] if hash_ else c.ids, *hashes,
        )  # fmt: skip

    async def remove(self, connection: Connection, *, wait: bool) -> tuple[int, str]:
        """What one call of retention has removed, and what it left."""
        [row] = await connection.fetch(
            "SELECT * FROM queen.remove_expired_v1($1, $2, $3, 1000, $4)", self.queue_id, [self.part_id], [-1], wait
        )
        return row["messages"], row["state"]

    async def kept(self, connection: Connection) -> list[int]:
        """Offsets of the messages that there are."""
        rows = await connection.fetch("SELECT off FROM queen.messages WHERE queue = $1 ORDER BY off", self.name)
        return [row["off"] for row in rows]


@pytest.fixture
async def connections(postgres: str) -> AsyncIterator[list[Connection]]:
    async with prepared_connections(postgres, 3) as opened:
        yield opened


@pytest.fixture
async def old(postgres: str, connections: list[Connection]) -> Old:
    pool = Pool(parse(postgres, "queen test", 5000), 1, 30)
    name = f"beside-{uuid4()}"
    columns = await flush_of(Store(pool), name, [b"1"])
    await pool.close()
    queue_id = await connections[0].fetchval(
        "UPDATE queen.queues SET retention_enabled = true, retention_seconds = 60 WHERE name = $1 RETURNING id", name
    )
    made = Old(name, queue_id, columns)
    await made.push(connections[0], HASH)
    await connections[0].execute(
        "UPDATE queen.segments SET created_at = created_at - interval '1 h' WHERE part_id = $1", made.part_id
    )
    return made


@checks("G-RET-4", level=Level.LIVE)
@pytest.mark.parametrize("wait", [False, True])
async def test_a_push_does_not_wait_for_retention(old: Old, connections: list[Connection], wait: bool) -> None:
    remover, pusher, _ = connections
    async with remover.transaction():
        assert await old.remove(remover, wait=wait) == (1, "done")
        [row] = await old.push(pusher)
    assert row["first_off"] == 1
    assert await old.kept(pusher) == [1]


@checks("G-RET-4", level=Level.LIVE)
@pytest.mark.parametrize("wait", [False, True])
async def test_retention_does_not_wait_for_a_push_nor_passes_it_over(
    old: Old, connections: list[Connection], wait: bool
) -> None:
    remover, pusher, _ = connections
    async with pusher.transaction():
        await old.push(pusher)
        assert await old.remove(remover, wait=wait) == (1, "done")
    assert await old.kept(remover) == [1]


@checks("G-RET-4", level=Level.LIVE)
async def test_retention_waits_for_a_call_that_moves_a_cursor_back(old: Old, connections: list[Connection]) -> None:
    """Otherwise the cursor would stand before messages that are gone, and the others below them."""
    remover, seeker, observer = connections
    await seeker.execute("SELECT queen.subscribe_v1($1, 'g', 'new', NULL, false, true, 100)", old.name)
    async with seeker.transaction():
        await seeker.execute("SELECT queen.seek_group_v1($1, 'g', NULL, false, NULL, 0, 100)", old.name)
        assert await old.remove(remover, wait=False) == (0, "busy")
        removal = asyncio.create_task(old.remove(remover, wait=True))
        await until_waiting(observer, remover, removal)
        assert not removal.done()
    assert await removal == (1, "done")
    cursor = "SELECT acked FROM queen.partition_consumers WHERE part_id = $1"
    assert await observer.fetchval(cursor, old.part_id) == 0


@checks("G-RET-4", "G-IDEM-2", level=Level.LIVE)
@pytest.mark.parametrize("commits", [False, True])
async def test_a_push_of_an_id_that_is_being_removed_is_new_if_it_has_been_removed(
    old: Old, connections: list[Connection], commits: bool
) -> None:
    remover, pusher, observer = connections
    removal = remover.transaction()
    await removal.start()
    assert await old.remove(remover, wait=False) == (1, "done")
    push = asyncio.create_task(old.push(pusher, HASH))
    await until_waiting(observer, pusher, push)
    assert not push.done()
    await (removal.commit() if commits else removal.rollback())
    [row] = await push
    assert (row["first_off"], row["dup_off"]) == ((1, None) if commits else (1, [0]))
    assert await old.kept(observer) == ([1] if commits else [0])


@checks("G-RET-4", level=Level.LIVE)
async def test_concurrent_removals_remove_and_count_once(old: Old, connections: list[Connection]) -> None:
    """Retention and expiry sweep the same queue, and of two leaders both may think that they lead for a moment."""
    first, second, observer = connections
    async with first.transaction():
        assert await old.remove(first, wait=False) == (1, "done")
        assert await old.remove(second, wait=False) == (0, "busy")
        removal = asyncio.create_task(old.remove(second, wait=True))
        await until_waiting(observer, second, removal)
        assert not removal.done()
    assert await removal == (0, "done")
    counted = "SELECT sum(retention_messages) FROM queen.retention_metrics WHERE queue = $1"
    assert await observer.fetchval(counted, old.name) == 1
