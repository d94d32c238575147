"""Pop: what is delivered, and how much of it."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

from ...guarantees import Level, checks
from ..broker import popped
from ..lab import Lab, SkippedError, expect, expect_equal, payloads

#: A consumer that comes again so late is not one that works message by message.
_NOT_AT_ONCE_S = 0.15


@checks("G-POP-1", level=Level.LIVE)
async def a_pop_keeps_to_batch_and_partitions(lab: Lab) -> None:
    """Ten messages in each of three partitions."""
    queue = await lab.queue()
    for partition in "abc":
        await lab.push(queue, *range(10), partition=partition)
    await lab.shown(queue, 30)
    one = await lab.pop(queue, batch=4)
    expect_equal((len(one.deliveries), len({each.lane for each in one.deliveries})), (4, 1), "messages and partitions")
    two = await lab.pop(queue, batch=13, partitions=2)
    # Of several databases, the one that answers may have one of the partitions.
    partitions = len({each.lane for each in two.deliveries}) if lab.over_several else 2
    found = (len(two.deliveries), len({each.lane for each in two.deliveries}))
    expect_equal(found, (min(13, 10 * partitions), min(2, partitions)), "messages and partitions")
    expect({each.lease for each in two.deliveries} == {two.lease}, "one pop gave several leases")
    expect(bool(two.lease) and two.lease != one.lease, "two pops share a lease")


@checks("G-POP-2", level=Level.LIVE)
async def the_partition_that_waits_longest_comes_first(lab: Lab) -> None:
    """Three partitions filled one after the other; then the one that is acked goes to the end of the line.

    The consumer takes its time: what was prefetched for one that pops again at once has been given back by then.
    """
    queue, seen = await lab.queue(), []
    # For a group that comes into being later all three would be claimable from the same moment on.
    await lab.expect_nothing(queue, "of an empty queue")
    for partition in "abc":
        await lab.push(queue, 1, 2, partition=partition)
    await lab.shown(queue, 6)
    for _ in range(4):
        pop = await lab.pop(queue, batch=1)
        seen += [each.partition for each in pop.deliveries]
        await lab.ack(pop)
        await asyncio.sleep(_NOT_AT_ONCE_S)
    expect_equal(seen, ["a", "b", "c", "a"], "the partitions in the order of delivery")


@checks("G-POP-3", level=Level.LIVE)
async def a_pop_leaves_nothing_that_it_had_room_for(lab: Lab) -> None:
    """A pop of one message, and one of many partitions."""
    queue = await lab.queue()
    for number in range(5):
        await lab.push(queue, number, partition=f"p{number}")
        pop = await lab.pop(queue, auto_ack=True)
        expect_equal(payloads(pop), [number], "a pop of one message")
    for number in range(8):
        await lab.push(queue, *range(5), partition=f"p{number}")
    await lab.shown(queue, 45)
    pop = await lab.pop(queue, partitions=100)
    found = sorted((each.partition, each.payload) for each in pop.deliveries if isinstance(each.payload, int))
    wanted = [[f"p{partition}", number] for partition in range(8) for number in range(5)]
    expect_equal([[*each] for each in found], wanted, "the messages of eight partitions with five each")


@checks("G-POP-4", level=Level.LIVE)
async def the_queue_with_the_higher_priority_comes_first(lab: Lab) -> None:
    """Pops of a namespace with two queues; the one that matters was filled later."""
    namespace = lab.queue_name()
    low = await lab.queue(namespace=namespace, priority=1)
    high = await lab.queue(namespace=namespace, priority=5)
    await lab.push(low, "low")
    await lab.push(high, "high")
    for queue in (low, high):
        await lab.shown(queue, 1)
    seen = []
    for _ in range(2):
        query = urlencode({"namespace": namespace, "batch": 1, "autoAck": "true"})
        answer = await lab.broker.send("GET", f"/api/v1/pop?{query}")
        if answer.status == 404:
            raise SkippedError("the server has no pop of a namespace")
        seen += [delivery.payload for delivery in popped(answer, "")[1]]
    expect_equal(seen, ["high", "low"], "the order of delivery")


@checks("G-POP-5", level=Level.LIVE)
async def auto_ack_leaves_neither_message_nor_lease(lab: Lab) -> None:
    """What an autoAck pop delivered does not come again, and what comes later comes at once."""
    queue = await lab.queue(leaseTime=lab.short_s)
    await lab.push(queue, 0, 1)
    pop = await lab.pop(queue, auto_ack=True)
    expect_equal(payloads(pop), [0, 1], "the messages")
    expect_equal(pop.lease, "", "the lease")
    await lab.push(queue, 2)
    expect_equal(payloads(await lab.pop(queue, auto_ack=True)), [2], "the next pop")
    await lab.expect_nothing(queue, "after the time of a lease", wait_s=1.5 * lab.short_s)
