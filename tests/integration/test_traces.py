"""Traces: recorded, and found by message and by name."""

from typing import Any

import pytest

from tests.support.api import Api, Message


async def pushed(api: Api, queue: str, *ids: str) -> list[Message]:
    await api.push(queue, *[{"id": each} for each in ids], ids=ids)
    return (await api.pop(queue, batch=len(ids))).messages


async def record(api: Api, message: Message, data: Any, **fields: Any) -> str:
    body = {"transactionId": message["transactionId"], "partitionId": message["partitionId"], "data": data, **fields}
    response = await api.http.post("/api/v1/traces", json=body)
    assert response.status_code == 201, response.text
    assert response.json()["success"] is True
    return str(response.json()["traceId"])


async def get(api: Api, path: str, **parameters: Any) -> dict[str, Any]:
    response = await api.http.get(f"/api/v1/traces/{path}", params=parameters)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_traces_of_a_message_come_oldest_first(api: Api, queue: str) -> None:
    [message] = await pushed(api, queue, "order/1")
    first = await record(api, message, {"text": "é\0"}, traceNames=["b", "a", "b"], eventType="step")
    second = await record(api, message, [1, None], consumerGroup="g")
    found = (await get(api, f"{message['partitionId']}/order%2F1"))["traces"]
    assert [(t["id"], t["event_type"], t["data"], t["consumer_group"], t["trace_names"]) for t in found] == [
        (first, "step", {"text": "é\0"}, "__QUEUE_MODE__", ["a", "b"]),
        (second, "info", [1, None], "g", []),
    ]
    assert all(t["created_at"].endswith("Z") and t["worker_id"] for t in found)
    assert (await get(api, f"{message['partitionId']}/order/1"))["traces"] == found
    assert (await get(api, f"{message['partitionId']}/{message['id']}"))["traces"] == found


async def test_traces_of_a_name_go_over_messages(api: Api, queue: str) -> None:
    """The original answers a page beyond the end with null."""
    name = f"flow/{queue}"
    for message in await pushed(api, queue, "x", "y"):
        await record(api, message, message["data"], traceNames=name)
    found = await get(api, f"by-name/{name}")
    assert [(t["transaction_id"], t["message_payload"]) for t in found["traces"]] == [
        ("x", {"id": "x"}),
        ("y", {"id": "y"}),
    ]
    assert {(t["queue_name"], t["partition_name"]) for t in found["traces"]} == {(queue, "Default")}
    page = await get(api, f"by-name/flow%2F{queue}", limit=1, offset=1)
    assert ([t["transaction_id"] for t in page["traces"]], page["total"]) == (["y"], 2)
    assert (await get(api, f"by-name/{name}", offset=9))["traces"] == []
    assert await get(api, "by-name/unknown") == {
        "traces": [],
        "total": 0,
        "pagination": {"limit": 100, "offset": 0},
    }


async def test_a_page_of_traces_of_large_messages_ends_before_16_mib(api: Api, queue: str) -> None:
    await api.push(queue, *(str(n) * (7 * 2**20) for n in range(3)))
    for _ in range(3):
        [message] = (await api.pop(queue, autoAck="true")).messages
        await record(api, message, 1, traceNames=queue)
        await record(api, message, 2, traceNames=queue)

    async def page(offset: int) -> list[tuple[str, int]]:
        found = await get(api, f"by-name/{queue}", offset=offset)
        return [(trace["message_payload"][0], trace["data"]) for trace in found["traces"]]

    assert await page(0) == [("0", 1), ("0", 2)]
    assert await page(1) == [("0", 2), ("1", 1)]
    assert await page(5) == [("2", 2)]


async def test_names_are_listed_latest_first_with_their_counts(api: Api, queue: str) -> None:
    x, y = await pushed(api, queue, "x", "y")
    for message in (x, x, y):
        await record(api, message, 1, traceNames=[f"{queue}-many"])
    await record(api, x, 1, traceNames=[f"{queue}-one"])
    found = await get(api, "names", limit=2)
    assert [(n["trace_name"], n["trace_count"], n["message_count"]) for n in found["trace_names"]] == [
        (f"{queue}-one", 1, 1),
        (f"{queue}-many", 3, 2),
    ]
    assert found["total"] >= 2


async def test_names_are_searched_by_a_part_and_paged(api: Api, queue: str) -> None:
    [x] = await pushed(api, queue, "x")
    for name in ("ä-Checkout%1", "ä-checkout_2", "other"):
        await record(api, x, 1, traceNames=[f"{queue}-{name}"])

    async def names(**parameters: Any) -> tuple[list[str], int]:
        found = await get(api, "names", **parameters)
        return [n["trace_name"].removeprefix(f"{queue}-") for n in found["trace_names"]], found["total"]

    search = f"{queue}-ä-CHECK"
    assert await names(search=search) == (["ä-checkout_2", "ä-Checkout%1"], 2)
    assert await names(search=search, limit=1, offset=1) == (["ä-Checkout%1"], 2)
    assert await names(search=f"{queue}-ä-checkout%") == (["ä-Checkout%1"], 1), "no character is a wildcard"
    assert await names(search=f"{queue}-nothing") == ([], 0)
    for bad in ("x" * 256, "\0"):
        answer = await api.http.get("/api/v1/traces/names", params={"search": bad})
        assert (answer.status_code, "search" in answer.text) == (400, True), bad


async def test_an_unknown_message_has_no_traces_and_gets_none(api: Api, queue: str) -> None:
    [message] = await pushed(api, queue, "x")
    assert await get(api, f"{message['partitionId']}/nope") == {"traces": []}
    assert await get(api, "not-a-uuid/nope") == {"traces": []}
    for partition_id in (message["partitionId"], "not-a-uuid"):
        body = {"transactionId": "nope", "partitionId": partition_id, "data": {}}
        response = await api.http.post("/api/v1/traces", json=body)
        assert (response.status_code, response.json()["error"]) == (404, "Message not found")


async def test_traces_go_with_their_message_and_queue(api: Api, queue: str) -> None:
    x, y = await pushed(api, queue, "x", "y")
    for message in (x, y):
        await record(api, message, 1, traceNames=queue)
    await api.http.delete(f"/api/v1/messages/{x['partitionId']}/x")
    assert [t["transaction_id"] for t in (await get(api, f"by-name/{queue}"))["traces"]] == ["y"]
    await api.delete(queue)
    assert (await get(api, f"by-name/{queue}"))["total"] == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"transactionId": None}, "transactionId and partitionId are required"),
        ({"partitionId": ""}, "transactionId and partitionId are required"),
        ({"data": ...}, "data is required"),
        ({"traceNames": 5}, "traceNames"),
        ({"traceNames": [""]}, "traceNames[0]"),
        ({"traceNames": ["x" * 256]}, "traceNames[0]"),
        ({"traceNames": [str(n) for n in range(101)]}, "traceNames"),
        ({"eventType": "x" * 256}, "eventType"),
        ({"consumerGroup": "\0"}, "consumerGroup"),
    ],
)
async def test_a_bad_trace_is_a_400_that_says_why(api: Api, queue: str, change: dict[str, Any], error: str) -> None:
    [message] = await pushed(api, queue, "x")
    body = {"transactionId": "x", "partitionId": message["partitionId"], "data": {}, **change}
    response = await api.http.post("/api/v1/traces", json={k: v for k, v in body.items() if v is not ...})
    assert response.status_code == 400, response.text
    assert error in response.json()["error"]
    assert await get(api, f"{message['partitionId']}/x") == {"traces": []}
