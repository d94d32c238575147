"""Pops and acks with SQL: a message is done if and only if the caller's transaction commits."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.clock import eventually
from tests.support.locks import Connection
from tests.support.processes import Server

#: The number of cursors of a queue that …
CURSORS = (
    "SELECT count(*) FROM queen.partition_consumers AS c JOIN queen.partitions AS p ON p.id = c.part_id"
    " JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = $1 AND "
)
POP = "SELECT * FROM queen.pop($1, batch => $2, partitions => $3, lease_seconds => $4)"


@pytest.fixture
async def other(server: Server) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(server.dsn)
    yield connection
    await connection.close()


async def pop(
    connection: Connection, queue: str, batch: int = 1, partitions: int = 1, seconds: int | None = None
) -> Any:
    return await connection.fetch(POP, queue, batch, partitions, seconds)


async def ack(connection: Connection, lease: UUID, **arguments: Any) -> None:
    names = "".join(f", {name} => ${number}" for number, name in enumerate(arguments, 2))
    await connection.execute(f"SELECT queen.ack($1{names})", lease, *arguments.values())


async def filled(
    api: Api, connection: Connection, queue: str, partitions: int = 1, messages: int = 1, **options: Any
) -> None:
    """A queue whose partitions p0, p1, … became ready in this order; payloads are [partition, number]."""
    await api.configure(queue, **options)
    await connection.execute("SELECT queen.subscribe($1)", queue)
    for partition in range(partitions):
        await api.push(queue, *[[partition, number] for number in range(messages)], partition=f"p{partition}")


def data(rows: Any) -> list[Any]:
    return [row["payload"] for row in rows]


@asynccontextmanager
async def opened(connection: Connection) -> AsyncIterator[None]:
    """A transaction that is rolled back at the end."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


@checks("G-SQL-1", level=Level.LIVE)
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_messages_are_done_if_and_only_if_the_transaction_commits(
    api: Api, database: Connection, queue: str, auto_ack: bool
) -> None:
    await filled(api, database, queue, messages=3)
    for commits in (False, True):
        transaction = database.transaction()
        await transaction.start()
        rows = await database.fetch("SELECT * FROM queen.pop($1, batch => 2, auto_ack => $2)", queue, auto_ack)
        assert [(row["payload"], row["off"], row["delivery_attempt"]) for row in rows] == [
            ("[0, 0]", 0, 1), ("[0, 1]", 1, 1),
        ]  # fmt: skip
        if auto_ack:
            assert {row["lease_id"] for row in rows} == {None}
        else:
            await ack(database, rows[0]["lease_id"])
        await (transaction.commit() if commits else transaction.rollback())
    assert (await api.pop(queue, batch=5)).data == [[0, 2]]
    assert await database.fetchval("SELECT count(*) FROM queen.open_cursors") == 0


async def test_a_pop_whose_auto_ack_is_null_has_a_lease(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue)
    lease = await database.fetchval("SELECT lease_id FROM queen.pop($1, auto_ack => NULL)", queue)
    await ack(database, lease)


@checks("G-SQL-1", level=Level.LIVE)
async def test_a_savepoint_undoes_a_pop(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue, messages=2)
    async with database.transaction():
        async with opened(database):
            assert data(await pop(database, queue)) == ["[0, 0]"]
        [row] = await pop(database, queue)
        assert row["payload"] == "[0, 0]"
        async with opened(database):
            await ack(database, row["lease_id"])
        await ack(database, row["lease_id"])
        [second] = await pop(database, queue)
        await ack(database, second["lease_id"], status="retry")
    [message] = (await api.pop(queue, batch=2)).messages
    assert (message["data"], message["deliveryAttempt"]) == ([0, 1], 2)


@checks("G-SQL-1", level=Level.LIVE)
async def test_the_answer_is_that_of_a_pop_over_http(api: Api, database: Connection, queue: str) -> None:
    await api.configure(queue)
    await database.execute("SELECT queen.subscribe($1)", queue)
    await database.execute("SELECT queen.subscribe($1, 'http')", queue)
    await api.push_items([
        {"queue": queue, "partition": "alice", "payload": {"é": [1, None]}, "transactionId": "order-1"},
        {"queue": queue, "partition": "alice", "payload": "tea"},
    ])  # fmt: skip
    rows = await pop(database, queue, 10)
    messages = (await api.pop(queue, consumerGroup="http", batch=10)).messages
    for row, message in zip(rows, messages, strict=True):
        assert str(row["message_id"]) == message["id"]
        assert (row["transaction_id"], row["partition"]) == (message["transactionId"], message["partition"])
        assert row["created_at"].isoformat(timespec="milliseconds")[:23] == message["createdAt"][:23]
        assert (row["delivery_attempt"], row["trace_id"]) == (message["deliveryAttempt"], message["traceId"])
    assert data(rows) == ['{"é": [1, null]}', '"tea"']


@checks("G-SQL-2", level=Level.LIVE)
async def test_a_lease_of_sql_is_a_lease(api: Api, database: Connection, other: Connection, queue: str) -> None:
    """It excludes others after the commit, HTTP acks it, and SQL acks leases of HTTP."""
    await filled(api, database, queue, messages=3)
    [row] = await pop(database, queue, seconds=30)
    assert (await api.pop(queue)).messages == []
    assert await pop(other, queue) == []
    part = await database.fetchval("SELECT queen.partition_uuid(part_id) FROM queen.messages WHERE queue = $1", queue)
    named = {"transactionId": row["transaction_id"], "leaseId": str(row["lease_id"])}
    [result] = await api.ack([{**named, "partitionId": str(part), "consumerGroup": None}])
    assert result["success"], result
    [message] = (await api.pop(queue)).messages
    await ack(database, UUID(message["leaseId"]), message_id=UUID(message["id"]))
    [row] = await pop(database, queue)
    assert row["payload"] == "[0, 2]"


@checks("G-SQL-2", level=Level.LIVE)
async def test_the_lease_begins_with_the_commit_and_lives_until_then(
    api: Api, database: Connection, queue: str
) -> None:
    """A transaction that takes longer than its lease can ack, because it alone can have had the messages."""
    await filled(api, database, queue, messages=2)
    async with database.transaction():
        [row] = await pop(database, queue, seconds=1)
        await database.execute("SELECT pg_sleep(1.1)")
        assert (await api.pop(queue)).messages == []
        await ack(database, row["lease_id"])
        [row] = await pop(database, queue, seconds=1)
        await database.execute("SELECT pg_sleep(1.1)")
    [lease] = await database.fetch(
        "SELECT ready_at - clock_timestamp() AS left FROM queen.partition_consumers WHERE lease = $1", row["lease_id"]
    )
    assert 0 < lease["left"].total_seconds() <= 1
    [message] = (await api.pop(queue, wait=True, timeout=10_000)).messages
    assert (message["data"], message["deliveryAttempt"]) == ([0, 1], 2)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="Invalid or expired lease"):
        await ack(database, row["lease_id"])


@checks("G-SQL-2", level=Level.LIVE)
async def test_what_is_done_cannot_be_acked_again(api: Api, database: Connection, queue: str) -> None:
    """Or a transaction that is repeated, because its answer was lost, would do its work twice."""
    await filled(api, database, queue, messages=2)
    rows = await pop(database, queue, 2)
    lease = rows[0]["lease_id"]
    await ack(database, lease, message_id=rows[0]["message_id"])
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="Message already completed"):
        await ack(database, lease, message_id=rows[0]["message_id"])
    await ack(database, lease)
    for arguments in ({}, {"message_id": rows[1]["message_id"]}):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="Invalid or expired lease"):
            await ack(database, lease, **arguments)


@checks("G-SQL-2", level=Level.LIVE)
async def test_failures_follow_the_rules_of_the_queue(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue, messages=3, retryLimit=1, retryDelay=0)
    for attempt in (1, 2):
        rows = await pop(database, queue, 3)
        assert [row["delivery_attempt"] for row in rows] == [attempt] * 3
        await database.execute(
            "SELECT queen.ack_many($1, $2, 'failed', 'no tea')", rows[0]["lease_id"], [rows[0]["message_id"]]
        )
        if attempt == 1:
            continue
        await ack(database, rows[1]["lease_id"], message_id=rows[1]["message_id"], status="dlq", error="broken")
    letters = await database.fetch(
        "SELECT d.off, d.error, d.retry_count FROM queen.dead_letter_queue AS d"
        " JOIN queen.queues AS q ON q.id = d.queue_id"
        " WHERE q.name = $1 ORDER BY d.off",
        queue,
    )
    assert list(map(tuple, letters)) == [(0, "no tea", 1), (1, "broken", 0)]
    await ack(database, rows[2]["lease_id"])
    assert (await api.pop(queue)).messages == []
    await api.push(queue, "next", partition="p0")
    assert (await api.pop(queue, batch=3)).data == ["next"]


@checks("G-SQL-3", level=Level.LIVE)
async def test_an_open_transaction_holds_only_its_own_partitions(
    api: Api, database: Connection, other: Connection, queue: str
) -> None:
    """Neither pushes nor pops nor acks wait, not even pushes to the partition that it holds."""
    await filled(api, database, queue, partitions=4)
    async with opened(other):
        [row] = await pop(other, queue)
        assert row["payload"] == "[0, 0]"
        await ack(other, row["lease_id"])
        assert data(await pop(other, queue)) == ["[1, 0]"]
        await api.push(queue, "more", partition="p0")
        await api.push(queue, "more", partition="p1")
        for partition in (2, 3):
            [message] = (await api.pop(queue)).messages
            assert message["data"] == [partition, 0]
            [result] = await api.ack([message])
            assert result["success"]
        assert (await api.pop(queue)).messages == []
        assert await pop(database, queue) == []
        locks = await database.fetch(
            "SELECT DISTINCT l.locktype FROM pg_locks AS l WHERE l.pid = $1 AND l.locktype = 'advisory'",
            other.get_server_pid(),
        )
        assert locks == []
    found = []
    for _ in range(2):
        popped = await api.pop(queue, batch=5)
        found.append(popped.data)
        await api.ack(popped.messages)
    assert sorted(found, key=str) == [[[0, 0], "more"], [[1, 0], "more"]]


@checks("G-SQL-3", level=Level.LIVE)
async def test_a_pop_holds_no_partition_in_which_it_finds_nothing(
    api: Api, database: Connection, other: Connection, queue: str
) -> None:
    """Cursors with delayed messages are ready until a pop looks; the commit puts them off."""
    await filled(api, database, queue, partitions=3)
    await api.configure(queue, delayedProcessing=3600)
    async with other.transaction():
        assert await pop(other, queue, 10, 10) == []
        free = "NOT queen.is_cursor_locked(c.part_id, c.grp_id)"
        assert await database.fetchval(CURSORS + free, queue) == 4
        await api.push(queue, "more", partition="p0")
    later = await database.fetchval(CURSORS + "c.ready_at > now() + interval '1 min'", queue)
    assert later == 4


@checks("G-SQL-2", "G-POP-2", level=Level.LIVE)
async def test_partitions_come_in_the_order_in_which_they_became_ready(
    api: Api, database: Connection, queue: str
) -> None:
    await filled(api, database, queue, partitions=5, messages=2)
    assert data(await pop(database, queue, 3, 2)) == ["[0, 0]", "[0, 1]", "[1, 0]"]
    [message] = (await api.pop(queue)).messages
    assert message["data"] == [2, 0]
    assert data(await pop(database, queue, 1, 64)) == ["[3, 0]"]
    [row] = await database.fetch("SELECT * FROM queen.pop($1, partition => 'p4')", queue)
    assert row["payload"] == "[4, 0]"
    assert await database.fetch("SELECT * FROM queen.pop($1, partition => 'p4')", queue) == []
    assert await database.fetch("SELECT * FROM queen.pop($1, partition => 'unknown')", queue) == []


@checks("G-SQL-2", level=Level.LIVE)
@pytest.mark.parametrize("ends", ["commits", "rolls back", "dies"])
async def test_a_long_poll_gets_what_a_transaction_sets_free(
    server: Server, api: Api, database: Connection, queue: str, ends: str
) -> None:
    await filled(api, database, queue, messages=2)
    connection = await asyncpg.connect(server.dsn)
    transaction = connection.transaction()
    await transaction.start()
    [row] = await pop(connection, queue)
    await ack(connection, row["lease_id"])
    waiting = asyncio.ensure_future(api.pop(queue, wait=True, timeout=20_000))
    await database.execute("SELECT pg_sleep(0.5)")
    assert not waiting.done()
    began = time.monotonic()
    if ends == "commits":
        await transaction.commit()
    elif ends == "rolls back":
        await transaction.rollback()
    else:
        await database.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
    assert (await waiting).data == [[0, 1] if ends == "commits" else [0, 0]]
    waited = time.monotonic() - began
    print(f"{ends}: {waited:.3f} s")
    assert waited < 2
    await connection.close()


@pytest.mark.parametrize(
    ("arguments", "state", "text"),
    [
        ("'no such queue'", "42704", "unknown queue: 'no such queue'"),
        ("NULL", "42704", "unknown queue: NULL"),
        ("$1, 'nobody'", "42704", "the queue $1 has no consumer group 'nobody'"),
        ("$1, batch => 0", "22023", "batch must be 1 to 10000"),
        ("$1, batch => NULL", "22023", "batch must be 1 to 10000"),
        ("$1, partitions => 65", "22023", "partitions must be 1 to 64"),
        ("$1, lease_seconds => 0", "22023", "lease_seconds must be 1 to 604800"),
    ],
)  # fmt: skip
async def test_what_is_no_pop_is_refused(
    api: Api, database: Connection, queue: str, arguments: str, state: str, text: str
) -> None:
    await filled(api, database, queue)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await database.execute(f"SELECT queen.pop({arguments})".replace("$1", f"'{queue}'"))
    assert (refused.value.sqlstate, refused.value.as_dict()["message"]) == (state, text.replace("$1", f"'{queue}'"))


@pytest.mark.parametrize(
    ("arguments", "state", "text"),
    [
        ("NULL", "55000", "Invalid or expired lease: NULL"),
        ("gen_random_uuid()", "55000", "Invalid or expired lease"),
        ("$1, status => 'fine'", "22023", "unknown status: 'fine'"),
        ("$1, status => NULL", "22023", "unknown status: NULL"),
        ("$1, gen_random_uuid()", "55000", "Message not delivered under this lease"),
        ("$1, '$2'", "55000", "Message not delivered under this lease"),
    ],
)
async def test_what_is_no_ack_is_refused(
    api: Api, database: Connection, queue: str, arguments: str, state: str, text: str
) -> None:
    await filled(api, database, queue, messages=2)
    [row] = await pop(database, queue)
    second = await database.fetchval("SELECT id FROM queen.messages WHERE queue = $1 AND off = 1", queue)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await database.execute(
            f"SELECT queen.ack({arguments})".replace("$1", f"'{row['lease_id']}'").replace("$2", str(second))
        )
    assert refused.value.sqlstate == state
    assert refused.value.as_dict()["message"].startswith(text)


async def test_payloads_that_sql_cannot_have_hold_up_their_own_partition_only(
    api: Api, database: Connection, queue: str
) -> None:
    """Also not what is before them there, and they are named when nothing else is left."""
    await filled(api, database, queue, partitions=2)
    await api.push(queue, {"a": "\x00"}, partition="p0")
    await api.push(queue, [1, 1], partition="p1")
    found = []
    for _ in range(2):
        for row in await pop(database, queue, 2, 2):
            found.append(row["payload"])
            await ack(database, row["lease_id"], message_id=row["message_id"])
    assert sorted(found) == ["[0, 0]", "[1, 0]", "[1, 1]"]
    with pytest.raises(asyncpg.FeatureNotSupportedError, match=r"a payload is no jsonb: queue .*, partition 'p0'"):
        await pop(database, queue)


@checks("G-SQL-3", level=Level.LIVE)
async def test_a_seek_that_waits_for_an_open_transaction_makes_no_push_wait(
    api: Api, database: Connection, other: Connection, queue: str
) -> None:
    await filled(api, database, queue, partitions=2)
    async with opened(database):
        assert data(await pop(database, queue)) == ["[0, 0]"]
        seek = f"/api/v1/consumer-groups/__QUEUE_MODE__/queues/{queue}/seek"
        seeking = asyncio.create_task(api.http.post(seek, json={"toEnd": True}, timeout=60))
        waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
        await eventually(lambda: other.fetchval(waits), "a seek that waits for the cursor")
        for number in range(5):
            await api.push(queue, [1, number], partition="p1")
        assert not seeking.done()
    assert (await seeking).status_code == 200


@checks("G-SQL-1", level=Level.LIVE)
async def test_a_transaction_gets_no_message_again_because_it_takes_longer_than_its_lease(
    api: Api, database: Connection, queue: str
) -> None:
    await filled(api, database, queue, messages=2)
    async with opened(database):
        [row] = await pop(database, queue, seconds=1)
        await database.execute("SELECT pg_sleep(1.1)")
        assert await pop(database, queue, seconds=1) == []
        await ack(database, row["lease_id"])
        assert data(await pop(database, queue)) == ["[0, 1]"]


@checks("G-SQL-3", level=Level.LIVE)
async def test_a_pop_finds_what_is_behind_a_thousand_partitions_that_another_transaction_holds(
    api: Api, database: Connection, other: Connection, queue: str
) -> None:
    await filled(api, database, queue)
    items = [{"queue": queue, "partition": f"q{number:04}", "payload": number} for number in range(1_100)]
    assert (await api.http.post("/api/v1/push", json={"items": items})).status_code == 201
    async with opened(other):
        for _ in range(17):
            assert len(await pop(other, queue, 64, 64)) == 64
        assert len(await pop(database, queue, 64, 64)) == 1_101 - 17 * 64


async def test_other_isolation_levels_are_refused(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue)
    for call in (f"queen.pop('{queue}')", "queen.ack(gen_random_uuid())", f"queen.subscribe('{queue}')"):
        with pytest.raises(
            asyncpg.FeatureNotSupportedError, match="READ COMMITTED, and this transaction has SERIALIZABLE"
        ):
            async with database.transaction(isolation="serializable"):
                await database.execute(f"SELECT {call}")


async def test_pops_of_an_encrypted_queue_are_refused(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue)
    await database.execute("UPDATE queen.queues SET encryption_enabled = true WHERE name = $1", queue)
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="is encrypted, and the database has no key"):
        await pop(database, queue)


async def test_a_group_that_is_made_with_sql_begins_where_it_says(api: Api, database: Connection, queue: str) -> None:
    await api.configure(queue)
    await api.push(queue, 1)
    await database.execute("SELECT queen.subscribe($1, 'all')", queue)
    await database.execute("SELECT queen.subscribe($1, 'new', clock_timestamp())", queue)
    await database.execute("SELECT queen.subscribe($1, 'later', now() + interval '1 h')", queue)
    await api.push(queue, 2)
    pops = {
        group: data(await database.fetch("SELECT * FROM queen.pop($1, $2, batch => 5)", queue, group))
        for group in ("all", "new", "later")
    }
    assert pops == {"all": ["1", "2"], "new": ["2"], "later": []}
    with pytest.raises(asyncpg.InvalidParameterValueError, match="queue mode starts at the oldest message"):
        await database.execute("SELECT queen.subscribe($1, subscription_from => now())", queue)
    with pytest.raises(asyncpg.UndefinedObjectError, match="unknown queue: 'nothing'"):
        await database.execute("SELECT queen.subscribe('nothing')")


async def test_a_consumer_needs_the_right_to_call_and_no_other(
    server: Server, api: Api, database: Connection, queue: str
) -> None:
    await filled(api, database, queue)
    role = f"shop_{uuid4().hex[:8]}"
    await database.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA queen TO {role}")
    try:
        async with AsyncExitStack() as stack:
            consumer = await asyncpg.connect(server.dsn)
            stack.push_async_callback(consumer.close)
            await consumer.execute(f"SET ROLE {role}")
            for forbidden in (
                f"SELECT queen.pop('{queue}')", "SELECT queen.ack(gen_random_uuid())",
                "SELECT queen.ack_many(gen_random_uuid(), NULL)", f"SELECT queen.subscribe('{queue}')",
            ):  # fmt: skip
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await consumer.execute(forbidden)
            await database.execute(f"GRANT queen_consumer TO {role}")
            async with consumer.transaction():
                [row] = await pop(consumer, queue)
                await ack(consumer, row["lease_id"])
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await consumer.execute("SELECT * FROM queen.partition_consumers")
            await consumer.execute("SET queen.clock = '2100-01-01'")  # does not end leases of others
            assert await pop(consumer, queue) == []
    finally:
        await database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert (await api.pop(queue)).messages == []


async def test_what_is_paused_delivers_nothing(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue)
    for group in (None, "__QUEUE_MODE__"):
        await database.execute("SELECT queen.pause_v1($1, $2, true)", queue, group)
        assert await pop(database, queue) == []
        await database.execute("SELECT queen.pause_v1($1, $2, false)", queue, group)
    assert len(await pop(database, queue)) == 1


async def test_nothing_is_popped_under_pop_maintenance(api: Api, database: Connection, queue: str) -> None:
    await filled(api, database, queue)
    async with opened(database):
        await database.execute("SELECT queen.set_switch_v1('pop_maintenance_mode', true)")
        assert await pop(database, queue) == []
    assert len(await pop(database, queue)) == 1


@checks("G-SQL-3", level=Level.LIVE)
async def test_an_ack_over_http_in_a_held_partition_is_told_that_it_is_locked(
    api: Api, database: Connection, queue: str
) -> None:
    await filled(api, database, queue, partitions=2, messages=2)
    held, free = (await api.pop(queue)).messages, (await api.pop(queue)).messages
    async with opened(database):
        await ack(database, UUID(held[0]["leaseId"]))
        one = {name: held[0][name] for name in ("transactionId", "partitionId", "leaseId")}
        answer = await api.http.post("/api/v1/ack", json=one)
        assert (answer.status_code, answer.json()["code"]) == (503, "locked")
        assert [result["success"] for result in await api.ack(free)] == [True]
    assert [result["success"] for result in await api.ack(held)] == [True]


async def test_an_ack_of_what_another_transaction_has_acked_waits_as_long_as_the_caller_says(
    api: Api, database: Connection, other: Connection, queue: str
) -> None:
    await filled(api, database, queue)
    [row] = await pop(database, queue)
    async with opened(other):
        await ack(other, row["lease_id"])
        async with opened(database):
            await database.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await ack(database, row["lease_id"])
    await ack(database, row["lease_id"])


async def test_a_group_that_begins_later_is_completed_once_it_has_begun(
    api: Api, database: Connection, queue: str
) -> None:
    """The pop itself would lock the queue."""
    await filled(api, database, queue)
    await database.execute("SELECT queen.subscribe($1, 'soon', clock_timestamp() + interval '0.3 s')", queue)
    assert await database.fetch("SELECT * FROM queen.pop($1, 'soon')", queue) == []
    await database.execute("SELECT pg_sleep(0.3)")
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="has not begun in all partitions"):
        await database.fetch("SELECT * FROM queen.pop($1, 'soon')", queue)
    await database.execute("SELECT queen.subscribe($1, 'soon')", queue)
    await api.push(queue, "later", partition="p0")
    assert data(await database.fetch("SELECT * FROM queen.pop($1, 'soon')", queue)) == ['"later"']
