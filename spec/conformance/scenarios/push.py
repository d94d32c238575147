"""Push: order, payloads, duplicates."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from ...guarantees import Level, checks
from ...history import Delivery, PushItem
from ..lab import Lab, SkippedError, all_accepted, expect, expect_equal, payloads

_PAYLOADS: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    2**53 - 1,
    0.1,
    "",
    'quote " backslash \\ slash / newline \n tab \t',
    "Grüße, 你好, 🐝",
    [],
    {},
    [[], [None, [1, "2", {"3": 4}]]],
    {"a": {"b": [1, 2, {"c": "d"}]}, "": "empty key"},
    "x" * 100_000,
)


@checks("G-ORD-1", "G-ORD-3", level=Level.LIVE)
async def a_producer_that_waits_for_its_answers_keeps_its_order(lab: Lab) -> None:
    """Fifteen pushes one after the other, taken by pops of four."""
    queue = await lab.queue()
    seen: list[object] = []
    for number in range(15):
        await lab.push(queue, number)
    while len(seen) < 15 and (pop := await lab.pop(queue, batch=4)).deliveries:
        seen += payloads(pop)
        await lab.ack(pop)
    expect_equal(seen, list(range(15)), "the order of delivery")


@checks("G-ORD-4", level=Level.LIVE)
async def a_request_keeps_its_order_in_every_partition(lab: Lab) -> None:
    """One request with the messages of two partitions in turn."""
    queue = await lab.queue()
    await lab.broker.push([PushItem(queue, f"p{number % 2}", "", number) for number in range(100)])
    for remainder in range(2):
        pop = await lab.pop(queue, f"p{remainder}")
        expect_equal(payloads(pop), list(range(remainder, 100, 2)), f"the order of partition p{remainder}")


@checks("G-ORD-2", level=Level.LIVE)
async def nothing_becomes_visible_below_what_a_consumer_has_passed(lab: Lab) -> None:
    """Eight producers write one partition while an autoAck consumer runs behind them."""
    queue = await lab.queue()
    seen: list[Delivery] = []
    producers = [asyncio.create_task(_produce(lab, queue, number)) for number in range(8)]
    try:
        while len(seen) < 80:
            pop = await lab.pop(queue, auto_ack=True, wait_s=2)
            if not pop.deliveries and all(producer.done() for producer in producers):
                break
            seen += pop.deliveries
    finally:
        await asyncio.gather(*producers)
    missing = {(one, other) for one in range(8) for other in range(10)} - {
        (each.payload[0], each.payload[1]) for each in seen if isinstance(each.payload, list)
    }
    expect(not missing, f"never delivered, though later messages were: {sorted(missing)[:10]}")
    offsets = [each.offset for each in seen if each.offset is not None]
    expect_equal(offsets, list(range(len(offsets))), "the offsets in the order of delivery")


async def _produce(lab: Lab, queue: str, producer: int) -> None:
    for number in range(10):
        await lab.push(queue, [producer, number])


@checks("G-ORD-5", level=Level.LIVE)
async def created_at_never_falls_along_a_partition(lab: Lab) -> None:
    """Twenty pushes at once."""
    queue = await lab.queue()
    await asyncio.gather(*(lab.push(queue, number) for number in range(20)))
    times = [each.created_at for each in await lab.contents(queue)]
    if not all(times):
        raise SkippedError("deliveries carry no createdAt")
    fallen = [pair for pair in pairwise(times) if pair[0] > pair[1]]
    expect(not fallen, f"createdAt falls: {fallen[:3]}")


@checks("G-DUR-3", level=Level.LIVE)
async def payloads_come_out_as_they_went_in(lab: Lab) -> None:
    """JSON of every kind, and the transaction ids that the producer chose."""
    queue = await lab.queue()
    ids = [f"id {number} ü/%?" for number in range(len(_PAYLOADS))]
    await lab.push(queue, *_PAYLOADS, ids=ids)
    pop = await lab.pop(queue)
    expect_equal([each.transaction_id for each in pop.deliveries], ids, "the transaction ids")
    for got, wanted in zip(payloads(pop), _PAYLOADS, strict=True):
        expect_equal(got, wanted, "a payload")
    expect(all_accepted(await lab.ack(pop)), "an ack by such a transaction id was refused")


@checks("G-DUR-4", level=Level.LIVE)
async def a_refused_request_stores_nothing(lab: Lab) -> None:
    """A request with good items around one that is malformed."""
    queue = await lab.queue()
    good = {"queue": queue, "payload": 1}
    answer = await lab.broker.send("POST", "/api/v1/push", {"items": [good, {"queue": queue, "partition": 5}, good]})
    if answer.status < 400:
        raise SkippedError(f"a partition that is a number was answered {answer.status}")
    expect_equal(payloads(await lab.contents(queue)), [], "what is stored after a request that was refused")


@checks("G-IDEM-1", "G-IDEM-2", level=Level.LIVE)
async def a_repeated_push_stores_nothing_and_names_the_first_message(lab: Lab) -> None:
    """The same transaction ids in a second request, twice in one, and from eight producers at once."""
    queue = await lab.queue()
    first = (await lab.push(queue, 0, 1, ids=["a", "b"])).items
    again = (await lab.push(queue, 2, 3, 4, ids=["b", "c", "c"])).items
    expect_equal(
        [item.duplicate for item in (*first, *again)], [False, False, True, False, True], "what is a duplicate"
    )
    expect_equal(again[0].message_id, first[1].message_id, "the message named for a repeated push")
    expect_equal(again[2].message_id, again[1].message_id, "the message named for a repetition in one request")
    crowd = await asyncio.gather(*(lab.push(queue, 5, ids=["d"]) for _ in range(8)))
    expect_equal(sum(not push.items[0].duplicate for push in crowd), 1, "queued pushes of eight with one id")
    expect_equal(len({push.items[0].message_id for push in crowd}), 1, "the messages that they name")
    expect_equal(payloads(await lab.contents(queue)), [0, 1, 3, 5], "what was stored")


@checks("G-IDEM-3", level=Level.LIVE)
async def a_transaction_id_counts_in_its_partition_only(lab: Lab) -> None:
    """One id in two partitions and two queues."""
    queue, other = await lab.queue(), await lab.queue()
    items = [PushItem(queue, "p", "same", 0), PushItem(queue, "q", "same", 1), PushItem(other, "p", "same", 2)]
    push = await lab.broker.push(items)
    expect(not any(item.duplicate for item in push.items), "a push was taken for a duplicate of another partition's")
    found = [payloads(await lab.contents(*place)) for place in ((queue, "p"), (queue, "q"), (other, "p"))]
    expect_equal(found, [[0], [1], [2]], "what was stored")


@checks("G-IDEM-4", level=Level.LIVE)
async def a_message_id_is_no_transaction_id_for_another_message(lab: Lab) -> None:
    """A push under the id of a stored message."""
    queue = await lab.queue()
    stored = (await lab.push(queue, "stored")).items[0].message_id
    if not stored:
        raise SkippedError("the answer to a push names no message id")
    item = (await lab.push(queue, "intruder", ids=[stored])).items[0]
    expect(item.outcome == "fail" or item.duplicate, f"a push under the message id {stored} was answered as queued")
    expect_equal(payloads(await lab.contents(queue)), ["stored"], "what was stored")


@checks("G-RET-8", level=Level.LIVE)
async def a_full_queue_takes_nothing_more(lab: Lab) -> None:
    """Room for three: eight producers at once, one request that is too large, and a push after one was done."""
    queue = await lab.queue(maxSize=3, leaseTime=30)
    body = {"items": [{"queue": queue, "payload": "more"}]}
    crowd = await asyncio.gather(*(lab.broker.send("POST", "/api/v1/push", body) for _ in range(8)))
    stored = sum(answer.status < 300 for answer in crowd)
    expect_equal(stored, 3, "pushes of eight at once that a queue with room for three took")
    large = await lab.broker.send("POST", "/api/v1/push", {"items": body["items"] * 4})
    expect(large.status >= 400, f"four messages for a queue of three were answered {large.status}")
    await lab.shown(queue, 3)
    pop = await lab.take(queue, *["more"] * 3)
    await lab.ack(pop)
    found = await lab.look(queue)
    expect_equal(payloads(found), [], "what is stored beyond the maximum")
