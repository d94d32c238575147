"""One process of clients: opens connections, turns them into long polls, and notes when each is answered.

It obeys lines on standard input (``wait``, ``report``) and answers with one line of JSON each; the first answer comes
when all connections are open. Run by the runner, because a process may have too few ports and files for all.
"""

import asyncio
import json
import sys
import time
from collections import Counter

import uvloop
from msgspec import Struct

_AT_ONCE = 100


class Plan(Struct, frozen=True):
    """What this process does: waiters by number, each on the queue ``prefix`` plus its number modulo ``queues``.

    ``worker_max``: so many of its connections may reach the same worker; others are tried again.
    """

    port: int
    source: str
    prefix: str
    first: int
    count: int
    queues: int
    timeout_ms: int
    worker_max: int


class Waiter(asyncio.Protocol):
    """One connection. It asks who serves it, and later waits for a message."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._text = b""
        self._answer: asyncio.Future[bytes] | None = None
        self.answered_ns = 0
        self.status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Called by the loop: an answer comes in one piece, or in a few."""
        now = time.monotonic_ns()
        self._text += data
        head, separator, body = self._text.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(body) < length:
            return
        self._text = b""
        self.answered_ns, self.status = now, int(head.split(b" ", 2)[1])
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed by the server"))

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.close()

    def ask(self, path: str) -> "asyncio.Future[bytes]":
        """Sends a request; the body of its answer."""
        self.answered_ns = 0
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise ConnectionError("not connected")
        self._transport.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        return self._answer


async def _open(plan: Plan, waiters: list[Waiter]) -> list[int]:
    """Opens all connections, and says which worker each of them has reached."""
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_AT_ONCE)
    pids = [0] * plan.count
    held: Counter[int] = Counter()

    async def one(number: int) -> None:
        async with gate:
            while True:
                try:
                    _, waiter = await loop.create_connection(
                        Waiter, "127.0.0.1", plan.port, local_addr=(plan.source, 0)
                    )
                    pid = json.loads(await waiter.ask("/health"))["worker_id"]
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                if held[pid] >= plan.worker_max:
                    waiter.close()
                    continue
                held[pid] += 1
                pids[number], waiters[number] = pid, waiter
                return

    await asyncio.gather(*[one(number) for number in range(plan.count)])
    return pids


def _wait(plan: Plan, waiters: list[Waiter]) -> list["asyncio.Future[bytes]"]:
    query = f"wait=true&timeout={plan.timeout_ms}&autoAck=true"
    return [
        waiter.ask(f"/api/v1/pop/queue/{plan.prefix}{(plan.first + number) % plan.queues}?{query}")
        for number, waiter in enumerate(waiters)
    ]


async def _main(plan: Plan) -> None:
    waiters: list[Waiter] = [Waiter()] * plan.count
    _say(await _open(plan, waiters))
    answers: list[asyncio.Future[bytes]] = []
    begin_ns = 0
    loop = asyncio.get_running_loop()
    while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        match command:
            case "wait":
                begin_ns = time.monotonic_ns()
                answers = _wait(plan, waiters)
                _say("sent")
            case "all":
                await asyncio.gather(*answers, return_exceptions=True)
                _say([[waiter.status, waiter.answered_ns - begin_ns] for waiter in waiters])
            case "report":
                _say([[plan.first + n, w.status, w.answered_ns] for n, w in enumerate(waiters) if w.answered_ns])


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    import msgspec

    uvloop.run(_main(msgspec.json.decode(sys.argv[1], type=Plan)))
