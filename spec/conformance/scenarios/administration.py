"""Repairs by hand: groups that are put somewhere or deleted, and messages that are. Not every server offers them."""

from __future__ import annotations

from urllib.parse import quote

from ...guarantees import Level, checks
from ...history import Delivery
from ..lab import Lab, expect, expect_equal, payloads


def _of_group(queue: str, group: str, ending: str = "") -> str:
    return f"/api/v1/consumer-groups/{quote(group, safe='')}/queues/{quote(queue, safe='')}{ending}"


def _of_message(message: Delivery, ending: str = "") -> str:
    return f"/api/v1/messages/{message.partition_id}/{quote(message.transaction_id, safe='')}{ending}"


@checks("G-GRP-5", level=Level.LIVE)
async def after_a_seek_a_group_gets_what_lies_behind_it(lab: Lab) -> None:
    """To the beginning, with what was done; then to the end, out of a lease. Other groups stay where they are."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(3))
    await lab.ack(await lab.take(queue, *range(3), group="moves"))
    await lab.ack(await lab.take(queue, 0, group="stays", batch=1))
    await lab.administer("POST", _of_group(queue, "moves", "/seek"), {"toBeginning": True})
    again = await lab.pop(queue, group="moves")
    expect_equal(payloads(again), [0, 1, 2], "what came after a rewind")
    await lab.administer("POST", _of_group(queue, "moves", "/seek"), {"toEnd": True})
    await lab.expect_nothing(queue, "after a seek to the end", group="moves")
    await lab.ack(again)
    await lab.push(queue, 3)
    expect_equal(payloads(await lab.pop(queue, group="moves")), [3], "what came after a seek to the end")
    expect_equal(payloads(await lab.pop(queue, group="stays")), [1, 2, 3], "what is left for another group")


@checks("G-GRP-6", level=Level.LIVE)
async def a_new_start_of_a_group_moves_none_of_its_cursors(lab: Lab) -> None:
    """The start is put before the oldest message of a group that has done two of three."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(3))
    group = lab.queue_name()
    await lab.ack(await lab.take(queue, 0, 1, group=group, batch=2))
    start = {"subscriptionTimestamp": "2020-01-01T00:00:00Z"}
    await lab.administer("POST", f"/api/v1/consumer-groups/{group}/subscription", start)
    expect_equal(payloads(await lab.pop(queue, group=group)), [2], "what came after the start was changed")


@checks("G-GRP-7", level=Level.LIVE)
async def a_deleted_group_begins_as_its_next_pop_says(lab: Lab) -> None:
    """Once with all there is, once with what comes later; and put back, it begins there again."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, 0, 1)
    await lab.take(queue, 0, 1, group="g")
    await lab.administer("DELETE", _of_group(queue, "g"))
    expect_equal(payloads(await lab.pop(queue, group="g", mode="all")), [0, 1], "what the group gets that is new")
    await lab.administer("DELETE", _of_group(queue, "g"))
    await lab.expect_nothing(queue, "of the past", group="g", mode="new")
    await lab.push(queue, 2)
    fresh = await lab.pop(queue, group="g", mode="all")
    expect_equal(payloads(fresh), [2], "what the group gets that skips the past")
    await lab.ack(fresh)
    await lab.administer("DELETE", _of_group(queue, "g", "?deleteMetadata=false"))
    expect_equal(payloads(await lab.pop(queue, group="g")), [2], "what the group gets that is put back")


@checks("G-RET-5", level=Level.LIVE)
async def a_deleted_message_comes_to_no_group(lab: Lab) -> None:
    """Neither to one that was there nor to a later one."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, *range(3))
    pop = await lab.take(queue, *range(3), group="early")
    await lab.administer("DELETE", _of_message(pop.deliveries[1]))
    await lab.ack(pop, 0, status="retry")
    for group in ("early", "late"):
        expect_equal(payloads(await lab.pop(queue, group=group)), [0, 2], f"what the group {group} gets")


@checks("G-DLQ-6", level=Level.LIVE)
async def a_message_is_moved_to_the_dead_letters_and_put_back(lab: Lab) -> None:
    """For the group that had not done it; what is put back stands at the tail, once."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, "moved", "next")
    await lab.ack(await lab.take(queue, "moved", group="done", batch=1))
    busy = await lab.take(queue, "moved", group="busy", batch=1)
    [message] = busy.deliveries
    await lab.administer("POST", _of_message(message, "/dlq"), {"error": "by hand"})
    expect_equal(payloads(await lab.pop(queue, group="busy", auto_ack=True)), ["next"], "what is left")
    await lab.administer("POST", _of_message(message, "/retry"))
    again = await lab.broker.send("POST", _of_message(message, "/retry"))
    expect(again.status >= 400, f"what had been put back was put back again: {again.status} {again.body[:100]!r}")
    expect_equal(payloads(await lab.pop(queue, group="busy")), ["moved"], "what was put back")
