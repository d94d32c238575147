"""Transactions over HTTP: pushes and acks, all or none."""

import asyncio
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message, ack_of

NO_LEASE = "00000000-0000-4000-8000-000000000000"


def push_op(queue: str, payload: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "push", "items": [{"queue": queue, "payload": payload, **fields}]}


def ack_op(message: Message, status: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "ack", **ack_of(message, status, **fields)}


async def input_of(api: Api, queue: str, *payloads: Any) -> list[Message]:
    await api.push(queue, *payloads)
    return (await api.pop(queue, batch=100)).messages


async def rest_of(api: Api, queue: str) -> list[Any]:
    """What is in the queue's default partition, for a group of its own."""
    return (await api.pop(queue, batch=100, consumerGroup="rest", subscriptionMode="all", autoAck=True)).data


async def is_leased(api: Api, message: Message) -> bool:
    """Whether the message is still undone, under its lease."""
    return bool((await api.extend(message["leaseId"]))["success"])


@checks("G-TXN-1", level=Level.LIVE)
async def test_transaction_of_ack_and_pushes_happens_and_lists_its_results(api: Api, queue: str) -> None:
    (message,) = await input_of(api, queue, 1)
    items = [{"queue": f"{queue}-out", "payload": n, "transactionId": f"t{n}"} for n in range(2)]
    body = await api.transact(
        [push_op(f"{queue}-log", "first"), ack_op(message), {"type": "push", "items": items}],
        requiredLeases=[message["leaseId"]],
    )
    assert (body["success"], body.get("error")) == (True, None)
    assert body["transactionId"]
    results = body["results"]
    assert [result["index"] for result in results] == [0, 1, 2, 3]
    assert [result["type"] for result in results] == ["push", "ack", "push", "push"]
    assert all(result["success"] for result in results)
    assert (results[1]["transactionId"], results[1]["dlq"]) == (message["transactionId"], False)
    assert [result["transactionId"] for result in results[2:]] == ["t0", "t1"]
    assert results[0]["queueName"] == f"{queue}-log"
    delivered = (await api.pop(f"{queue}-out", batch=9)).messages
    assert [each["id"] for each in delivered] == [result["messageId"] for result in results[2:]]
    assert {each["partitionId"] for each in delivered} == {results[2]["partitionId"]}
    assert await rest_of(api, f"{queue}-log") == ["first"]
    assert await is_leased(api, message) is False
    assert (await api.pop(queue)).messages == []


async def test_transaction_takes_the_flat_form_of_a_push(api: Api, queue: str) -> None:
    body = await api.transact(
        [
            {"type": "push", "queue": queue, "payload": {"a": 1}, "transactionId": "t"},
            {"type": "push", "queue": queue, "data": [2], "namespace": "n", "task": "t"},
            {"type": "push", "queue": queue, "payload": None},
            {"type": "push", "queue": queue, "partition": "p", "payload": 4},
        ]
    )
    assert body["success"] is True
    assert await rest_of(api, queue) == [{"a": 1}, [2], None]
    assert (await api.pop(queue, "p")).data == [4]


async def test_transaction_push_without_payload_stores_an_empty_object(api: Api, queue: str) -> None:
    body = await api.transact(
        [{"type": "push", "queue": queue, "partition": "flat"}, {"type": "push", "items": [{"queue": queue}]}]
    )
    assert body["success"] is True
    assert [(await api.pop(queue, p)).data for p in ("flat", "Default")] == [[{}], [{}]]


_FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "unknown message": ({"transactionId": "nobody"}, "ACK operation failed: Message not found"),
    "unknown partition": ({"partitionId": "nowhere"}, "ACK operation failed: Message not found"),
    "foreign lease": ({"leaseId": NO_LEASE}, "ACK operation failed: Invalid or expired lease"),
    "lease that is no id": ({"leaseId": "\0abc"}, "ACK operation failed: Invalid or expired lease"),
    "retry": ({"status": "retry"}, "ACK operation failed: Unknown status: retry"),
    "unknown status": ({"status": "perhaps"}, "ACK operation failed: Unknown status: perhaps"),
    "unknown group": ({"consumerGroup": "strangers"}, "ACK operation failed: Consumer group not found"),
    "unknown type": ({"type": "dance"}, "Unknown operation type: dance"),
}


@checks("G-TXN-1", "G-TXN-3", "G-ISO-4", level=Level.LIVE)
@pytest.mark.parametrize("name", _FAILING)
async def test_transaction_with_an_operation_that_fails_is_an_answer_and_changes_nothing(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, name: str
) -> None:
    fields, error = _FAILING[name]
    first, second = await input_of(api, queue, 1, 2)
    await api.push(f"{queue}-out", "there before")
    body = await api.transact(
        [push_op(f"{queue}-out", "a"), ack_op(first), {**ack_op(second), **fields}, push_op(f"{queue}-out", "b")]
    )
    assert (body["success"], body["error"], body["results"]) == (False, error, [])
    assert await rest_of(api, f"{queue}-out") == ["there before"]
    assert await is_leased(api, first) is True
    dead = "SELECT count(*) FROM queen.dead_letter_queue WHERE queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    assert await database.fetchval(dead, queue) == 0
    assert (await api.transact([ack_op(first), ack_op(second)]))["success"] is True


@checks("G-TXN-1", "G-IDEM-1", level=Level.LIVE)
async def test_transaction_with_a_duplicate_fails_as_a_whole(api: Api, queue: str) -> None:
    (message,) = await input_of(api, queue, 1)
    await api.push(f"{queue}-out", "first", ids=["t"])
    for operations in (
        [ack_op(message), push_op(f"{queue}-out", "again", transactionId="t")],
        [ack_op(message), push_op(f"{queue}-new", 1, transactionId="u"), push_op(f"{queue}-new", 2, transactionId="u")],
    ):
        body = await api.transact(operations)
        assert (body["success"], body["reason"], body["results"]) == (False, "duplicate", [])
    assert await is_leased(api, message) is True
    assert await rest_of(api, f"{queue}-out") == ["first"]
    assert await rest_of(api, f"{queue}-new") == []


@checks("G-TXN-2", "G-TXN-3", level=Level.LIVE)
async def test_transaction_sent_twice_happens_once(workers: list[Api], queue: str) -> None:
    first, second = workers
    (message,) = await input_of(first, queue, 1)
    operations = [ack_op(message), push_op(f"{queue}-out", "made")]
    assert (await first.transact(operations))["success"] is True
    for late in (operations, [{**operations[0], "leaseId": ""}, operations[1]]):
        body = await second.transact(late)
        assert (body["success"], body["reason"]) == (False, "ack_rejected")
    assert await rest_of(second, f"{queue}-out") == ["made"]


@checks("G-TXN-2", level=Level.LIVE)
async def test_transaction_raced_through_both_workers_happens_once(workers: list[Api], queue: str) -> None:
    for turn in range(5):
        (message,) = await input_of(workers[0], queue, turn)
        operations = [ack_op(message), push_op(f"{queue}-out", turn)]
        bodies = await asyncio.gather(*[api.transact(operations) for api in workers])
        assert sorted(body["success"] for body in bodies) == [False, True]
    assert await rest_of(workers[0], f"{queue}-out") == list(range(5))


@checks("G-TXN-2", level=Level.LIVE)
async def test_transaction_pipeline_of_concurrent_workers_makes_each_output_once(api: Api, queue: str) -> None:
    partitions = [f"p{n}" for n in range(4)]
    await api.push_items(
        [{"queue": queue, "partition": p, "payload": f"{p}-{n}"} for n in range(10) for p in partitions]
    )

    async def transform() -> None:
        while messages := (await api.pop(queue, batch=3)).messages:
            done = [ack_op(message) for message in messages]
            made = [push_op(f"{queue}-out", m["data"], partition=m["partition"]) for m in messages]
            bodies = await asyncio.gather(*[api.transact([*done, *made]) for _ in range(2)])
            assert sorted(body["success"] for body in bodies) == [False, True]

    await asyncio.gather(*[transform() for _ in range(4)])
    popped = await api.pop(f"{queue}-out", batch=1000, partitions=100)
    found = {p: [m["data"] for m in popped.messages if m["partition"] == p] for p in partitions}
    assert found == {p: [f"{p}-{n}" for n in range(10)] for p in partitions}


@checks("G-TXN-3", level=Level.LIVE)
async def test_transaction_ack_without_lease_takes_the_required_one_that_is_live(api: Api, queue: str) -> None:
    (message,) = await input_of(api, queue, 1)
    refused = await api.transact([ack_op(message, leaseId=None)], requiredLeases=[NO_LEASE, "no id"])
    assert (refused["success"], refused["results"]) == (False, [])
    assert await is_leased(api, message) is True
    done = await api.transact([ack_op(message, leaseId=None)], requiredLeases=[NO_LEASE, message["leaseId"]])
    assert done["success"] is True
    assert await is_leased(api, message) is False


@checks("G-DLQ-1", level=Level.LIVE)
@pytest.mark.parametrize("status", ["failed", "dlq"])
async def test_transaction_ack_failed_dead_letters_at_once(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, status: str
) -> None:
    await api.configure(queue, retryLimit=5)
    (message,) = await input_of(api, queue, 1)
    body = await api.transact([ack_op(message, status, error="boom")])
    assert (body["success"], body["results"][0]["dlq"]) == (True, True)
    errors = "SELECT error FROM queen.dead_letter_queue WHERE queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    assert [row["error"] for row in await database.fetch(errors, queue)] == ["boom"]
    assert (await api.pop(queue)).messages == []


async def test_transaction_push_wakes_a_waiter_on_the_other_worker(workers: list[Api], queue: str) -> None:
    waiter, sender = workers
    waiting = asyncio.create_task(waiter.pop(queue, wait=True, timeout=10_000, consumerGroup="g"))
    assert (await sender.pop(queue, consumerGroup="g")).messages == []
    await sender.transact([push_op(queue, 1)])
    assert (await waiting).data == [1]


@checks("G-TXN-1", "G-TXN-2", level=Level.LIVE)
async def test_transactions_that_cross_each_other_all_happen(api: Api, queue: str) -> None:
    """Each acks in one queue and pushes to the other, several partitions at a time, in opposite orders."""
    names, rounds = [f"p{n}" for n in range(4)], 12
    sides = [f"{queue}-a", f"{queue}-b"]
    await api.push_items(
        [{"queue": s, "partition": p, "payload": n} for s in sides for p in names for n in range(rounds)]
    )

    async def cross(side: int, name: str) -> int:
        done = 0
        for n in range(rounds):
            (message,) = (await api.pop(sides[side], name)).messages
            order = names if side else names[::-1]
            pushes = [push_op(f"{sides[1 - side]}-out", [side, name, n], partition=p) for p in order]
            operations = [ack_op(message), *pushes] if n % 2 else [*pushes, ack_op(message)]
            body = await api.transact(operations)
            assert body["success"] is True, body
            done += 1
        return done

    async with asyncio.timeout(240):
        assert await asyncio.gather(*[cross(s, p) for s in (0, 1) for p in names]) == [rounds] * 8
    for side in sides:
        popped = await api.pop(f"{side}-out", batch=10_000, partitions=10)
        assert len(popped.messages) == rounds * len(names) * len(names)


async def test_transaction_of_thousands_of_operations_is_possible(api: Api, queue: str) -> None:
    messages = await input_of(api, queue, *range(100))
    operations = [operation for m in messages for operation in (ack_op(m), push_op(f"{queue}-out", m["data"]))]
    operations.append({"type": "push", "items": [{"queue": f"{queue}-out", "payload": n} for n in range(100, 3000)]})
    body = await api.transact(operations)
    assert body["success"] is True
    assert len(body["results"]) == 200 + 2900
    assert [result["index"] for result in body["results"]] == list(range(3100))
    assert (await api.pop(f"{queue}-out", batch=10_000)).data == list(range(3000))


@checks("G-TXN-1", level=Level.LIVE)
async def test_transaction_with_an_ack_of_what_its_lease_does_not_hold_is_undone(api: Api, queue: str) -> None:
    await api.push(queue, 1, 2, 3)
    leased = (await api.pop(queue, batch=2)).messages
    part, lease = leased[0]["partitionId"], leased[0]["leaseId"]
    [third] = (await api.pop(queue, batch=9, consumerGroup="other", autoAck=True)).messages[2:]
    beyond = {**leased[0], "transactionId": third["transactionId"], "partitionId": part, "leaseId": lease}
    body = await api.transact([*(ack_op(message) for message in leased), ack_op(beyond), push_op(f"{queue}-out", 1)])
    assert body["success"] is False
    assert "not delivered under this lease" in body["error"]
    assert await is_leased(api, leased[0])
    assert await rest_of(api, f"{queue}-out") == []


async def test_ack_of_a_message_that_does_not_exist_yet_is_not_found_whatever_its_lease(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    [message] = (await api.pop(queue)).messages
    head, _, offset = message["transactionId"].rpartition("-")
    later = {**message, "transactionId": f"{head}-{int(offset, 16) + 5:012x}"}
    for lease in (message["leaseId"], NO_LEASE, None):
        [result] = await api.ack([{**later, "leaseId": lease}])
        assert result["error"] == "Message not found"


@checks("G-TXN-1", level=Level.LIVE)
@pytest.mark.parametrize("chosen", [None, "00000000-0001-8001-8000-000000000009"])
async def test_transaction_that_fails_leaves_no_queue_behind(api: Api, queue: str, chosen: str | None) -> None:
    (message,) = await input_of(api, queue, 1)
    item = {"transactionId": chosen} if chosen else {}
    made = f"{queue}-made"
    body = await api.transact([push_op(made, 1, **item), ack_op(message, leaseId=NO_LEASE)])
    assert body["success"] is False
    assert (await api.delete(made))["existed"] is (chosen is not None)
    body = await api.transact([push_op(made, 1, **item), ack_op(message)])
    assert body["success"] is True
    assert await rest_of(api, made) == [1]


@pytest.mark.parametrize("partitions", [40, 3, 1])
@checks("G-ISO-1", "G-TXN-1", level=Level.LIVE)
async def test_transactions_at_the_same_time_succeed_and_fail_each_for_itself(
    api: Api, queue: str, partitions: int
) -> None:
    inputs, out = 40, f"{queue}-out"
    for n in range(inputs):
        await api.push(queue, n, partition=f"p{n % partitions}")
    messages = (await api.pop(queue, batch=inputs, partitions=inputs)).messages
    by_payload = {message["data"]: message for message in messages}
    wrong = {n for n in range(inputs) if n % 5 == 2}

    async def execute(n: int) -> bool:
        lease = NO_LEASE if n in wrong else by_payload[n]["leaseId"]
        partition = f"made-{n % 7}"
        operations = [push_op(out, n, partition=partition), ack_op(by_payload[n], leaseId=lease)]
        return bool((await api.transact(operations))["success"])

    succeeded = await asyncio.gather(*(execute(n) for n in range(inputs)))
    assert {n for n in range(inputs) if not succeeded[n]} == wrong
    delivered = (await api.pop(out, batch=inputs, partitions=9, autoAck=True)).data
    assert sorted(delivered) == [n for n in range(inputs) if n not in wrong]
    left = (await api.pop(queue, batch=inputs, partitions=inputs)).messages
    assert left == [], "the lease still holds what was not acked"


@checks("G-TXN-1", level=Level.LIVE)
async def test_transactions_at_the_same_time_of_one_lease_end_it_together(api: Api, queue: str) -> None:
    """Pipelines that share what one pop got: some complete their message, some give it up, in any order."""
    messages, out = await input_of(api, queue, *range(30)), f"{queue}-out"

    async def execute(n: int) -> bool:
        operations = [ack_op(messages[n], status="dlq" if n % 3 == 1 else "completed"), push_op(out, n)]
        return bool((await api.transact(operations))["success"])

    assert all(await asyncio.gather(*(execute(n) for n in reversed(range(30)))))
    assert sorted(await rest_of(api, out)) == list(range(30))
    letters = (await api.http.get("/api/v1/dlq", params={"queue": queue, "limit": 100})).json()["messages"]
    assert sorted(letter["data"] for letter in letters) == [n for n in range(30) if n % 3 == 1]
    await api.push(queue, "next")
    assert (await api.pop(queue)).data == ["next"], "the lease is over"


@checks("G-TXN-2", level=Level.LIVE)
async def test_transactions_at_the_same_time_with_one_input_or_one_id_happen_once(api: Api, queue: str) -> None:
    (message,) = await input_of(api, queue, 1)
    same_input = [api.transact([push_op(f"{queue}-a", n), ack_op(message)]) for n in range(12)]
    same_id = [api.transact([push_op(f"{queue}-b", n, transactionId="once")]) for n in range(12)]
    bodies = await asyncio.gather(*same_input, *same_id)
    assert [sum(body["success"] for body in part) for part in (bodies[:12], bodies[12:])] == [1, 1]
    assert len(await rest_of(api, f"{queue}-a")) == 1
    assert len(await rest_of(api, f"{queue}-b")) == 1
