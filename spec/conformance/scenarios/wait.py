"""Waiting: long polls, delays, windows."""

from __future__ import annotations

import asyncio
import time

from ...guarantees import Level, checks
from ..lab import Lab, SkippedError, expect, expect_equal, payloads

SECOND_NS = 1_000_000_000
_SOON_S = 1.5
"""How late an answer may be: the original looks once per second, and the network takes its time."""
_WAITING_S = 0.3
"""By then a long poll waits in the server, as far as a client can know. If it does not yet, a test is only weaker."""


@checks("G-WAIT-1", level=Level.LIVE)
async def a_long_poll_ends_at_its_timeout(lab: Lab) -> None:
    """One second on an empty queue."""
    queue = await lab.queue()
    pop = await lab.long_poll(queue, wait_s=1)
    took_s = (pop.end - pop.invoked) / SECOND_NS
    expect(
        not pop.deliveries and 0.9 <= took_s <= 1 + _SOON_S * lab.short_s,
        f"answered after {took_s:.3f} s: {payloads(pop)}",
    )


@checks("G-WAIT-1", level=Level.LIVE)
async def a_long_poll_is_answered_soon_after_a_push(lab: Lab) -> None:
    """Three times, on a queue that exists, and on one that the push makes."""
    for queue in (await lab.queue(), lab.queue_name()):
        for number in range(3):
            poll = asyncio.create_task(lab.long_poll(queue, group="g", wait_s=10, auto_ack=True))
            await asyncio.sleep(_WAITING_S)
            push = await lab.push(queue, number)
            pop = await poll
            expect_equal(payloads(pop), [number], "what the long poll was answered with")
            took_s = (pop.end - push.end) / SECOND_NS
            expect(took_s <= _SOON_S * lab.short_s, f"answered {took_s:.3f} s after the push")


@checks("G-WAIT-1", level=Level.LIVE)
async def a_long_poll_is_answered_soon_after_a_lease_ends(lab: Lab) -> None:
    """By the last ack, and by a message that is sent back."""
    queue = await lab.queue(leaseTime=30)
    await lab.push(queue, 0, 1)
    for status, wanted in (("retry", [0]), ("completed", [1])):
        held = await lab.take(queue, 0, batch=1)
        poll = asyncio.create_task(lab.long_poll(queue, batch=1, wait_s=10))
        await asyncio.sleep(_WAITING_S)
        ack = await lab.ack(held, status=status)
        pop = await poll
        expect_equal(payloads(pop), wanted, f"what the long poll was answered with after {status}")
        expect((pop.end - ack.end) / SECOND_NS <= _SOON_S * lab.short_s, f"the long poll came late after {status}")
        await lab.ack(pop, status="retry")


@checks("G-WAIT-2", level=Level.LIVE)
async def a_delayed_message_comes_when_it_is_old_enough(lab: Lab) -> None:
    """A short delay; what came before it is not held up."""
    queue = await lab.queue()
    await lab.push(queue, "before")
    await lab.broker.configure(queue, delayedProcessing=lab.short_s)
    await asyncio.sleep(lab.short_s)  # the time that makes the message old enough
    push = await lab.push(queue, "delayed")
    expect_equal(payloads(await lab.pop(queue, auto_ack=True)), ["before"], "what is old enough")
    pop = await lab.pop(queue, wait_s=5 * lab.short_s)
    took_s = (pop.end - push.invoked) / SECOND_NS
    expect_equal(payloads(pop), ["delayed"], "what came later")
    expect(lab.short_s <= took_s <= lab.short_s * (2 + _SOON_S), f"it came when it was {took_s:.3f} s old")


@checks("G-WAIT-3", level=Level.LIVE)
async def a_window_holds_a_partition_until_it_is_quiet(lab: Lab) -> None:
    """A short window: a second push while it is open makes both wait."""
    queue = await lab.queue(windowBuffer=lab.short_s)
    await lab.push(queue, 0)
    await lab.expect_nothing(queue, "while the window is open", wait_s=0.5 * lab.short_s)
    push = await lab.push(queue, 1)
    pop = await lab.pop(queue, wait_s=5 * lab.short_s)
    took_s = (pop.end - push.invoked) / SECOND_NS
    expect_equal(payloads(pop), [0, 1], "what came when the partition was quiet")
    expect(lab.short_s <= took_s <= lab.short_s * (2 + _SOON_S), f"it came {took_s:.3f} s after the last push")


@checks("G-WAIT-4", level=Level.LIVE)
async def a_client_that_has_gone_takes_no_message(lab: Lab) -> None:
    """Four long polls whose connections are closed before the push."""
    queue = await lab.queue(leaseTime=30)
    polls = [asyncio.create_task(lab.long_poll(queue, wait_s=20)) for _ in range(4)]
    await asyncio.sleep(_WAITING_S)
    for poll in polls:
        poll.cancel()
    for end in await asyncio.gather(*polls, return_exceptions=True):
        if isinstance(end, SkippedError):
            raise end
    # Their ends reach the server before this answer does; one that is slower would look like a live client.
    await lab.expect_nothing(queue, "of an empty queue", wait_s=0.5)
    began = time.monotonic()
    await lab.push(queue, "message")
    pop = await lab.pop(queue, wait_s=5 * lab.short_s)
    expect_equal(payloads(pop), ["message"], f"what a live client got within {time.monotonic() - began:.1f} s")
