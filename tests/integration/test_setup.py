"""Making and upgrading the schema."""

import asyncio
import hashlib
import json
import struct
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from queen.core.errors import DatabaseSetupError, DatabaseUnavailableError
from queen.postgres.setup import _LOCK, check_version, prepare, scripts
from tests.support.api import Api, open_client
from tests.support.cut import line_to
from tests.support.processes import PATIENCE_S, Server, open_folder, run
from tests.support.servers import create_database, drop_database, serving_database

TIMEOUT_MS = 10_000
LATEST = [script.name for script in scripts("migrations")]


@pytest.fixture
async def empty(postgres: str) -> AsyncIterator[str]:
    """The connection string of an empty database."""
    url = await create_database(postgres)
    yield url
    await drop_database(postgres, url)


async def query(url: str, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *arguments)]
    finally:
        await connection.close()


async def applied(url: str) -> list[str]:
    return [name for (name,) in await query(url, "SELECT name FROM queen.migrations ORDER BY name")]


async def init(url: str) -> tuple[int, str]:
    """`queen init`: exit code and all that it prints."""
    done = await asyncio.to_thread(run, "init", DATABASE_URL=url)
    return done.returncode, done.stdout + done.stderr


async def test_setup_of_an_empty_database_by_many_at_once_is_safe(empty: str) -> None:
    infos, processes = await asyncio.gather(
        asyncio.gather(*[prepare(empty, TIMEOUT_MS) for _ in range(6)]),
        asyncio.gather(*[init(empty) for _ in range(2)]),
    )
    assert all(code == 0 for code, _ in processes), processes
    firsts = [info for info in infos if info.applied] + [text for _, text in processes if "applied" in text]
    assert len(firsts) == 1, "one applies the migrations, the others find them applied"
    assert await applied(empty) == LATEST


async def test_setup_twice_changes_nothing_and_says_so(empty: str) -> None:
    code, text = await init(empty)
    assert code == 0
    assert ", ".join(LATEST) in text
    functions = "SELECT oid, proname, prosrc FROM pg_proc WHERE pronamespace = 'queen'::regnamespace ORDER BY oid"
    before = await query(empty, functions)
    code, text = await init(empty)
    assert code == 0
    assert "up to date" in text
    assert await query(empty, functions) == before
    assert await applied(empty) == LATEST


async def test_setup_beside_a_running_server_fails_no_request(server: Server, api: Api, queue: str) -> None:
    async def work(number: int) -> None:
        for n in range(15):
            name = f"{queue}-{number}-{n % 4}"
            await api.push(name, n, ids=[str(n)])
            messages = (await api.pop(name)).messages
            assert messages
            assert all(result["success"] for result in await api.ack(messages))
            if n % 4 == 3:
                await api.delete(name)

    async with asyncio.timeout(240):
        infos, *_ = await asyncio.gather(
            asyncio.gather(*[prepare(server.dsn, TIMEOUT_MS) for _ in range(4)]), *[work(n) for n in range(8)]
        )
    assert all(info.applied == () for info in infos)


async def test_setup_with_a_schema_newer_than_the_code_is_refused_and_changes_nothing(empty: str) -> None:
    await prepare(empty, TIMEOUT_MS)
    await query(empty, "INSERT INTO queen.migrations (name) VALUES ('9999_future.sql')")
    await query(empty, "DROP FUNCTION queen.renew_lease_v1")
    with pytest.raises(DatabaseSetupError, match=r"newer than this version of Queen.*9999_future\.sql"):
        await prepare(empty, TIMEOUT_MS)
    code, text = await init(empty)
    assert code != 0
    lines = [line for line in text.splitlines() if line]
    assert len(lines) == 1, "one clear line"
    assert "9999_future.sql" in lines[0]
    done = await asyncio.to_thread(run, "serve", "--port", "0", DATABASE_URL=empty)
    assert done.returncode != 0
    assert "9999_future.sql" in done.stderr + done.stdout
    assert await query(empty, "SELECT 1 FROM pg_proc WHERE proname = 'renew_lease_v1'") == []


async def test_setup_that_fails_half_way_leaves_nothing(empty: str) -> None:
    await query(empty, "CREATE SCHEMA queen")
    await query(empty, "CREATE TABLE queen.system_state (other int)")
    with pytest.raises(DatabaseSetupError, match="refused the schema"):
        await prepare(empty, TIMEOUT_MS)
    assert await query(empty, "SELECT to_regclass('queen.queues'), to_regclass('queen.migrations')") == [(None, None)]
    await query(empty, "DROP TABLE queen.system_state")
    assert (await prepare(empty, TIMEOUT_MS)).applied == tuple(LATEST)


async def test_a_connection_lost_amid_a_migration_ends_in_one_line(empty: str) -> None:
    holder = await asyncpg.connect(empty)
    try:
        await holder.execute("SELECT pg_advisory_lock($1)", _LOCK)
        setup = asyncio.create_task(init(empty))
        waiting = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'advisory' AND pid <> pg_backend_pid()"
        )
        async with asyncio.timeout(PATIENCE_S):
            while not await query(empty, waiting):
                assert not setup.done()
        code, text = await setup
    finally:
        await holder.close()
    assert code == 1
    assert len(text.splitlines()) == 1, text
    assert "was lost during the setup of the schema" in text


async def test_a_line_cut_amid_the_set_up_is_an_error_that_says_so(postgres: str) -> None:
    if "host=" not in postgres:
        pytest.skip("QUEEN_TEST_DSN names no Unix socket")
    with line_to(postgres) as line:
        line.cutting = True
        with pytest.raises(DatabaseUnavailableError, match="was lost during the setup of the schema"):
            await prepare(line.dsn, TIMEOUT_MS)


async def test_setup_by_a_user_without_the_right_is_refused_clearly(postgres: str, empty: str) -> None:
    user = f"nobody_{uuid4().hex[:8]}"
    await query(postgres, f"CREATE ROLE {user} LOGIN")
    try:
        url = empty.replace("postgresql://postgres@", f"postgresql://{user}@")
        if url == empty:
            pytest.skip("QUEEN_TEST_DSN names another user than postgres")
        code, text = await init(url)
        assert code != 0
        assert "has no permission" in text
        assert "Traceback" not in text
    finally:
        await query(postgres, f"DROP ROLE {user}")


@pytest.mark.parametrize(("number", "accepted"), [(130022, False), (139999, False), (140000, True), (180004, True)])
def test_setup_needs_postgresql_14(number: int, accepted: bool) -> None:
    if accepted:
        check_version(number, "text")
        return
    with pytest.raises(DatabaseSetupError, match=r"13\.22 is too old.*14"):
        check_version(number, "13.22")


_UNCOMMENTED = """
SELECT 'relation ' || c.relname FROM pg_class AS c
WHERE
    c.relnamespace = 'queen'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p')
    AND obj_description(c.oid, 'pg_class') IS NULL
UNION ALL
SELECT 'procedure ' || p.proname FROM pg_proc AS p
WHERE p.pronamespace = 'queen'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
ORDER BY 1
"""


async def test_setup_explains_every_table_view_and_procedure(empty: str) -> None:
    await prepare(empty, TIMEOUT_MS)
    assert [name for (name,) in await query(empty, _UNCOMMENTED)] == []


async def test_setup_leaves_the_public_schema_alone(empty: str) -> None:
    await prepare(empty, TIMEOUT_MS)
    outside = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    assert await query(empty, outside) == []


# ---------------------------------------------------------------- upgrade


async def first_state(url: str) -> None:
    """A database as the first migration leaves it, with data as the procedures of that time wrote it.

    The rows stand here as they are, so that they stay what they were when the procedures have moved on: queue `old`
    with messages a, b, c in partition `p` (b under the transaction id `tb`), of which group `g` has completed the
    first, and one dead letter.
    """
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("CREATE SCHEMA queen")
            await connection.execute(
                "CREATE TABLE queen.migrations "
                "(name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            )
            first = scripts("migrations")[0]
            assert first.name == "0001_log.sql"
            await connection.execute(first.read_text())
            await connection.execute("INSERT INTO queen.migrations (name) VALUES ($1)", first.name)
            await _fill(connection)
    finally:
        await connection.close()


async def _fill(connection: "asyncpg.Connection[Any]") -> None:
    entries = [b'{"payload":"a"}', b'{"transactionId":"tb","payload":"b"}', b'{"payload":"c"}']
    data = b"[" + b",".join(entries) + b"]"
    ends = [sum(len(entry) + 1 for entry in entries[: n + 1]) for n in range(3)]
    digest = hashlib.sha256(b"tb").digest()[:16]
    queue = await connection.fetchval(
        "INSERT INTO queen.queues (name, namespace, task, lease_time, retry_limit) "
        "VALUES ('old', 'n', 't', 77, 1) RETURNING id"
    )
    part = await connection.fetchval(
        "INSERT INTO queen.partitions (queue_id, name) VALUES ($1, 'p') RETURNING id", queue
    )
    await connection.execute(
        "INSERT INTO queen.partition_lookup (part_id, next_off, last_at, parked) VALUES ($1, 3, now(), false)", part
    )
    await connection.execute(
        "INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data) "
        "VALUES ($1, 2, 3, now(), $2, $3, $4, $5)",
        part, uuid4(), b"\0" * 16 + digest + b"\0" * 16, struct.pack(">3I", *ends), data,
    )  # fmt: skip
    await connection.execute(
        "INSERT INTO queen.transaction_ids (part_id, hash, off) VALUES ($1, $2, 1)", part, UUID(bytes=digest)
    )
    group = await connection.fetchval(
        "INSERT INTO queen.consumer_groups_metadata "
        "(queue_id, name, subscription_mode, since, subscribed_upto, created_at) "
        "VALUES ($1, 'g', 'all', '-infinity', 9223372036854775807, now()) RETURNING id",
        queue,
    )
    await connection.execute(
        "INSERT INTO queen.partition_consumers (part_id, grp_id, acked, upto, seen, ready_at) "
        "VALUES ($1, $2, 0, 0, 0, now())",
        part, group,
    )  # fmt: skip
    await connection.execute(
        "INSERT INTO queen.dead_letter_queue "
        "(queue_id, part_id, off, grp_id, consumer_group, transaction_id, payload, error, "
        "retry_count, created_at, failed_at) VALUES ($1, $2, 0, $3, 'g', 'ta', '\"a\"', 'boom', 1, now(), now())",
        queue, part, group,
    )  # fmt: skip


async def test_upgrade_from_the_first_migration_keeps_data_and_goes_on_with_it(empty: str) -> None:
    await first_state(empty)
    info = await prepare(empty, TIMEOUT_MS)
    assert list(info.applied) == LATEST[1:]
    assert await applied(empty) == LATEST
    log = await query(
        empty, "SELECT queue, partition, off, transaction_id, payload::text FROM queen.messages ORDER BY off"
    )
    assert [(q, p, off, json.loads(payload)) for q, p, off, _, payload in log] == [
        ("old", "p", 0, "a"),
        ("old", "p", 1, "b"),
        ("old", "p", 2, "c"),
    ]
    assert log[1][3] == "tb"
    with open_folder() as folder, serving_database(empty, folder, "--workers", "1") as server:
        async with open_client(server.port) as http:
            await _use(Api(http))
    dead = "SELECT payload::text, error, retry_count FROM queen.dead_letter_queue ORDER BY id"
    assert await query(empty, dead) == [('"a"', "boom", 1), ('"c"', "late", 1)]


async def _use(api: Api) -> None:
    (duplicate, new) = await api.push("old", "again", "d", partition="p", ids=["tb", "td"])
    assert (duplicate["status"], new["status"]) == ("duplicate", "queued")
    popped = await api.pop("old", batch=10, consumerGroup="g")
    assert popped.data == ["b", "c", "d"]
    assert [message["offset"] for message in popped.messages] == [1, 2, 3]
    await api.ack(popped.messages[:1])
    await api.ack(popped.messages[1:2], "failed")
    popped = await api.pop("old", batch=10, consumerGroup="g")
    assert popped.data == ["c", "d"]
    (result,) = await api.ack(popped.messages[:1], "failed", error="late")
    assert result["dlq"] is True, "the queue's retryLimit is 1"
    assert (await api.pop("old", batch=10, consumerGroup="other")).data == ["a", "b", "c", "d"]
    assert (await api.pop_label(namespace="n", task="t")).data == ["a"]
