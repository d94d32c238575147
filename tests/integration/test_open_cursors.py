"""What a transaction of SQL that stays open costs the pops of its group, and that its partitions come back."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from spec.guarantees import Level, checks
from tests.support.locks import Connection, prepared_connections, until_waiting
from tests.support.processes import PATIENCE_S
from tests.support.servers import create_database, drop_database

POP = (
    "SELECT * FROM queen.pop_unified_batch_v1(ARRAY[1], ARRAY[1], ARRAY[$1::uuid], ARRAY[60], ARRAY[1],"
    " ARRAY[$2::bigint], ARRAY[NULL::bigint], 1000000, 1000000, ARRAY[$2::bigint], ARRAY[$3::text])"
)
ACK = (
    "SELECT * FROM queen.ack_messages_v1(ARRAY[$1::bigint], ARRAY[$2::bigint], ARRAY[$3::uuid], '{c}',"
    " ARRAY[$4::bigint], ARRAY[$4::bigint], ARRAY[NULL::uuid], ARRAY[NULL::text])"
)
BLOCKS = "SELECT pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass)"
PARTITIONS, MESSAGES = 10, 20_000
#: More blocks than these would be dead entries of the index of ready cursors.
MORE_BLOCKS = 12


@pytest.fixture
async def connections(postgres: str) -> AsyncIterator[list[Connection]]:
    url = await create_database(postgres)
    async with prepared_connections(url, 3) as opened:
        yield opened
    await drop_database(postgres, url)


class Worker:
    """Pops and acks message by message with the procedures of a worker, which remembers the low-water mark."""

    def __init__(self, connection: Connection, group: int) -> None:
        self._connection, self._group = connection, group
        self.mark: str | None = None

    async def pop(self) -> tuple[int | None, int, float | None]:
        """The partition of the next message, done, and the blocks that the pop has read; or when something is ready."""
        lease = uuid4()
        async with self._connection.transaction():
            before = await self._connection.fetchval(BLOCKS)
            rows = await self._connection.fetch(POP, lease, self._group, self.mark)
            blocks = await self._connection.fetchval(BLOCKS) - before
        self.mark = next((row["mark"] for row in rows if row["mark"]), self.mark)
        found = next((row for row in rows if row["pop"]), None)
        if found is None:
            return None, blocks, next(row["ready_in"] for row in rows if row["ready_in"] is not None)
        await self._connection.execute(ACK, found["part_id"], self._group, lease, found["first_off"])
        return found["part_id"], blocks, None

    async def cost(self, pops: int) -> float:
        """Blocks per pop, on average."""
        return sum([(await self.pop())[1] for _ in range(pops)]) / pops

    @property
    def has_passed(self) -> bool:
        """Whether its mark has passed over a cursor."""
        return len((self.mark or "").split()) > 10


async def stocked(connection: Connection) -> tuple[int, list[int]]:
    """A group, and its partitions, each with one segment."""
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q'); SELECT queen.subscribe('q')")
    rows = await connection.fetch(
        "SELECT part_id FROM queen.resolve_partitions_v1(array_fill('q'::text, ARRAY[$1::int]),"
        " ARRAY(SELECT g::text FROM generate_series(1, $1::int) AS g), true) ORDER BY part_id",
        PARTITIONS,
    )
    parts = [row["part_id"] for row in rows]
    message = b'{"payload":1}'
    ends = struct.pack(f">{MESSAGES}I", *[(len(message) + 1) * number for number in range(1, MESSAGES + 1)])
    await connection.execute(
        "INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ends, data)"
        " SELECT p, $2 - 1, $2, now(), gen_random_uuid(), $3, $4 FROM unnest($1::bigint[]) AS p",
        parts, MESSAGES, ends, b"[" + b",".join([message] * MESSAGES) + b"]",
    )  # fmt: skip
    await connection.execute(
        "UPDATE queen.partition_consumers SET ready_at = clock_timestamp(), ver = ver + 1 WHERE part_id = ANY($1)",
        parts,
    )
    group: int = await connection.fetchval("SELECT id FROM queen.consumer_groups_metadata")
    return group, parts


@checks("G-COST-1", "G-SQL-3", level=Level.LIVE)
@pytest.mark.parametrize("reader", ["a worker", "SQL"])
async def test_a_pop_that_stays_open_makes_no_other_dearer(connections: list[Connection], reader: str) -> None:
    """It keeps all that dies meanwhile. A mark passes over its cursor, and remembers it."""
    holder, connection, other = connections
    group, parts = await stocked(connection)
    worker = Worker(connection, group)
    open_one = holder.transaction()
    await open_one.start()
    [row] = await holder.fetch("SELECT * FROM queen.pop('q')")
    began = time.monotonic()
    while not worker.has_passed:
        assert time.monotonic() < began + PATIENCE_S
        await worker.pop()
    few = await worker.cost(30)
    for _ in range(300):
        part, _, _ = await worker.pop()
        assert part != parts[0]
    many = await worker.cost(30)
    print(f"blocks per pop: {few:.1f}, {many:.1f}")
    assert many <= few + MORE_BLOCKS
    await open_one.rollback()
    if reader == "SQL":
        found = await other.fetch("SELECT * FROM queen.pop('q', partitions => 1)")
        assert found[0]["message_id"] == row["message_id"]
    else:
        popped = [(await worker.pop())[0] for _ in range(PARTITIONS)]
        assert parts[0] in popped, popped
    assert not worker.has_passed or reader == "SQL"


@checks("G-SQL-3", level=Level.LIVE)
async def test_a_pop_that_finds_nothing_else_looks_soon_for_what_was_passed_over(
    connections: list[Connection],
) -> None:
    """Nobody is told when the transaction ends."""
    holder, connection, _ = connections
    group, parts = await stocked(connection)
    await connection.execute("DELETE FROM queen.partition_consumers WHERE part_id <> $1", parts[0])
    worker = Worker(connection, group)
    async with holder.transaction():
        [row] = await holder.fetch("SELECT * FROM queen.pop('q')")
        began = time.monotonic()
        while not worker.has_passed:
            assert time.monotonic() < began + PATIENCE_S
            part, _, _ = await worker.pop()
            assert part is None
        part, _, ready_in = await worker.pop()
        assert part is None
        assert ready_in == pytest.approx(0.1, abs=0.01)
        await holder.execute("SELECT queen.ack($1)", row["lease_id"])
    assert (await worker.pop())[0] == parts[0]


@checks("G-COST-1", "G-SQL-3", level=Level.LIVE)
@pytest.mark.parametrize(
    "call", ["remove_expired_v1($1, $2, '{-1}', 100, true)", "evict_overdue_v1($1, $2, 100, true)"]
)
async def test_what_waits_for_an_open_transaction_locks_no_tick(connections: list[Connection], call: str) -> None:
    """Low-water marks do not pass one that is locked, so pops would read all that dies meanwhile."""
    holder, connection, observer = connections
    _, parts = await stocked(connection)
    await connection.execute(
        "UPDATE queen.queues SET retention_enabled = true, retention_seconds = 1, max_wait_time_seconds = 1;"
        "UPDATE queen.segments SET created_at = now() - interval '1 h'"
    )
    queue = await connection.fetchval("SELECT id FROM queen.queues")
    transaction = holder.transaction()
    await transaction.start()
    await holder.fetch("SELECT * FROM queen.pop('q')")
    waits = asyncio.create_task(connection.fetch(f"SELECT * FROM queen.{call}", queue, parts[:1]))
    await until_waiting(observer, connection, waits)
    ticks = await observer.fetchval(
        "SELECT count(*) FROM pg_locks WHERE pid = $1 AND locktype = 'advisory'", connection.get_server_pid()
    )
    await transaction.rollback()
    [row] = await waits
    assert ticks == 0
    assert row["messages"] > 0
