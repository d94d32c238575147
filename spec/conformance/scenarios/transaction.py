"""Transactions: all or none."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from ...guarantees import Level, checks
from ...history import PushItem
from ..lab import DEFAULT, Lab, all_accepted, expect, expect_equal, payloads


def _output(queue: str, value: object, id_: str = "") -> PushItem:
    return PushItem(queue, DEFAULT, id_, value)


@checks("G-TXN-1", level=Level.LIVE)
async def a_transaction_acks_and_pushes(lab: Lab) -> None:
    """Two acks, and pushes to two queues."""
    source = await lab.queue(leaseTime=lab.short_s)
    one, two = await lab.beside(source), await lab.beside(source)
    await lab.push(source, 0, 1)
    done = await lab.transact(await lab.take(source, 0, 1), _output(one, "one"), _output(two, "two"))
    expect(done.outcome == "ok", "the transaction failed")
    expect_equal([payloads(await lab.contents(each)) for each in (one, two)], [["one"], ["two"]], "what it pushed")
    await lab.expect_nothing(source, "of what it acked", wait_s=1.5 * lab.short_s)


@checks("G-TXN-1", level=Level.LIVE)
async def a_transaction_that_fails_leaves_nothing(lab: Lab) -> None:
    """A push of an id that is stored already undoes the pushes and the ack beside it."""
    source = await lab.queue(leaseTime=30)
    target = await lab.beside(source)
    await lab.push(source, 0)
    await lab.push(target, "there", ids=["taken"])
    pop = await lab.take(source, 0)
    failed = await lab.transact(pop, _output(target, "new"), _output(target, "again", "taken"))
    expect(failed.outcome == "fail", "a transaction with a duplicate succeeded")
    expect_equal(payloads(await lab.contents(target)), ["there"], "what is in the target")
    ack = await lab.ack(pop)
    expect(
        all_accepted(ack) and not ack.items[0].noop, "the input of a failed transaction was done, or its lease ended"
    )


@checks("G-TXN-2", level=Level.LIVE)
async def of_many_transactions_with_one_input_one_happens(lab: Lab) -> None:
    """Eight at once, as after timeouts, each with an output of its own."""
    source = await lab.queue(leaseTime=30)
    target = await lab.beside(source)
    await lab.push(source, *range(3))
    for number in range(3):
        pop = await lab.take(source, number, batch=1)
        crowd = await asyncio.gather(*(lab.transact(pop, _output(target, [number, each])) for each in range(8)))
        happened = [each for each, transaction in enumerate(crowd) if transaction.outcome == "ok"]
        expect_equal(len(happened), 1, "transactions that succeeded")
        expect_equal(payloads(await lab.contents(target)), [[number, happened[0]]], "the outputs")


@checks("G-TXN-3", level=Level.LIVE)
async def a_late_transaction_changes_nothing(lab: Lab) -> None:
    """One that is repeated, and one whose lease another consumer has now."""
    source = await lab.queue(leaseTime=lab.short_s)
    target = await lab.beside(source)
    await lab.push(source, 0)
    pop = await lab.take(source, 0)
    await lab.take(source, 0, wait_s=5 * lab.short_s)
    fresh = await lab.take(source, 0, wait_s=5 * lab.short_s)
    expect((await lab.transact(pop, _output(target, "stale"))).outcome == "fail", "a stale lease was good enough")
    expect((await lab.transact(fresh, _output(target, "first"))).outcome == "ok", "the live lease was not good enough")
    expect((await lab.transact(fresh, _output(target, "second"))).outcome == "fail", "a repeated transaction succeeded")
    expect_equal(payloads(await lab.contents(target)), ["first"], "what is in the target")


@checks("G-TXN-3", level=Level.LIVE)
async def a_transaction_needs_one_of_its_required_leases(lab: Lab) -> None:
    """Its acks name no lease: the live one must be among those that the request names."""
    source = await lab.queue(leaseTime=30)
    target = await lab.beside(source)
    await lab.push(source, 0)
    pop = await lab.take(source, 0)
    foreign = await lab.transact(pop, _output(target, "foreign"), lease="", required=[str(uuid4())])
    expect(foreign.outcome == "fail", "a transaction that names a foreign lease succeeded")
    own = await lab.transact(pop, _output(target, "own"), lease="", required=[pop.lease])
    expect(own.outcome == "ok", "a transaction that names the live lease failed")
    expect_equal(payloads(await lab.contents(target)), ["own"], "what is in the target")
