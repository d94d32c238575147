"""Headers: a map of texts beside the payload, on every way that a message takes."""

import json
from typing import Any

import asyncpg
import pytest

from queen.core.limits import MESSAGE_HEADERS_BYTES_MAX, MESSAGE_HEADERS_MAX
from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.sockets import open_socket

#: With what ends the fields of a stored message, and what JSON escapes.
HEADERS = {
    "payload": "{}",
    'a","payload":1': '","payload":',
    "ü\n\\": 'é"\u2028😀',
    "empty": "",
    "traceparent": "00-1",
}
KEY = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


def item(queue: str, payload: Any, **fields: Any) -> dict[str, Any]:
    return {"queue": queue, "payload": payload, **fields}


def headers_of(messages: list[dict[str, Any]]) -> list[Any]:
    return [message.get("headers", "absent") for message in messages]


@checks("G-DUR-5", level=Level.LIVE)
async def test_headers_come_back_as_they_were_sent_on_every_way(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.push_items(
        [
            item(queue, 0, headers=HEADERS, transactionId="t0"), item(queue, 1), item(queue, 2, headers={}),
            item(queue, 3, headers=None, transactionId="t3"), item(queue, 4, headers={"n": "4"}),
        ]
    )  # fmt: skip
    await api.transact(
        [
            {"type": "push", "queue": queue, "payload": 5, "headers": HEADERS},
            {"type": "push", "items": [item(queue, 6, headers={"n": "6"})]},
        ]
    )
    sent = [HEADERS, "absent", "absent", "absent", {"n": "4"}, HEADERS, {"n": "6"}]
    popped = await api.pop(queue, batch=9, consumerGroup="g", subscriptionMode="all")
    assert (popped.data, headers_of(popped.messages)) == (list(range(7)), sent)
    async with open_socket(server.port) as socket:
        await socket.subscribe(queue, consumerGroup="h", subscriptionMode="all")
        assert headers_of((await socket.expect("batch"))["messages"]) == sent
    later = {"items": [item(f"{queue}-later", 7, headers=HEADERS, delaySeconds=0)]}
    assert (await api.http.post("/api/v1/push", json=later)).status_code == 201
    assert headers_of((await api.pop(f"{queue}-later", wait=True, timeout=60_000)).messages) == [HEADERS]
    rows = await database.fetch(
        "SELECT headers, payload::text FROM queen.messages WHERE queue = $1 ORDER BY off", queue
    )
    assert [(json.loads(row["headers"]) if row["headers"] else "absent") for row in rows] == sent
    assert [row["payload"] for row in rows] == [str(n) for n in range(7)]
    listed = (await api.http.get("/api/v1/messages", params={"queue": queue})).json()["messages"]
    assert headers_of(listed)[::-1] == sent
    first = popped.messages[0]
    shown = (await api.http.get(f"/api/v1/messages/{first['partitionId']}/t0")).json()
    assert shown["headers"] == HEADERS

    await api.ack(popped.messages, "dlq", error="no")
    letters = (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    assert {letter["data"]: letter.get("headers", "absent") for letter in letters} == dict(enumerate(sent))
    for letter in letters:
        response = await api.http.post(f"/api/v1/dlq/{letter['id']}/replay", json={"queue": f"{queue}-again"})
        assert response.status_code == 200, response.text
    again = (await api.pop(f"{queue}-again", batch=9)).messages
    assert {message["data"]: message.get("headers", "absent") for message in again} == dict(enumerate(sent))


@checks("G-DUR-5", "G-SQL-2", level=Level.LIVE)
async def test_headers_of_sql_come_back_on_every_way(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    await api.configure(queue)
    texts, context = json.dumps(HEADERS), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await database.execute("SELECT queen.push($1, '0', headers => $2)", queue, texts)
    async with database.transaction():
        await database.execute("SELECT set_config('queen.traceparent', $1, true)", context)
        await database.execute(
            "SELECT queen.push_many($1, ARRAY['1', '2', '3', '4']::jsonb[], transaction_ids => $2, headers => $3)",
            queue, ["a", None, None, "d"], [texts, None, "{}", "null"],
        )  # fmt: skip
    await database.execute("SELECT queen.push($1, '5')", queue)
    sent = [HEADERS, HEADERS, "absent", "absent", "absent", "absent"]
    popped: list[dict[str, Any]] = []
    while len(popped) < len(sent):
        popped += (await api.pop(queue, batch=9, wait=True, timeout=30_000, autoAck=True)).messages
    assert ([message["data"] for message in popped], headers_of(popped)) == ([*range(6)], sent)
    assert [message.get("traceparent") for message in popped] == [None, *[context] * 4, None]
    await database.execute("SELECT queen.subscribe($1, 's')", queue)
    rows = await database.fetch("SELECT payload, headers FROM queen.pop($1, 's', batch => 9)", queue)
    assert [(json.loads(row["headers"]) if row["headers"] else "absent") for row in rows] == sent
    await database.execute(
        "SELECT queen.push_many($1, ARRAY['6', '7']::jsonb[], headers => $2, deliver_at => now())", queue, [texts, None]
    )
    later = []
    while len(later) < 2:
        later += (await api.pop(queue, batch=9, wait=True, timeout=30_000, autoAck=True)).messages
    assert headers_of(later) == [HEADERS, "absent"]


@pytest.mark.parametrize(
    ("headers", "state", "words"),
    [
        ([], "22023", "headers must be an object whose values are strings"),
        ("a", "22023", "headers must be an object whose values are strings"),
        ({"a": 1}, "22023", "headers must be an object whose values are strings"),
        ({"a": None}, "22023", "headers must be an object whose values are strings"),
        ({"a": "b", "c": {"d": "e"}}, "22023", "headers must be an object whose values are strings"),
        ({"": "x"}, "22023", "headers: a name must not be empty"),
        ({str(n): "" for n in range(MESSAGE_HEADERS_MAX + 1)}, "54000",
         f"headers has {MESSAGE_HEADERS_MAX + 1} names, more than {MESSAGE_HEADERS_MAX}"),
        ({"a": "ü" * (MESSAGE_HEADERS_BYTES_MAX // 2)}, "54000",
         f"headers has {MESSAGE_HEADERS_BYTES_MAX + 1} bytes, more than {MESSAGE_HEADERS_BYTES_MAX}"),
    ],
)  # fmt: skip
async def test_sql_refuses_what_is_no_map_of_texts(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, headers: Any, state: str, words: str
) -> None:
    await api.configure(queue)
    for more in ("", ", deliver_at => now()"):
        sql = f"SELECT queen.push_many($1, ARRAY['0', '1']::jsonb[], headers => $2{more})"
        with pytest.raises(asyncpg.PostgresError) as problem:
            await database.execute(sql, queue, [None, json.dumps(headers)])
        said = problem.value.as_dict()
        assert (problem.value.sqlstate, said["message"]) == (state, f"message 2: {words}")
        assert said["detail"].startswith("They are ")
        assert "texts by name" in said["hint"]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([], "Headers must be an object"), ("a", "Headers must be an object"), ({"a": 1}, "values are strings"),
        ({"a": None}, "values are strings"), ({"a": {"b": "c"}}, "values are strings"),
        ({"": "x"}, "items[1].headers: a name must not be empty"),
        ({"a": "\0"}, "items[1].headers must not contain NUL"),
        ({"a\0": "b"}, "items[1].headers must not contain NUL"),
        ({str(n): "" for n in range(MESSAGE_HEADERS_MAX + 1)}, f"more than {MESSAGE_HEADERS_MAX}"),
        ({"a": "ü" * (MESSAGE_HEADERS_BYTES_MAX // 2)}, f"more than {MESSAGE_HEADERS_BYTES_MAX}"),
    ],
)  # fmt: skip
async def test_what_is_no_map_of_texts_is_refused(api: Api, queue: str, headers: Any, words: str) -> None:
    body = {"items": [item(queue, 0), item(queue, 1, headers=headers)]}
    response = await api.http.post("/api/v1/push", json=body)
    assert (response.status_code, words in response.json()["error"]) == (400, True), response.text
    assert response.json()["field"].startswith("items[1].headers")
    assert (await api.pop(queue)).messages == []
    operations = [{"type": "push", "items": body["items"]}]
    response = await api.http.post("/api/v1/transaction", json={"operations": operations})
    assert response.status_code == 400
    assert words.removeprefix("items[1].") in response.json()["error"]


async def test_the_most_headers_are_taken(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    most = {f"{n:02}": "" for n in range(MESSAGE_HEADERS_MAX)}
    most["00"] = "x" * (MESSAGE_HEADERS_BYTES_MAX - 2 * MESSAGE_HEADERS_MAX)
    await api.push_items([item(queue, 0, headers=most)])
    await database.execute("SELECT queen.push($1, '1', headers => $2)", queue, json.dumps(most))
    for _ in range(2):
        popped = await api.pop(queue, wait=True, timeout=30_000, autoAck=True)
        assert headers_of(popped.messages) == [most]


@checks("G-DUR-5", level=Level.LIVE)
async def test_encrypted_queues_and_the_spool_keep_headers_too(queue: str) -> None:
    environment = clean_environment(QUEEN_ENCRYPTION_KEY=KEY)
    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as server:
        async with open_client(server.port) as http:
            api = Api(http)
            await api.configure(queue, encryptionEnabled=True)
            places = (queue, f"{queue}-plain")
            await api.push_items([item(place, 0, headers=HEADERS) for place in places])
            for place in places:
                assert headers_of((await api.pop(place, autoAck=True)).messages) == [HEADERS]
            await http.post("/api/v1/system/maintenance", json={"enabled": True})
            buffered = await api.push_items([item(place, 1, headers=HEADERS) for place in places])
            assert [each["status"] for each in buffered] == ["buffered", "buffered"]
            await http.post("/api/v1/system/maintenance", json={"enabled": False})
            for place in places:
                popped = await api.pop(place, wait=True, timeout=60_000, autoAck=True)
                assert (popped.data, headers_of(popped.messages)) == ([1], [HEADERS])
            database = await asyncpg.connect(server.dsn)
            try:
                row = await database.fetchrow(
                    "SELECT headers, key_id FROM queen.messages WHERE queue = $1 LIMIT 1", queue
                )
                for late in ("", ", deliver_at => now()"):
                    await database.execute(
                        f"SELECT queen.push($1, '2', headers => $2{late})", queue, json.dumps(HEADERS)
                    )
                    popped = await api.pop(queue, wait=True, timeout=60_000, autoAck=True)
                    assert (popped.data, headers_of(popped.messages)) == ([2], [HEADERS])
            finally:
                await database.close()
        assert (json.loads(row["headers"]), bool(row["key_id"])) == (HEADERS, True), "headers are in clear"
