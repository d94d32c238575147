"""Clients that misbehave, and what others notice of them."""

import http.client
import json
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from tests.support.processes import Server, clean_environment, open_folder, serving, wait_until

#: What a push of another client may take during an attack: the wanted second, with the margin of a busy machine; and
#: of it the CPU of a worker, which a busy machine does not change.
PUSH_S_MAX, CPU_S_MAX = 15.0, 3.0
RESIDENT_BYTES_MAX = 640 << 20
#: The most that an attacker waits for an answer.
PATIENCE_S = 60.0
#: The time limit of requests of a server that is attacked: shorter than by default, so that the tests end.
TIMEOUT_S = 4


@dataclass
class Witness:
    """A client that pushes all the time, over one connection and over new ones, and looks at the workers' memory.

    Attributes:
        seconds: what each push took.
        cpu_s: the most CPU that a worker used during a push.
        statuses: how each was answered.
        resident: the most bytes that a worker had in memory.
        regions: the largest regions of its memory then, in MiB, with their kinds.
    """

    server: Server
    seconds: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    statuses: set[int | str] = field(default_factory=set)
    resident: int = 0
    regions: list[tuple[int, str]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _workers: list[psutil.Process] = field(default_factory=list)

    def pushes(self, count: int) -> None:
        """Returns after so many further pushes."""
        wanted = len(self.seconds) + count
        wait_until(lambda: len(self.seconds) >= wanted, f"{count} pushes beside an attack")

    def run(self) -> None:
        """Until ``end`` is called."""
        self._workers = [psutil.Process(pid) for pid in self.server.workers()]
        kept = self.server.connection(PATIENCE_S)
        while not self._over.wait(0.01):
            self._push(kept)
            with closing(self.server.connection(PATIENCE_S)) as fresh:
                self._push(fresh)
            for worker in self._workers:
                self._measure(worker)
        kept.close()

    def end(self) -> None:
        """Ends ``run``."""
        self._over.set()

    def _measure(self, worker: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess):
            resident = int(worker.memory_info().rss)
            if resident > max(self.resident, RESIDENT_BYTES_MAX):
                regions = ((each.rss >> 20, each.path) for each in worker.memory_maps(grouped=False))
                self.regions = sorted(regions, reverse=True)[:100]
            self.resident = max(self.resident, resident)

    def _push(self, connection: http.client.HTTPConnection) -> None:
        body = json.dumps({"items": [{"queue": "witness", "payload": {"n": len(self.seconds)}}]})
        began, used = time.monotonic(), self._used()
        try:
            connection.request("POST", "/api/v1/push", body)
            response = connection.getresponse()
            response.read()
            self.statuses.add(response.status)
        except (OSError, http.client.HTTPException) as problem:
            self.statuses.add(repr(problem))
            connection.close()
        self.seconds.append(time.monotonic() - began)
        self.cpu_s = max([self.cpu_s, *(now - then for now, then in zip(self._used(), used, strict=True))])

    def _used(self) -> list[float]:
        """The CPU of each worker until now; 0 if it has gone."""
        return [_cpu(worker) for worker in self._workers]


def _cpu(worker: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = worker.cpu_times()
        return float(times.user + times.system)
    return 0.0


@contextmanager
def witnessed(server: Server) -> Iterator[Witness]:
    """Another client works during the block, and must not have noticed anything at its end."""
    before, witness = server.workers(), Witness(server)
    thread = threading.Thread(target=witness.run, daemon=True)
    thread.start()
    try:
        witness.pushes(10)
        yield witness
        witness.pushes(10)
    finally:
        witness.end()
        thread.join()
    print(
        f"pushes {len(witness.seconds)}, median {statistics.median(witness.seconds):.4f} s, "
        f"slowest {max(witness.seconds):.3f} s with at most {witness.cpu_s:.2f} s of CPU, "
        f"resident {witness.resident >> 20} MiB"
    )
    assert witness.statuses == {201}, witness.statuses
    assert max(witness.seconds) < PUSH_S_MAX
    assert witness.cpu_s < CPU_S_MAX
    assert witness.resident < RESIDENT_BYTES_MAX, witness.regions
    assert server.workers() == before, "gunicorn has replaced a worker"


@contextmanager
def many_files() -> Iterator[None]:
    """As many open files as the system allows, for the connections of attacks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def attacked_server(workers: int) -> Iterator[Server]:
    """A server with a short time limit of requests, and an embedded PostgreSQL."""
    with many_files(), open_folder() as folder:
        environment = clean_environment(QUEEN_DATA_DIR=str(folder), QUEEN_REQUEST_TIMEOUT=str(TIMEOUT_S))
        with serving(folder / "data", "--workers", str(workers), env=environment) as running:
            running.wait_until_all_are_healthy(workers)
            yield running


@dataclass
class Answer:
    """What came back on a raw connection; status 0: nothing before it was closed."""

    status: int
    headers: dict[str, str]
    body: bytes


def connect(server: Server) -> socket.socket:
    """A raw connection."""
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)


def send_what_is_taken(connection: socket.socket, pieces: Iterator[bytes] | Sequence[bytes]) -> int:
    """Sends until the server closes; the bytes sent."""
    sent = 0
    with suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
    return sent


def answer_of(connection: socket.socket) -> Answer:
    """The next answer on a raw connection."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, response.read())
    except (http.client.HTTPException, ConnectionError):
        return Answer(0, {}, b"")


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of a connection; false if it stays open for ``PATIENCE_S``."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def many(server: Server, count: int, opening: bytes) -> Iterator[list[socket.socket]]:
    """So many connections, on each of which the same was sent."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(connect(server))
            send_what_is_taken(connection, [opening] if opening else [])
            connections.append(connection)
        yield connections


def post(path: str, length: int, *lines: str) -> bytes:
    """The head of a request with a body of so many bytes."""
    more = "".join(f"{line}\r\n" for line in lines)
    return f"POST {path} HTTP/1.1\r\nHost: queen\r\nContent-Length: {length}\r\n{more}\r\n".encode()
