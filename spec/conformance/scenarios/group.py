"""Consumer groups, and queues that are deleted."""

from __future__ import annotations

from ...guarantees import Level, checks
from ..lab import Lab, SkippedError, expect, expect_equal, payloads


@checks("G-GRP-1", level=Level.LIVE)
async def groups_do_not_affect_each_other(lab: Lab) -> None:
    """One holds, one fails, one acks, and queue mode is a group like the others."""
    queue = await lab.queue(leaseTime=30, retryLimit=0, retryDelay=0)
    await lab.push(queue, *range(4))
    await lab.take(queue, *range(4), group="holds")
    await lab.ack(await lab.take(queue, 0, 1, group="fails", batch=2), status="failed")
    acks = await lab.pop(queue, group="acks")
    expect_equal(payloads(acks), [0, 1, 2, 3], "what the group gets that acks")
    await lab.ack(acks)
    expect_equal(payloads(await lab.pop(queue, auto_ack=True)), [0, 1, 2, 3], "what queue mode gets")
    expect_equal(payloads(await lab.pop(queue, group="late", auto_ack=True)), [0, 1, 2, 3], "what a late group gets")
    expect_equal(payloads(await lab.pop(queue, group="fails", wait_s=3)), [2, 3], "what the group gets that failed two")
    await lab.push(queue, 4)
    expect_equal(payloads(await lab.pop(queue, group="acks")), [4], "what comes next for the group that acked")
    await lab.expect_nothing(queue, "of the group that holds", group="holds")


@checks("G-GRP-2", level=Level.LIVE)
async def the_first_pop_decides_where_a_group_starts(lab: Lab) -> None:
    """`new` first and `all` later, and the other way round."""
    queue = await lab.queue()
    await lab.push(queue, "old", "older")
    first = await lab.pop(queue, group="all", mode="all", batch=1, auto_ack=True)
    expect_equal(payloads(first), ["old"], "the first pop with all")
    await lab.expect_nothing(queue, "a group that starts with new", group="new", mode="new")
    await lab.push(queue, "fresh")
    await lab.shown(queue, 3)
    expect_equal(payloads(await lab.pop(queue, group="new", mode="all")), ["fresh"], "the group that started with new")
    late = await lab.pop(queue, group="all", mode="new")
    expect_equal(payloads(late), ["older", "fresh"], "the group that started with all")


@checks("G-GRP-3", level=Level.LIVE)
async def a_later_partition_comes_whole(lab: Lab) -> None:
    """Also to a group that skipped the history of the others, and that has had nothing yet."""
    queue = await lab.queue()
    await lab.push(queue, "old")
    await lab.shown(queue, 1)
    await lab.expect_nothing(queue, "a group that starts with new", group="new", mode="new")
    await lab.push(queue, 0, 1, partition="later")
    expect_equal(payloads(await lab.pop(queue, group="new", mode="new", partitions=10)), [0, 1], "the later partition")


@checks("G-GRP-4", level=Level.LIVE)
async def a_pop_of_an_unknown_queue_leaves_no_trace(lab: Lab) -> None:
    """It is answered empty, and the queue is not in the listing afterwards, where one that was made is."""
    queue, known = lab.queue_name(), await lab.queue()
    await lab.expect_nothing(queue, "of an unknown queue")
    listing = await lab.broker.send("GET", "/api/v1/resources/queues")
    if listing.status != 200 or known.encode() not in listing.body:
        raise SkippedError("the server does not list queues (/api/v1/resources/queues)")
    expect(queue.encode() not in listing.body, "the queue is listed after a pop")


@checks("G-RET-3", level=Level.LIVE)
async def a_deleted_queue_takes_everything_with_it(lab: Lab) -> None:
    """Messages, transaction ids, cursors and leases; a push to the name makes a new queue."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, 0, 1, ids=["a", "b"])
    await lab.ack(await lab.take(queue, 0, batch=1))
    held = await lab.take(queue, 1)
    await lab.broker.delete(queue)
    await lab.expect_nothing(queue, "of a deleted queue")
    await lab.broker.delete(queue)
    push = await lab.push(queue, "new", ids=["b"])
    expect(not push.items[0].duplicate, "a transaction id of a deleted queue still counts")
    await lab.ack(held)
    expect_equal(payloads(await lab.pop(queue)), ["new"], "the queue that was created again")
