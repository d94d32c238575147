"""Acks and a pop in one request: `pop` in the body of `POST /api/v1/ack/batch`."""

import asyncio
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of, open_client
from tests.support.clock import eventually
from tests.support.processes import Server

NO_LEASE = "00000000-0000-4000-8000-000000000000"


async def acked(database: "asyncpg.Connection[Any]", queue: str) -> Any:
    """The highest cursor of the queue's partitions."""
    return await database.fetchval(
        "SELECT max(c.acked) FROM queen.partition_consumers AS c JOIN queen.partitions AS p ON p.id = c.part_id"
        " JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = $1",
        queue,
    )


@checks("G-ACK-8", "G-ORD-1", "G-LEASE-1", level=Level.LIVE)
async def test_a_consumer_goes_through_a_partition_with_one_request_a_message(api: Api, queue: str) -> None:
    await api.push(queue, *range(5))
    messages = (await api.pop(queue, consumerGroup="g")).messages
    seen = []
    while messages:
        seen += [message["data"] for message in messages]
        answer = await api.ack_and_pop(messages, queue=queue)
        assert [(each["index"], each["success"], each["leaseReleased"]) for each in answer["acknowledgments"]] == [
            (0, True, True)
        ]
        messages = answer["pop"]["messages"] if answer["pop"] else []
    assert seen == list(range(5))
    assert answer["pop"] is None
    assert (await api.pop(queue, consumerGroup="g")).messages == []


@checks("G-ACK-8", level=Level.LIVE)
async def test_acks_and_pop_are_one_transaction(
    workers: list[Api], database: "asyncpg.Connection[Any]", queue: str
) -> None:
    api = workers[0]
    await api.push_items([{"queue": queue, "partition": name, "payload": name} for name in "abc"])
    messages = (await api.pop(queue)).messages
    for _ in range(2):  # in the first the worker learns what it is about
        answer = await api.ack_and_pop(messages, queue=queue)
        messages = answer["pop"]["messages"]
    rows = await database.fetch(
        "SELECT c.xmin::text AS xid, c.acked FROM queen.partition_consumers AS c JOIN queen.partitions AS p"
        " ON p.id = c.part_id JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = $1 ORDER BY p.id",
        queue,
    )
    assert [row["acked"] for row in rows] == [0, 0, -1]
    assert rows[1]["xid"] == rows[2]["xid"]
    assert rows[0]["xid"] != rows[1]["xid"]


@checks("G-ACK-8", "G-ACK-7", "G-ISO-2", "G-ISO-4", level=Level.LIVE)
async def test_refused_acks_are_results_and_the_pop_goes_on(api: Api, queue: str) -> None:
    await api.push_items([{"queue": queue, "partition": name, "payload": name} for name in "ab"])
    (message,) = (await api.pop(queue)).messages
    body = {"acknowledgments": [ack_of(message, leaseId=NO_LEASE), ack_of(message, "no")], "pop": {"queue": queue}}
    answer = (await api.http.post("/api/v1/ack/batch", json=body)).json()
    assert [each["error"] for each in answer["acknowledgments"]] == ["Invalid or expired lease", "Unknown status: no"]
    assert [each["data"] for each in answer["pop"]["messages"]] == ["b"]
    assert [each["success"] for each in await api.ack([message])] == [True]


@checks("G-ISO-3", level=Level.LIVE)
async def test_with_a_malformed_pop_nothing_is_acked(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    await api.push(queue, 1)
    messages = (await api.pop(queue)).messages
    body = {"acknowledgments": [ack_of(messages[0])], "pop": {"queue": queue, "batch": 0}}
    response = await api.http.post("/api/v1/ack/batch", json=body)
    assert (response.status_code, response.json()["field"]) == (400, "pop.batch")
    assert response.json()["detail"] == "pop.batch must be a whole number from 1 to 10000, not 0"
    assert await acked(database, queue) == -1


@checks("G-ACK-8", "G-WAIT-1", "G-DUR-2", level=Level.LIVE)
async def test_acks_do_not_wait_for_the_messages_that_the_pop_waits_for(
    workers: list[Api], database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await workers[0].push(queue, 1)
    messages = (await workers[0].pop(queue)).messages
    waiting = asyncio.create_task(workers[0].ack_and_pop(messages, queue=queue, wait=True, timeout=60_000))
    await eventually(lambda: has_acked(database, queue), "the ack is done")
    await workers[1].push(queue, 2)
    answer = await waiting
    assert [each["success"] for each in answer["acknowledgments"]] == [True]
    assert [each["data"] for each in answer["pop"]["messages"]] == [2]


async def has_acked(database: "asyncpg.Connection[Any]", queue: str) -> bool:
    return bool(await acked(database, queue) == 0)


async def test_a_pop_that_waits_in_vain_is_answered_with_the_acks(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    messages = (await api.pop(queue)).messages
    answer = await api.ack_and_pop(messages, queue=queue, wait=True, timeout=50)
    assert ([each["success"] for each in answer["acknowledgments"]], answer["pop"]) == ([True], None)


@checks("G-WAIT-4", "G-ACK-8", level=Level.LIVE)
async def test_a_client_that_leaves_has_acked_and_takes_nothing(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue, leaseTime=300)
    await api.push(queue, 1)
    messages = (await api.pop(queue)).messages
    async with open_client(server.port) as http:
        waiting = asyncio.create_task(Api(http).ack_and_pop(messages, queue=queue, wait=True, timeout=60_000))
        await eventually(lambda: has_acked(database, queue), "the ack is done")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await api.push(queue, 2)
    popped = await api.pop(queue, wait=True, timeout=60_000)
    assert [(each["data"], each["deliveryAttempt"]) for each in popped.messages] == [(2, 1)]


@pytest.mark.parametrize("place", [{"partition": "b"}, {"queue": None, "namespace": "n", "task": "t"}])
async def test_the_pop_takes_what_a_pop_in_a_query_takes(api: Api, queue: str, place: dict[str, Any]) -> None:
    place = {"queue": queue, **place} | ({"namespace": queue} if "namespace" in place else {})
    await api.configure(queue, namespace=queue, task="t")
    await api.push_items([{"queue": queue, "partition": name, "payload": name} for name in "abab"])
    options = {"batch": 10, "partitions": 5, "leaseSeconds": 600, "subscriptionMode": "all", "consumerGroup": "g"}
    answer = await api.ack_and_pop([], **place, **options)
    names = sorted({message["partition"] for message in answer["pop"]["messages"]})
    assert names == (["b"] if "partition" in place else ["a", "b"])
    assert (answer["acknowledgments"], answer["pop"]["consumerGroup"]) == ([], "g")
    rest = await api.ack_and_pop([], queue=queue, autopilot=True, autoAck=True)
    assert rest["pop"]["autopilot"] == {"partitions": 16, "batch": 200, "waitMs": 0}
    assert (len(rest["pop"]["messages"]), rest["pop"]["leaseId"]) == (4, "")
