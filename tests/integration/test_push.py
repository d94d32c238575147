"""Push over HTTP."""

import json
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, pop_path


async def pop_all(api: Api, queue: str, partition: str = "Default", batch: int = 10_000) -> list[dict[str, Any]]:
    return (await api.pop(queue, partition, batch=batch, autoAck=True)).messages


async def test_push_one_item_is_answered_201_with_the_ids(api: Api, queue: str) -> None:
    response = await api.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": {"n": 1}}]})
    assert response.status_code == 201
    assert response.headers["content-type"].startswith("application/json")
    (result,) = response.json()
    (message,) = await pop_all(api, queue)
    assert result == {
        "index": 0,
        "transaction_id": message["id"],
        "status": "queued",
        "message_id": message["id"],
        "partition_id": message["partitionId"],
        "trace_id": None,
        "queueName": queue,
    }


async def test_push_no_items_is_answered_201_with_an_empty_array(api: Api) -> None:
    response = await api.http.post("/api/v1/push", json={"items": []})
    assert (response.status_code, response.json()) == (201, [])


async def test_push_with_chosen_ids_shows_them_in_answer_and_delivery(api: Api, queue: str) -> None:
    trace = "7d1e3c84-2b3f-4f7e-9d2c-1a2b3c4d5e6f"
    item = {"queue": queue, "partition": "p", "payload": 1, "transactionId": "o-1", "traceId": trace}
    (result,) = await api.push_items([item])
    (message,) = await pop_all(api, queue, "p")
    assert (result["transaction_id"], result["trace_id"], result["status"]) == ("o-1", trace, "queued")
    assert (message["transactionId"], message["traceId"], message["id"]) == ("o-1", trace, result["message_id"])
    assert message["partition"] == "p"


async def test_push_empty_ids_and_missing_payload_take_the_defaults(api: Api, queue: str) -> None:
    items = [
        {"queue": queue, "transactionId": "", "traceId": ""},
        {"queue": queue, "transactionId": None, "traceId": None, "data": "ignored", "producerSub": "mallory"},
    ]
    results = await api.push_items(items)
    messages = await pop_all(api, queue)
    assert [message["data"] for message in messages] == [None, None]
    assert [message["transactionId"] for message in messages] == [result["message_id"] for result in results]
    assert [(message["traceId"], message["producerSub"]) for message in messages] == [(None, None)] * 2


@checks("G-ORD-4", "G-ISO-2", level=Level.LIVE)
async def test_push_to_several_queues_and_partitions_keeps_the_order_of_the_request(api: Api, queue: str) -> None:
    places = [(f"{queue}-{n % 2}", f"p{n % 3}") for n in range(60)]
    items = [{"queue": q, "partition": p, "payload": n} for n, (q, p) in enumerate(places)]
    results = await api.push_items(items)
    assert [result["queueName"] for result in results] == [q for q, _ in places]
    for place in set(places):
        messages = await pop_all(api, *place)
        assert [message["data"] for message in messages] == [n for n, each in enumerate(places) if each == place]
        assert [message["offset"] for message in messages] == list(range(len(messages)))
        assert [message["id"] for message in messages] == [
            results[message["data"]]["message_id"] for message in messages
        ]


@pytest.mark.parametrize("chosen", [True, False], ids=["chosen ids", "server-made ids"])
async def test_push_thousands_in_one_request_are_stored_in_order(api: Api, queue: str, chosen: bool) -> None:
    number = 5000
    results = await api.push(queue, *range(number), ids=[f"t-{n}" for n in range(number)] if chosen else None)
    assert {result["status"] for result in results} == {"queued"}
    assert [message["data"] for message in await pop_all(api, queue)] == list(range(number))


@checks("G-IDEM-1", "G-IDEM-2", level=Level.LIVE)
async def test_push_of_a_known_transaction_id_is_a_duplicate_of_the_stored_message(
    workers: list[Api], queue: str
) -> None:
    first, second = workers
    (stored,) = await first.push(queue, "first", ids=["t"])
    results = await second.push(queue, "again", "new", "new again", ids=["t", "u", "u"])
    assert [result["status"] for result in results] == ["duplicate", "queued", "duplicate"]
    assert results[0]["message_id"] == stored["message_id"]
    assert results[2]["message_id"] == results[1]["message_id"]
    assert [message["data"] for message in await pop_all(first, queue)] == ["first", "new"]


@checks("G-IDEM-1", level=Level.LIVE)
async def test_push_repeated_after_the_message_is_consumed_is_still_a_duplicate(api: Api, queue: str) -> None:
    await api.push(queue, 1, ids=["t"])
    await pop_all(api, queue)
    (again,) = await api.push(queue, 1, ids=["t"])
    assert again["status"] == "duplicate"
    assert await pop_all(api, queue) == []


@checks("G-IDEM-3", level=Level.LIVE)
async def test_push_of_one_transaction_id_to_two_partitions_and_queues_is_stored_in_each(api: Api, queue: str) -> None:
    places = [(queue, "a"), (queue, "b"), (f"{queue}-2", "a")]
    results = await api.push_items(
        [{"queue": q, "partition": p, "payload": p, "transactionId": "t"} for q, p in places]
    )
    assert [result["status"] for result in results] == ["queued"] * 3
    assert [len(await pop_all(api, *place)) for place in places] == [1, 1, 1]


@checks("G-IDEM-4", "G-ISO-2", level=Level.LIVE)
async def test_push_under_an_id_that_the_server_will_make_is_refused_alone(api: Api, queue: str) -> None:
    (stored,) = await api.push(queue, "first")
    taken = stored["message_id"]
    future = taken[:-1] + "9"
    results = await api.push(queue, "again", "reserved", "good", ids=[taken, future, "fine"])
    assert [result["status"] for result in results] == ["duplicate", "failed", "queued"]
    assert results[0]["message_id"] == taken
    assert results[1]["error"]
    assert [message["data"] for message in await pop_all(api, queue)] == ["first", "good"]


_PAYLOADS = {
    "integers": "[0,-1,9007199254740993,123456789012345678901234567890123456789012345678901234567890]",
    "numbers": "[1.0,1e5,-0,0.1,1E+400,1e-400,3.141592653589793238462643383279502884197]",
    "texts": r'["","\u0000","\ud83d\ude00","\"\\\/\b\f\n\r\t","%d %s {} $1 \u007f"]',
    "unicode": '["é","日本語","😀","\u2028","e\u0301"]',
    "objects": '{"b":1,"a":{"":null},"dup":1,"dup":2}',
    "spaces": '{ "a" : [ 1 , 2 ] }',
    "words": "[true,false,null]",
    "null": "null",
    "text": '"plain"',
    "number": "42",
    "deep": "[" * 500 + "]" * 500,
    "long": json.dumps("x" * 300_000),
}


@checks("G-DUR-3", level=Level.LIVE)
@pytest.mark.parametrize("chosen", ["", '"transactionId":"t",'], ids=["server-made id", "chosen id"])
@pytest.mark.parametrize("name", _PAYLOADS)
async def test_push_any_payload_comes_back_character_for_character(
    api: Api, queue: str, name: str, chosen: str
) -> None:
    text = _PAYLOADS[name]
    body = f'{{"items":[{{"queue":"{queue}",{chosen}"payload":{text}}},{{"queue":"{queue}","payload":"next"}}]}}'
    response = await api.http.post("/api/v1/push", content=body.encode())
    assert response.status_code == 201, response.text
    answer = await api.http.get(pop_path(queue, "Default"), params={"batch": "2"})
    assert f'"data":{text},' in answer.text
    assert '"data":"next",' in answer.text


@checks("G-ORD-3", "G-ORD-5", level=Level.LIVE)
async def test_push_one_after_another_through_both_workers_keeps_order_and_time(workers: list[Api], queue: str) -> None:
    for n in range(40):
        await workers[n % 2].push(queue, n)
    messages = await pop_all(workers[0], queue)
    assert [message["data"] for message in messages] == list(range(40))
    times = [message["createdAt"] for message in messages]
    assert times == sorted(times)
    assert all(len(time) == len("2026-05-16T08:41:27.123456Z") and time.endswith("Z") for time in times)


@checks("G-POP-3", level=Level.LIVE)
async def test_push_answered_is_there_for_the_next_pop_of_the_other_worker(workers: list[Api], queue: str) -> None:
    pusher, popper = workers
    assert (await popper.pop(queue)).messages == []
    for n in range(20):
        await pusher.push(queue, n)
        assert (await popper.pop(queue, autoAck=True)).data == [n]
