"""Pushing with SQL: messages exist if and only if the caller's transaction commits, once, in the order of commits."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from queen.postgres.outbox_store import by_partition
from queen.postgres.setup import prepare, scripts
from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.clock import eventually
from tests.support.processes import Server
from tests.support.servers import create_database, drop_database

#: The migration before which a row of the outbox had one message.
_ROWS_OF_CALLS = "0035_outbox_calls.sql"


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(server.dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def push(connection: "asyncpg.Connection[Any]", queue: str, *payloads: int, partition: str = "p") -> None:
    await connection.execute(
        "SELECT queen.push_many($1, $2::jsonb[], array_fill($3::text, ARRAY[$4::int]))",
        queue, list(map(str, payloads)), partition, len(payloads),
    )  # fmt: skip


async def popped(api: Api, queue: str, number: int) -> list[Any]:
    """The payloads of the next messages, acked; waits for so many."""
    found: list[Any] = []
    while len(found) < number:
        messages = (await api.pop(queue, batch=100, partitions=10, wait=True, timeout=30_000)).messages
        found += [message["data"] for message in messages]
        await api.ack(messages)
    return found


@checks("G-OUT-1", level=Level.LIVE)
async def test_a_pushed_message_exists_if_and_only_if_its_transaction_commits(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    transaction = database.transaction()
    await transaction.start()
    await push(database, queue, 1)
    await transaction.rollback()
    async with database.transaction():
        await push(database, queue, 2)
        inner = database.transaction()
        await inner.start()
        await push(database, queue, 3)
        await inner.rollback()
        await push(database, queue, 4)
    await push(database, queue, 5)
    assert await popped(api, queue, 3) == [2, 4, 5]
    assert await database.fetchval("SELECT count(*) FROM queen.outbox AS o JOIN queen.queues AS q ON q.id = o.queue_id"
                                   " WHERE q.name = $1", queue) == 0  # fmt: skip


@checks("G-OUT-2", level=Level.LIVE)
async def test_an_open_transaction_holds_no_other_one_back(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    async with connected(server) as other:
        open_one = other.transaction()
        await open_one.start()
        await push(other, queue, 1)
        for number in range(2, 5):
            await push(database, queue, number)
            assert await popped(api, queue, 1) == [number]
        await push(other, queue, 5)
        await open_one.commit()
    assert await popped(api, queue, 2) == [1, 5]


@checks("G-OUT-1", level=Level.LIVE)
async def test_a_transaction_id_is_stored_once(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    await api.push_items([{"queue": queue, "partition": "p", "payload": 1, "transactionId": "order-1"}])
    for payload, text in (("2", "order-1"), ("3", "order-2"), ("4", "order-2"), ("5", None)):
        await database.execute(
            "SELECT queen.push($1, $2::jsonb, partition => 'p', transaction_id => $3)", queue, payload, text
        )
    messages = []
    while len(messages) < 3:
        pop = await api.pop(queue, batch=10, wait=True, timeout=30_000)
        messages += pop.messages
        await api.ack(pop.messages)
    assert [message["data"] for message in messages] == [1, 3, 5]
    assert [message["transactionId"] for message in messages][:2] == ["order-1", "order-2"]


@checks("G-OUT-1", level=Level.LIVE)
async def test_a_waiting_long_poll_gets_what_is_moved(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    """It is leased to it, or done, in the transaction of the move."""
    await api.configure(queue)
    await push(database, queue, 0, 1)
    assert await popped(api, queue, 2) == [0, 1]
    assert len((await api.pop(queue, consumerGroup="g", batch=10, autoAck=True, subscriptionMode="all")).messages) == 2
    for number in range(2, 8):
        polls = [
            asyncio.create_task(api.pop(queue, wait=True, timeout=30_000, autoAck=number % 2 == 1)),
            asyncio.create_task(api.pop(queue, consumerGroup="g", batch=10, wait=True, timeout=30_000)),
        ]
        await push(database, queue, number)
        for poll in polls:
            messages = (await poll).messages
            assert [message["data"] for message in messages] == [number]
            if poll is polls[1] or number % 2 == 0:
                await api.ack(messages)
    assert (await api.pop(queue)).messages == []


async def test_a_message_goes_to_the_default_partition_and_keeps_its_value(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    await database.execute('SELECT queen.push($1, \'{"item": "tea", "é": [1, null]}\')', queue)
    [message] = (await api.pop(queue, wait=True, timeout=30_000)).messages
    assert (message["partition"], message["data"]) == ("Default", {"item": "tea", "é": [1, None]})


async def test_messages_carry_the_trace_context_of_their_transaction(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for number, (setting, text) in enumerate(((context, None), ("no context", "id"), (context, "other id"))):
        async with database.transaction():
            await database.execute("SELECT set_config('queen.traceparent', $1, true)", setting)
            await database.execute(
                "SELECT queen.push($1, to_jsonb($2::int), transaction_id => $3)", queue, number, text
            )
            await database.execute("SELECT queen.push($1, to_jsonb($2::int), deliver_at => now())", queue, 10 + number)
    await push(database, queue, 3, partition="Default")
    found = {}
    while len(found) < 7:
        messages = (await api.pop(queue, batch=10, wait=True, timeout=30_000)).messages
        found |= {message["data"]: message.get("traceparent") for message in messages}
        await api.ack(messages)
    assert found == {0: context, 1: None, 2: context, 3: None, 10: context, 11: None, 12: context}


async def test_messages_of_a_deleted_queue_are_dropped(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    await api.configure(f"{queue}-other")
    async with connected(server) as other, other.transaction():
        await push(other, queue, 1)
        await push(other, f"{queue}-other", 2)
        await api.http.delete(f"/api/v1/resources/queues/{queue}")
        await api.configure(queue)
    assert await popped(api, f"{queue}-other", 1) == [2]
    assert (await api.pop(queue)).messages == []


@pytest.mark.parametrize(
    ("arguments", "state", "text"),
    [
        ("'no such queue', '1'::jsonb", "42704", "unknown queue: 'no such queue'"),
        ("NULL, '1'::jsonb", "42704", "unknown queue: NULL"),
        ("$1, NULL::jsonb", "22004", "message 1: the payload is NULL"),
        ("$1, '1'::jsonb, ''", "22023", "message 1: the partition must have 1 to 255 characters"),
        ("$1, '1'::jsonb, repeat('x', 256)", "22023", "message 1: the partition must have 1 to 255 characters"),
        ("$1, '1'::jsonb, 'p', ''", "22023", "message 1: the transaction id must have 1 to 255 characters"),
        ("$1, '1'::jsonb, 'p', '00000000-0000-8001-8000-000000000001'", "22023",
         "message 1: the transaction id has the form of a message id"),
        ("$1, to_jsonb(repeat('x', 16777216))", "54000", "message 1: the payload is longer than 16777216 bytes"),
    ],
)  # fmt: skip
async def test_what_cannot_be_a_message_is_refused(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, arguments: str, state: str, text: str
) -> None:
    await api.configure(queue)
    await refused(database, f"SELECT queen.push({arguments})".replace("$1", f"'{queue}'"), state, text)


async def refused(connection: "asyncpg.Connection[Any]", sql: str, state: str, text: str) -> None:
    """PostgreSQL refuses a push, and says why and what to do."""
    with pytest.raises(asyncpg.PostgresError) as problem:
        await connection.execute(sql)
    said = problem.value.as_dict()
    assert (problem.value.sqlstate, said["message"]) == (state, text)
    assert said.get("detail")
    assert said.get("hint")


async def test_arrays_of_different_lengths_are_refused(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    with pytest.raises(asyncpg.InvalidParameterValueError) as problem:
        await database.execute("SELECT queen.push_many($1, ARRAY['1', '2']::jsonb[], ARRAY['p'])", queue)
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await database.execute("SELECT queen.push_many($1, ARRAY['1']::jsonb[], headers => '{}')", queue)
    assert problem.value.as_dict()["detail"] == "Their lengths are 2, 1, NULL and NULL."


async def test_a_queue_can_be_closed_to_sql(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    assert "sqlPush" not in (await api.configure(queue))["options"]
    assert not (await api.configure(queue, sqlPush=False))["options"]["sqlPush"]
    shown = (await api.http.get(f"/api/v1/configure?queue={queue}")).json()
    assert not shown["options"]["sqlPush"]
    text = f"the queue takes no pushes with SQL: '{queue}'"
    await refused(database, f"SELECT queen.push('{queue}', '1')", "42501", text)
    await api.push(queue, 1)
    await api.configure(queue)
    await database.execute("SELECT queen.push($1, '2')", queue)
    assert sorted(await popped(api, queue, 2)) == [1, 2]


async def test_a_producer_may_push_and_nothing_else(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    role = f"shop_{queue[-8:]}"
    await database.execute(f"CREATE ROLE {role}")
    try:
        async with connected(server) as producer:
            await producer.execute(f"SET ROLE {role}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await push(producer, queue, 0)
            await database.execute(f"GRANT USAGE ON SCHEMA queen TO {role}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await push(producer, queue, 0)
            await database.execute(f"REVOKE USAGE ON SCHEMA queen FROM {role}; GRANT queen_producer TO {role}")
            await push(producer, queue, 1)
            for forbidden in (
                "INSERT INTO queen.outbox (queue_id, partitions, payloads, n) VALUES (1, '{p}', '1', 1)",
                "SELECT * FROM queen.read_outbox_v1(1, 1)", "SELECT queen.restart_outbox_v1()",
            ):  # fmt: skip
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await producer.execute(forbidden)
            rights = "has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')"
            assert not await producer.fetch(
                f"SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'queen'::regnamespace"
                f" AND c.relkind IN ('r', 'p', 'v') AND {rights}"
            )
            assert sorted(
                row["proname"]
                for row in await producer.fetch(
                    "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'queen'::regnamespace AND p.prosecdef"
                    " AND has_function_privilege(p.oid, 'EXECUTE')"
                )
            ) == ["push", "push_many"]
        assert await popped(api, queue, 1) == [1]
    finally:
        await database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


# ------------------------------------------------------------------ the order in which rows are read


@pytest.fixture
async def moved(server: Server) -> AsyncIterator[str]:
    """A database of its own, in which only the test moves messages."""
    url = await create_database(server.dsn)
    try:
        await prepare(url, 10_000)
        yield url
    finally:
        await drop_database(server.dsn, url)


async def move(connection: "asyncpg.Connection[Any]", messages: int) -> list[int]:
    """One move, without the log; the payloads that were moved."""
    rows = await connection.fetch("SELECT * FROM queen.read_outbox_v1($1, 1000000)", messages)
    if not rows:
        return []
    first, last = rows[0], rows[-1]
    result = await connection.fetchrow(
        "SELECT * FROM queen.move_outbox_v1($1, $2, $3, $4, $5, $6, '{}', '{}', NULL, gen_random_uuid(),"
        " '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 0, NULL, NULL, NULL, NULL, NULL)",
        first["moves"], first["target"], last["done"], last["xid"], last["seq"], len(rows),
    )  # fmt: skip
    assert result is not None
    assert result["moved"]
    return [int(payload) for row in rows for payload in row["payloads"].split("\n")]


@checks("G-OUT-1", "G-OUT-2", level=Level.LIVE)
async def test_interleaved_transactions_are_moved_once_and_in_their_order(moved: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    choice = random.Random(seed)
    async with AsyncExitStack() as stack:
        connections = [await asyncpg.connect(moved) for _ in range(6)]
        for connection in connections:
            stack.push_async_callback(connection.close)
        mover = connections.pop()
        await mover.execute("INSERT INTO queen.queues (name) VALUES ('q')")
        world = _World(choice, connections)
        found: list[int] = []
        for _ in range(400):
            if choice.random() < 0.3:
                found += await move(mover, choice.randint(1, 4))
            else:
                await world.step()
        await world.finish()
        while more := await move(mover, 3):
            found += more
    world.judge(found)


class _World:
    """Connections whose transactions overlap, and what they committed."""

    def __init__(self, choice: random.Random, connections: list["asyncpg.Connection[Any]"]) -> None:
        self._choice, self._idle = choice, connections
        self._open: list[tuple[asyncpg.Connection[Any], Any, list[int], set[int]]] = []
        self._number = 0
        #: The payloads of each committed transaction, and the transactions that had committed before it began.
        self._committed: list[tuple[list[int], set[int]]] = []

    async def step(self) -> None:
        if self._idle and (not self._open or self._choice.random() < 0.3):
            connection = self._idle.pop(self._choice.randrange(len(self._idle)))
            transaction = connection.transaction()
            await transaction.start()
            self._open.append((connection, transaction, [], set(range(len(self._committed)))))
        elif self._choice.random() < 0.6:
            connection, _, numbers, _ = self._choice.choice(self._open)
            self._number += 1
            numbers.append(self._number)
            await push(connection, "q", self._number)
        else:
            await self._end(self._choice.randrange(len(self._open)), commits=self._choice.random() < 0.7)

    async def _end(self, index: int, *, commits: bool) -> None:
        connection, transaction, numbers, before = self._open.pop(index)
        await (transaction.commit() if commits else transaction.rollback())
        self._idle.append(connection)
        if commits:
            self._committed.append((numbers, before))

    async def finish(self) -> None:
        while self._open:
            await self._end(0, commits=True)

    def judge(self, found: list[int]) -> None:
        assert sorted(found) == sorted(number for numbers, _ in self._committed for number in numbers)
        at = {number: position for position, number in enumerate(found)}
        for numbers, before in self._committed:
            positions = [at[number] for number in numbers]
            assert positions == sorted(positions)
            earlier = [at[number] for index in before for number in self._committed[index][0]]
            assert not positions or not earlier or max(earlier) < min(positions)


@checks("G-OUT-1", level=Level.LIVE)
async def test_rows_of_a_restored_dump_are_moved(moved: str) -> None:
    """Their transactions have numbers that this server has not given yet."""
    connection = await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    await push(connection, "q", 1, 2)
    assert await move(connection, 10) == [1, 2]
    await push(connection, "q", 3)
    await push(connection, "q", 4)
    # One of them is larger than those of this server, one is not: seq tells their order.
    await connection.execute(
        "UPDATE queen.outbox SET xid = CASE payloads WHEN '3' THEN '3'::xid8 ELSE '9000000000000' END"
    )
    await connection.execute("UPDATE queen.outbox_position SET seen = pg_current_snapshot()")
    assert await move(connection, 10) == []
    await connection.execute("SELECT queen.restart_outbox_v1()")
    assert await move(connection, 10) == [3, 4]
    await connection.close()


@checks("G-OUT-1", level=Level.LIVE)
async def test_a_look_finds_what_is_committed_while_it_waits(moved: str) -> None:
    """Not what is rolled back, and not before the commit."""
    connection, looking = await asyncpg.connect(moved), await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    look = "SELECT payloads FROM queen.await_outbox_v1(10, 1000000, 1, $1)"
    assert await looking.fetch(look, 3) == []
    found = asyncio.create_task(looking.fetch(look, 10_000))
    sleeps = "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1"

    async def is_looking() -> bool:
        return bool(await connection.fetchval(sleeps, looking.get_server_pid()))

    for number, commits in ((1, False), (2, True)):
        await eventually(is_looking, "a look that waits")
        transaction = connection.transaction()
        await transaction.start()
        await push(connection, "q", number)
        await eventually(is_looking, "a look that still waits")
        assert not found.done()
        await (transaction.commit() if commits else transaction.rollback())
    assert [row["payloads"] for row in await found] == ["2"]
    await connection.close()
    await looking.close()


@checks("G-COST-1", level=Level.LIVE)
async def test_a_transaction_that_stays_open_makes_no_move_dearer(moved: str) -> None:
    """Its snapshot keeps the deleted rows of all moves, which must not be read again."""
    connection, holder = await asyncpg.connect(moved), await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    snapshot = holder.transaction(isolation="repeatable_read")
    await snapshot.start()
    await holder.fetchval("SELECT txid_current()")
    read = []
    for _ in range(40):
        await push(connection, "q", *range(200))
        read.append(await blocks(connection, "read_outbox_v1(1000, 1000000)"))
        assert len(await move(connection, 1000)) == 200
    await snapshot.rollback()
    await connection.close()
    await holder.close()
    assert max(read[-5:]) < 3 * max(read[1:6]), read


@checks("G-COST-1", level=Level.LIVE)
async def test_a_long_transaction_is_not_read_again_from_its_beginning(moved: str) -> None:
    """Its rows that were moved are dead, and stay while another transaction holds a snapshot."""
    connection, holder = await asyncpg.connect(moved), await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("SELECT txid_current()")
        async with connection.transaction():
            for number in range(0, 8_000, 100):
                await push(connection, "q", *range(number, number + 100))
        read = []
        for _ in range(40):
            read.append(await blocks(connection, "read_outbox_v1(200, 1000000)"))
            assert len(await move(connection, 200)) == 200
    await connection.close()
    await holder.close()
    assert max(read[-5:]) < 3 * max(read[1:6]), read


async def blocks(connection: "asyncpg.Connection[Any]", procedure: str) -> int:
    """How many blocks a call of a procedure reads."""
    [plan] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM queen.{procedure}")
    top = json.loads(plan[0])[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


@checks("G-OUT-1", "G-OUT-2", level=Level.LIVE)
async def test_a_call_of_many_messages_keeps_them_all_in_order(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    """In several rows, with more than one partition, ids of some messages, and headers of some."""
    await api.configure(queue)
    numbers = range(2_500)
    await database.execute(
        "SELECT queen.push_many($1, $2::jsonb[], $3, $4, headers => $5::jsonb[])",
        queue,
        [json.dumps({"n": number, "text": "\n" + "x" * (2_000 if number < 1_100 else 1)}) for number in numbers],
        [None if number % 3 == 0 else f"p{number % 3}" for number in numbers],
        [f"id-{number}" if number % 2 else None for number in numbers],
        ['{"of": "5"}' if number % 5 == 0 else None for number in numbers],
    )  # fmt: skip
    found: dict[str, list[int]] = {}
    while sum(map(len, found.values())) < len(numbers):
        messages = (await api.pop(queue, batch=1000, partitions=10, wait=True, timeout=30_000)).messages
        for message in messages:
            number = message["data"]["n"]
            found.setdefault(message["partition"], []).append(number)
            assert message["data"]["text"].startswith("\nx")
            assert (message["transactionId"] == f"id-{number}") == (number % 2 == 1)
            assert message.get("headers") == ({"of": "5"} if number % 5 == 0 else None)
        await api.ack(messages)
    assert found == {name: list(numbers[at::3]) for at, name in enumerate(("Default", "p1", "p2"))}


@checks("G-COST-1", level=Level.LIVE)
async def test_a_call_is_one_row(moved: str) -> None:
    """What a row costs, to write, to read, to move and to delete, is paid once for all messages of a call."""
    connection = await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    await push(connection, "q", *range(100))
    await connection.execute("SELECT queen.push_many('q', $1::jsonb[])", ["1"] * 1_001)
    await connection.execute("SELECT queen.push_many('q', $1::jsonb[])", ['"' + "x" * 500_000 + '"'] * 5)
    await connection.execute("SELECT queen.push_many('q', '{}')")
    rows = await connection.fetch("SELECT n, partitions FROM queen.outbox ORDER BY xid, seq")
    assert [row["n"] for row in rows] == [100, 1000, 1, 2, 2, 1]
    assert [row["partitions"] for row in rows] == [["p"], *[["Default"]] * 5]
    assert await connection.fetchval("SELECT messages FROM queen.count_outbox_v1(1000000)") == 1_106
    await connection.close()


@checks("G-OUT-1", "G-OUT-2", level=Level.LIVE)
async def test_rows_of_an_earlier_release_are_moved(server: Server) -> None:
    """They had one message each."""
    url = await create_database(server.dsn)
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute(
            "CREATE SCHEMA queen; CREATE TABLE queen.migrations"
            " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        for script in scripts("migrations"):
            if script.name < _ROWS_OF_CALLS:
                await connection.execute(script.read_text())
                await connection.execute("INSERT INTO queen.migrations (name) VALUES ($1)", script.name)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    async with connection.transaction():
        for values in ("'p', 'id', 'f,', '1'", "'p', NULL, NULL, '2'", "'r', NULL, NULL, '3'"):
            await connection.execute(
                "INSERT INTO queen.outbox (queue_id, partition, transaction_id, fields, payload)"
                f" SELECT id, {values} FROM queen.queues"
            )
    await prepare(url, 10_000)
    await push(connection, "q", 4, 5)
    assert await connection.fetchval("SELECT messages FROM queen.outbox_position") == 3
    found = by_partition(await connection.fetch("SELECT * FROM queen.read_outbox_v1(10, 1000000)"))
    nothing: list[None] = [None]
    assert [(each.partition, each.transaction_ids, each.fields, each.payloads) for each in found] == [
        ("p", ["id", *nothing * 3], ["f,", *nothing * 3], [b"1", b"2", b"4", b"5"]),
        ("r", nothing, nothing, [b"3"]),
    ]
    assert await move(connection, 2) == [1, 2]
    assert await move(connection, 10) == [3, 4, 5]
    assert await connection.fetchval("SELECT messages FROM queen.outbox_position") == 8
    await connection.close()
    await drop_database(server.dsn, url)
