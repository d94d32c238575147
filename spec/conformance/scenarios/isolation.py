"""Isolation: bad requests, and good ones beside them."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from ...guarantees import Level, checks
from ...history import PushItem
from ..http import Answer
from ..lab import DEFAULT, Lab, all_accepted, expect, expect_equal, payloads

_UNKNOWN = {"transactionId": "t", "partitionId": str(uuid4()), "leaseId": str(uuid4())}


@checks("G-ISO-1", level=Level.LIVE)
async def bad_requests_do_not_fail_the_good_ones_beside_them(lab: Lab) -> None:
    """Twelve producers that push, pop and ack, among requests that are wrong in many ways."""
    queue = await lab.queue(leaseTime=30)
    bad = asyncio.create_task(_bother(lab, queue))
    try:
        await asyncio.gather(*(_work(lab, queue, f"p{number}") for number in range(12)))
    finally:
        bad.cancel()
        await asyncio.gather(bad, return_exceptions=True)


async def _work(lab: Lab, queue: str, partition: str) -> None:
    for number in range(5):
        push = await lab.push(queue, number, partition=partition)
        expect(push.items[0].outcome == "ok", "a good push failed beside bad requests")
        pop = await lab.pop(queue, partition)
        expect_equal(payloads(pop), [number], "what a good pop got beside bad requests")
        expect(all_accepted(await lab.ack(pop)), "a good ack was refused beside bad requests")


async def _bother(lab: Lab, queue: str) -> None:
    """Bad requests until cancelled; what they are answered is judged elsewhere."""
    requests = [
        ("POST", "/api/v1/ack", {"transactionId": "t", "partitionId": "abc"}),
        ("POST", "/api/v1/ack", {**_UNKNOWN, "status": "no status"}),
        ("POST", "/api/v1/ack", {**_UNKNOWN, "leaseId": "no lease"}),
        ("POST", f"/api/v1/lease/{uuid4()}/extend", {"seconds": 1.5}),
        ("POST", "/api/v1/lease/no-lease/extend", {"seconds": 60}),
        ("POST", "/api/v1/push", {"items": [{"queue": queue, "partition": "bad", "traceId": "no uuid"}]}),
        ("POST", "/api/v1/push", {"items": [{"queue": "", "payload": 1}]}),
        ("POST", "/api/v1/transaction", {"operations": [{"type": "ack", **_UNKNOWN, "partitionId": "abc"}]}),
    ]
    while True:
        await asyncio.gather(*(lab.broker.send(*request) for request in requests), return_exceptions=True)


@checks("G-ISO-2", level=Level.LIVE)
async def pushes_of_one_request_are_answered_by_position(lab: Lab) -> None:
    """New ones and duplicates in turn, over two partitions."""
    queue = await lab.queue()
    await lab.push(queue, "stored", ids=["b"])
    names = [(DEFAULT, "a"), (DEFAULT, "b"), ("other", "b"), (DEFAULT, "c"), ("other", "b")]
    push = await lab.broker.push([PushItem(queue, *name, payload=name[1]) for name in names])
    expect_equal([item.duplicate for item in push.items], [False, True, False, False, True], "what is a duplicate")
    told = {item.transaction_id: item.message_id for item in push.items if item.partition == DEFAULT}
    found = {each.transaction_id: each.message_id for each in await lab.contents(queue)}
    expect_equal(told, found, "the message ids by transaction id")


@checks("G-ISO-3", level=Level.LIVE)
async def a_malformed_request_is_answered_with_its_fault(lab: Lab) -> None:
    """A 4xx that names the field; nothing is stored, and the server goes on."""
    queue = await lab.queue()
    good, place = {"queue": queue, "payload": 1}, {"partitionId": str(uuid4())}
    requests: list[tuple[str, object, str]] = [
        ("/api/v1/push", b"", ""),
        ("/api/v1/push", b"{", ""),
        ("/api/v1/push", {}, "items"),
        ("/api/v1/push", {"items": good}, "items"),
        ("/api/v1/push", {"items": [good, {"queue": 5, "payload": 1}]}, "queue"),
        ("/api/v1/push", {"items": [good, {**good, "partition": 5}]}, "partition"),
        ("/api/v1/push", {"items": [good, {**good, "transactionId": 5}]}, "transactionId"),
        ("/api/v1/ack", place, "transactionId"),
        ("/api/v1/ack", {"transactionId": "t"}, "partitionId"),
        ("/api/v1/ack/batch", {}, "acknowledgments"),
        ("/api/v1/transaction", {}, "operations"),
        ("/api/v1/transaction", {"operations": []}, "operations"),
        ("/api/v1/configure", {}, "queue"),
    ]
    for path, body, field in requests:
        answer = await lab.broker.send("POST", path, body)
        lab.broker.statuses["malformed request", answer.status] += 1
        shown = f"{path} with {body!r} was answered {answer.status} {answer.body[:100]!r}"
        expect(400 <= answer.status < 500, shown)
        expect(field.lower().encode() in answer.body.lower(), f"{shown}, which does not name {field}")
    expect_equal(payloads(await lab.contents(queue)), [], "what is stored after requests that were refused")


@checks("G-ISO-4", level=Level.LIVE)
async def refusals_are_answers(lab: Lab) -> None:
    """A refused ack, an unknown lease, a failed transaction, and a pop of an unknown queue."""
    unknown = lab.queue_name()
    operation = {"type": "ack", **_UNKNOWN}
    requests: list[tuple[str, str, str, object]] = [
        ("refused ack", "POST", "/api/v1/ack", _UNKNOWN),
        ("refused ack", "POST", "/api/v1/ack/batch", {"acknowledgments": [_UNKNOWN]}),
        ("refused ack", "POST", "/api/v1/ack", {**_UNKNOWN, "partitionId": "abc"}),
        ("renewal of an unknown lease", "POST", f"/api/v1/lease/{uuid4()}/extend", {"seconds": 60}),
        ("failed transaction", "POST", "/api/v1/transaction", {"operations": [operation]}),
        ("pop of an unknown queue", "GET", f"/api/v1/pop/queue/{unknown}", None),
        ("pop of an unknown queue", "GET", f"/api/v1/pop/queue/{unknown}/partition/p", None),
    ]
    for situation, method, path, body in requests:
        answer = await lab.broker.send(method, path, body)
        lab.broker.statuses[situation, answer.status] += 1
        expect(200 <= answer.status < 300, f"{situation}: {answer.status} {answer.body[:100]!r}")
        # A pop may well succeed in finding nothing.
        expect(method == "GET" or not _claims_success(answer), f"{situation}: {answer.body[:100]!r}")


def _claims_success(answer: Answer) -> bool:
    if not answer.body:
        return False
    told = answer.json()
    told = told[0] if isinstance(told, list) and told else told
    return isinstance(told, dict) and told.get("success") is True
