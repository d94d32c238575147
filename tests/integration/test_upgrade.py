"""An upgrade from the released version, with its procedures and what they wrote; a server that stands still meanwhile.

`tests/data/procedures-3b6c52e.sql.xz` has `sql/internal` and `sql/procedures` of that commit, in the order of a start,
without the comments. Its last migration is 0011; migrations that were released never change.
"""

import lzma
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from queen.log.segment import encode_ends, encode_plain
from queen.postgres.setup import prepare, scripts
from spec.guarantees import Level, checks
from tests.support.locks import Connection
from tests.support.servers import create_database, drop_database

RELEASED = Path(__file__).parents[1] / "data" / "procedures-3b6c52e.sql.xz"
LAST_RELEASED = "0011_shared_heads.sql"
TIMEOUT_MS = 5000
#: Each made by what its name says, in a queue of this name.
QUEUE = "q"
PLACES = ("ahead", "cut", "emptied", "failed", "leased", "new", "parked", "pending")
ALL = list(range(7))

PUSH = (
    "SELECT * FROM queen.push_messages_v1("
    "$1, false, $2, $3, $4, $5, NULL, NULL, NULL, NULL, (SELECT version FROM queen.push_options), NULL)"
)
POP = "SELECT * FROM queen.pop_unified_batch_v1(ARRAY[100], ARRAY[100], ARRAY[$1::uuid], NULL, ARRAY[1], "
POP_OLD, POP_NEW = (
    POP + "ARRAY[$2::bigint], ARRAY[$3::bigint])",
    POP + "ARRAY[$2::bigint], ARRAY[$3::bigint], 1000000, 1000000)",
)
ACK = (
    "SELECT * FROM queen.ack_messages_v1(ARRAY[$1::bigint], ARRAY[$2::bigint], ARRAY[$3::uuid], ARRAY[$4], "
    "ARRAY[$5::bigint], ARRAY[$5::bigint], NULL, ARRAY[NULL], false)"
)
SUBSCRIBE = "SELECT grp_id, complete FROM queen.subscribe_v1($1, $2, $3, now() + interval '1 day', true, true, $4)"
ENDS_OLD, ENDS_NEW = (
    f"SELECT part_id, next_off, last_at FROM queen.{table} ORDER BY 1" for table in ("partition_lookup", "log_ends")
)
#: Whatever a schema has, in words that do not depend on when it was made.
SCHEMA = """
SELECT p.oid::regprocedure::text || ' ' || pg_get_function_result(p.oid) || md5(p.prosrc)
FROM pg_proc AS p WHERE p.pronamespace IN ('queen'::regnamespace, 'simple_mq'::regnamespace)
UNION ALL SELECT concat_ws(' ', table_schema, table_name, column_name, data_type, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema IN ('queen', 'simple_mq')
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname IN ('queen', 'simple_mq')
UNION ALL SELECT conrelid::regclass::text || conname || pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace IN ('queen'::regnamespace, 'simple_mq'::regnamespace)
UNION ALL SELECT relname || obj_description(oid) FROM pg_class WHERE relnamespace = 'queen'::regnamespace
ORDER BY 1
"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection for the length of the block."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def url(postgres: str) -> AsyncIterator[str]:
    """A database of the released version."""
    url = await create_database(postgres)
    async with connected(url) as connection, connection.transaction():
        await connection.execute("CREATE SCHEMA queen")
        await connection.execute(
            "CREATE TABLE queen.migrations"
            " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        for script in scripts("migrations"):
            if script.name <= LAST_RELEASED:
                await connection.execute(script.read_text())
                await connection.execute("INSERT INTO queen.migrations (name) VALUES ($1)", script.name)
        await connection.execute(lzma.decompress(RELEASED.read_bytes()).decode())
    yield url
    await drop_database(postgres, url)


async def push(connection: Connection, parts: list[int], messages: int) -> None:
    """Appends a segment to each partition."""
    payloads = [b"%d" % number for number in range(messages)]
    ends = encode_ends([len(payload) + 13 for payload in payloads])
    count = len(parts)
    data = [b"[" + encode_plain(payloads) + b"]"] * count
    await connection.fetch(PUSH, uuid4(), sorted(parts), [messages] * count, data, [ends] * count)


async def pop(
    connection: Connection, sql: str, lease: UUID | None, group: int, part: int | None
) -> dict[int, list[int]]:
    """The offsets that a pop delivers, by partition."""
    found: dict[int, list[int]] = {}
    for row in await connection.fetch(sql, lease, group, part):
        if row["pop"] is not None:
            offsets = range(row["off"], row["off"] + len(row["ends"]) // 4)
            found.setdefault(row["part_id"], []).extend(off for off in offsets if off not in (row["skip"] or ()))
    return found


async def fill(connection: Connection, leases: list[UUID]) -> tuple[dict[str, int], int]:
    """Data of every kind; the partitions, and a group that has consumed."""
    rows = await connection.fetch(
        "SELECT part_id FROM queen.resolve_partitions_v1($1, $2, true)", [QUEUE] * len(PLACES), PLACES
    )
    parts = {name: row["part_id"] for name, row in zip(PLACES, rows, strict=True)}
    written = [part for name, part in parts.items() if name != "new"]
    await push(connection, written, 2)
    await push(connection, written, 4)
    group = (await connection.fetchrow(SUBSCRIBE, QUEUE, "g", "all", 1000))["grp_id"]
    for name in ("emptied", "parked"):
        assert await pop(connection, POP_OLD, None, group, parts[name]) == {parts[name]: ALL[:6]}
        await pop(connection, POP_OLD, None, group, parts[name])
    for name, lease in zip(("ahead", "failed", "leased"), leases, strict=True):
        await pop(connection, POP_OLD, lease, group, parts[name])
    await connection.fetch(ACK, parts["ahead"], group, leases[0], "c", 1)
    await connection.fetch(ACK, parts["failed"], group, leases[1], "f", 2)
    assert await connection.fetchval("SELECT queen.delete_message_v1($1, 1, NULL)", parts["cut"])
    queue_id = await connection.fetchval(
        "UPDATE queen.queues SET retention_enabled = true, retention_seconds = 60 RETURNING id"
    )
    await connection.execute(
        "UPDATE queen.segments SET created_at = created_at - interval '1 h' WHERE part_id = $1", parts["emptied"]
    )
    await connection.fetch(
        "SELECT * FROM queen.remove_expired_v1($1, ARRAY[$2::bigint], ARRAY[-1], 1000, true)",
        queue_id,
        parts["emptied"],
    )
    assert (await connection.fetchrow(SUBSCRIBE, QUEUE, "later", "timestamp", 1000))["complete"] is True
    assert (await connection.fetchrow(SUBSCRIBE, QUEUE, "half", "all", 3))["complete"] is False
    return parts, group


async def schema_of(url: str) -> list[str]:
    async with connected(url) as connection:
        rows: list[Any] = await connection.fetch(SCHEMA)
    return [row[0] for row in rows]


async def test_the_schema_is_that_of_a_new_database(postgres: str, url: str) -> None:
    """Procedures whose arguments or results have changed would stand beside the new ones, or in their way."""
    assert (await prepare(url, TIMEOUT_MS)).applied[0] > LAST_RELEASED
    new = await create_database(postgres)
    await prepare(new, TIMEOUT_MS)
    assert await schema_of(url) == await schema_of(new)
    await drop_database(postgres, new)


@checks("G-DUR-1", "G-DUR-2", level=Level.LIVE)
async def test_an_upgrade_keeps_messages_and_cursors(url: str) -> None:
    leases = [uuid4() for _ in range(3)]
    async with connected(url) as connection:
        parts, group = await fill(connection, leases)
        ends = await connection.fetch(ENDS_OLD)
    await prepare(url, TIMEOUT_MS)
    async with connected(url) as connection:
        assert await connection.fetch(ENDS_NEW) == ends
        await push(connection, list(parts.values()), 1)
        await connection.execute("SELECT queen.release_leases_v1($1)", leases)
        by_name = dict.fromkeys(PLACES, ALL) | {"emptied": [6], "cut": [0, *ALL[2:]], "new": [0]}
        kept = {parts[name]: offsets for name, offsets in by_name.items()}
        left = kept | {parts["parked"]: [6], parts["ahead"]: [0, *ALL[2:]]}
        assert await pop(connection, POP_NEW, None, group, None) == left
        half = await connection.fetchrow(SUBSCRIBE, QUEUE, "half", "all", 1000)
        assert half is not None
        assert half["complete"] is True
        assert await pop(connection, POP_NEW, None, half["grp_id"], None) == kept
        rows = await connection.fetch("SELECT part_id, grp_id FROM queen.partition_consumers")
        groups = await connection.fetch("SELECT id FROM queen.consumer_groups_metadata")
    expected = sorted((part, group["id"]) for part in parts.values() for group in groups)
    assert sorted(map(tuple, rows)) == expected
