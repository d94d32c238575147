"""Configuring and deleting queues over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of
from tests.support.clock import eventually

DEFAULTS = {
    "leaseTime": 60,
    "retryLimit": 3,
    "retryDelay": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "priority": 0,
    "retentionEnabled": False,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "maxWaitTimeSeconds": 0,
    "maxSize": 0,
    "encryptionEnabled": False,
}


async def test_configure_answers_with_ids_labels_and_every_option(api: Api, queue: str) -> None:
    response = await api.http.post(
        "/api/v1/configure",
        json={"queue": queue, "namespace": "billing", "task": "invoice", "options": {"leaseTime": 300, "unknown": 1}},
    )
    assert response.status_code == 200, response.text
    body = response.json()
    assert (body["configured"], body["queue"], body["namespace"], body["task"]) == (True, queue, "billing", "invoice")
    assert {**DEFAULTS, "leaseTime": 300}.items() <= body["options"].items()
    (pushed,) = await api.push(queue, 1)
    assert body["partitionId"] == pushed["partition_id"], "the partition Default"
    assert body["queueId"]


async def test_the_configuration_can_be_read_and_is_what_configure_has_answered(api: Api, queue: str) -> None:
    said = await api.configure(queue, namespace="n", task="t", leaseTime=7, windowBuffer=3, retentionEnabled=True)
    read = (await api.http.get("/api/v1/configure", params={"queue": queue})).json()
    assert read == {name: said[name] for name in ("queueId", "queue", "namespace", "task", "options")}
    again = (await api.http.post("/api/v1/configure", json=read)).json()
    assert again["options"] == said["options"], "what is read may be sent"


async def test_the_configuration_of_what_is_not_there_is_an_error(api: Api, queue: str) -> None:
    unknown = await api.http.get("/api/v1/configure", params={"queue": queue})
    unnamed = await api.http.get("/api/v1/configure")
    assert (unknown.status_code, unnamed.status_code, unnamed.json()["field"]) == (404, 400, "queue")


@pytest.mark.parametrize(
    "fields",
    [{}, {"options": None}, {"options": {}}, {"options": {"unknown": True}}, {"namespace": None, "task": None}],
)
async def test_configure_with_nothing_but_a_name_is_accepted(api: Api, queue: str, fields: dict[str, Any]) -> None:
    response = await api.http.post("/api/v1/configure", json={"queue": queue, **fields})
    assert response.status_code == 200, response.text
    body = response.json()
    assert (body["namespace"], body["task"]) == ("", "")
    assert body["options"].items() >= DEFAULTS.items()
    assert "error" not in body


async def test_configure_takes_labels_inside_the_options_too(api: Api, queue: str) -> None:
    response = await api.http.post(
        "/api/v1/configure", json={"queue": queue, "options": {"namespace": "n", "task": "t"}}
    )
    assert (response.json()["namespace"], response.json()["task"]) == ("n", "t")


async def test_configure_takes_the_nine_options_that_clients_always_send(api: Api, queue: str) -> None:
    sent = {
        "leaseTime": 300, "retryLimit": 3, "priority": 0, "delayedProcessing": 0, "windowBuffer": 0, "maxSize": 0,
        "retentionSeconds": 0, "completedRetentionSeconds": 0, "encryptionEnabled": False,
    }  # fmt: skip
    body = await api.configure(queue, **sent)
    assert sent.items() <= body["options"].items()


async def test_configure_again_replaces_everything_and_keeps_messages_and_leases(api: Api, queue: str) -> None:
    first = await api.configure(queue, namespace="n", task="t", leaseTime=7, retryLimit=9, priority=-3)
    await api.push(queue, 1, 2)
    popped = await api.pop(queue)
    second = await api.configure(queue, retryLimit=1)
    assert (second["namespace"], second["task"]) == ("", "")
    assert second["options"].items() >= {**DEFAULTS, "retryLimit": 1}.items()
    assert (second["queueId"], second["partitionId"]) == (first["queueId"], first["partitionId"])
    (result,) = await api.ack(popped.messages)
    assert result["success"] is True
    assert (await api.pop(queue)).data == [2]


async def test_configure_that_ends_a_delay_wakes_waiters_on_both_workers(
    workers: list[Api], api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue, delayedProcessing=3600)
    await api.push(queue, 1)
    waiting = [
        asyncio.create_task(each.pop(queue, wait=True, timeout=50_000, consumerGroup=f"g{n}"))
        for n, each in enumerate(workers)
    ]
    groups = (
        "SELECT count(*) = 2 FROM queen.consumer_groups_metadata "
        "WHERE name IN ('g0', 'g1') AND queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    )
    await eventually(lambda: database.fetchval(groups, queue), "both have popped")
    await api.configure(queue)
    async with asyncio.timeout(240):
        assert [(await task).data for task in waiting] == [[1], [1]]


@pytest.mark.parametrize("option", ["delayedProcessing", "windowBuffer"])
async def test_configure_that_meets_a_pop_leaves_nothing_waiting_under_the_old_options(
    api: Api, queue: str, option: str
) -> None:
    """The pop reads the old options and notes how long to wait, while the new ones are being written."""
    for turn in range(8):
        name = f"{queue}-{turn}"
        await api.configure(name, **{option: 3600})
        await api.push(name, turn)
        assert (await api.pop(name, consumerGroup="g")).messages == []
        await api.configure(name, **{option: 3600})  # the cursor is judged again by the next pop
        before, _ = await asyncio.gather(api.pop(name, consumerGroup="g"), api.configure(name))
        after = await api.pop(name, consumerGroup="g", wait=True, timeout=0 if before.messages else 50_000)
        assert before.data + after.data == [turn]


@checks("G-RET-3", level=Level.LIVE)
async def test_delete_removes_all_of_the_queue_and_the_name_is_free(
    workers: list[Api], database: "asyncpg.Connection[Any]", queue: str
) -> None:
    first, second = workers
    await first.configure(queue, retryLimit=0)
    old = await first.push_items(
        [{"queue": queue, "partition": p, "payload": p, "transactionId": "t"} for p in ("Default", "a", "b")]
    )
    popped = await second.pop(queue, batch=3, partitions=3)
    assert len(popped.messages) == 3
    await second.ack_items([ack_of(popped.messages[0], "dlq")])
    assert (await second.pop(queue, consumerGroup="g")).messages
    assert await first.delete(queue) == {"deleted": True, "queue": queue, "existed": True}
    assert await rows_left(database, [result["partition_id"] for result in old]) == 0
    for api in (second, first):
        assert (await api.pop(queue)).messages == []
        results = await api.ack(popped.messages)
        assert [(result["success"], result["error"]) for result in results] == [(False, "Message not found")] * 3
        assert (await api.extend(popped.lease))["success"] is False
    results = await second.push_items([{"queue": queue, "payload": "new", "transactionId": "t"}])
    assert results[0]["status"] == "queued"
    assert results[0]["partition_id"] not in {result["partition_id"] for result in old}
    assert (await first.pop(queue, consumerGroup="g", subscriptionMode="all")).data == ["new"]
    assert (await second.pop(queue)).data == ["new"]


async def rows_left(database: "asyncpg.Connection[Any]", partition_ids: list[str]) -> int:
    """Rows of any table that belong to one of the partitions."""
    numbers = [int(partition.replace("-", "")[:12], 16) for partition in partition_ids]
    tables = await database.fetch(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'queen' AND column_name = 'part_id' "
        "AND table_name IN (SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE')"
    )
    assert len(tables) >= 4
    counts = [
        await database.fetchval(f"SELECT count(*) FROM queen.{row['table_name']} WHERE part_id = ANY($1)", numbers)
        for row in tables
    ]
    return sum(counts)


@pytest.mark.parametrize("times", [1, 2])
async def test_delete_of_an_unknown_queue_is_an_answer(api: Api, queue: str, times: int) -> None:
    for _ in range(times):
        body = await api.delete(queue)
        assert (body["existed"], body["queue"]) == (False, queue)


@checks("G-RET-3", "G-ISO-1", level=Level.LIVE)
async def test_delete_beside_other_operations_fails_no_request(api: Api, queue: str) -> None:
    """A push that meets a delete makes the queue again, and requests fused with it do not notice."""
    other = f"{queue}-other"

    async def push(name: str) -> None:
        (result,) = await api.push(name, 1)
        assert result["status"] == "queued"

    async def transact() -> None:
        body = await api.transact([{"type": "push", "items": [{"queue": queue, "payload": 1}]}])
        assert body["success"] is True

    async def pop() -> None:
        if messages := (await api.pop(queue, batch=10, consumerGroup="g")).messages:
            await api.ack(messages)

    async def repeat(times: int, call: Callable[[], Awaitable[object]]) -> None:
        for _ in range(times):
            await call()

    await asyncio.gather(
        *[repeat(120, lambda: push(queue)) for _ in range(2)],
        *[repeat(120, lambda: api.delete(queue)) for _ in range(2)],
        repeat(120, lambda: push(other)),
        repeat(80, transact),
        repeat(80, pop),
        repeat(40, lambda: api.configure(queue)),
    )
    await api.delete(queue)
    await api.push(queue, "last")
    assert (await api.pop(queue)).data == ["last"]
    assert len((await api.pop(other, batch=1000)).messages) == 120


@checks("G-RET-3", level=Level.LIVE)
async def test_delete_in_psql_removes_everything_and_running_workers_notice(
    workers: list[Api], database: "asyncpg.Connection[Any]", queue: str
) -> None:
    pushed = []
    for api in workers:
        pushed += await api.push(queue, "old")
        await api.pop(queue, consumerGroup=f"g{id(api)}")
    await database.execute("DELETE FROM queen.queues WHERE name = $1", queue)
    assert await rows_left(database, [result["partition_id"] for result in pushed]) == 0
    for n, api in enumerate(workers):
        (result,) = await api.push(queue, n)
        assert result["status"] == "queued"
    for api in workers:
        assert (await api.pop(queue, batch=10, consumerGroup=f"g{id(api)}")).data == [0, 1]


async def test_delete_wakes_no_long_poll_and_a_waiter_gets_what_comes_after(workers: list[Api], queue: str) -> None:
    waiter, other = workers
    await other.push(queue, "old")
    await waiter.pop(queue, consumerGroup="g", autoAck=True)
    waiting = asyncio.create_task(waiter.pop(queue, wait=True, timeout=50_000, consumerGroup="g"))
    await other.delete(queue)
    await other.push(queue, "new")
    async with asyncio.timeout(240):
        assert (await waiting).data == ["new"]


async def test_configure_and_push_of_one_new_queue_by_many_at_once_make_one(api: Api, queue: str) -> None:
    for turn in range(5):
        name = f"{queue}-{turn}"
        configured, pushed = await asyncio.gather(
            asyncio.gather(*[api.configure(name, leaseTime=9) for _ in range(10)]),
            asyncio.gather(*[api.push(name, n) for n in range(10)]),
        )
        assert len({body["queueId"] for body in configured}) == 1
        assert len({body["partitionId"] for body in configured} | {p["partition_id"] for (p,) in pushed}) == 1
        assert sorted((await api.pop(name, batch=100)).data) == list(range(10))
