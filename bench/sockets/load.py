"""The two types of load."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from bench.sockets.ledger import Ledger
from bench.sockets.message import now
from bench.sockets.queen import Queen
from bench.sockets.rabbitmq import RabbitMq
from bench.sockets.settings import Settings

#: A server with a queue of this run.
Side: TypeAlias = Queen | RabbitMq

#: Seconds for background work on a new backlog, before the measurement.
_SETTLE_S = 1.0
_LOOK_S = 0.02
#: Messages must arrive within this time after the last push.
_PATIENCE_S = 30.0


async def take_ack(side: Side, settings: Settings, ledger: Ledger) -> list[str]:
    """Consumers take a backlog and ack message by message, until it is empty or time is over; returns the problems."""
    await side.fill(settings.backlog)
    await asyncio.sleep(_SETTLE_S)
    ledger.began = now()
    await side.subscribe()
    await _until(lambda: ledger.acked >= settings.backlog, settings.seconds)
    await side.stop()
    return ledger.crossed(all_of_them=ledger.delivered >= settings.backlog, ordered=True)


async def latency(side: Side, settings: Settings, ledger: Ledger) -> list[str]:
    """Messages are pushed at a fixed rate, and consumers take and ack them; returns the problems."""
    await side.subscribe()
    ledger.began = now()
    count = settings.rate * settings.seconds
    await asyncio.to_thread(_push_all, side, settings.rate, count, asyncio.get_running_loop(), ledger.began)
    await _until(lambda: min(ledger.delivered, len(ledger.pushes)) >= count, _PATIENCE_S)
    await side.stop()
    return [*_late(ledger, settings, count), *ledger.crossed(all_of_them=True, ordered=False)]


async def _until(done: Callable[[], bool], seconds: float) -> None:
    """Returns when the condition is true, or after this time."""
    end = now() + seconds * 1e9
    while not done():
        if now() > end:
            return
        await asyncio.sleep(_LOOK_S)


def _push_all(side: Side, rate: int, count: int, loop: asyncio.AbstractEventLoop, begin: int) -> None:
    """Triggers the push of each message when it is due. A thread, because timers of the loop have milliseconds."""
    for number in range(count):
        due = begin + number * 1_000_000_000 // rate
        if (rest := due - now()) > 0:
            time.sleep(rest / 1e9)
        loop.call_soon_threadsafe(side.push, number, due)


def _late(ledger: Ledger, settings: Settings, count: int) -> Iterator[str]:
    slow = sum(1 for _, _, _, due, came in ledger.came if came - due > settings.in_time_ms * 1e6)
    if slow > count / 100:
        yield f"messages that took more than {settings.in_time_ms:,} ms: {slow:,} of {count:,}"
    if missing := count - len(ledger.pushes):
        yield f"pushes without an answer: {missing:,}"
