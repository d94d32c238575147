"""One run of load. A line on standard input is answered with the counts so far; the result goes to a file."""

import asyncio
import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.load.generator import Counters, Outcome
from bench.sockets import journal, load
from bench.sockets.amqp import AmqpError
from bench.sockets.ledger import Ledger
from bench.sockets.message import now
from bench.sockets.queen import Queen
from bench.sockets.rabbitmq import RabbitMq
from bench.sockets.settings import SettingError, Settings, of_environment

_KINDS = {"take-ack": load.take_ack, "latency": load.latency}


class _Questions(asyncio.Protocol):
    """Answers the driver's requests for the counts so far."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def data_received(self, _data: bytes) -> None:
        """Called by the loop."""
        ledger = self._ledger
        calls = len(ledger.pushes) + ledger.acked
        counters = Counters(len(ledger.pushes), ledger.delivered, calls, loading=ledger.began > 0)
        print(msgspec.json.encode(counters).decode(), flush=True)


async def _run(kind: str, settings: Settings) -> None:
    # A monotonic clock, and its offset to time since 1970.
    ledger, wall_ns = Ledger(), time.time_ns() - now()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    failures: list[BaseException] = []

    def fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a callback ends the load."""
        failures.append(context.get("exception") or ConnectionError(context["message"]))
        if task is not None:
            task.cancel()

    loop.set_exception_handler(fail)
    await loop.connect_read_pipe(lambda: _Questions(ledger), sys.stdin)
    queen = Queen(settings, ledger) if not settings.url.startswith("amqp:") else None
    side: load.Side = queen or RabbitMq(settings, ledger)
    try:
        await side.prepare()
        crossed = await _KINDS[kind](side, settings, ledger)
        await side.close()
    except asyncio.CancelledError:
        raise failures[0] if failures else asyncio.CancelledError from None
    entries = queen.entries() if queen is not None and settings.journal else []
    _write(Path(settings.summary), ledger.outcome(crossed, settings.period_s, wall_ns, live=kind == "latency"))
    journal.write(Path(settings.summary).with_name("calls.log"), entries, wall_ns)


def _write(path: Path, outcome: Outcome) -> None:
    path.write_bytes(msgspec.json.encode(outcome))


def main() -> None:
    """Runs the named type of load; ends with 1 and an error line if it is not possible."""
    # There are no reference cycles here, and a garbage collection would be measured as latency.
    gc.disable()
    try:
        settings = of_environment(os.environ)
        uvloop.run(_run(sys.argv[1], settings))
    except (SettingError, OSError, AmqpError) as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")


if __name__ == "__main__":
    main()
