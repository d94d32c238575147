"""Pop over HTTP, without waiting."""

import time
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, pop_path
from tests.support.clock import eventually


async def fill(api: Api, queue: str, **partitions: int) -> None:
    """So many messages in each partition, one after the other."""
    for partition, number in partitions.items():
        await api.push(queue, *range(number), partition=partition)


def by_partition(messages: list[dict[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for message in messages:
        found.setdefault(message["partition"], []).append(message["data"])
    return found


@checks("G-GRP-4", "G-ISO-4", level=Level.LIVE)
@pytest.mark.parametrize("partition", [None, "Default"])
async def test_pop_of_an_unknown_queue_is_a_204_and_leaves_no_trace(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, partition: str | None
) -> None:
    response = await api.http.get(pop_path(queue, partition))
    assert (response.status_code, response.content) == (204, b"")
    assert await database.fetchval("SELECT count(*) FROM queen.queues WHERE name = $1", queue) == 0


async def test_pop_of_an_unknown_queue_by_a_named_group_makes_it(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    assert (await api.pop(queue, consumerGroup="g", subscriptionMode="new")).messages == []
    assert await database.fetchval("SELECT count(*) FROM queen.queues WHERE name = $1", queue) == 1
    await api.push(queue, "first")
    assert (await api.pop(queue, consumerGroup="g")).data == ["first"]


async def test_pop_of_an_empty_queue_and_an_unknown_partition_is_a_204(api: Api, queue: str) -> None:
    await api.configure(queue)
    assert (await api.pop(queue)).messages == []
    assert (await api.pop(queue, "elsewhere")).messages == []


async def test_pop_answers_with_all_fields_of_the_interface(api: Api, queue: str) -> None:
    (pushed,) = await api.push(queue, {"n": 1}, partition="eu-1", ids=["o-1"])
    body = (await api.pop(queue, consumerGroup="billing")).body
    (message,) = body["messages"]
    assert {name: value for name, value in body.items() if name not in ("messages", "leaseId")} == {
        "success": True,
        "queue": queue,
        "partition": "eu-1",
        "partitionId": pushed["partition_id"],
        "consumerGroup": "billing",
        "partitionsClaimed": 1,
    }
    assert body["leaseId"]
    assert {name: value for name, value in message.items() if name != "createdAt"} == {
        "id": pushed["message_id"],
        "transactionId": "o-1",
        "traceId": None,
        "data": {"n": 1},
        "producerSub": None,
        "partitionId": pushed["partition_id"],
        "partition": "eu-1",
        "queue": queue,
        "leaseId": body["leaseId"],
        "consumerGroup": "billing",
        "offset": 0,
        "deliveryAttempt": 1,
    }


async def test_pop_without_group_is_in_queue_mode(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    first = await api.pop(queue, consumerGroup="")
    assert first.body["consumerGroup"] == "__QUEUE_MODE__"
    assert (await api.pop(queue)).messages == []
    assert (await api.pop(queue, consumerGroup="__QUEUE_MODE__")).messages == []


@checks("G-POP-1", level=Level.LIVE)
@pytest.mark.parametrize(("asked", "number"), [(None, 1), ("", 1), (1, 1), (3, 3), (5, 5), (100, 5), (10_000, 5)])
async def test_pop_delivers_at_most_the_batch_and_does_not_wait_to_fill_it(
    api: Api, queue: str, asked: int | str | None, number: int
) -> None:
    await fill(api, queue, Default=5)
    assert (await api.pop(queue, batch=asked)).data == list(range(number))


@checks("G-POP-1", level=Level.LIVE)
async def test_pop_of_several_partitions_spends_one_batch_under_one_lease(api: Api, queue: str) -> None:
    await fill(api, queue, a=2, b=2, c=2, d=2)
    popped = await api.pop(queue, batch=5, partitions=3)
    found = by_partition(popped.messages)
    assert found == {"a": [0, 1], "b": [0, 1], "c": [0]}
    assert popped.body["partitionsClaimed"] == 3
    assert {message["leaseId"] for message in popped.messages} == {popped.lease}
    assert by_partition((await api.pop(queue, batch=9, partitions=9)).messages) == {"d": [0, 1]}


async def test_pop_claims_one_partition_unless_more_are_asked_for(api: Api, queue: str) -> None:
    await fill(api, queue, a=1, b=1)
    assert by_partition((await api.pop(queue, batch=10)).messages) == {"a": [0]}
    assert by_partition((await api.pop(queue, batch=10)).messages) == {"b": [0]}


@pytest.mark.parametrize("cap", [0, -1])
async def test_pop_with_no_cap_of_partitions_takes_them_all(api: Api, queue: str, cap: int) -> None:
    await fill(api, queue, a=1, b=1, c=1)
    assert by_partition((await api.pop(queue, batch=10, partitions=cap)).messages) == {"a": [0], "b": [0], "c": [0]}


async def test_pop_of_a_partition_takes_nothing_from_another(api: Api, queue: str) -> None:
    await fill(api, queue, a=2, b=3)
    assert by_partition((await api.pop(queue, "b", batch=10, partitions=10)).messages) == {"b": [0, 1, 2]}
    assert (await api.pop(queue, "b", batch=10)).messages == []
    assert by_partition((await api.pop(queue, "a", batch=10)).messages) == {"a": [0, 1]}


@pytest.mark.parametrize("path", ["/partition/", "/partition/null"])
async def test_pop_of_a_partition_without_name_is_one_of_the_queue(api: Api, queue: str, path: str) -> None:
    await fill(api, queue, a=1)
    response = await api.http.get(pop_path(queue) + path)
    assert response.status_code == 200, response.text
    assert response.json()["partition"] == "a"


@checks("G-POP-5", level=Level.LIVE)
async def test_pop_with_auto_ack_finishes_what_it_delivers(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await fill(api, queue, Default=3)
    popped = await api.pop(queue, batch=2, autoAck=True)
    assert (popped.data, popped.lease) == ([0, 1], "")
    assert [message["deliveryAttempt"] for message in popped.messages] == [1, 1]
    assert (await api.pop(queue, batch=2, autoAck="1")).data == [2]
    assert (await api.pop(queue, autoAck=True)).messages == []
    part = "SELECT id FROM queen.partitions WHERE queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    leases = f"SELECT lease FROM queen.partition_consumers WHERE part_id IN ({part})"
    assert [row["lease"] for row in await database.fetch(leases, queue)] == [None]


@checks("G-POP-2", level=Level.LIVE)
async def test_pop_serves_a_quiet_partition_beside_a_busy_one(api: Api, queue: str) -> None:
    await fill(api, queue, busy=50)
    await api.pop(queue, autoAck=True)
    await fill(api, queue, quiet=1)
    served = []
    for _ in range(3):
        await fill(api, queue, busy=1)
        served += (await api.pop(queue, autoAck=True)).messages
    assert "quiet" in by_partition(served[:2])


@checks("G-POP-2", level=Level.LIVE)
async def test_pop_serves_every_partition_before_one_is_served_twice(api: Api, queue: str) -> None:
    names = [f"p{n}" for n in range(10)]
    await api.push_items([{"queue": queue, "partition": name, "payload": n} for n in range(3) for name in names])
    for turn in range(3):
        served = [(await api.pop(queue, autoAck=True)).messages[0] for _ in names]
        assert sorted(message["partition"] for message in served) == sorted(names)
        assert {message["data"] for message in served} == {turn}


async def test_pop_by_namespace_and_task_finds_queues_by_their_labels(api: Api, queue: str) -> None:
    await api.configure(f"{queue}-1", namespace=queue, task="a")
    await api.configure(f"{queue}-2", namespace=queue, task="b")
    await api.push_items([{"queue": f"{queue}-{n}", "payload": n} for n in (1, 2)])
    await api.push(f"{queue}.c.rest", 3)
    assert (await api.pop_label(namespace=queue, task="b")).data == [2]
    assert (await api.pop_label(task="b", namespace="elsewhere")).messages == []
    popped = await api.pop_label(namespace=queue, batch=10, partitions=10)
    assert sorted(popped.data) == [1, 3]
    assert {message["queue"] for message in popped.messages} == {f"{queue}-1", f"{queue}.c.rest"}
    assert (await api.pop_label(namespace=queue, batch=10, partitions=10)).messages == []


@checks("G-POP-4", level=Level.LIVE)
async def test_pop_by_namespace_takes_the_higher_priority_first(api: Api, queue: str) -> None:
    for name, priority in (("low", 1), ("high", 9), ("middle", 5)):
        await api.configure(f"{queue}-{name}", namespace=queue, priority=priority)
        await api.push(f"{queue}-{name}", name)
    assert [(await api.pop_label(namespace=queue)).data for _ in range(3)] == [["high"], ["middle"], ["low"]]


async def test_pop_by_nothing_is_refused(api: Api) -> None:
    response = await api.http.get("/api/v1/pop", params={"namespace": "", "task": ""})
    assert response.status_code == 400
    assert response.json()["error"] == "queue, or namespace or task, is required"


async def test_pop_names_queue_and_partition_in_the_query(api: Api, queue: str) -> None:
    await api.push(queue, "first", partition="a/b")
    await api.push(queue, "second", partition="c")

    async def pop(**parameters: Any) -> list[Any]:
        response = await api.http.get("/api/v1/pop", params={"autoAck": "true", **parameters})
        assert response.status_code == 200, response.text
        return [message["data"] for message in response.json()["messages"]]

    assert await pop(queue=queue, partition="a/b", batch=9, wait="true", timeout=1000) == ["first"]
    assert await pop(queue=queue, batch=9) == ["second"]


async def test_pop_finds_a_partition_by_its_id(api: Api, queue: str) -> None:
    await api.push(queue, "one", partition="a")
    [message] = (await api.pop(queue, autoAck=True)).messages
    await api.push(queue, "elsewhere", partition="b")
    await api.push(queue, "two", partition="a")
    response = await api.http.get("/api/v1/pop", params={"partition": message["partitionId"], "batch": 9})
    assert [each["data"] for each in response.json()["messages"]] == ["two"]


@pytest.mark.parametrize(
    ("parameters", "status", "field"),
    [
        ({"partition": "a"}, 400, "partition"),
        ({"partition": "00000000-0fff-8002-8000-000000000000"}, 404, None),
        ({"queue": "q", "namespace": "n"}, 400, "namespace"),
        ({"partition": "a", "task": "t"}, 400, "namespace"),
    ],
)
async def test_pop_of_what_the_query_does_not_name_clearly_is_refused(
    api: Api, parameters: dict[str, str], status: int, field: str | None
) -> None:
    response = await api.http.get("/api/v1/pop", params=parameters)
    assert (response.status_code, response.json().get("field")) == (status, field)


@checks("G-WAIT-2", level=Level.LIVE)
async def test_pop_of_a_delayed_queue_delivers_at_that_age_and_not_before(api: Api, queue: str) -> None:
    await api.configure(queue, delayedProcessing=1)
    before = time.monotonic()
    await api.push(queue, 1)
    messages = await eventually(lambda: delivered(api, queue), "delivered")
    assert len(messages) == 1
    assert time.monotonic() - before >= 1


@checks("G-WAIT-3", level=Level.LIVE)
async def test_pop_of_a_window_waits_for_its_youngest_message(api: Api, queue: str) -> None:
    await api.configure(queue, windowBuffer=4)
    await api.push(queue, "old")
    for _ in range(3):
        assert (await api.pop(queue)).messages == []
    last = time.monotonic()
    await api.push(queue, "young")
    messages = await eventually(lambda: delivered(api, queue), "delivered")
    assert [message["data"] for message in messages] == ["old", "young"]
    assert time.monotonic() - last >= 4


async def delivered(api: Api, queue: str) -> list[dict[str, Any]]:
    return (await api.pop(queue, batch=10)).messages


async def test_pop_with_autopilot_gets_a_batch_and_is_told_which(api: Api, queue: str) -> None:
    await fill(api, queue, a=20, b=20)
    popped = await api.pop(queue, autopilot=True, consumerGroup="g", subscriptionMode="all")
    assert len(popped.messages) == 40
    assert popped.body["autopilot"]["batch"] >= 40
    assert popped.body["autopilot"]["partitions"] >= 2
    assert isinstance(popped.body["autopilot"]["waitMs"], int)


async def test_pop_with_autopilot_keeps_to_what_is_asked_for(api: Api, queue: str) -> None:
    await fill(api, queue, a=5, b=5)
    assert (await api.pop(queue, autopilot=True, batch=3, partitions=1)).data == [0, 1, 2]


async def test_pop_of_a_large_backlog_through_both_workers_delivers_it_once(workers: list[Api], queue: str) -> None:
    for begin in range(0, 3000, 500):
        await workers[0].push(queue, *range(begin, begin + 500))
    found: list[Any] = []
    while messages := (await workers[len(found) % 2].pop(queue, batch=333)).messages:
        found += [message["data"] for message in messages]
        assert all(result["success"] for result in await workers[0].ack(messages))
    assert found == list(range(3000))
