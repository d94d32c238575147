"""Consumer groups: listed, lagging, moved, deleted."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, pop_path

GROUPS = "/api/v1/consumer-groups"


async def seek(api: Api, group: str, queue: str, body: dict[str, Any] | None, partition: str | None = None) -> Any:
    place = f"/partitions/{quote(partition, safe='')}" if partition is not None else ""
    path = f"{GROUPS}/{quote(group, safe='')}/queues/{quote(queue, safe='')}{place}/seek"
    response = await api.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def groups(api: Api, queue: str) -> dict[str, dict[str, Any]]:
    response = await api.http.get(GROUPS)
    assert response.status_code == 200
    return {group["name"]: group for group in response.json() if group["queueName"] == queue}


async def take(api: Api, queue: str, group: str, **parameters: Any) -> list[Any]:
    popped = await api.pop(
        queue, consumerGroup=group, batch=100, partitions=100, autoAck=True, **{"subscriptionMode": "all", **parameters}
    )
    return popped.data


async def make_older(database: "asyncpg.Connection[Any]", queue: str, seconds: int) -> None:
    """Moves all messages of a queue into the past."""
    await database.execute(
        "UPDATE queen.segments SET created_at = created_at - make_interval(secs => $2) WHERE part_id IN "
        "(SELECT p.id FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1)",
        queue,
        seconds,
    )


# ---------------------------------------------------------------- lists


async def test_groups_are_listed_with_their_lag_and_start(api: Api, queue: str) -> None:
    await api.push(queue, *range(3))
    await api.push(queue, 3, partition="p")
    await api.pop(queue, "Default", consumerGroup="behind", subscriptionMode="all", batch=1, autoAck=True)
    await take(api, queue, "new", subscriptionMode="new")
    await api.pop(queue)
    found = await groups(api, queue)
    assert set(found) == {"behind", "new", "__QUEUE_MODE__"}
    behind = found["behind"]
    assert (behind["topics"], behind["members"], behind["partitionsWithLag"], behind["totalLag"]) == ([queue], 2, 2, 3)
    assert (behind["state"], behind["subscriptionMode"], behind["subscriptionTimestamp"]) == ("Stable", None, None)
    assert (found["new"]["totalLag"], found["new"]["subscriptionMode"]) == (0, "new")
    # The first pop came before it had the lock under which the group is made.
    since, created = (datetime.fromisoformat(found["new"][f"subscription{key}"]) for key in ("Timestamp", "CreatedAt"))
    assert created - timedelta(minutes=1) < since <= created


async def test_a_group_is_shown_partition_by_partition(api: Api, queue: str) -> None:
    await api.push(queue, *range(3), partition="a")
    await api.push(queue, 1, partition="b")
    popped = await api.pop(queue, "a", consumerGroup=queue, subscriptionMode="all", batch=2)
    await api.ack(popped.messages[:1])
    body = (await api.http.get(f"{GROUPS}/{queue}")).json()
    a, b = body[queue]["partitions"]
    assert (a["partition"], a["offsetLag"], a["totalConsumed"], a["leaseActive"]) == ("a", 2, 1, True)
    assert (a["workerId"], a["lastConsumedAt"] is not None) == (popped.lease, True)
    assert (b["partition"], b["offsetLag"], b["leaseActive"], b["workerId"]) == ("b", 1, False, None)
    page = (await api.http.get(f"{GROUPS}/{queue}", params={"limit": 1, "offset": 1})).json()
    assert [p["partition"] for p in page[queue]["partitions"]] == ["b"]


async def test_cursors_are_sorted_searched_and_counted_by_the_server(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    for name, messages in (("north-1", 3), ("north-2", 1), ("South-1", 2), ("south-2", 1)):
        await api.push(queue, *range(messages), partition=name)
    await take(api, queue, queue)
    for name, messages in (("north-2", 5), ("South-1", 2)):
        await api.push(queue, *range(messages), partition=name)

    async def shown(**parameters: Any) -> tuple[list[str], int | None]:
        answer = (await api.http.get(f"{GROUPS}/{queue}", params=parameters)).json()
        found = answer.get(queue, {"partitions": [], "total": 0})
        return [each["partition"] for each in found["partitions"]], found["total"]

    assert await shown(order="lag", limit=3) == (["north-2", "South-1", "north-1"], 4)
    assert await shown(order="lag", reverse="true", limit=1, offset=3) == (["north-2"], 4)
    assert await shown(order="acknowledged", limit=2) == (["north-1", "South-1"], 4)
    assert await shown(behind="true") == (["South-1", "north-2"], 2)
    assert await shown(search="SOUTH") == (["South-1", "south-2"], 2)
    assert await shown(search="south", behind="true", order="age") == (["South-1"], 1)
    assert await shown(reverse="true", search="orth") == (["north-2", "north-1"], 2)
    assert await shown(queue="another") == ([], 0)
    await groups(api, queue)  # the statistics of small queues are computed for such an answer
    assert await shown(limit=2, offset=1) == (["north-1", "north-2"], 4)
    for field, text in (("order", "x"), ("reverse", "x"), ("behind", "2"), ("search", "a" * 3000)):
        response = await api.http.get(f"{GROUPS}/{queue}", params={field: text})
        assert (response.status_code, response.json()["field"]) == (400, field)


async def test_groups_are_sorted_and_filtered_by_the_server(api: Api, queue: str) -> None:
    await api.push(queue, *range(5))
    for group, messages in (("few", 4), ("many", 1), ("none", 5)):
        await api.pop(
            queue, consumerGroup=f"{queue}-{group}", batch=messages, partitions=9, autoAck=True, subscriptionMode="all"
        )

    async def shown(**parameters: Any) -> list[str]:
        found = (await api.http.get(GROUPS, params={"queue": queue, **parameters})).json()
        return [each["name"].removeprefix(f"{queue}-") for each in found]

    assert await shown(order="lag") == ["many", "few", "none"]
    assert await shown(order="lag", reverse="true") == ["none", "few", "many"]
    assert await shown(behind="true") == ["few", "many"]
    assert await shown(reverse="true") == ["none", "many", "few"]


async def test_the_queues_of_a_group_are_sorted_filtered_and_counted_by_the_server(api: Api, queue: str) -> None:
    group = f"{queue}/g"
    for number, name in enumerate(("a", "b", "c")):
        await api.push(f"{queue}-{name}", *range(number + 1))
        for one in (group, f"{group}roup"):
            await api.pop(f"{queue}-{name}", consumerGroup=one, batch=1, autoAck=True, subscriptionMode="all")

    async def listed(**parameters: Any) -> tuple[list[str], int]:
        found = await api.http.get(f"{GROUPS}/{quote(group, safe='')}/queues", params=parameters)
        assert found.status_code == 200, found.text
        answer = found.json()
        assert {each["name"] for each in answer["queues"]} <= {group}
        return [each["queueName"].removeprefix(f"{queue}-") for each in answer["queues"]], answer["total"]

    assert await listed() == (["a", "b", "c"], 3)
    assert await listed(order="lag", limit=1) == (["c"], 3)
    assert await listed(order="lag", limit=1, offset=1) == (["b"], 3)
    assert await listed(reverse="true", behind="true") == (["c", "b"], 2)
    assert await listed(queue=f"{queue}-b") == (["b"], 1)
    assert await listed(search=f"{queue[-4:]}-C") == (["c"], 1)
    assert (await api.http.get(f"{GROUPS}/unknown/queues")).json() == {"queues": [], "total": 0}
    assert (await api.http.get(f"{GROUPS}/unknown/queues?order=x")).status_code == 400
    all_of_them = await api.http.get(GROUPS, params={"search": queue, "limit": 1})
    assert (len(all_of_them.json()), all_of_them.headers["x-total-count"]) == (1, "6")


async def test_an_unknown_group_is_an_empty_object(api: Api, queue: str) -> None:
    """The original sends no body at all."""
    response = await api.http.get(f"{GROUPS}/{queue}")
    assert (response.status_code, response.json()) == (200, {})


async def test_lagging_partitions_are_listed_worst_first(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    await api.push(queue, 1, 2, partition="a")
    await take(api, queue, "done")
    await api.pop(queue, "unknown", consumerGroup="g", subscriptionMode="all")
    await make_older(database, queue, 7200)
    await api.push(queue, 3, partition="b")
    response = await api.http.get(f"{GROUPS}/lagging", params={"minLagSeconds": 3600})
    [row] = [each for each in response.json() if each["queue_name"] == queue]
    assert (row["consumer_group"], row["partition_name"], row["offset_lag"], row["worker_id"]) == ("g", "a", 2, None)
    assert 7200 <= row["time_lag_seconds"] <= 7260
    assert row["lag_hours"] == pytest.approx(2, abs=0.02)
    assert (await groups(api, queue))["g"]["state"] == "Dead"
    await api.pop(queue, "a", consumerGroup="g", batch=1)
    assert (await groups(api, queue))["g"]["state"] == "Lagging"
    everything = (await api.http.get(f"{GROUPS}/lagging", params={"minLagSeconds": 0})).json()
    lags = [each["time_lag_seconds"] for each in everything]
    assert lags == sorted(lags, reverse=True)


async def test_no_lagging_group_is_an_empty_array(api: Api) -> None:
    """The original sends no body at all."""
    response = await api.http.get(f"{GROUPS}/lagging", params={"minLagSeconds": 10**9})
    assert (response.status_code, response.json()) == (200, [])


@pytest.mark.parametrize("text", ["abc", "-1", "1.5"])
async def test_a_bad_limit_of_lag_is_a_400(api: Api, text: str) -> None:
    """The original answers 500 with "stoi"."""
    response = await api.http.get(f"{GROUPS}/lagging", params={"minLagSeconds": text})
    assert (response.status_code, response.json()["field"]) == (400, "minLagSeconds")


# ---------------------------------------------------------------- seek


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_group_is_rewound_and_gets_all_of_it_again(api: Api, queue: str) -> None:
    await api.push(queue, *range(3))
    await api.push(queue, "side", partition="p")
    assert len(await take(api, queue, "g")) == 4
    done = await seek(api, "g", queue, {"toBeginning": True})
    assert (done["success"], done["partitionsUpdated"], done["seekToEnd"], done["targetTimestamp"]) == (
        True,
        2,
        False,
        None,
    )
    popped = await api.pop(queue, "Default", consumerGroup="g", batch=9)
    assert popped.data == [0, 1, 2]
    assert {message["deliveryAttempt"] for message in popped.messages} == {1}
    assert (await api.pop(queue, "p", consumerGroup="g")).data == ["side"]


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_seek_before_the_first_message_rewinds_a_group_that_began_new(api: Api, queue: str) -> None:
    """The original clears the cursor, and the stored subscription skips the history once more."""
    await api.push(queue, 1, 2)
    assert await take(api, queue, "g", subscriptionMode="new") == []
    await seek(api, "g", queue, {"timestamp": "2020-01-01T00:00:00Z"})
    assert await take(api, queue, "g", subscriptionMode="new") == [1, 2]


async def test_a_seek_to_a_time_goes_behind_the_last_message_not_younger(
    api: Api, queue: str, database: "asyncpg.Connection[Any]"
) -> None:
    await api.push(queue, "old")
    await make_older(database, queue, 3600)
    await api.push(queue, "young")
    assert await take(api, queue, "g") == ["old", "young"]
    half_an_hour_ago = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()
    done = await seek(api, "g", queue, {"timestamp": half_an_hour_ago})
    assert done["targetTimestamp"].endswith("Z")
    assert await take(api, queue, "g") == ["young"]
    await seek(api, "g", queue, {"timestamp": "now"})
    assert await take(api, queue, "g") == []


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_seek_to_the_end_ends_leases_and_skips_the_rest(api: Api, queue: str) -> None:
    await api.push(queue, *range(4))
    leased = await api.pop(queue, consumerGroup="g", subscriptionMode="all", batch=2)
    assert (await seek(api, "g", queue, {"toEnd": True}))["seekToEnd"] is True
    assert (await api.pop(queue, consumerGroup="g")).messages == []
    late = await api.ack(leased.messages)
    assert [result["noop"] for result in late] == [True, True]
    await api.push(queue, "next")
    assert (await api.pop(queue, consumerGroup="g", batch=9)).data == ["next"]


async def test_a_late_ack_after_a_rewind_changes_nothing(api: Api, queue: str) -> None:
    await api.push(queue, 1, 2)
    leased = await api.pop(queue, consumerGroup="g", subscriptionMode="all", batch=2)
    await seek(api, "g", queue, {"toBeginning": True})
    assert {r["error"] for r in await api.ack(leased.messages)} == {"Invalid or expired lease"}
    assert (await api.pop(queue, consumerGroup="g", batch=2)).data == [1, 2]


async def test_a_seek_forgets_failures(api: Api, queue: str) -> None:
    await api.configure(queue, retryLimit=1)
    await api.push(queue, 1)
    await api.ack((await api.pop(queue, consumerGroup="g")).messages, "failed")
    await seek(api, "g", queue, {"toBeginning": True})
    [result] = await api.ack((await api.pop(queue, consumerGroup="g")).messages, "failed")
    assert result["dlq"] is False
    [result] = await api.ack((await api.pop(queue, consumerGroup="g")).messages, "failed")
    assert result["dlq"] is True


async def test_a_seek_wakes_long_polls(workers: list[Api], queue: str) -> None:
    await workers[0].push(queue, 1)
    assert await take(workers[0], queue, "g") == [1]
    waiting = asyncio.create_task(workers[1].pop(queue, consumerGroup="g", wait=True, timeout=30_000))
    await seek(workers[0], "g", queue, {"toBeginning": True})
    async with asyncio.timeout(240):
        assert (await waiting).data == [1]


async def test_a_seek_moves_one_group_and_one_partition_only(api: Api, queue: str) -> None:
    await api.push(queue, "a", partition="a/1")
    await api.push(queue, "b", partition="b")
    for group in ("g", "h"):
        await take(api, queue, group)
    done = await seek(api, "g", queue, {"toBeginning": True}, partition="a/1")
    assert (done["updated"], done["cursorMovedTo"], done["partitionName"]) == (True, None, "a/1")
    assert await take(api, queue, "g") == ["a"]
    assert await take(api, queue, "h") == []


async def test_a_partition_seek_without_a_body_goes_to_the_end(api: Api, queue: str) -> None:
    await api.push(queue, 1, 2, partition="p")
    await api.pop(queue, "unknown", consumerGroup="g", subscriptionMode="all")
    done = await seek(api, "g", queue, None, partition="p")
    assert (done["success"], done["updated"], done["cursorMovedTo"] is not None) == (True, True, True)
    assert await take(api, queue, "g") == []
    unknown = await api.http.post(f"{GROUPS}/g/queues/{queue}/partitions/nope/seek")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "Partition not found")


async def test_a_seek_of_something_unknown_updates_nothing(api: Api, queue: str) -> None:
    assert (await seek(api, "g", f"{queue}-unknown", {"toEnd": True}))["partitionsUpdated"] == 0
    await api.push(queue, 1)
    assert (await seek(api, "nobody", queue, {"toEnd": True}))["partitionsUpdated"] == 0


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"toEnd":false}', b'{"timestamp":"garbage"}', b'{"toEnd":true,"timestamp":"now"}', b"[]"]
)
async def test_a_seek_without_a_target_is_a_400(api: Api, queue: str, body: bytes) -> None:
    response = await api.http.post(f"{GROUPS}/g/queues/{queue}/seek", content=body)
    assert response.status_code == 400
    assert response.json()["error"]


@pytest.mark.parametrize(("group", "name"), [("a/b", "c/d"), ("a b", "100%"), ("größe", "?q#"), ("queues", "seek")])
async def test_names_of_groups_and_queues_may_hold_anything(api: Api, queue: str, group: str, name: str) -> None:
    full = f"{queue}/{name}"
    await api.push(full, 1)
    assert await take(api, full, group) == [1]
    assert (await seek(api, group, full, {"toBeginning": True}))["consumerGroup"] == group
    assert await take(api, full, group) == [1]
    # The published client leaves slashes as they are.
    path = f"{GROUPS}/{quote(group)}/queues/{quote(full)}"
    assert (await api.http.post(f"{path}/seek", json={"toBeginning": True})).json()["queueName"] == full
    assert (await api.http.delete(path)).json()["deletedPartitions"] == 1


# ---------------------------------------------------------------- subscription


@checks("G-GRP-6", level=Level.LIVE)
async def test_a_changed_subscription_moves_no_cursor(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    await take(api, queue, queue, subscriptionMode="new")
    response = await api.http.post(
        f"{GROUPS}/{queue}/subscription", json={"subscriptionTimestamp": "2024-01-01T01:00:00+01:00"}
    )
    expected = {"success": True, "consumerGroup": queue, "newTimestamp": "2024-01-01T00:00:00.000Z", "rowsUpdated": 1}
    assert response.json() == expected
    assert await take(api, queue, queue) == []
    group = (await groups(api, queue))[queue]
    assert (group["subscriptionMode"], group["subscriptionTimestamp"]) == ("timestamp", "2024-01-01T00:00:00.000Z")
    # Put back to its start, it begins there.
    await api.http.delete(f"{GROUPS}/{queue}?deleteMetadata=false")
    assert await take(api, queue, queue) == [1]


async def test_a_subscription_of_an_unknown_group_updates_nothing_and_a_bad_one_is_named(api: Api, queue: str) -> None:
    path = f"{GROUPS}/{queue}/subscription"
    assert (await api.http.post(path, json={"subscriptionTimestamp": "2024-01-01"})).json()["rowsUpdated"] == 0
    missing = await api.http.post(path, json={})
    assert (missing.status_code, missing.json()["error"]) == (400, "Missing subscriptionTimestamp in request body")
    for text in ("garbage", "0001-01-01T00:00:00+14:00", 5):
        assert (await api.http.post(path, json={"subscriptionTimestamp": text})).status_code == 400


# ---------------------------------------------------------------- delete


@checks("G-GRP-7", level=Level.LIVE)
async def test_a_deleted_group_begins_again_as_its_next_pop_says(workers: list[Api], queue: str) -> None:
    api, other = workers
    await api.push(queue, 1, 2)
    assert await take(api, queue, "g", subscriptionMode="new") == []
    for worker in (api, other):  # both remember it
        await worker.pop(queue, consumerGroup="g")
    response = await api.http.delete(f"{GROUPS}/g/queues/{queue}")
    assert response.json() == {
        "success": True,
        "consumerGroup": "g",
        "deletedPartitions": 1,
        "metadataDeleted": True,
        "existed": True,
        "queueName": queue,
    }
    assert "g" not in await groups(api, queue)
    popped = await other.pop(queue, consumerGroup="g", subscriptionMode="all", batch=9)
    assert popped.data == [1, 2]
    # The other worker's number of the group is still right.
    assert all(result["success"] for result in await api.ack(popped.messages))


@checks("G-GRP-7", level=Level.LIVE)
async def test_a_group_that_is_put_back_begins_where_it_once_began(api: Api, queue: str) -> None:
    await api.push(queue, "history")
    assert await take(api, queue, "g", subscriptionMode="new") == []
    await api.push(queue, 1, 2)
    assert await take(api, queue, "g") == [1, 2]
    response = await api.http.delete(f"{GROUPS}/g/queues/{queue}", params={"deleteMetadata": "false"})
    assert (response.json()["metadataDeleted"], response.json()["deletedPartitions"]) == (False, 1)
    assert await take(api, queue, "g") == [1, 2]


async def test_a_group_is_deleted_on_all_queues(api: Api, queue: str) -> None:
    for name in ("a", "b"):
        await api.push(f"{queue}-{name}", 1)
        await take(api, f"{queue}-{name}", queue)
    response = await api.http.delete(f"{GROUPS}/{queue}")
    assert (response.json()["deletedPartitions"], response.json()["existed"]) == (2, True)
    again = (await api.http.delete(f"{GROUPS}/{queue}")).json()
    assert (again["success"], again["deletedPartitions"], again["existed"], again["metadataDeleted"]) == (
        True,
        0,
        False,
        False,
    )


async def test_a_bad_switch_is_a_400_and_deletes_nothing(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    await take(api, queue, "g")
    response = await api.http.delete(f"{GROUPS}/g/queues/{queue}", params={"deleteMetadata": "maybe"})
    assert (response.status_code, response.json()["field"]) == (400, "deleteMetadata")
    assert "g" in await groups(api, queue)


async def test_dead_letters_stay_when_their_group_goes(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    await api.ack((await api.pop(queue, consumerGroup="g")).messages, "dlq")
    await api.http.delete(f"{GROUPS}/g/queues/{queue}")
    assert (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["total"] == 1
    # The group that comes again gives the same message up again: one dead letter, brought up to date.
    await api.ack((await api.pop(queue, consumerGroup="g", subscriptionMode="all")).messages, "dlq", error="again")
    [letter] = (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    assert letter["errorMessage"] == "again"


@checks("G-GRP-5", "G-ORD-2", level=Level.LIVE)
async def test_seeks_amid_pushes_pops_and_deletes_lose_nothing(workers: list[Api], queue: str) -> None:
    number = 60

    async def push() -> None:
        for n in range(number):
            await workers[0].push(queue, n, partition=f"p{n % 3}")

    async def rewind() -> None:
        for place in ("toBeginning", "toEnd") * 5:
            await seek(workers[1], "g", queue, {place: True})

    async def consume() -> None:
        for _ in range(20):
            popped = await workers[1].pop(queue, consumerGroup="g", subscriptionMode="all", batch=5)
            if popped.messages:
                await workers[1].ack(popped.messages)

    async with asyncio.timeout(240):
        await asyncio.gather(push(), rewind(), consume())
    await seek(workers[1], "g", queue, {"toBeginning": True})
    found = await workers[0].pop(queue, consumerGroup="g", batch=1000, partitions=10)
    for partition in range(3):
        own = [m["data"] for m in found.messages if m["partition"] == f"p{partition}"]
        assert own == list(range(partition, number, 3))


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"])
async def test_group_that_begins_at_the_edge_of_the_calendar_is_listed(api: Api, queue: str, moment: str) -> None:
    await api.push(queue, 1)
    response = await api.http.get(pop_path(queue), params={"consumerGroup": f"{queue}-g", "subscriptionFrom": moment})
    assert response.status_code in (200, 204, 400)
    listed = await api.http.get("/api/v1/consumer-groups")
    assert listed.status_code == 200
    made = [group for group in listed.json() if group["name"] == f"{queue}-g"]
    assert len(made) == (response.status_code != 400)


async def test_a_seek_is_foreseen_without_being_done(api: Api, queue: str) -> None:
    await api.push(queue, *range(5), partition="a")
    await api.push(queue, *range(3), partition="b")
    popped = await api.pop(queue, "a", consumerGroup="g", subscriptionMode="all", batch=3)
    await api.ack([popped.messages[0], popped.messages[2]])
    await api.pop(queue, "b", consumerGroup="g", batch=9, autoAck=True)
    place = f"{GROUPS}/g/queues/{queue}/seek"

    async def foreseen(**parameters: Any) -> list[int]:
        response = await api.http.get(place, params=parameters)
        assert response.status_code == 200, response.text
        return list(response.json().values())

    assert await foreseen(toEnd="true") == [2, 3, 0]
    assert await foreseen(toBeginning="true") == [2, 0, 5]
    assert await foreseen(toBeginning="true", partition="a") == [1, 0, 2]
    assert await foreseen(timestamp="now", partition="b") == [1, 0, 0]
    for path, parameters, name in (
        (place, {"partition": "unknown-p"}, "unknown-p"),
        (f"{GROUPS}/unknown-g/queues/{queue}/seek", {}, "unknown-g"),
        (f"{GROUPS}/g/queues/{queue}-unknown/seek", {}, f"{queue}-unknown"),
    ):
        unknown = await api.http.get(path, params={"toEnd": "true", **parameters})
        assert (unknown.status_code, name in unknown.text) == (404, True), unknown.text
    deleted = popped.messages[0]
    await api.http.delete(f"/api/v1/messages/{deleted['partitionId']}/{deleted['transactionId']}")
    assert await foreseen(toBeginning="true", partition="a") == [1, 0, 1]
    assert (await groups(api, queue))["g"]["totalLag"] == 3, "nothing is moved"
    await seek(api, "g", queue, {"toBeginning": True}, "a")
    assert (await groups(api, queue))["g"]["totalLag"] == 4
    assert await foreseen(toEnd="true") == [2, 4, 0]
    bad: list[dict[str, str]] = [{}, {"toEnd": "true", "toBeginning": "true"}, {"timestamp": "x"}, {"toEnd": "x"}]
    for parameters in bad:
        assert (await api.http.get(place, params=parameters)).status_code == 400
