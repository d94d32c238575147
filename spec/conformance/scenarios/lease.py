"""Leases: which consumer may have the messages, and for how long."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from ...guarantees import Level, checks
from ...history import AckItem
from ..lab import DEFAULT, QUEUE_MODE, Lab, all_accepted, expect, expect_equal, none_accepted, payloads

SECOND_NS = 1_000_000_000
_NETWORK_S = 0.5


@checks("G-LEASE-1", level=Level.LIVE)
async def a_leased_partition_gives_nothing_to_others(lab: Lab) -> None:
    """While one consumer holds part of a partition, the rest of it waits, and so does what is pushed later."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(5))
    held = await lab.take(queue, 0, 1, batch=2)
    await lab.push(queue, 5)
    await lab.shown(queue, 6)
    await lab.expect_nothing(queue, "of a leased partition")
    await lab.expect_nothing(queue, "of a leased partition", partition=DEFAULT)
    await lab.expect_nothing(queue, "of a leased partition, with autoAck", auto_ack=True)
    await lab.push(queue, "other", partition="other")
    expect_equal(payloads(await lab.pop(queue)), ["other"], "a partition that is not leased")
    expect(all_accepted(await lab.ack(held)), "the holder's acks were refused")
    expect_equal(payloads(await lab.pop(queue)), [2, 3, 4, 5], "what is left after the acks")


@checks("G-LEASE-1", level=Level.LIVE)
async def of_many_pops_at_once_one_gets_the_partition(lab: Lab) -> None:
    """Ten rounds of eight pops."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(20))
    await lab.shown(queue, 20)
    for number in range(10):
        pops = await asyncio.gather(*(lab.look(queue, batch=1) for _ in range(8)))
        holders = [pop for pop in pops if pop.deliveries]
        expect_equal([payloads(pop) for pop in holders], [[number]], "what eight pops at once were given")
        await lab.ack(holders[0])


@checks("G-LEASE-2", "G-LEASE-5", level=Level.LIVE)
async def what_an_expired_lease_held_comes_again_in_time(lab: Lab) -> None:
    """A short lease without acks, twice."""
    queue = await lab.queue(leaseTime=lab.short_s, retryLimit=0)
    await lab.push(queue, 0, 1)
    held = await lab.take(queue, 0, 1)
    for attempt in (2, 3):
        again = await lab.pop(queue, wait_s=5 * lab.short_s)
        expect_equal(payloads(again), [0, 1], "what came when the lease was over")
        took_s = (again.end - held.invoked) / SECOND_NS
        expect(took_s >= lab.short_s, f"it came after {took_s:.3f} s, while the lease of {lab.short_s} s was alive")
        late_s = (again.end - held.end) / SECOND_NS - lab.short_s - 1
        expect(late_s <= _NETWORK_S * lab.short_s, f"it came after {took_s:.3f} s only")
        attempts = [each.attempt for each in again.deliveries]
        if None in attempts:
            lab.notes.append("deliveries carry no deliveryAttempt")
        else:
            expect_equal(attempts, [attempt] * 2, "deliveryAttempt")
        held = again
    expect(all_accepted(await lab.ack(held)), "the acks of the last holder were refused")


@checks("G-LEASE-3", "G-ACK-7", level=Level.LIVE)
async def a_stale_lease_changes_nothing(lab: Lab) -> None:
    """Its holder comes back after the messages were given to another one."""
    queue = await lab.queue(leaseTime=lab.short_s)
    await lab.push(queue, 0, 1)
    stale = await lab.take(queue, 0, 1)
    await lab.take(queue, 0, 1, wait_s=5 * lab.short_s)
    await lab.broker.configure(queue, leaseTime=30)
    fresh = await lab.take(queue, 0, 1, wait_s=5 * lab.short_s)
    for status in ("completed", "failed", "retry", "dlq"):
        expect(
            none_accepted(await lab.ack(stale, status=status)), f"an ack as {status} under a stale lease was accepted"
        )
    expect((await lab.broker.renew(stale.lease, 60)).outcome == "fail", "a stale lease was renewed")
    await lab.expect_nothing(queue, "after acks under a stale lease")
    answer = await lab.ack(fresh)
    expect(all_accepted(answer) and not any(item.noop for item in answer.items), "the holder's acks came too late")


@checks("G-LEASE-3", level=Level.LIVE)
async def a_foreign_lease_changes_nothing(lab: Lab) -> None:
    """Leases that were never given, and the lease of another partition."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, 0)
    await lab.push(queue, 1, partition="other")
    held, other = await lab.take(queue, 0, partition=DEFAULT), await lab.take(queue, 1, partition="other")
    for lease in (str(uuid4()), "no lease", other.lease):
        expect(none_accepted(await lab.ack(held, lease=lease)), f"an ack under the foreign lease {lease} was accepted")
    for lease in (str(uuid4()), "no lease"):
        expect((await lab.broker.renew(lease, 60)).outcome == "fail", f"the unknown lease {lease} was renewed")
    answer = await lab.ack(held)
    expect(all_accepted(answer) and not any(item.noop for item in answer.items), "the message was done already")


@checks("G-LEASE-4", level=Level.LIVE)
async def a_renewal_lengthens_a_live_lease_and_never_shortens_it(lab: Lab) -> None:
    """A short lease, renewed for five times as long and then for half as long."""
    queue = await lab.queue(leaseTime=2 * lab.short_s)
    await lab.push(queue, 0)
    held = await lab.take(queue, 0)
    expect((await lab.broker.renew(held.lease, 10 * lab.short_s)).outcome == "ok", "a live lease was not renewed")
    await lab.broker.renew(held.lease, lab.short_s)
    await lab.expect_nothing(queue, "after the old end of a renewed lease", wait_s=3 * lab.short_s)
    expect(all_accepted(await lab.ack(held)), "an ack under a renewed lease was refused")


@checks("G-LEASE-4", level=Level.LIVE)
async def a_renewal_never_revives_an_ended_lease(lab: Lab) -> None:
    """One that ran out, and one whose messages are done."""
    queue = await lab.queue(leaseTime=lab.short_s)
    await lab.push(queue, 0)
    expired = await lab.take(queue, 0)
    again = await lab.take(queue, 0, wait_s=5 * lab.short_s)
    expect((await lab.broker.renew(expired.lease, 60)).outcome == "fail", "an expired lease was renewed")
    await lab.ack(again)
    expect((await lab.broker.renew(again.lease, 60)).outcome == "fail", "a lease whose messages are done was renewed")
    await lab.push(queue, 1)
    expect_equal(payloads(await lab.pop(queue)), [1], "the next pop")


@checks("G-LEASE-6", level=Level.LIVE)
async def a_lease_does_not_ack_what_it_was_not_given(lab: Lab) -> None:
    """The third of four messages, under the lease of the first two."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(4), ids="abcd")
    await lab.shown(queue, 4)
    held = await lab.take(queue, 0, 1, batch=2)
    for status in ("completed", "failed", "dlq"):
        ack = await lab.ack_items([AckItem(queue, DEFAULT, "c", QUEUE_MODE, status, held.lease)])
        expect(none_accepted(ack), f"an ack as {status} of a message that was not delivered was accepted")
    await lab.ack(held)
    expect_equal(payloads(await lab.pop(queue)), [2, 3], "what is left")


@checks("G-LEASE-7", level=Level.LIVE)
async def what_was_meant_for_one_consumer_is_there_for_another(lab: Lab) -> None:
    """A consumer works message by message and stops; another kind of pop finds the next message at once."""
    queue = await lab.queue(leaseTime=30)
    for number in range(5):
        await lab.push(queue, number, "next")
        await lab.shown(queue, 2)
        await lab.ack(await lab.take(queue, number, batch=1))
        pop = await lab.look(queue, batch=10)
        expect_equal(payloads(pop), ["next"], "a pop after the consumer has gone")
        expect(pop.deliveries[0].attempt in {None, 1}, "a message that was never delivered counts as delivered before")
        await lab.ack(pop)
