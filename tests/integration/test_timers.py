"""Timers: messages that enter the log at a time, once, in the order of their times, unless they are cancelled."""

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from queen.postgres.setup import prepare
from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.processes import Server
from tests.support.servers import create_database, drop_database

HOUR_MS = 3_600_000


def schedule(queue: str, key: str, payload: Any, delay_ms: float, **fields: Any) -> dict[str, Any]:
    text = base64.b64encode(json.dumps(payload).encode()).decode()
    return {"op": "schedule", "queue": queue, "timerKey": key, "payload": text, "delayMs": delay_ms, **fields}


async def change(api: Api, *operations: dict[str, Any]) -> list[dict[str, Any]]:
    response = await api.http.post("/api/v1/timers", json={"operations": operations})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def path(queue: str, key: str | None = None) -> str:
    place = f"/api/v1/timers/{quote(queue, safe='')}"
    return place if key is None else f"{place}/{quote(key)}"


async def popped(api: Api, queue: str, number: int) -> list[dict[str, Any]]:
    """The next messages, acked; waits for so many."""
    found: list[dict[str, Any]] = []
    while len(found) < number:
        messages = (await api.pop(queue, batch=100, partitions=10, wait=True, timeout=30_000)).messages
        found += messages
        await api.ack(messages)
    return found


@checks("G-TIM-1", "G-TIM-2", level=Level.LIVE)
async def test_timers_fire_in_the_order_of_their_times_and_not_before(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    delays = {"c": 900, "a": 300, "b": 600, "now": -5, "soon": 0}
    results = await change(api, *[schedule(queue, key, key, delay) for key, delay in delays.items()])
    assert [result["status"] for result in results] == ["scheduled"] * 5
    assert all(result["ok"] and result["messageId"] is None for result in results)
    messages = await popped(api, queue, 5)
    assert [message["data"] for message in messages] == ["now", "soon", "a", "b", "c"]
    due = {result["txn"]: result["deliverAt"] for result in results}
    for message in messages:
        assert message["createdAt"][:23] >= due[message["transactionId"]][:23]
    assert await database.fetchval("SELECT count(*) FROM queen.timers AS t JOIN queen.queues AS q ON q.id = t.queue_id"
                                   " WHERE q.name = $1", queue) == 0  # fmt: skip


@checks("G-TIM-1", level=Level.LIVE)
async def test_a_key_has_one_timer_which_can_be_replaced_fired_and_cancelled(api: Api, queue: str) -> None:
    [first] = await change(api, schedule(queue, "order/1", 1, HOUR_MS, partition="p", txn="t1"))
    assert (first["status"], first["txn"], first["queue"], first["timerKey"]) == ("scheduled", "t1", queue, "order/1")
    replacement = schedule(queue, "order/1", {"a": [2]}, HOUR_MS / 2, headers={"type": "order"})
    [second] = await change(api, {**replacement, "op": "reschedule"})
    assert second["status"] == "rescheduled"
    assert second["deliverAt"] < first["deliverAt"]
    found = (await api.http.get(path(queue, "order/1"))).json()
    assert base64.b64decode(found.pop("payload")) == b'{"a": [2]}'
    assert found == {"found": True, "queue": queue, "timerKey": "order/1", "partition": "Default", "encrypted": False,
                     "txn": second["txn"], "deliverAt": second["deliverAt"], "headers": {"type": "order"}}  # fmt: skip
    results = await change(
        api, {"op": "fire", "queue": queue, "timerKey": "order/1"}, {"op": "fire", "queue": queue, "timerKey": "none"}
    )
    assert [(result["ok"], result["status"]) for result in results] == [(True, "rescheduled"), (False, "absent")]
    [message] = await popped(api, queue, 1)
    assert (message["data"], message["transactionId"]) == ({"a": [2]}, second["txn"])
    assert message["headers"] == {"type": "order"}
    gone = (await api.http.delete(path(queue, "order/1"), params={"txn": "t1"})).json()
    assert (gone["ok"], gone["status"], gone["txn"]) == (False, "absent", "t1")
    assert (await api.http.get(path(queue, "order/1"))).json() == {
        "found": False, "queue": queue, "timerKey": "order/1"
    }  # fmt: skip
    await change(api, schedule(queue, "order/1", 3, HOUR_MS))
    cancelled = (await api.http.delete(path(queue, "order/1"))).json()
    assert (cancelled["ok"], cancelled["status"]) == (True, "cancelled")
    assert (await api.pop(queue)).messages == []


async def test_operations_of_a_request_on_one_timer_happen_in_their_order(api: Api, queue: str) -> None:
    cancel = {"op": "cancel", "queue": queue, "timerKey": "a"}
    results = await change(
        api, cancel, schedule(queue, "b", 0, HOUR_MS), schedule(queue, "a", 1, HOUR_MS),
        schedule(queue, "a", 2, HOUR_MS), {**cancel, "txn": "x"}, cancel, schedule(queue, "a", 3, 0),
    )  # fmt: skip
    assert [result["status"] for result in results] == [
        "absent", "scheduled", "scheduled", "rescheduled", "cancelled", "absent", "scheduled"
    ]  # fmt: skip
    assert [message["data"] for message in await popped(api, queue, 1)] == [3]
    assert (await change(api)) == []


async def test_timers_are_listed_by_key_in_pages(api: Api, queue: str) -> None:
    await change(api, *[schedule(queue, f"k{number}", number, HOUR_MS) for number in range(5)])
    found, after = [], ""
    while True:
        page = (await api.http.get(path(queue), params={"limit": 2, "after": after})).json()
        found += [row["timerKey"] for row in page["rows"]]
        after = page["nextAfter"]
        assert page["truncated"] is (after is not None)
        if after is None:
            break
    assert found == ["k0", "k1", "k2", "k3", "k4"]
    assert set(page["rows"][0]) == {"queue", "timerKey", "partition", "txn", "deliverAt", "encrypted"}
    assert (await api.http.get(path("no such queue"))).json() == {"rows": [], "truncated": False, "nextAfter": None}
    await api.delete(queue)
    assert (await api.http.get(path(queue))).json()["rows"] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"op": "shoot"}, "op"), ({"op": None}, "op"), ({"queue": ""}, "queue"), ({"timerKey": "k" * 256}, "timerKey"),
        ({"timerKey": "a\0"}, "timerKey"), ({"payload": None}, "payload"), ({"payload": "{}"}, "payload"),
        ({"payload": base64.b64encode(b"{").decode()}, "payload"),
        ({"payload": base64.b64encode(b"NaN").decode()}, "payload"),
        ({"payload": base64.b64encode(b'"\xff"').decode()}, "payload"),
        ({"payloadZstd": True}, "payloadZstd"), ({"delayMs": None}, "delayMs"), ({"delayMs": "1"}, "delayMs"),
        ({"delayMs": 1e300}, "delayMs"), ({"partition": ""}, "partition"), ({"txn": "t" * 256}, "txn"),
        ({"txn": "00000000-0000-8001-8000-000000000001"}, "txn"), ({"headers": {"": "x"}}, "headers"),
        ({"deliverAt": "2030-01-01"}, None),
        ({"messageId": "x"}, None),
    ],
)  # fmt: skip
async def test_a_bad_operation_is_refused_with_its_field(
    api: Api, queue: str, fields: dict[str, Any], field: str | None
) -> None:
    good = schedule(queue, "good", 1, HOUR_MS)
    response = await api.http.post("/api/v1/timers", json={"operations": [good, {**good, "timerKey": "bad", **fields}]})
    assert response.status_code == 400, response.text
    if field is not None:
        assert response.json()["field"] == f"operations[1].{field}"
    assert (await api.http.get(path(queue))).json()["rows"] == []


@checks("G-TIM-1", "G-TIM-2", level=Level.LIVE)
async def test_a_partition_that_is_locked_holds_back_its_own_timers_only(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.push(queue, 0, partition="locked")
    [message] = await popped(api, queue, 1)
    async with database.transaction():
        await database.execute(
            "SELECT FROM queen.partition_locks WHERE queen.partition_uuid(part_id) = $1::uuid FOR UPDATE",
            message["partitionId"],
        )
        await change(
            api, schedule(queue, "a", 1, 0, partition="locked"), schedule(queue, "b", 2, 0, partition="free"),
            schedule(queue, "c", 3, 300, partition="free"),
        )  # fmt: skip
        assert [each["data"] for each in await popped(api, queue, 2)] == [2, 3]
        metrics = (await api.http.get("/metrics/prometheus")).text
        assert "queen_timers_overdue 1.0\n" in metrics
        assert "queen_timers_oldest_overdue_seconds 0.0\n" not in metrics
    assert [each["data"] for each in await popped(api, queue, 1)] == [1]


# ------------------------------------------------------------------ a time of a push


@checks("G-TIM-1", "G-TIM-2", level=Level.LIVE)
async def test_a_push_with_a_time_is_delivered_then(api: Api, queue: str) -> None:
    trace = "00000000-0000-4000-8000-000000000001"
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    results = await api.push_items(
        [
            {"queue": queue, "payload": 3, "delaySeconds": 0.5, "traceId": trace, "transactionId": "chosen"},
            {"queue": queue, "payload": 2, "delaySeconds": 0.2}, {"queue": queue, "payload": 4, "deliverAt": later},
            {"queue": queue, "payload": 1, "deliverAt": "2001-01-01T00:00:00Z"},
        ]
    )  # fmt: skip
    assert [(result["status"], result["message_id"]) for result in results] == [("scheduled", None)] * 4
    assert (results[0]["transaction_id"], results[0]["trace_id"]) == ("chosen", trace)
    messages = await popped(api, queue, 3)
    assert [message["data"] for message in messages] == [1, 2, 3]
    assert (messages[2]["transactionId"], messages[2]["traceId"]) == ("chosen", trace)
    assert messages[1]["transactionId"] == results[1]["transaction_id"]
    left = (await api.http.get(path(queue))).json()["rows"]
    assert [row["timerKey"] for row in left] == [results[2]["timerKey"]]
    assert (await api.http.delete(path(queue, results[2]["timerKey"]))).json()["status"] == "cancelled"
    # What is stored already is dropped when it is due.
    await api.push_items([{"queue": queue, "payload": 5, "delaySeconds": 0, "transactionId": "chosen"}])
    await api.push_items([{"queue": queue, "payload": 6, "delaySeconds": 0}])
    assert [message["data"] for message in await popped(api, queue, 1)] == [6]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"delaySeconds": -1}, "delaySeconds"), ({"delaySeconds": "1"}, "delaySeconds"),
        ({"delaySeconds": 1e300}, "delaySeconds"), ({"deliverAt": "soon"}, "deliverAt"),
        ({"deliverAt": 1}, "deliverAt"), ({"deliverAt": "9999-01-01"}, "deliverAt"),
        ({"deliverAt": "2030-01-01", "delaySeconds": 1}, "deliverAt"), ({"delaySeconds": 1, "queue": ""}, "queue"),
        ({"delaySeconds": 1, "transactionId": "00000000-0000-8001-8000-000000000001"}, "transactionId"),
        ({"delaySeconds": 1, "traceId": "x"}, "traceId"), ({}, ""),
    ],
)  # fmt: skip
async def test_a_bad_time_of_a_push_is_refused_with_its_field(
    api: Api, queue: str, fields: dict[str, Any], field: str
) -> None:
    good = {"queue": queue, "payload": 1}
    body = json.dumps({"items": [{**good, "delaySeconds": 1}, {**good, **fields}]})
    for text in (body, body.replace("delaySeconds", r"\u0064elaySeconds")):
        response = await api.http.post("/api/v1/push", content=text)
        assert response.status_code == 400, response.text
        assert response.json()["field"] == f"items[1].{field}".rstrip(".")
    assert (await api.http.get(path(queue))).json()["rows"] == []


@checks("G-TIM-1", "G-TXN-1", level=Level.LIVE)
async def test_a_transaction_sets_timers_if_and_only_if_it_succeeds(api: Api, queue: str) -> None:
    await api.push(queue, 0, partition="in")
    [message] = (await api.pop(queue, partition="in")).messages
    ack = {
        "type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "status": "completed",
    }  # fmt: skip
    late = {"queue": queue, "payload": 3, "deliverAt": "2001-01-01", "transactionId": "t", "headers": {"a": "b"}}
    timers = [
        {"type": "push", "queue": queue, "payload": 1, "delaySeconds": 0.2},
        {"type": "push", "items": [{"queue": f"{queue}-new", "payload": 2, "delaySeconds": 3600}, late]},
    ]
    refused = await api.transact([*timers, {**ack, "transactionId": "no such message"}])
    assert not refused["success"], refused
    refused = await api.transact([*timers, ack, *[{"type": "push", "queue": queue, "transactionId": "x"}] * 2])
    assert not refused["success"], refused
    assert (await api.http.get(path(queue))).json()["rows"] == []
    done = await api.transact([*timers, ack, {"type": "push", "queue": queue, "payload": 4}])
    assert done["success"], done
    assert [result["type"] for result in done["results"]] == ["timer", "timer", "timer", "ack", "push"]
    first, second, third = done["results"][:3]
    assert (third["transactionId"], third["queueName"], third["success"]) == ("t", queue, True)
    assert first["transactionId"] == first["timerKey"]
    [row] = (await api.http.get(path(f"{queue}-new"))).json()["rows"]
    assert (row["timerKey"], row["deliverAt"]) == (second["timerKey"], second["deliverAt"])
    messages = await popped(api, queue, 3)
    assert sorted(each["data"] for each in messages) == [1, 3, 4], "the ack is done"
    assert next(each for each in messages if each["data"] == 3)["headers"] == {"a": "b"}
    # Alone, without an ack or a push.
    assert (await api.transact([{"type": "push", **late, "transactionId": "u"}]))["success"]
    assert [each["transactionId"] for each in await popped(api, queue, 1)] == ["u"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"delaySeconds": -1}, "delaySeconds"), ({"delaySeconds": "1"}, "delaySeconds"),
        ({"deliverAt": "soon"}, "deliverAt"), ({"deliverAt": "2030-01-01", "delaySeconds": 1}, "deliverAt"),
    ],
)  # fmt: skip
async def test_a_bad_time_in_a_transaction_is_refused_with_its_field(
    api: Api, queue: str, fields: dict[str, Any], field: str
) -> None:
    bad = {"queue": queue, "payload": 1, **fields}
    for operation, place in (({"type": "push", **bad}, ""), ({"type": "push", "items": [bad]}, ".items[0]")):
        operations = [{"type": "push", "queue": queue, "payload": 0}, operation]
        response = await api.http.post("/api/v1/transaction", json={"operations": operations})
        assert response.status_code == 400, response.text
        assert response.json()["field"] == f"operations[1]{place}.{field}"
    assert (await api.pop(queue)).messages == []


@checks("G-TIM-1", "G-OUT-1", level=Level.LIVE)
async def test_a_push_with_sql_at_a_time_commits_with_its_transaction(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    transaction = database.transaction()
    await transaction.start()
    await database.execute("SELECT queen.push($1, '0', deliver_at => now())", queue)
    await transaction.rollback()
    await database.execute("SELECT queen.push($1, '{\"é\": 1}', deliver_at => now() + interval '0.3 s')", queue)
    await database.execute("SELECT queen.push($1, '2', 'p', 'chosen', now())", queue)
    await database.execute("SELECT queen.push($1, '3', 'p')", queue)
    await database.execute(
        "SELECT queen.push_many($1, ARRAY['4', '5']::jsonb[], ARRAY['p', 'p'], NULL, now() + interval '0.2 s')", queue
    )
    messages = await popped(api, queue, 5)
    assert {message["partition"] for message in messages} == {"p", "Default"}
    of_p = [message for message in messages if message["partition"] == "p"]
    assert [message["data"] for message in of_p if message["data"] != 3] == [2, 4, 5]
    assert next(message for message in of_p if message["data"] == 2)["transactionId"] == "chosen"
    assert [message["data"] for message in messages if message not in of_p] == [{"é": 1}]


@pytest.mark.parametrize(
    ("arguments", "state", "text"),
    [
        ("'no such queue', '1'::jsonb, deliver_at => now()", "42704", "unknown queue: 'no such queue'"),
        ("$1, NULL::jsonb, deliver_at => now()", "22004", "message 1: the payload is NULL"),
        ("$1, '1'::jsonb, '', deliver_at => now()", "22023", "message 1: the partition must have 1 to 255 characters"),
        ("$1, '1'::jsonb, deliver_at => 'infinity'", "22023", "deliver_at must be a time at most 3660 days ahead"),
        ("$1, '1'::jsonb, deliver_at => '9999-01-01'", "22023", "deliver_at must be a time at most 3660 days ahead"),
        ("$1, '1'::jsonb, deliver_at => 'soon'", "22007",
         'invalid input syntax for type timestamp with time zone: "soon"'),
    ],
)  # fmt: skip
async def test_what_cannot_be_a_message_at_a_time_is_refused(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, arguments: str, state: str, text: str
) -> None:
    await api.configure(queue)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await database.execute(f"SELECT queen.push({arguments})".replace("$1", f"'{queue}'"))
    assert (refused.value.sqlstate, refused.value.as_dict()["message"]) == (state, text)


# ------------------------------------------------------------------ moves, without servers


@pytest.fixture
async def moved(server: Server) -> AsyncIterator[str]:
    """A database of its own, in which only the test moves timers."""
    url = await create_database(server.dsn)
    try:
        await prepare(url, 10_000)
        yield url
    finally:
        await drop_database(server.dsn, url)


async def set_timers(connection: "asyncpg.Connection[Any]", *timers: tuple[str, float]) -> None:
    keys, delays = zip(*timers, strict=True)
    number = len(keys)
    await connection.execute(
        "SELECT * FROM queen.change_timers_v1($1, $2, $3, $4, $3, $5, $6, $7,"
        " (SELECT version FROM queen.push_options))",
        ["schedule"] * number, ["q"] * number, list(keys), ["p"] * number, list(delays), [None] * number,
        [json.dumps({"transactionId": key, "payload": key}) for key in keys],
    )  # fmt: skip


async def cancel(connection: "asyncpg.Connection[Any]", key: str) -> str:
    verdict: str = await connection.fetchval(
        "SELECT status FROM queen.change_timers_v1(ARRAY['cancel'], ARRAY['q'], ARRAY[$1], ARRAY[''], ARRAY[''],"
        " ARRAY[NULL]::float8[], ARRAY[NULL]::timestamptz[], ARRAY[''], (SELECT version FROM queen.push_options))",
        key,
    )
    return verdict


async def read(connection: "asyncpg.Connection[Any]", number: int) -> list[Any]:
    rows = await connection.fetch("SELECT * FROM queen.read_timers_v1(NULL, $1, 1000000, 1, '{}', '{}')", number)
    return rows[:-1]


async def move(connection: "asyncpg.Connection[Any]", rows: Sequence[Any]) -> bool:
    """Moves timers without the log."""
    return bool(
        await connection.fetchval(
            "SELECT moved FROM queen.move_timers_v1($1, $2, gen_random_uuid(),"
            " '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 0)",
            [row["deliver_at"] for row in rows], [row["seq"] for row in rows],
        )
    )  # fmt: skip


async def at(connection: "asyncpg.Connection[Any]", seconds: float) -> None:
    """Sets the clock of a connection."""
    await connection.execute(
        "SELECT set_config('queen.clock', (timestamptz '2030-01-01' + make_interval(secs => $1))::text, false)", seconds
    )


@checks("G-TIM-1", "G-TIM-2", level=Level.LIVE)
async def test_random_changes_and_two_movers_fire_each_timer_once_and_in_order(moved: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    choice = random.Random(seed)
    connection = await asyncpg.connect(moved)
    expected: dict[str, float] = {}
    reads: list[list[Any]] = [[], []]
    fired: list[tuple[str, float]] = []
    for now in range(300):
        await at(connection, now)
        mover, what = choice.randrange(2), choice.random()
        if what < 0.3:
            key, delay = f"k{choice.randrange(20)}", float(choice.randrange(40))
            await set_timers(connection, (key, delay))
            expected[key] = now + delay
        elif what < 0.45:
            key = f"k{choice.randrange(20)}"
            assert await cancel(connection, key) == ("cancelled" if expected.pop(key, None) is not None else "absent")
        elif what < 0.7:
            limit = choice.randint(1, 5)
            reads[mover] = await read(connection, limit)
            due = sorted(time for time in expected.values() if time <= now)
            assert [expected[row["transaction_id"]] for row in reads[mover]] == due[:limit]
        elif reads[mover] and await move(connection, reads[mover]):
            for row in reads[mover]:
                time = expected.pop(row["transaction_id"])
                assert time <= now
                fired.append((row["transaction_id"], time))
    await connection.close()
    assert len(fired) > 10
    assert await _left(moved) == len(expected)


async def _left(url: str) -> int:
    connection = await asyncpg.connect(url)
    number: int = await connection.fetchval("SELECT count(*) FROM queen.timers")
    await connection.close()
    return number


@checks("G-TIM-1", level=Level.LIVE)
async def test_a_cancel_that_meets_a_move_says_what_became_of_the_timer(moved: str) -> None:
    mover, other = await asyncpg.connect(moved), await asyncpg.connect(moved)
    await set_timers(other, ("a", 0), ("b", 0))
    part: int = await mover.fetchval("SELECT part_id FROM queen.resolve_partitions_v1(ARRAY['q'], ARRAY['p'], true)")
    transaction = mover.transaction()
    await transaction.start()
    rows = await read(mover, 1)
    assert await move(mover, rows)
    await mover.execute(
        "INSERT INTO queen.transaction_ids (part_id, hash, off) VALUES ($1, queen.transaction_hash('a'), 0)", part
    )
    cancelling = asyncio.create_task(cancel(other, "a"))
    await _waits_for_a_lock(mover)
    await transaction.commit()
    assert await cancelling == "too_late"
    # Another call has cancelled it.
    transaction = mover.transaction()
    await transaction.start()
    assert await cancel(mover, "b") == "cancelled"
    rows = await read(other, 1)
    assert not await move(other, rows)
    cancelling = asyncio.create_task(cancel(other, "b"))
    await _waits_for_a_lock(mover)
    await transaction.commit()
    assert await cancelling == "absent"
    await mover.close()
    await other.close()


async def _waits_for_a_lock(connection: "asyncpg.Connection[Any]") -> None:
    async with asyncio.timeout(30):
        while not await connection.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"):
            pass


async def test_timers_of_a_queue_that_was_deleted_before_their_commit_are_removed(moved: str) -> None:
    pushing, other = await asyncpg.connect(moved), await asyncpg.connect(moved)
    await set_timers(other, ("kept", 3600))
    await other.execute("INSERT INTO queen.queues (name) VALUES ('gone')")
    async with pushing.transaction():
        for _ in range(3):
            await pushing.execute("SELECT queen.push('gone', '1', deliver_at => now() + interval '1 year')")
        while await other.fetchval("SELECT more FROM queen.delete_queue_v1('gone', 100)"):
            pass
    assert await _left(moved) == 4
    assert await other.fetchval("SELECT queen.purge_partitions_v1(2)")
    assert not await other.fetchval("SELECT queen.purge_partitions_v1(2)")
    assert [row["key"] for row in await other.fetch("SELECT key FROM queen.timers")] == ["kept"]
    await pushing.close()
    await other.close()


@checks("G-COST-1", level=Level.LIVE)
async def test_timers_that_wait_or_were_moved_make_no_read_dearer(moved: str) -> None:
    connection, holder = await asyncpg.connect(moved), await asyncpg.connect(moved)
    await connection.execute(
        "INSERT INTO queen.queues (name) VALUES ('q');"
        "INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)"
        " SELECT now() + make_interval(secs => 1000 + n), 1, 'far' || n, 'p', n::text, '{}'"
        " FROM generate_series(1, 100000) AS n"
    )
    snapshot = holder.transaction(isolation="repeatable_read")
    await snapshot.start()
    await holder.fetchval("SELECT txid_current()")
    blocks, since = [], None
    for number in range(30):
        await set_timers(connection, *[(f"{number}-{n}", 0.0) for n in range(100)])
        [plan] = await connection.fetch(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
            " SELECT * FROM queen.read_timers_v1($1, 1000, 1000000, 0.25, '{}', '{}')",
            since,
        )
        top = json.loads(plan[0])[0]["Plan"]
        blocks.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        rows = await read(connection, 1000)
        assert len(rows) == 100
        assert await move(connection, rows)
        since = rows[-1]["deliver_at"]
    await snapshot.rollback()
    await connection.close()
    await holder.close()
    assert max(blocks[-5:]) < 3 * max(blocks[1:6]), blocks
