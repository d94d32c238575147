"""Dead letters: listed, replayed, deleted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api

UNKNOWN = "00000fff-ffff-8004-8000-000000000000"


async def bury(api: Api, queue: str, *payloads: Any, group: str | None = None, partition: str = "Default") -> None:
    """Pushes messages and gives them up, each with its payload as the error."""
    await api.push(queue, *payloads, partition=partition)
    popped = await api.pop(queue, partition, consumerGroup=group, batch=len(payloads))
    for message in popped.messages:
        await api.ack([message], "dlq", error=str(message["data"]))


async def listed(api: Api, **parameters: Any) -> dict[str, Any]:
    response = await api.http.get("/api/v1/dlq", params=parameters)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def data(api: Api, **parameters: Any) -> list[Any]:
    return [letter["data"] for letter in (await listed(api, **parameters))["messages"]]


async def test_dead_letters_are_listed_newest_first_with_all_that_is_known(api: Api, queue: str) -> None:
    await bury(api, queue, "a", {"n": "é\0"}, group="g")
    found = await listed(api, queue=queue)
    assert (found["total"], found["pagination"]) == (2, {"limit": 100, "offset": 0})
    newest = found["messages"][0]
    assert newest["data"] == {"n": "é\0"}
    assert (newest["queue"], newest["partition"], newest["consumerGroup"]) == (queue, "Default", "g")
    assert (newest["retryCount"], newest["producerSub"]) == (0, None)
    assert [letter["errorMessage"] for letter in found["messages"]] == ["{'n': 'é\\x00'}", "a"]
    assert newest["failedAt"] >= newest["createdAt"]
    assert newest["transactionId"] == newest["messageId"] != newest["id"]


async def test_filters_and_pages(api: Api, queue: str) -> None:
    """The original ignores partition, from and to, and answers a page beyond the end with null."""
    await bury(api, queue, 1, 2, group="g")
    await bury(api, queue, 3, group="g", partition="side")
    await bury(api, queue, 4, partition="mode")
    assert await data(api, queue=queue, consumerGroup="g") == [3, 2, 1]
    assert await data(api, queue=queue, consumerGroup="__QUEUE_MODE__") == [4]
    assert await data(api, queue=queue, partition="side") == [3]
    assert await data(api, queue=queue, limit=2, offset=1) == [3, 2]
    beyond = await listed(api, queue=queue, limit=1, offset=99)
    assert (beyond["messages"], beyond["total"]) == ([], 4)
    now = datetime.now(UTC)
    assert await data(api, queue=queue, **{"from": (now - timedelta(hours=1)).isoformat()}) == [4, 3, 2, 1]
    assert await data(api, queue=queue, to=(now - timedelta(hours=1)).isoformat()) == []
    assert (await listed(api, queue=f"{queue}-unknown"))["messages"] == []


@checks("G-DLQ-6", level=Level.LIVE)
async def test_a_dead_letter_is_replayed_where_it_came_from_or_elsewhere(api: Api, queue: str) -> None:
    await bury(api, queue, "home", "away", partition="p")
    letters = {letter["data"]: letter["id"] for letter in (await listed(api, queue=queue))["messages"]}
    home = await api.http.post(f"/api/v1/dlq/{letters['home']}/replay")
    assert (home.status_code, home.json()["result"], home.json()["partition"]) == (200, "moved", "p")
    target = {"queue": f"{queue}-repair", "partition": "x/y"}
    away = await api.http.post(f"/api/v1/dlq/{letters['away']}/replay", json=target)
    assert (away.json()["queue"], away.json()["partition"]) == (f"{queue}-repair", "x/y")
    assert (await api.pop(queue, batch=9, partitions=9)).data == ["home"]
    assert (await api.pop(f"{queue}-repair", "x/y", batch=9)).data == ["away"]
    assert await data(api, queue=queue) == []
    again = await api.http.post(f"/api/v1/dlq/{letters['home']}/replay")
    assert (again.status_code, again.json()["error"]) == (404, "Dead letter not found")


async def test_a_replay_that_is_stored_already_writes_nothing_and_keeps_the_dead_letter(api: Api, queue: str) -> None:
    await bury(api, queue, "x")
    [letter] = (await listed(api, queue=queue))["messages"]
    await api.push(queue, "already", ids=[f"dlq:{letter['id']}"])
    replayed = (await api.http.post(f"/api/v1/dlq/{letter['id']}/replay")).json()
    assert (replayed["result"], replayed["dlqRowRemoved"]) == ("duplicate", False)
    assert replayed["replayedAs"]["status"] == "duplicate"
    assert await data(api, queue=queue) == ["x"]


async def test_a_replay_keeps_trace_id_and_other_groups_records(api: Api, queue: str) -> None:
    trace = "01a1fd8a-93cb-7002-afe7-e483fd50541f"
    await api.push_items([{"queue": queue, "payload": 1, "traceId": trace, "transactionId": "t"}])
    for group in ("g", "h"):
        messages = (await api.pop(queue, consumerGroup=group, subscriptionMode="all")).messages
        await api.ack(messages, "dlq")
    [newest, older] = (await listed(api, queue=queue))["messages"]
    await api.http.post(f"/api/v1/dlq/{newest['id']}/replay")
    assert [letter["id"] for letter in (await listed(api, queue=queue))["messages"]] == [older["id"]]
    for group in ("g", "h"):
        [message] = (await api.pop(queue, consumerGroup=group)).messages
        assert (message["traceId"], message["transactionId"]) == (trace, f"dlq:{newest['id']}")


async def test_dead_letters_are_purged_by_queue_and_group(api: Api, queue: str) -> None:
    await bury(api, queue, 1, 2, group="g")
    await bury(api, queue, 3, group="h", partition="h")
    assert (await api.http.delete("/api/v1/dlq")).status_code == 400
    purged = await api.http.delete("/api/v1/dlq", params={"queue": queue, "consumerGroup": "g"})
    assert purged.json() == {"success": True, "deleted": 2, "queue": queue, "consumerGroup": "g"}
    assert await data(api, queue=queue) == [3]
    purged = await api.http.delete("/api/v1/dlq", params={"queue": queue})
    assert (purged.json()["deleted"], await data(api, queue=queue)) == (1, [])
    assert (await api.http.delete("/api/v1/dlq", params={"queue": "unknown"})).json()["deleted"] == 0


async def test_one_dead_letter_is_deleted_by_its_id_and_its_message_stays_done(api: Api, queue: str) -> None:
    await bury(api, queue, 1, 2)
    [newest, older] = (await listed(api, queue=queue))["messages"]
    assert (await api.http.delete(f"/api/v1/dlq/{newest['id']}")).json() == {"success": True, "id": newest["id"]}
    assert (await api.http.delete(f"/api/v1/dlq/{newest['id']}")).status_code == 404
    assert [letter["id"] for letter in (await listed(api, queue=queue))["messages"]] == [older["id"]]
    assert (await api.pop(queue)).messages == []


@pytest.mark.parametrize("name", [UNKNOWN, "nonsense", "0"])
async def test_an_unknown_dead_letter_is_a_404(api: Api, name: str) -> None:
    assert (await api.http.post(f"/api/v1/dlq/{name}/replay")).status_code == 404
    assert (await api.http.delete(f"/api/v1/dlq/{name}")).status_code == 404


@pytest.mark.parametrize(
    ("parameters", "field"),
    [({"from": "garbage"}, "from"), ({"limit": "abc"}, "limit"), ({"partition": "x" * 256}, "partition")],
)
async def test_bad_filters_are_named(api: Api, parameters: dict[str, str], field: str) -> None:
    response = await api.http.get("/api/v1/dlq", params=parameters)
    assert (response.status_code, response.json()["field"]) == (400, field)


async def test_a_bad_target_is_named(api: Api, queue: str) -> None:
    await bury(api, queue, 1)
    [letter] = (await listed(api, queue=queue))["messages"]
    for body, field in (({"queue": ""}, "queue"), ({"partition": "x" * 256}, "partition"), ({"queue": 1}, "queue")):
        response = await api.http.post(f"/api/v1/dlq/{letter['id']}/replay", json=body)
        assert (response.status_code, response.json()["field"]) == (400, field)
    assert await data(api, queue=queue) == [1]


async def test_dead_letters_are_counted_replayed_and_deleted_by_their_error(api: Api, queue: str) -> None:
    long, cut = "x" * 1200, "x" * 1000
    for error, number, group in (("no money", 3, "a"), ("no money", 1, "b"), ("late", 2, "a"), (long, 1, "a")):
        partition = group + error[:4]
        await api.push(queue, *range(number), partition=partition)
        popped = await api.pop(queue, partition, consumerGroup=group, subscriptionMode="all", batch=number)
        await api.ack(popped.messages, "dlq", error=error)

    async def errors(**parameters: Any) -> list[tuple[str, int]]:
        found = (await api.http.get("/api/v1/dlq/errors", params={"queue": queue, **parameters})).json()
        assert all(sum(each["counts"]) == each["count"] for each in found["errors"])
        assert all(found["begunAt"] <= each["firstFailedAt"] <= each["lastFailedAt"] for each in found["errors"])
        return [(each["error"], each["count"]) for each in found["errors"]]

    async def replay(**body: Any) -> dict[str, Any]:
        response = await api.http.post("/api/v1/dlq/replay", json={"queue": queue, **body})
        assert response.status_code == 200, response.text
        return dict(response.json())

    assert await errors() == [("no money", 4), ("late", 2), (cut, 1)]
    assert await errors(consumerGroup="b") == [("no money", 1)]
    assert (await listed(api, queue=queue, error="no money", limit=1))["total"] == 4
    assert (await listed(api, queue=queue, error=cut))["total"] == 1
    first = await replay(error="no money", consumerGroup="a", limit=2)
    assert (first["replayed"], first["failed"], first["problem"]) == (2, 0, None)
    second = await replay(error="no money", consumerGroup="a", after=first["next"])
    assert (second["replayed"], second["next"]) == (1, None)
    assert [m["data"] for m in (await api.pop(queue, "ano m", consumerGroup="a", batch=9)).messages] == [0, 1, 2]
    assert await errors() == [("late", 2), ("no money", 1), (cut, 1)]
    gone = await api.http.delete("/api/v1/dlq", params={"queue": queue, "error": "late", "partition": "alate"})
    assert gone.json()["deleted"] == 2
    assert (await replay())["replayed"] == 2
    assert await errors() == []
    for body, field in (
        ({"queue": None}, "queue"), ({"limit": 0}, "limit"), ({"error": "\0"}, "error"), ({"queue": "\0"}, "queue"),
        ({"after": {"id": "x", "failedAt": "now"}}, "after"), ({"after": {"id": UNKNOWN, "failedAt": "?"}}, "after"),
    ):  # fmt: skip
        refused = await api.http.post("/api/v1/dlq/replay", json={"queue": queue, **body})
        assert (refused.status_code, field in refused.text) == (400, True), refused.text
    assert (await api.http.get("/api/v1/dlq/errors", params={"limit": 51})).status_code == 400
    unknown = await api.http.post("/api/v1/dlq/replay", json={"queue": f"{queue}-unknown"})
    assert (unknown.status_code, f"{queue}-unknown" in unknown.text) == (404, True)


async def test_a_dead_letter_that_cannot_be_replayed_holds_up_no_other(api: Api, queue: str) -> None:
    await bury(api, queue, 1, 2, 3)
    await api.configure(queue, maxSize=1)
    done = (await api.http.post("/api/v1/dlq/replay", json={"queue": queue})).json()
    assert (done["replayed"], done["failed"], done["next"]) == (1, 2, None)
    assert "is full" in done["problem"]
    assert (await listed(api, queue=queue))["total"] == 2
