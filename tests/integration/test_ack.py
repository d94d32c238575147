"""Acks over HTTP."""

import json
import time
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message, ack_of
from tests.support.clock import eventually

NO_LEASE = "00000000-0000-4000-8000-000000000000"
NO_PARTITION = "00000000-ffff-8002-8000-000000000000"


async def deliver(api: Api, queue: str, *payloads: Any, **parameters: Any) -> list[Message]:
    """Pushes and pops; the messages."""
    await api.push(queue, *payloads)
    return (await api.pop(queue, batch=100, **parameters)).messages


async def again(api: Api, queue: str, **parameters: Any) -> list[Any]:
    """The payloads of the next pop."""
    return (await api.pop(queue, batch=100, **parameters)).data


async def dead_letters(database: "asyncpg.Connection[Any]", queue: str) -> list[tuple[Any, str, int]]:
    rows = await database.fetch(
        "SELECT d.payload, d.error, d.retry_count FROM queen.dead_letter_queue AS d "
        "JOIN queen.queues AS q ON q.id = d.queue_id WHERE q.name = $1 ORDER BY d.id",
        queue,
    )
    return [(json.loads(row["payload"]), row["error"], row["retry_count"]) for row in rows]


async def test_ack_single_is_answered_with_an_array_of_one(api: Api, queue: str) -> None:
    (message,) = await deliver(api, queue, 1)
    response = await api.http.post("/api/v1/ack", json={**ack_of(message), "consumerGroup": None, "error": None})
    assert response.status_code == 200
    assert response.json() == [
        {
            "index": 0,
            "transactionId": message["transactionId"],
            "success": True,
            "error": None,
            "queueName": queue,
            "partitionName": "Default",
            "leaseReleased": True,
            "dlq": False,
        }
    ]
    assert await again(api, queue) == []


@checks("G-ISO-2", level=Level.LIVE)
async def test_ack_batch_judges_each_item_by_itself(api: Api, queue: str) -> None:
    messages = await deliver(api, queue, 1, 2)
    items = [
        ack_of(messages[0]),
        ack_of(messages[0], transactionId="unknown"),
        ack_of(messages[0], partitionId="not-an-id"),
        ack_of(messages[0], leaseId=NO_LEASE, status="failed", transactionId=messages[1]["transactionId"]),
        ack_of(messages[1], "success"),
    ]
    results = await api.ack_items(items)
    assert [result["success"] for result in results] == [True, False, False, False, True]
    assert [result["error"] for result in results] == [
        None,
        "Message not found",
        "Message not found",
        "Invalid or expired lease",
        None,
    ]
    assert await again(api, queue) == []


async def test_ack_of_an_empty_batch_is_an_empty_array(api: Api) -> None:
    assert await api.ack_items([]) == []


_REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown transaction id": ({"transactionId": "nobody"}, "Message not found"),
    "long transaction id": ({"transactionId": "x" * 100_000}, "Message not found"),
    "transaction id with NUL": ({"transactionId": "a\0b"}, "Message not found"),
    "unknown partition": ({"partitionId": NO_PARTITION}, "Message not found"),
    "empty partition": ({"partitionId": ""}, "Message not found"),
    "partition that is no id": ({"partitionId": "\0'; --"}, "Message not found"),
    "partition with a huge number": ({"partitionId": "ffffffff-ffff-8002-8000-000000000000"}, "Message not found"),
    "unknown lease": ({"leaseId": NO_LEASE}, "Invalid or expired lease"),
    "lease that is no id": ({"leaseId": "abc\0"}, "Invalid or expired lease"),
    "long lease": ({"leaseId": "x" * 100_000}, "Invalid or expired lease"),
    "unknown status": ({"status": "perhaps"}, "Unknown status: perhaps"),
    "upper case status": ({"status": "COMPLETED"}, "Unknown status: COMPLETED"),
}


@checks("G-ISO-4", "G-LEASE-3", "G-ACK-7", level=Level.LIVE)
@pytest.mark.parametrize("form", ["single", "batch"])
@pytest.mark.parametrize("name", _REFUSALS)
async def test_ack_that_is_refused_is_an_answer_and_changes_nothing(api: Api, queue: str, name: str, form: str) -> None:
    fields, error = _REFUSALS[name]
    (message,) = await deliver(api, queue, 1)
    item = ack_of(message, **fields)
    path, body = ("/api/v1/ack", item) if form == "single" else ("/api/v1/ack/batch", {"acknowledgments": [item]})
    response = await api.http.post(path, json=body)
    assert response.status_code == 200, response.text
    (result,) = response.json()
    assert (result["success"], result["error"]) == (False, error)
    assert result["transactionId"] == item["transactionId"]
    assert await again(api, queue) == [], "the lease must still live"
    (good,) = await api.ack([message])
    assert (good["success"], good["leaseReleased"]) == (True, True)


async def test_ack_by_a_group_that_never_popped_is_refused(api: Api, queue: str) -> None:
    (message,) = await deliver(api, queue, 1)
    (result,) = await api.ack_items([ack_of(message, leaseId=None)], "strangers")
    assert (result["success"], result["error"]) == (False, "Consumer group not found")


@checks("G-ACK-4", "G-ACK-2", level=Level.LIVE)
async def test_ack_repeated_is_a_noop_and_any_other_status_is_refused(workers: list[Api], queue: str) -> None:
    messages = await deliver(workers[0], queue, 1, 2)
    await workers[0].ack(messages[:1])
    for api in workers:
        (result,) = await api.ack(messages[:1])
        assert (result["success"], result["noop"], result["error"]) == (True, True, None)
        for status in ("failed", "retry", "dlq"):
            (result,) = await api.ack(messages[:1], status)
            assert (result["success"], result["error"]) == (False, "Message already completed")
    await workers[1].ack(messages[1:])
    (late,) = await workers[0].ack(messages[:1])
    assert (late["success"], late["noop"]) == (True, True)
    assert await again(workers[0], queue) == []


@checks("G-ACK-5", level=Level.LIVE)
async def test_ack_through_the_other_worker_ends_the_lease(workers: list[Api], queue: str) -> None:
    first, second = workers
    messages = await deliver(first, queue, 1, 2)
    await first.push(queue, 3)
    (result,) = await second.ack(messages[:1])
    assert result["leaseReleased"] is False
    assert await again(first, queue) == []
    (result,) = await second.ack(messages[1:])
    assert result["leaseReleased"] is True
    assert await again(first, queue) == [3]


@checks("G-ACK-1", "G-ACK-2", "G-ACK-3", level=Level.LIVE)
async def test_ack_out_of_order_leaves_only_the_gap_to_come_again(api: Api, queue: str) -> None:
    messages = await deliver(api, queue, *range(5))
    await api.ack([messages[n] for n in (4, 1, 2)])
    (result,) = await api.ack([messages[3]], "retry")
    assert (result["success"], result["leaseReleased"]) == (True, True)
    popped = await api.pop(queue, batch=10)
    assert popped.data == [0, 3]
    assert [message["deliveryAttempt"] for message in popped.messages] == [2, 2]
    await api.ack(popped.messages)
    assert await again(api, queue) == []


@checks("G-LEASE-3", level=Level.LIVE)
async def test_an_ack_without_a_lease_does_not_finish_what_somebody_holds(workers: list[Api], queue: str) -> None:
    holder, other = workers
    messages = await deliver(holder, queue, 1, 2)
    pushed = await other.push(queue, 3)
    for lease in (None, ""):
        for status in ("completed", "failed", "retry", "dlq"):
            results = await other.ack(messages, status, leaseId=lease)
            assert [(r["success"], r["error"]) for r in results] == [(False, "Invalid or expired lease")] * 2
    behind = {"transactionId": pushed[0]["transaction_id"], "partitionId": messages[0]["partitionId"]}
    together = [ack_of(messages[1], "completed", leaseId=None), {**behind, "status": "completed"}]
    assert [r["success"] for r in await other.ack_items(together)] == [False, True]
    answer = await other.transact([{"type": "ack", **ack_of(messages[0], "completed", leaseId=None)}])
    assert (answer["success"], answer["error"]) == (False, "ACK operation failed: Invalid or expired lease")
    assert [r["success"] for r in await holder.ack(messages)] == [True, True]
    assert (await other.ack(messages, leaseId=None))[0]["noop"] is True
    assert await again(holder, queue) == []


async def test_an_ack_without_a_lease_finishes_what_nobody_holds(api: Api, queue: str) -> None:
    messages = await deliver(api, queue, 1, 2)
    await api.ack(messages[:1], "retry")
    assert [r["success"] for r in await api.ack(messages, leaseId=None)] == [True, True]
    assert await again(api, queue) == []


@checks("G-LEASE-6", level=Level.LIVE)
async def test_ack_of_a_message_behind_the_lease_is_refused(api: Api, queue: str) -> None:
    messages = await deliver(api, queue, 1)
    (later,) = await api.push(queue, 2)
    (result,) = await api.ack(messages, transactionId=later["transaction_id"])
    assert (result["success"], result["error"]) == (False, "Message not delivered under this lease")


@checks("G-DLQ-1", "G-DLQ-2", "G-DLQ-3", "G-LEASE-5", level=Level.LIVE)
@pytest.mark.parametrize("limit", [0, 2])
async def test_ack_failed_dead_letters_at_failure_limit_plus_one_and_frees_the_next(
    workers: list[Api], database: "asyncpg.Connection[Any]", queue: str, limit: int
) -> None:
    await workers[0].configure(queue, retryLimit=limit)
    await workers[0].push(queue, "poison", "good")
    for failure in range(limit + 1):
        api = workers[failure % 2]
        popped = await api.pop(queue, batch=10)
        assert popped.data == ["poison", "good"]
        assert [message["deliveryAttempt"] for message in popped.messages] == [failure + 1] * 2
        assert await dead_letters(database, queue) == []
        (result,) = await api.ack(popped.messages[:1], "failed", error=f"failure {failure}")
        assert (result["success"], result["dlq"]) == (True, failure == limit)
    assert await dead_letters(database, queue) == [("poison", f"failure {limit}", limit)]
    # the neighbour stays under the last lease, and has no failure of its own
    (result,) = await workers[0].ack(popped.messages[1:], "failed")
    assert result["dlq"] is (limit == 0)


@checks("G-DLQ-1", level=Level.LIVE)
async def test_ack_dlq_buries_at_once_with_the_error_or_a_text_of_its_own(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    messages = await deliver(api, queue, {"a": 1}, 2)
    results = await api.ack_items([ack_of(messages[0], "dlq", error="böse\0'; --"), ack_of(messages[1], "dlq")])
    assert [(result["success"], result["dlq"]) for result in results] == [(True, True)] * 2
    buried = await dead_letters(database, queue)
    assert buried == [({"a": 1}, "böse\N{REPLACEMENT CHARACTER}'; --", 0), (2, "Retries exhausted", 0)]
    assert await again(api, queue) == []


@pytest.mark.parametrize(
    "payload", ["[" * 900 + "]" * 900, r'"\u0000"', "1E+400", r'{"\u0000":1,"a":1,"a":2}', '"' + "x" * 100_000 + '"']
)
async def test_ack_dlq_of_any_payload_that_was_accepted_is_possible(api: Api, queue: str, payload: str) -> None:
    body = f'{{"items":[{{"queue":"{queue}","payload":{payload}}}]}}'
    assert (await api.http.post("/api/v1/push", content=body.encode())).status_code == 201
    messages = (await api.pop(queue)).messages
    (result,) = await api.ack(messages, "dlq", error="no")
    assert (result["success"], result["dlq"]) == (True, True)
    await api.push(queue, "next")
    assert await again(api, queue) == ["next"]


@checks("G-DLQ-4", level=Level.LIVE)
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"deadLetterQueue": False, "dlqAfterMaxRetries": False}, 0),
        ({"deadLetterQueue": False}, 0),
        ({"dlqAfterMaxRetries": False}, 0),
        ({"deadLetterQueue": False, "dlqAfterMaxRetries": True}, 1),
        ({"deadLetterQueue": True, "dlqAfterMaxRetries": False}, 1),
        ({}, 1),
    ],
)
async def test_ack_dlq_in_a_queue_that_wants_none_drops_the_message(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, options: dict[str, bool], kept: int
) -> None:
    said = await api.configure(queue, **options)
    assert {name: said["options"][name] for name in options} == options
    assert (said["options"]["deadLetterQueue"] or said["options"]["dlqAfterMaxRetries"]) == bool(kept)
    await api.ack(await deliver(api, queue, 1), "dlq")
    assert len(await dead_letters(database, queue)) == kept
    assert await again(api, queue) == []


@checks("G-DLQ-2", level=Level.LIVE)
async def test_ack_retry_sends_back_and_counts_nothing(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue, retryLimit=0)
    messages = await deliver(api, queue, 1)
    for attempt in range(2, 5):
        (result,) = await api.ack(messages, "retry")
        assert (result["success"], result["leaseReleased"], result["dlq"]) == (True, True, False)
        messages = (await api.pop(queue)).messages
        assert messages[0]["deliveryAttempt"] == attempt
    assert await dead_letters(database, queue) == []


@checks("G-ACK-6", level=Level.LIVE)
async def test_ack_failed_holds_the_partition_for_the_retry_delay(api: Api, queue: str) -> None:
    await api.configure(queue, retryDelay=500)
    messages = await deliver(api, queue, 1)
    before = time.monotonic()
    await api.ack(messages, "failed")
    await eventually(lambda: again(api, queue), "delivered again")
    assert time.monotonic() - before >= 0.5


@checks("G-DLQ-2", "G-ACK-3", level=Level.LIVE)
async def test_ack_mixed_batch_sends_back_only_what_is_undone(api: Api, queue: str) -> None:
    messages = await deliver(api, queue, *range(6))
    items = [ack_of(messages[n], status) for n, status in enumerate(["completed", "failed", "completed", "dlq"])]
    results = await api.ack_items(items)
    assert [result["success"] for result in results] == [True] * 4
    assert await again(api, queue) == [1, 4, 5]


async def test_ack_of_several_partitions_and_queues_in_one_request(api: Api, queue: str) -> None:
    names = [f"{queue}-{n}" for n in range(3)]
    await api.push_items([{"queue": name, "partition": p, "payload": p} for name in names for p in "ab"])
    messages = [m for name in names for m in (await api.pop(name, batch=10, partitions=2)).messages]
    results = await api.ack_items([ack_of(message) for message in reversed(messages)])
    assert [result["queueName"] for result in results] == [message["queue"] for message in reversed(messages)]
    assert [result["partitionName"] for result in results] == [m["partition"] for m in reversed(messages)]
    assert all(result["success"] for result in results)
    assert [await again(api, name, partitions=2) for name in names] == [[], [], []]
