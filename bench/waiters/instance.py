"""An instance to measure: ``queen serve`` on a database that is there, as a process of its own."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from msgspec import Struct

from queen.core.errors import QueenError
from queen_bench import programs

_PATIENCE_S = 60.0


class InstanceError(QueenError):
    """The instance does not do what the benchmark needs."""


class Instance(Struct, frozen=True):
    """A running one."""

    port: int
    pid: int

    def workers(self) -> list[psutil.Process]:
        """Gunicorn's workers."""
        [gunicorn] = [p for p in psutil.Process(self.pid).children() if "gunicorn" in " ".join(p.cmdline())]
        return sorted(gunicorn.children(), key=lambda worker: worker.pid)

    def memory_bytes(self) -> int:
        """Memory of all workers, what they share counted once."""
        return sum(worker.memory_full_info().pss for worker in self.workers())

    def cpu_s(self) -> float:
        """CPU time of all workers so far."""
        return sum(sum(worker.cpu_times()[:2]) for worker in self.workers())


class Connection:
    """A connection to one worker."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pid = int(json.loads(self.request("GET", "/health")[1])["worker_id"])

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of an answer."""
        self._http.request(method, path, body)
        answer = self._http.getresponse()
        return answer.status, answer.read()

    def push(self, queue: str) -> None:
        """Pushes one message."""
        status, text = self.request("POST", "/api/v1/push", b'{"items":[{"queue":"%b","payload":1}]}' % queue.encode())
        if status != 201:
            raise InstanceError(f"A push was answered {status}: {text!r}")

    def close(self) -> None:
        """Ends it."""
        self._http.close()


def connection_to_each(instance: Instance, workers: int) -> dict[int, Connection]:
    """One connection to each worker, by its process id."""
    found: dict[int, Connection] = {}
    for _ in range(1000):
        connection = Connection(instance.port)
        if connection.pid in found:
            connection.close()
        found.setdefault(connection.pid, connection)
        if len(found) == workers:
            return found
    raise InstanceError(f"A thousand connections reached {len(found)} of {workers} workers")


@contextmanager
def instance(dsn: str, workers: int, folder: Path, settings: Mapping[str, str]) -> Iterator[Instance]:
    """Runs one for the length of the block; ``folder`` takes its output."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, **settings, "DATABASE_URL": dsn, "LOG_LEVEL": "warning"}
    output = folder / f"{port}.out"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "queen_command", "serve", "--port", str(port), "--workers", str(workers)],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    with programs.ending(process):
        _wait_until_it_answers(process, port, output)
        yield Instance(port, process.pid)


def _wait_until_it_answers(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            Connection(port).close()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        else:
            return
    raise InstanceError(f"The instance does not start: {output.read_text()[-2000:]}")
