"""Partitions whose messages were all removed: their newest segment stays, and never counts as a message."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of
from tests.support.locks import Connection, prepared_connections

PUSH = (
    "SELECT * FROM queen.push_messages_v1("
    "$1, false, $2, $3, $4, $5, $6, NULL, NULL, NULL, (SELECT version FROM queen.push_options), NULL)"
)
LIST = (
    "SELECT queue, off FROM queen.list_messages_v1("
    "NULL, NULL, $1, NULL, NULL, NULL, now() + make_interval(secs => $2), $3, 0, 1000, 1000000)"
)


@pytest.fixture
async def connection(postgres: str) -> AsyncIterator[Connection]:
    async with prepared_connections(postgres, 1) as [opened]:
        yield opened


async def push(connection: Connection, dsn: str, queue: str, age_s: int) -> int:
    """Stores a message of this age; the queue's number."""
    pool = Pool(parse(dsn, "queen test", 5000), 1, 30)
    c = await flush_of(Store(pool), queue, [b"1"])
    await pool.close()
    await connection.fetch(PUSH, c.flush, c.part, c.n, c.data, c.ends, c.ids)
    await connection.execute(
        "UPDATE queen.segments SET created_at = created_at - make_interval(secs => $2) WHERE part_id = $1",
        c.part[0], age_s,
    )  # fmt: skip
    return int(
        await connection.fetchval(
            "UPDATE queen.queues SET retention_enabled = true, retention_seconds = 60, max_wait_time_seconds = 90 "
            "WHERE name = $1 RETURNING id", queue,
        )
    )  # fmt: skip


async def empty(connection: Connection, queue_id: int) -> None:
    """Has retention remove what is in a queue."""
    [part_id] = (await connection.fetchrow("SELECT * FROM queen.find_expired_v1($1, '', 10)", queue_id))["part_ids"]
    [row] = await connection.fetch(
        "SELECT * FROM queen.remove_expired_v1($1, ARRAY[$2::bigint], ARRAY[-1], 1000, true)", queue_id, part_id
    )
    assert (row["messages"], row["state"]) == (1, "done")


@pytest.mark.parametrize("until_s", [3600, -1], ids=["now", "past"])
async def test_an_emptied_partition_takes_no_place_in_a_list_of_messages(
    postgres: str, connection: Connection, until_s: int
) -> None:
    """Of three queues the one that was written to last, and the one in the middle, are empty."""
    space = f"emptied{uuid4().hex}"
    await push(connection, postgres, f"{space}.oldest", 50)
    for name, age_s in (("middle", 80), ("newest", 70)):
        await empty(connection, await push(connection, postgres, f"{space}.{name}", age_s))
    # As if retention had removed them for being completed: the kept message is older.
    await connection.execute(
        "UPDATE queen.segments SET created_at = now() - make_interval(secs => 2 + n * 48) WHERE part_id IN ("
        "SELECT p.id FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.namespace = $1)",
        space,
    )
    assert [row["queue"] for row in await connection.fetch(LIST, space, until_s, 1)] == [f"{space}.oldest"]
    assert [row["queue"] for row in await connection.fetch(LIST, space, until_s, 2)] == [f"{space}.oldest"]


@checks("G-RET-4", level=Level.LIVE)
async def test_nothing_is_overdue_in_an_emptied_partition(postgres: str, connection: Connection) -> None:
    """The queue has no group. A new one would keep completed messages for ever."""
    queue_id = await push(connection, postgres, f"emptied-{uuid4()}", 100)
    overdue = "SELECT part_ids FROM queen.find_overdue_v1($1, '', 10)"
    assert len(await connection.fetchval(overdue, queue_id)) == 1
    await empty(connection, queue_id)
    assert await connection.fetchval(overdue, queue_id) is None
