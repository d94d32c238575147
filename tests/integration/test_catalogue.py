"""Queues, partitions, namespaces, tasks and the overview."""

from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api

ODD_NAMES = ("a b", "a/b", "100%", "it's", "größe", "注文📬", "..", "?x=1#y")


async def get(api: Api, path: str, **parameters: Any) -> Any:
    response = await api.http.get(path, params=parameters)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


async def queue_of(api: Api, queue: str) -> dict[str, Any]:
    return dict(await get(api, f"/api/v1/resources/queues/{quote(queue, safe='')}"))


async def test_a_new_queue_has_its_partition_and_no_messages(api: Api, queue: str) -> None:
    await api.configure(queue, namespace="n", task="t")
    found = await queue_of(api, queue)
    assert (found["name"], found["namespace"], found["task"]) == (queue, "n", "t")
    assert [partition["name"] for partition in found["partitions"]] == ["Default"]
    nothing = {"total": 0, "pending": 0, "processing": 0, "completed": 0, "failed": 0, "deadLetter": 0}
    assert found["totals"] == found["partitions"][0]["stats"] == nothing
    assert found["partitions"][0]["oldestMessage"] is found["partitions"][0]["newestMessage"] is None


async def test_messages_are_counted_by_what_became_of_them(api: Api, queue: str) -> None:
    await api.configure(queue, retryLimit=0)
    await api.push(queue, *range(6))
    await api.push(queue, "side", partition="side")
    popped = await api.pop(queue, "Default", batch=4)
    await api.ack(popped.messages[:1])
    await api.ack(popped.messages[1:2], "failed")
    await api.pop(queue, "Default", batch=2)
    found = await queue_of(api, queue)
    own = {"total": 6, "pending": 2, "processing": 2, "completed": 2, "failed": 0, "deadLetter": 1}
    assert {p["name"]: p["stats"] for p in found["partitions"]}["Default"] == own
    assert found["totals"] == {**own, "total": 7, "pending": 3}
    assert found["statsAge"] == 0
    [listed] = [each for each in (await get(api, "/api/v1/resources/queues"))["queues"] if each["name"] == queue]
    assert listed["messages"] == {"total": 7, "pending": 3, "processing": 2}
    assert listed["partitions"] == 2


async def test_the_slowest_group_of_a_partition_counts(api: Api, queue: str) -> None:
    await api.push(queue, *range(5))
    for group, number in (("fast", 5), ("slow", 1)):
        await api.pop(queue, consumerGroup=group, subscriptionMode="all", batch=number, autoAck=True)
    totals = (await queue_of(api, queue))["totals"]
    assert (totals["pending"], totals["completed"]) == (4, 1)


async def test_queues_are_listed_newest_first_in_pages(api: Api, queue: str) -> None:
    names = [f"{queue}-{n}" for n in range(3)]
    for name in names:
        await api.configure(name, namespace=queue)
    listed = await get(api, "/api/v1/resources/queues", namespace=queue)
    assert [each["name"] for each in listed["queues"]] == names[::-1]
    page = await get(api, "/api/v1/resources/queues", namespace=queue, limit=1, offset=1)
    assert [each["name"] for each in page["queues"]] == [names[1]]
    assert (await get(api, "/api/v1/resources/queues", namespace=queue, offset=3))["queues"] == []


async def test_partitions_come_in_pages_by_name(api: Api, queue: str) -> None:
    await api.push_items([{"queue": queue, "partition": f"p{n}", "payload": n} for n in (3, 1, 2)])
    whole = f"/api/v1/resources/queues/{queue}"
    assert [p["name"] for p in (await get(api, whole))["partitions"]] == ["p1", "p2", "p3"]
    page = await get(api, whole, limit=1, offset=1)
    assert [p["name"] for p in page["partitions"]] == ["p2"]
    assert (page["partitionCount"], page["totals"]["total"], page["pagination"]) == (3, 3, {"limit": 1, "offset": 1})
    assert [p["name"] for p in (await get(api, whole, partition="p3"))["partitions"]] == ["p3"]
    over = await get(api, "/api/v1/resources/partitions", queue=queue, limit=2)
    assert [(p["queue"], p["name"]) for p in over["partitions"]] == [(queue, "p1"), (queue, "p2")]
    assert (await get(api, "/api/v1/resources/partitions", queue=f"{queue}-no"))["partitions"] == []


async def test_partitions_and_queues_are_sorted_and_searched_by_the_server(api: Api, queue: str) -> None:
    for name, messages in (("north", 1), ("South", 4), ("south-east", 2)):
        await api.push(queue, *range(messages), partition=name)
    popped = await api.pop(queue, "south-east", batch=2)
    await api.ack(popped.messages[:1], "dlq")
    whole = f"/api/v1/status/queues/{queue}"

    async def shown(**parameters: Any) -> tuple[list[str], int]:
        found = await get(api, whole, **parameters)
        return [each["name"] for each in found["partitions"]], found["partitionsTotal"]

    assert await shown(order="total", limit=2) == (["South", "south-east"], 3)
    assert await shown(order="pending", reverse="true") == (["south-east", "north", "South"], 3)
    assert await shown(order="processing", limit=1) == (["south-east"], 3)
    assert await shown(order="dead_letter", limit=1) == (["south-east"], 3)
    assert await shown(order="newest", limit=1) == (["south-east"], 3)
    assert await shown(search="SOUTH") == (["South", "south-east"], 2)
    assert await shown(search="none") == ([], 0)
    assert await shown(partition="north") == (["north"], 1)
    assert await shown(reverse="true", limit=2) == (["south-east", "north"], 3)
    everywhere = await get(api, "/api/v1/resources/partitions", queue=queue, order="total", reverse="true", limit=1)
    assert [each["name"] for each in everywhere["partitions"]] == ["north"]
    for field in ("order", "reverse"):
        assert (await api.http.get(whole, params={field: "x"})).json()["field"] == field

    await api.configure(f"{queue}-empty")
    for parameters, names in (
        ({"order": "pending"}, [queue, f"{queue}-empty"]),
        ({"order": "partitions", "reverse": "true"}, [f"{queue}-empty", queue]),
        ({"order": "name", "reverse": "true"}, [f"{queue}-empty", queue]),
        ({"order": "processing"}, [queue, f"{queue}-empty"]),
        ({"reverse": "true"}, [queue, f"{queue}-empty"]),
    ):
        listed = await get(api, "/api/v1/resources/queues", search=queue, **parameters)
        assert [each["name"] for each in listed["queues"]] == names, parameters


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_names_are_decoded_from_the_path(api: Api, queue: str, name: str) -> None:
    full = f"{queue} {name}"
    await api.push(full, 1)
    assert (await queue_of(api, full))["name"] == full
    status = await get(api, f"/api/v1/status/queues/{quote(full, safe='')}")
    assert status["queue"]["name"] == full
    depth = await get(api, f"/api/v1/resources/queues/{quote(full, safe='')}/depth")
    assert (depth["queue"], depth["pending"]) == (full, 1)


async def test_a_queue_whose_name_ends_like_an_operation_is_itself(api: Api, queue: str) -> None:
    for ending in ("depth", "messages"):
        full = f"{queue}/{ending}"
        await api.push(full, 1)
        assert (await queue_of(api, full))["name"] == full
        assert (await get(api, f"/api/v1/status/queues/{quote(full, safe='')}"))["queue"]["name"] == full


@pytest.mark.parametrize(
    "path",
    ["/api/v1/resources/queues/{}", "/api/v1/resources/queues/{}/depth", "/api/v1/status/queues/{}",
     "/api/v1/status/queues/{}/messages"],
)  # fmt: skip
async def test_an_unknown_queue_is_a_404_that_says_so(api: Api, queue: str, path: str) -> None:
    response = await api.http.get(path.format(queue))
    assert response.status_code == 404
    assert response.json()["error"] == "Queue not found"


async def test_depth_is_that_of_a_group_or_of_the_slowest(api: Api, queue: str) -> None:
    await api.push(queue, *range(4))
    await api.push(queue, 1, partition="p")
    await api.pop(queue, "Default", consumerGroup="g", subscriptionMode="all", batch=3)
    await api.pop(queue, consumerGroup="done", subscriptionMode="all", batch=9, partitions=9, autoAck=True)
    path = f"/api/v1/resources/queues/{queue}/depth"
    depth = await get(api, path, group="g")
    assert (depth["pending"], depth["processing"], depth["ready"], depth["partitionsPending"]) == (5, 3, 1, 2)
    assert depth["partitionsReady"] == 1
    # The fourth message waits for the lease of those before it.
    assert {p["partition"]: p["ready"] for p in depth["partitions"]} == {"Default": 0, "p": 1}
    assert (await get(api, path, group="done"))["pending"] == 0
    assert (await get(api, path))["pending"] == 5


@pytest.mark.parametrize(
    "options", [{}, {"windowBuffer": 300}, {"delayedProcessing": 300}, {"retryDelay": 300_000}], ids=str
)
@pytest.mark.parametrize("popped", [False, True])
@checks("G-POP-6", level=Level.LIVE)
async def test_what_is_ready_is_what_a_pop_delivers(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, options: dict[str, int], popped: bool
) -> None:
    await api.configure(queue, **options)
    await api.push(queue, 1, 2)
    if popped and (messages := (await api.pop(queue)).messages):
        await api.ack(messages, "failed")
    has_pending = await database.fetchval("SELECT queen.has_pending_messages_v1($1)", queue)
    depth = await get(api, f"/api/v1/resources/queues/{queue}/depth")
    data = (await api.pop(queue, batch=9)).data
    assert (depth["ready"], has_pending) == (len(data), bool(data))
    assert sum(each["ready"] for each in depth["partitions"]) == len(data)
    assert depth["pending"] == 2


async def test_labels_and_overview_add_up(api: Api, queue: str) -> None:
    before = await get(api, "/api/v1/resources/overview")
    for name in ("a", "b"):
        await api.configure(f"{queue}-{name}", namespace=queue, task=f"task-{queue}")
        await api.push(f"{queue}-{name}", 1, 2)
    expected = {"queues": 2, "partitions": 2, "messages": {"total": 4, "pending": 4}}
    namespaces = (await get(api, "/api/v1/resources/namespaces"))["namespaces"]
    assert [each for each in namespaces if each["namespace"] == queue] == [{"namespace": queue, **expected}]
    tasks = (await get(api, "/api/v1/resources/tasks"))["tasks"]
    assert [each for each in tasks if each["task"] == f"task-{queue}"] == [{"task": f"task-{queue}", **expected}]
    after = await get(api, "/api/v1/resources/overview")
    assert after["queues"] == before["queues"] + 2
    assert after["messages"]["total"] == before["messages"]["total"] + 4
    assert after["lag"]["offset"]["max"] >= 2
    assert after["throughput"]["ingestedPerSecond"] > 0


async def test_a_refresh_says_what_it_computed(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    await api.pop(queue, consumerGroup="g")
    response = await api.http.post("/api/v1/stats/refresh")
    assert response.status_code == 200
    done = response.json()
    assert done["queue"]["queuesUpdated"] >= 1
    assert done["group"]["groupsUpdated"] >= 1
    assert done["partition"]["partitionsUpdated"] >= 1
    assert set(done) >= {"partition", "queue", "namespace", "task", "system", "cleanup"}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/resources/queues?limit=x", "limit"),
        ("/api/v1/resources/queues?limit=0", "limit"),
        ("/api/v1/resources/queues?offset=-1", "offset"),
        ("/api/v1/resources/partitions?queue=" + "x" * 256, "queue"),
        ("/api/v1/resources/partitions?queue=%00", "queue"),
        ("/api/v1/status/queues?limit=99999999", "limit"),
    ],
)
async def test_bad_parameters_are_named(api: Api, path: str, field: str) -> None:
    response = await api.http.get(path)
    assert response.status_code == 400, response.text
    assert response.json()["field"] == field
