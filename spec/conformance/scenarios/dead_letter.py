"""Dead letters: when a message is given up, and what becomes of it and of its neighbours."""

from __future__ import annotations

from ...guarantees import Level, checks
from ..lab import Lab, expect, expect_equal, payloads

_UNSEEN = "the server does not list dead letters (/api/v1/dlq): only the answers to acks and the deliveries were judged"


@checks("G-DLQ-1", "G-DLQ-3", level=Level.LIVE)
async def a_message_is_given_up_after_exactly_its_retries(lab: Lab) -> None:
    """Retry limits 0, 1 and 3: so many retries, then a dead letter, once; and the next message comes."""
    for limit in (0, 1, 3):
        queue = await lab.queue(leaseTime=30, retryLimit=limit, retryDelay=0)
        await lab.push(queue, "poison", "next")
        for attempt in range(limit + 1):
            pop = await lab.pop(queue, batch=1, wait_s=3)
            expect_equal(payloads(pop), ["poison"], f"delivery {attempt + 1} with the limit {limit}")
            nack = await lab.ack(pop, status="failed", error="indigestible")
            expect(nack.items[0].outcome == "ok", f"a failed ack was refused: {nack.items[0].error}")
            expect_equal(nack.items[0].dead, attempt == limit, f"dlq of failure {attempt + 1} with the limit {limit}")
        expect_equal(payloads(await lab.pop(queue, wait_s=3)), ["next"], "the message after the dead letter")
        await _expect_letters(lab, queue, [("poison", "indigestible")])


async def _expect_letters(lab: Lab, queue: str, wanted: list[tuple[str, str]]) -> None:
    """The dead letters of a queue by payload and error, if the server lists them."""
    letters = await lab.broker.dead_letters(queue)
    if letters is None:
        lab.notes.append(_UNSEEN)
        return
    found = [(each.get("payload", each.get("data")), each.get("errorMessage", each.get("error"))) for each in letters]
    expect_equal(found, wanted, "the dead letters")


@checks("G-DLQ-2", level=Level.LIVE)
async def only_its_own_failures_count_against_a_message(lab: Lab) -> None:
    """Neighbours that fail, acks as `retry`, and leases that run out, with a retry limit of one."""
    queue = await lab.queue(leaseTime=lab.short_s, retryLimit=1, retryDelay=0)
    await lab.push(queue, "healthy", "poison")
    first = await lab.take(queue, "healthy", "poison")
    await lab.ack(first, 1, status="failed")
    second = await lab.take(queue, "healthy", "poison", wait_s=3)
    await lab.ack(second, 0, status="retry")
    await lab.take(queue, "healthy", "poison", wait_s=3)
    third = await lab.pop(queue, wait_s=5 * lab.short_s)
    expect_equal(payloads(third), ["healthy", "poison"], "what came after a failure, a retry and an expiry")
    nack = await lab.ack(third, 0, 1, status="failed")
    expect_equal([item.dead for item in nack.items], [False, True], "dlq of the first and of the second failure")
    expect_equal(payloads(await lab.pop(queue, wait_s=3)), ["healthy"], "what is left")


@checks("G-DLQ-3", level=Level.LIVE)
async def what_is_dead_lettered_by_hand_holds_nothing_up(lab: Lab) -> None:
    """An ack as `dlq` in the middle of a batch."""
    queue = await lab.queue(leaseTime=30, retryLimit=3)
    await lab.push(queue, *range(4))
    pop = await lab.take(queue, *range(3), batch=3)
    letter = await lab.ack(pop, 1, status="dlq", error="by hand")
    expect(letter.items[0].dead, "an ack as dlq was not answered as a dead letter")
    await lab.ack(pop, 0, 2)
    expect_equal(payloads(await lab.pop(queue)), [3], "the message after the batch")


@checks("G-DLQ-4", level=Level.LIVE)
async def a_queue_may_want_no_dead_letters(lab: Lab) -> None:
    """Both options false: what is given up is gone."""
    queue = await lab.queue(leaseTime=30, retryLimit=0, retryDelay=0, deadLetterQueue=False, dlqAfterMaxRetries=False)
    await lab.push(queue, "poison", "next")
    nack = await lab.ack(await lab.take(queue, "poison", batch=1), status="failed")
    expect(not nack.items[0].dead, "the answer names a dead letter")
    expect_equal(payloads(await lab.pop(queue, wait_s=3)), ["next"], "the message after the one given up")
    await _expect_letters(lab, queue, [])
