"""The interface of simple-mq over HTTP: statuses, bodies and fields as its clients know them."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import api_of, open_client, worker_apis
from tests.support.clock import eventually
from tests.support.processes import Server, open_folder
from tests.support.servers import create_database, drop_database, serving_database

Create = Callable[..., Coroutine[Any, Any, str]]


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(server.port) as client:
        yield client


@pytest.fixture
async def create(http: httpx.AsyncClient) -> AsyncIterator[Create]:
    """Makes queues, which are deleted with their dead-letter queues."""
    made: list[str] = []

    async def make(size: int = 100, hidden_s: int = 30, deliveries: int = 3, **more: Any) -> str:
        body = {"queueName": "orders", "queueSize": size, "visibilityTimeout": hidden_s, "maxDeliveries": deliveries}
        response = await http.post("/api/queues", json=body | more)
        assert response.status_code == 201, response.text
        assert list(response.json()) == ["queue_id"]
        made.append(response.json()["queue_id"])
        return made[-1]

    yield make
    for queue in made:
        dlq = (await http.get(f"/api/queues/{queue}")).json().get("dlq_id")
        for each in (queue, dlq):
            if each:
                await http.delete(f"/api/queues/{each}")


async def enqueue(http: httpx.AsyncClient, queue: str, *data: str, **fields: Any) -> list[str]:
    ids = []
    for text in data:
        response = await http.post(f"/api/queues/{queue}/messages", json={"data": text, **fields})
        assert response.status_code == 201, response.text
        ids.append(response.json()["message_id"])
    return ids


async def test_queues_are_listed_in_pages(http: httpx.AsyncClient, create: Create) -> None:
    name = uuid4().hex
    one, two, three = [await create(queueName=f"{name[:16]}{text}", deliveries=1, hidden_s=0) for text in "aBc"]
    await enqueue(http, two, "x", "y")
    await http.get(f"/api/queues/{two}/messages")
    await http.get(f"/api/queues/{two}/messages")
    dead = (await http.get(f"/api/queues/{two}")).json()["dlq_id"]
    found, cursor = [], {}
    while True:
        page = (await http.get("/api/v1/simple-mq/queues", params={"search": name[:16], "limit": 2, **cursor})).json()
        found += page["queues"]
        if page["next_cursor"] is None:
            break
        assert len(page["queues"]) == 2
        cursor = {"cursor": page["next_cursor"]}
    assert sorted(each["queue_id"] for each in found) == [each["queue_id"] for each in found]
    shown = {each["queue_id"]: each for each in found}
    assert {*shown} == {one, two, three, dead}
    assert [shown[each]["parent_id"] for each in (one, dead)] == [None, two]
    for each in one, two, dead:
        alone = (await http.get(f"/api/queues/{each}")).json()
        assert {key: shown[each][key] for key in alone} == alone
    by_name = await http.get("/api/v1/simple-mq/queues", params={"search": f"{name[:16]}b".upper()})
    assert by_name.json()["queues"][0]["queue_id"] == two
    for wrong in {"limit": "0"}, {"limit": "1001"}, {"cursor": "x"}, {"limit": "x"}:
        answer = await http.get("/api/v1/simple-mq/queues", params=wrong)
        assert answer.status_code == 400, answer.text
        assert next(iter(wrong)) in answer.text


async def poll(http: httpx.AsyncClient, queue: str) -> dict[str, Any] | None:
    response = await http.get(f"/api/queues/{queue}/messages")
    assert response.status_code == 200, response.text
    assert list(response.json()) == ["message"]
    return response.json()["message"]  # type: ignore[no-any-return]


async def shown(http: httpx.AsyncClient, queue: str) -> dict[str, Any]:
    response = await http.get(f"/api/queues/{queue}")
    assert response.status_code == 200
    return dict(response.json())


def assert_error(response: httpx.Response, status: int, text: str, field: str | None = None) -> None:
    """The original's two fields, status and path, in a problem document."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    body = response.json()
    assert body["error"] == body["detail"] == text
    assert body["status"] == status
    assert body["path"] == response.url.path
    assert re.fullmatch(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}", body["timestamp"])
    if field is not None:
        assert body["field"] == field
    assert response.headers.get("retry-after") == ("1" if status == 429 else None)


async def test_names_may_be_written_in_both_ways_and_must_agree(http: httpx.AsyncClient) -> None:
    body = {"queue_name": "a", "queue_size": 1, "visibility_timeout": 0, "max_deliveries": 1, "unknown": 1}
    response = await http.post("/api/queues", json=body)
    assert response.status_code == 201
    queue = response.json()["queue_id"]
    assert UUID(queue).version == 7
    assert (await http.post("/api/queues", json=body | {"queueSize": 1})).status_code == 201
    refused = await http.post("/api/queues", json=body | {"queueSize": 2})
    assert_error(refused, 400, "queueSize and queue_size are both given with different values", "queueSize")


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"queueName": None}, "queueName", "Queue name is required"),
        ({"queueName": " \t"}, "queueName", "Queue name is required"),
        ({"queueName": "x" * 256}, "queueName", "Queue name must be between 1 and 255 characters"),
        ({"queueSize": None}, "queueSize", "queueSize is required"),
        ({"queueSize": 0}, "queueSize", "Queue size must be at least 1"),
        ({"queueSize": 1_000_001}, "queueSize", "Queue size cannot exceed 1,000,000"),
        ({"visibilityTimeout": None}, "visibilityTimeout", "visibilityTimeout is required"),
        ({"visibilityTimeout": -1}, "visibilityTimeout", "Visibility timeout cannot be negative"),
        (
            {"visibilityTimeout": 43_201},
            "visibilityTimeout",
            "Visibility timeout cannot exceed 12 hours (43200 seconds)",
        ),
        ({"maxDeliveries": 0}, "maxDeliveries", "Max deliveries must be at least 1"),
        ({"maxDeliveries": 101}, "maxDeliveries", "Max deliveries cannot exceed 100"),
        ({"maxDeliveries": 10**30}, "maxDeliveries", None),
        ({"queueSize": "10"}, "queueSize", None),
        ({"queueName": "a\0"}, "queueName", "Queue name contains U+0000, which cannot be stored"),
    ],
)
async def test_a_queue_beyond_the_limits_is_refused(
    http: httpx.AsyncClient, change: dict[str, Any], field: str, text: str | None
) -> None:
    body = {"queueName": "n", "queueSize": 1, "visibilityTimeout": 0, "maxDeliveries": 1} | change
    response = await http.post("/api/queues", json={name: value for name, value in body.items() if value is not None})
    assert_error(response, 400, text or response.json()["error"], field)


async def test_a_queue_shows_its_settings_and_count(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(size=1_000_000, hidden_s=43_200, deliveries=100)
    await enqueue(http, queue, "x", "y")
    await poll(http, queue)
    assert await shown(http, queue) == {
        "queue_id": queue, "queue_name": "orders", "queue_size": 1_000_000, "visibility_timeout": 43_200,
        "max_deliveries": 100, "current_message_count": 2, "dlq_id": None,
    }  # fmt: skip


async def test_unknown_and_malformed_ids(http: httpx.AsyncClient, create: Create) -> None:
    queue, unknown = await create(), str(uuid4())
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/messages", None),
        ("GET", "/messages?limit=2&wait=5", None),
        ("GET", "/messages/peek?limit=1", None),
        ("POST", "/messages", {"data": "x"}),
        ("POST", "/requeue", None),
        ("DELETE", f"/messages/{uuid4()}", None),
        ("POST", "/messages/ack", {"message_ids": [str(uuid4())]}),
        ("POST", f"/messages/{uuid4()}/visibility", {"visibilityTimeout": 1}),
    ):
        response = await http.request(method, f"/api/queues/{unknown}{path}", json=body)
        assert_error(response, 404, f"Queue not found with ID: {unknown}")
        response = await http.request(method, f"/api/queues/1-1-1-1-1{path}", json=body)
        assert_error(response, 400, "Invalid UUID string: 1-1-1-1-1")
    for method, path in (("DELETE", ""), ("POST", "/requeue")):
        response = await http.request(method, f"/api/queues/{queue}/messages/{unknown}{path}")
        assert_error(response, 404, "Message not found")
        response = await http.request(method, f"/api/queues/{queue}/messages/x{path}")
        assert_error(response, 400, "Invalid UUID string: x")
    assert (await http.get(f"/api/queues/{queue.upper()}")).json()["queue_id"] == queue


async def test_requests_that_are_not_understood(http: httpx.AsyncClient, create: Create) -> None:
    path = f"/api/queues/{await create()}/messages"
    assert (await http.post(path, data={"data": "x"})).status_code == 415
    assert (await http.put(path)).status_code == 405
    assert (await http.post(path, content=b"{", headers={"content-type": "application/json"})).status_code == 400
    assert (await http.post(path, content=b'{"data": "\\ud800"}')).status_code == 400
    for body in ({}, {"data": None}, {"data": ""}, {"data": " \n\u3000"}):
        assert_error(await http.post(path, json=body), 400, "Message data is required", "data")
    assert (await http.post(path, json={"data": "a\0b"})).json()["field"] == "data"
    assert (await http.post(path, json={"data": 5})).json()["field"] == "data"
    assert (await http.post(path, json={"messages": [{"data": "x"}, {}]})).json()["field"] == "messages[1].data"
    for messages in ([], [{"data": "x"}] * 101):
        assert (await http.post(path, json={"messages": messages})).json()["field"] == "messages"
    assert (await http.post(path, json={"data": "x", "messageGroup": ""})).json()["field"] == "messageGroup"
    for query in (
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=",
        "limit=\u0661",
        "wait=x",
        "wait=-1",
        "wait=3601",
        "wait=\u0661",
    ):
        assert (await http.get(f"{path}?{query}")).status_code == 400, query
    assert_error(await http.get(f"{path}/peek"), 400, "Limit is required", "limit")
    assert_error(await http.get(f"{path}/peek?limit=0"), 400, "Limit must be greater than 0", "limit")
    assert_error(await http.get(f"{path}/peek?limit=101"), 400, "Limit must not exceed 100", "limit")
    cursor_text = "Invalid cursor format. Expected ISO timestamp format."
    assert_error(await http.get(f"{path}/peek?limit=1&cursorCreatedAt=x"), 400, cursor_text, "cursorCreatedAt")
    assert (await http.get(f"{path}/peek?limit=1&cursorCreatedAt=2024-01-01&cursorMessageId=x")).status_code == 400
    assert (await http.get(f"{path}/peek?limit=1&cursorMessageId=x")).status_code == 200
    for ids, text in (
        ({}, "message_ids is required"),
        ({"messageIds": []}, "message_ids must be 1 to 100, not 0"),
        (
            {"messageIds": [str(uuid4())], "message_ids": []},
            "messageIds and message_ids are both given with different values",
        ),
    ):
        assert_error(await http.post(f"{path}/ack", json=ids), 400, text)


async def test_a_peek_may_begin_at_any_time_that_there_is(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create()
    [id_] = await enqueue(http, queue, "x")
    for time_, seen in (
        ("0001-01-01T00:00:00", [id_]), ("1969-12-31T23:59:59.5", [id_]), ("2024-03-28T15:30:00Z", [id_]),
        ("2024-03-28T15:30:00%2B01:00", [id_]), ("9998-01-01T00:00:00", []), ("9999-12-31T23:59:59.999999", []),
    ):  # fmt: skip
        page = await http.get(f"/api/queues/{queue}/messages/peek?limit=5&cursorCreatedAt={time_}")
        assert [message["message_id"] for message in page.json()["messages"]] == seen, time_


async def test_many_acks_in_either_spelling(http: httpx.AsyncClient, create: Create) -> None:
    queue, stranger = await create(), str(uuid4())
    first, second = await enqueue(http, queue, "x", "y")
    path = f"/api/queues/{queue}/messages/ack"
    acked = await http.post(path, json={"messageIds": [first, stranger, first]})
    assert acked.json()["results"] == [
        {"message_id": first, "deleted": True},
        {"message_id": stranger, "deleted": False, "error": "Message not found"},
        {"message_id": first, "deleted": False, "error": "Message not found"},
    ]
    acked = await http.post(path, json={"message_ids": [second]})
    assert acked.json()["results"] == [{"message_id": second, "deleted": True}]


async def test_its_messages_count_as_messages_of_the_worker(server: Server, create: Create) -> None:
    queue = await create()
    async with api_of(server.port, min(server.workers())) as worker:
        before = (await worker.http.get("/metrics")).json()["messages"]["total"]
        await enqueue(worker.http, queue, "x", "y")
        assert (await worker.http.get(f"/api/queues/{queue}/messages?limit=5")).status_code == 200
        await poll(worker.http, queue)
        assert (await worker.http.get("/metrics")).json()["messages"]["total"] == before + 4


@checks("G-SMQ-1", "G-SMQ-6", level=Level.LIVE)
async def test_a_poll_gives_the_five_fields(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(hidden_s=30)
    before = datetime.now(UTC).replace(tzinfo=None)
    [id_] = await enqueue(http, queue, ' "ä" \\u0041 ')
    message = await poll(http, queue)
    assert message is not None
    assert list(message) == ["message_id", "data", "delivery_count", "invisible_until", "created_at"]
    assert (message["message_id"], message["data"], message["delivery_count"]) == (id_, ' "ä" \\u0041 ', 1)
    assert UUID(id_).version == 7
    created, until = (datetime.fromisoformat(message[name]) for name in ("created_at", "invisible_until"))
    assert 0 <= (created - before).total_seconds() + 5 < 60
    assert 29 < (until - created).total_seconds() < 60
    assert await poll(http, queue) is None


@checks("G-SMQ-5", "G-SMQ-4", level=Level.LIVE)
async def test_a_full_queue_answers_429_until_there_is_room(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(size=1)
    both = await asyncio.gather(*(http.post(f"/api/queues/{queue}/messages", json={"data": "x"}) for _ in range(2)))
    stored, refused = sorted(both, key=lambda response: response.status_code)
    assert stored.status_code == 201
    assert_error(refused, 429, "Queue is full")
    acked = await http.delete(f"/api/queues/{queue}/messages/{stored.json()['message_id']}")
    assert acked.json() == {"message_id": stored.json()["message_id"], "deleted": True}
    await enqueue(http, queue, "y")


@checks("G-SMQ-10", level=Level.LIVE)
async def test_requeue_from_anywhere(http: httpx.AsyncClient, create: Create) -> None:
    source, target, full = await create(), await create(), await create(size=1)
    [first, second] = await enqueue(http, source, "first", "second")
    await enqueue(http, full, "x")
    moved = await http.post(f"/api/queues/{target}/messages/{first}/requeue")
    assert moved.json() == {"message_id": first, "requeued_to": target}
    assert [(await shown(http, queue))["current_message_count"] for queue in (source, target)] == [1, 1]
    refused = await http.post(f"/api/queues/{full}/messages/{second}/requeue")
    assert_error(refused, 429, "Destination queue is full (capacity: 1, current: 1)")
    unknown = str(uuid4())
    refused = await http.post(f"/api/queues/{unknown}/messages/{second}/requeue")
    assert_error(refused, 404, f"Queue not found with ID: {unknown}")
    await poll(http, source)
    # Within one queue, also a full one, nothing is added.
    assert (await http.post(f"/api/queues/{source}/messages/{second}/requeue")).status_code == 200
    again = await poll(http, source)
    assert again is not None
    assert (again["message_id"], again["delivery_count"]) == (second, 1)


async def test_a_queue_and_its_dead_letters_are_deleted_in_that_order(
    http: httpx.AsyncClient, create: Create, database: "asyncpg.Connection[Any]"
) -> None:
    queue = await create(hidden_s=0, deliveries=1)
    await enqueue(http, queue, "x", "y")
    for _ in range(3):
        await poll(http, queue)
    info = await shown(http, queue)
    assert info["dlq_id"] == str(await database.fetchval("SELECT simple_mq.dlq_id($1)", UUID(queue)))
    dlq = await shown(http, info["dlq_id"])
    assert (dlq["queue_name"], dlq["queue_size"], dlq["dlq_id"]) == ("orders-dlq", 100, None)
    refused = await http.delete(f"/api/queues/{info['dlq_id']}")
    assert refused.status_code == 409
    assert queue in refused.json()["error"]
    deleted = await http.delete(f"/api/queues/{queue}")
    assert (deleted.status_code, deleted.content) == (200, b"")
    assert (await http.delete(f"/api/queues/{queue}")).status_code == 404
    assert (await shown(http, info["dlq_id"]))["current_message_count"] == 2
    assert (await http.delete(f"/api/queues/{info['dlq_id']}")).status_code == 200
    ids = [UUID(queue), UUID(info["dlq_id"])]
    for table in ("queues", "counts", "heads", "messages", "outcomes"):
        sql = f"SELECT count(*) FROM simple_mq.{table} WHERE queue_id = ANY($1)"
        await eventually(lambda sql=sql: _is_zero(database, sql, ids), f"{table} is empty")  # type: ignore[misc]


async def _is_zero(database: "asyncpg.Connection[Any]", sql: str, ids: list[UUID]) -> bool:
    return bool(await database.fetchval(sql, ids) == 0)


@checks("G-SMQ-13", level=Level.LIVE)
@pytest.mark.parametrize("same", [True, False], ids=["same worker", "other worker"])
async def test_a_waiting_poll_is_woken_by_an_enqueue(
    server: Server, http: httpx.AsyncClient, create: Create, same: bool
) -> None:
    queue = await create()
    pids = sorted(server.workers())
    for turn in range(3):
        async with api_of(server.port, pids[0 if same else 1]) as waiter, api_of(server.port, pids[0]) as sender:
            waiting = asyncio.create_task(waiter.http.get(f"/api/queues/{queue}/messages?wait=50"))
            done, _ = await asyncio.wait([waiting], timeout=0.4)
            assert not done
            await enqueue(sender.http, queue, str(turn))
            # Long before its timeout: so the test needs no guess of how soon a busy machine answers.
            assert (await asyncio.wait_for(waiting, 30)).json()["message"]["data"] == str(turn)


@checks("G-SMQ-13", level=Level.LIVE)
async def test_a_waiting_poll_gets_what_becomes_visible_by_itself(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(hidden_s=1)
    [id_] = await enqueue(http, queue, "x")
    first = await poll(http, queue)
    again = await asyncio.wait_for(http.get(f"/api/queues/{queue}/messages?wait=60"), 30)
    message = again.json()["message"]
    assert first is not None
    assert (message["message_id"], message["delivery_count"]) == (id_, 2)
    # By the database's clock: given again when its second was over.
    assert datetime.fromisoformat(message["invisible_until"]) - datetime.fromisoformat(
        first["invisible_until"]
    ) >= timedelta(seconds=1)


@checks("G-SMQ-17", level=Level.LIVE)
async def test_a_poll_whose_client_has_gone_takes_nothing(
    server: Server, http: httpx.AsyncClient, create: Create
) -> None:
    queue = await create(hidden_s=600)
    async with open_client(server.port, 1) as leaver:
        with pytest.raises(httpx.ReadTimeout):
            await leaver.get(f"/api/queues/{queue}/messages?wait=20", timeout=httpx.Timeout(60, read=0.3))
    # A worker that has answered since then has also seen the end of the connection.
    async with worker_apis(server.port):
        pass
    await enqueue(http, queue, "x")
    message = await eventually(lambda: poll(http, queue), "the message is there for somebody else")
    assert message["delivery_count"] == 1


@checks("G-SMQ-12", "G-SMQ-13", level=Level.LIVE)
async def test_an_ack_wakes_long_polls_for_the_next_message_of_a_group(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create()
    await enqueue(http, queue, "1", "2", message_group="g")
    first = await poll(http, queue)
    assert first is not None
    assert first["message_group"] == "g"
    waiting = asyncio.create_task(http.get(f"/api/queues/{queue}/messages?wait=50"))
    done, _ = await asyncio.wait([waiting], timeout=0.4)
    assert not done
    await http.delete(f"/api/queues/{queue}/messages/{first['message_id']}")
    assert (await asyncio.wait_for(waiting, 30)).json()["message"]["data"] == "2"


@checks("G-SMQ-14", level=Level.LIVE)
async def test_visibility_is_extended_and_ended(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(hidden_s=30)
    [id_] = await enqueue(http, queue, "x")
    path = f"/api/queues/{queue}/messages/{id_}/visibility"
    text = "Message is not in flight: its visibility timeout has expired, or it was never polled"
    assert_error(await http.post(path, json={"visibilityTimeout": 1}), 409, text)
    message = await poll(http, queue)
    assert message is not None
    extended = await http.post(path, json={"visibility_timeout": 600})
    assert extended.json()["message_id"] == id_
    assert extended.json()["invisible_until"] > message["invisible_until"]
    assert (await http.post(path, json={"visibilityTimeout": 0})).status_code == 200
    again = await poll(http, queue)
    assert again is not None
    assert again["delivery_count"] == 2
    refused = await http.post(path, json={"visibilityTimeout": 43_201})
    assert refused.json()["field"] == "visibilityTimeout"


@checks("G-SMQ-10", level=Level.LIVE)
async def test_a_requeue_that_is_sent_again_changes_nothing(http: httpx.AsyncClient, create: Create) -> None:
    """Its first answer was lost; meanwhile somebody may have polled the message. Also where both arrive at once."""
    queue = await create(deliveries=2, hidden_s=0)
    [message] = await enqueue(http, queue, "x")
    for _ in range(3):
        await poll(http, queue)
    dlq = (await shown(http, queue))["dlq_id"]
    path, moved = f"/api/queues/{dlq}/messages/{message}/requeue", {"message_id": message, "requeued_to": queue}
    for answer in await asyncio.gather(*(http.post(path) for _ in range(4))):
        assert (answer.status_code, answer.json()) == (200, moved)
    taken = await poll(http, queue)
    assert taken is not None
    assert taken["delivery_count"] == 1
    again = await http.post(path)
    assert (again.status_code, again.json()) == (200, moved)
    assert [(await shown(http, each))["current_message_count"] for each in (queue, dlq)] == [1, 0]
    taken = await poll(http, queue)
    assert taken is not None
    assert taken["delivery_count"] == 2, "the delivery counts"


async def test_all_dead_letters_are_requeued_at_once(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(hidden_s=0, deliveries=1)
    ids = await enqueue(http, queue, *(str(number) for number in range(12)))
    assert len((await http.get(f"/api/queues/{queue}/messages?limit=100")).json()["messages"]) == 12
    assert await poll(http, queue) is None
    refused = await http.post(f"/api/queues/{queue}/requeue")
    assert refused.status_code == 409
    dlq = (await shown(http, queue))["dlq_id"]
    done = await http.post(f"/api/queues/{dlq}/requeue")
    assert done.json() == {"requeued": 12, "requeued_to": queue}
    got = (await http.get(f"/api/queues/{queue}/messages?limit=100")).json()["messages"]
    assert [(message["message_id"], message["delivery_count"]) for message in got] == [(id_, 1) for id_ in ids]


async def test_one_requests_long_message_leaves_the_others_alone(http: httpx.AsyncClient, create: Create) -> None:
    queue = await create(maxMessageBytes=10)
    assert (await shown(http, queue))["max_message_bytes"] == 10
    path = f"/api/queues/{queue}/messages"
    texts = ["x" * 10, "x" * 11, "ä" * 6, "y"]
    answers = await asyncio.gather(*(http.post(path, json={"data": text}) for text in texts))
    assert [answer.status_code for answer in answers] == [201, 413, 413, 201]
    assert (await shown(http, queue))["current_message_count"] == 2


@checks("G-SMQ-16", "G-SMQ-3", level=Level.LIVE)
async def test_limits_and_sweep_of_a_server_with_such_settings(postgres: str) -> None:
    """On a database of its own: where there are several servers, one leads, and its sweep is that of all."""
    settings = {
        "QUEEN_SMQ_SWEEP_INTERVAL_MS": "100", "QUEEN_SMQ_MAX_QUEUES": "1", "QUEEN_SMQ_MAX_MESSAGE_BYTES": "100"
    }  # fmt: skip
    url = await create_database(postgres)
    try:
        with open_folder() as folder, serving_database(url, folder, "--workers", "2", **settings) as server:
            async with open_client(server.port) as http:
                body = {"queueName": "n", "queueSize": 9, "visibilityTimeout": 1, "maxDeliveries": 1}
                queue = (await http.post("/api/queues", json=body)).json()["queue_id"]
                refused = await http.post("/api/queues", json=body)
                assert (refused.status_code, refused.json()["code"]) == (429, "capacity_reached")
                refused = await http.post(f"/api/queues/{queue}/messages", json={"data": "x" * 101})
                assert refused.status_code == 413
                await enqueue(http, queue, "x")
                await poll(http, queue)
                dlq = await eventually(lambda: _dlq_of(http, queue), "swept without a poll")
                assert (await shown(http, dlq))["current_message_count"] == 1
    finally:
        await drop_database(postgres, url)


async def _dlq_of(http: httpx.AsyncClient, queue: str) -> str:
    return str((await shown(http, queue))["dlq_id"] or "")


async def test_the_actuator(http: httpx.AsyncClient) -> None:
    assert (await http.get("/actuator/health")).json()["status"] == "UP"
    assert (await http.get("/actuator/info")).json()["app"]["name"] == "Queen for Python"
    assert "simplemq.queue.depth" in (await http.get("/actuator/metrics")).json()["names"]
    assert (await http.get("/actuator/prometheus")).status_code == 200
