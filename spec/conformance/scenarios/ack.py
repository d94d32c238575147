"""Acks: in order and out of order, repeated, negative."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ...guarantees import Level, checks
from ...history import AckItem, Pop
from ..http import BadAnswerError
from ..lab import DEFAULT, Lab, all_accepted, expect, expect_equal, none_accepted, payloads

SECOND_NS = 1_000_000_000


@checks("G-ACK-1", "G-ACK-2", level=Level.LIVE)
async def disordered_and_repeated_acks_bring_nothing_back(lab: Lab) -> None:
    """Four messages acked from the last to the first, and the first once more."""
    queue = await lab.queue(leaseTime=lab.short_s)
    await lab.push(queue, *range(4))
    pop = await lab.take(queue, *range(4))
    for number in (3, 1, 2, 0):
        expect(all_accepted(await lab.ack(pop, number)), f"the ack of message {number} was refused")
    await lab.push(queue, 4)
    await lab.ack(pop, 0)
    last = await lab.pop(queue)
    expect_equal(payloads(last), [4], "the next pop")
    await lab.ack(pop, 0)
    await lab.ack(last)
    await lab.expect_nothing(queue, "when all is done", wait_s=1.5 * lab.short_s)


@checks("G-ACK-3", level=Level.LIVE)
async def what_was_not_acked_comes_again(lab: Lab) -> None:
    """A prefix is acked and the lease runs out; then what stands behind a gap."""
    queue = await lab.queue(leaseTime=lab.short_s)
    await lab.push(queue, *range(5))
    await lab.ack(await lab.take(queue, *range(5)), 0)
    rest = await lab.pop(queue, wait_s=5 * lab.short_s)
    expect_equal(payloads(rest), [1, 2, 3, 4], "what came after the ack of a prefix")
    await lab.ack(rest, 1, 3)
    gaps = await lab.pop(queue, wait_s=5 * lab.short_s)
    expect_equal(payloads(gaps), [1, 3], "what came after acks with gaps")
    await lab.ack(gaps)
    await lab.expect_nothing(queue, "when all is done", wait_s=1.5 * lab.short_s)


@checks("G-ACK-4", level=Level.LIVE)
async def an_ack_may_be_repeated_but_not_taken_back(lab: Lab) -> None:
    """What is done is acked once more, in every way."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, 0, 1)
    pop = await lab.take(queue, 0, 1)
    await lab.ack(pop)
    expect(all_accepted(await lab.ack(pop)), "a repeated ack was refused")
    for status in ("failed", "retry", "dlq"):
        expect(none_accepted(await lab.ack(pop, status=status)), f"an ack as {status} of what is done was accepted")
    await lab.expect_nothing(queue, "of what is done")


@checks("G-ACK-5", level=Level.LIVE)
async def a_lease_ends_with_its_last_ack_and_not_before(lab: Lab) -> None:
    """The partition is free at once when nothing is left under the lease, or when a message is sent back."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(5))
    await lab.shown(queue, 5)
    pop = await lab.take(queue, 0, 1, 2, batch=3)
    await lab.ack(pop, 2, 0)
    await lab.expect_nothing(queue, "while a message of the lease is undone")
    await lab.ack(pop, 1)
    pop = await lab.pop(queue)
    expect_equal(payloads(pop), [3, 4], "the pop after the last ack")
    await lab.ack(pop, 0, status="retry")
    expect_equal(payloads(await lab.pop(queue)), [3, 4], "the pop after a message was sent back")


@checks("G-ACK-6", level=Level.LIVE)
async def after_a_failure_the_partition_pauses(lab: Lab) -> None:
    """A retry delay of a second and a half."""
    queue = await lab.queue(leaseTime=30, retryDelay=1500)
    await lab.push(queue, 0, 1)
    nack = await lab.ack(await lab.take(queue, 0, 1), 0, status="failed")
    again = await lab.pop(queue, wait_s=5 * lab.short_s)
    took_s = (again.end - nack.invoked) / SECOND_NS
    expect(took_s >= 1.5, f"the partition was delivered {took_s:.3f} s after a failure, the delay is 1.5 s")
    expect_equal(payloads(again), [0, 1], "what came after the pause")


@checks("G-ISO-2", level=Level.LIVE)
async def acks_of_one_request_are_judged_one_by_one(lab: Lab) -> None:
    """Good ones around one of an unknown message."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(3))
    pop = await lab.take(queue, *range(3))
    items = [lab.item(pop, each) for each in pop.deliveries]
    items.insert(1, AckItem(queue, DEFAULT, "unknown", lease=pop.lease))
    outcomes = [item.outcome for item in (await lab.ack_items(items)).items]
    expect_equal(outcomes, ["ok", "fail", "ok", "ok"], "the results by position")


@checks("G-ACK-8", level=Level.LIVE)
async def a_pop_beside_acks_gets_what_they_free(lab: Lab) -> None:
    """The last ack of a lease with a pop of the same partition; then a refused ack with a pop of another queue."""
    queue, other = await lab.queue(leaseTime=30), await lab.queue()
    await lab.push(queue, 0, 1)
    await lab.push(other, "other")
    await lab.shown(queue, 2)
    await lab.shown(other, 1)
    held = await lab.take(queue, 0, batch=1)
    results, found = await _ack_and_pop(lab, held, held.lease, queue)
    expect_equal(results, [True], "the ack that ends the lease")
    expect_equal(found, [1], "what a pop beside the last ack got")
    results, found = await _ack_and_pop(lab, held, str(uuid4()), other)
    expect_equal(found, ["other"], "what a pop beside an ack got")


async def _ack_and_pop(lab: Lab, pop: Pop, lease: str, queue: str) -> tuple[list[bool], list[object]]:
    """Which acks succeeded, and the payloads that the pop of the same request got."""
    acks = [
        {"transactionId": each.transaction_id, "partitionId": each.partition_id, "leaseId": lease}
        for each in pop.deliveries
    ]
    body = {"acknowledgments": acks, "pop": {"queue": queue, "batch": 1}}
    answer = await lab.broker.send("POST", "/api/v1/ack/batch", body)
    try:
        told: Any = answer.json()
        messages = told["pop"]["messages"] if told["pop"] else []
        return [each["success"] for each in told["acknowledgments"]], [each["data"] for each in messages]
    except (KeyError, TypeError):
        raise BadAnswerError(f"acks with a pop were answered {answer}") from None
