"""Client processes that open connections, send long polls on them, and record when each is answered.

A process reads commands on standard input (``wait``, ``report``, ``all``) and answers each with one line of JSON; the
first answer comes when all connections are open. There are several processes, because one may have too few ports and
files.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvloop
from msgspec import Struct

from bench.http_client import AnswerError
from bench.sockets.http import Connection

_AT_ONCE = 100
#: Connections per process: each process has an address of its own on loopback, and so its own ports.
_EACH = 8000


class Plan(Struct, frozen=True):
    """The plan of a process: long polls by number, each on the queue ``prefix`` plus its number modulo ``queues``.

    ``worker_max``: maximum of its connections to one worker; others are repeated.
    """

    port: int
    source: str
    prefix: str
    first: int
    count: int
    queues: int
    timeout_ms: int
    worker_max: int


# ---------------------------------------------------------------- as its driver sees it


class Clients:
    """One process."""

    def __init__(self, plan: Plan) -> None:
        command = [sys.executable, "-m", "bench.long_polls", msgspec.json.encode(plan).decode()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self) -> Any:  # noqa: ANN401 - decoded JSON
        """Its next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AnswerError("A client process has ended; see its error above")
        return json.loads(line)

    def ask(self, command: str) -> Any:  # noqa: ANN401 - decoded JSON
        """Sends a command; returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Closes all its connections."""
        with self._process:
            self._process.kill()


@contextmanager
def long_polls(
    port: int, prefix: str, count: int, queues: int, timeout_ms: int, workers: int
) -> Iterator[tuple[list[Clients], list[int]]]:
    """Processes with this many open connections in total, and the worker of each connection.

    They are spread over the workers: the kernel may give one worker four fifths of them.
    """
    groups: list[Clients] = []
    try:
        for number, first in enumerate(range(0, count, _EACH)):
            some = min(_EACH, count - first)
            source, worker_max = f"127.0.{number + 1}.1", -(-some // workers)
            groups.append(Clients(Plan(port, source, prefix, first, some, queues, timeout_ms, worker_max)))
        yield groups, [pid for group in groups for pid in group.answer()]
    finally:
        for group in groups:
            group.end()


# ---------------------------------------------------------------- the process


async def _open(plan: Plan, waiters: list[Connection]) -> list[int]:
    """Opens all connections, and reports the worker of each."""
    gate, held, pids = asyncio.Semaphore(_AT_ONCE), Counter[int](), [0] * plan.count

    async def one(number: int) -> None:
        async with gate:
            while True:
                try:
                    waiter, pid = await _connect(plan)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                if held[pid] < plan.worker_max:
                    held[pid] += 1
                    pids[number], waiters[number] = pid, waiter
                    return
                waiter.close()

    await asyncio.gather(*[one(number) for number in range(plan.count)])
    return pids


async def _connect(plan: Plan) -> tuple[Connection, int]:
    """A connection and its worker."""
    loop = asyncio.get_running_loop()
    _, waiter = await loop.create_connection(Connection, "127.0.0.1", plan.port, local_addr=(plan.source, 0))
    _, body = await waiter.ask(_get("/health"))
    return waiter, int(json.loads(body)["worker_id"])


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()


async def _main(plan: Plan) -> None:
    waiters = [Connection()] * plan.count
    _say(await _open(plan, waiters))
    query, begin_ns = f"wait=true&timeout={plan.timeout_ms}&autoAck=true", 0
    answers: list[asyncio.Future[tuple[int, bytes]]] = []
    loop = asyncio.get_running_loop()
    while command := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        match command:
            case "wait":
                begin_ns = time.monotonic_ns()
                queues = [f"{plan.prefix}{(plan.first + number) % plan.queues}" for number in range(plan.count)]
                paths = [f"/api/v1/pop/queue/{queue}?{query}" for queue in queues]
                answers = [waiter.ask(_get(path)) for waiter, path in zip(waiters, paths, strict=True)]
                _say("sent")
            case "all":
                await asyncio.gather(*answers, return_exceptions=True)
                _say([[waiter.status, waiter.answered_ns - begin_ns] for waiter in waiters])
            case "report":
                _say([[plan.first + n, w.status, w.answered_ns] for n, w in enumerate(waiters) if w.answered_ns])


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(_main(msgspec.json.decode(sys.argv[1], type=Plan)))
