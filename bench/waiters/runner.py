"""Runs the benchmark: one instance with all the waiters, then two instances side by side."""

import json
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import asyncpg
import msgspec
import psutil

from queen.core.operations import QUEUE_MODE
from queen.db.setup import prepare
from queen_bench import database, machine, usage
from queen_bench.waiters.client import Plan
from queen_bench.waiters.instance import Connection, Instance, InstanceError, connection_to_each, instance
from queen_bench.waiters.results import Idle, Latencies, Profile, Report

#: Connections of one process of clients: each has an address of its own on loopback, and so its own ports.
_CLIENTS_EACH = 8000
#: Open files of a worker that are not long polls, and some room.
_FILES_BESIDE = 2000
#: After the last long poll was sent, until the first quick re-checks are over.
_SETTLE_S = 8.0
_FOREVER_MS = 3_600_000
_TIMEOUT_QUEUES = 50

Advance = Callable[[str, float], None]


async def run(dsn: str, profile: Profile, advance: Advance, *, embedded: bool) -> Report:
    """Everything, in a database that is dropped afterwards."""
    _allow_files(profile.waiters, profile.workers)
    facts = machine.describe()
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as name:
        async with database.scratch_database(dsn) as url:
            async with usage.connection(url) as connection:
                postgres = await database.describe(connection, embedded=embedded)
                postmaster = await usage.postmaster(connection)
            advance("making queues", 0.0)
            await _make_queues(url, profile)
            idle, woken, lateness = _one_instance(url, profile, postmaster, Path(name), advance)
        async with database.scratch_database(dsn) as url:
            advance("two instances, NOTIFY", 0.8)
            notify = _two_instances(url, profile, Path(name), ({}, {}))
            advance("two instances, UDP", 0.9)
            udp = _two_instances(url, profile, Path(name), _udp_settings())
    return Report(started_at, profile, facts, postgres, idle, woken, lateness, notify, udp)


def _allow_files(waiters: int, workers: int) -> None:
    """Each worker gets its part of the waiters; its limit is inherited from ours."""
    wanted = waiters // workers * 21 // 20 + _FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError):
        raise InstanceError(
            f"{waiters} waiters need {wanted} open files, and this user may have {hard}: raise it (ulimit -Hn), or "
            "measure fewer with --waiters"
        ) from None


async def _make_queues(url: str, profile: Profile) -> None:
    """All queues with their group: what is measured is waiting, not first contact."""
    await prepare(url, database.CONNECT_TIMEOUT_MS)
    names = [f"w{number}" for number in range(profile.queues)] + [f"t{number}" for number in range(_TIMEOUT_QUEUES)]
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "SELECT queen.resolve_partitions_v1($1::text[], array_fill('Default'::text, ARRAY[cardinality($1)]), true)",
            names,
        )
        await connection.execute("ANALYZE; SET synchronous_commit = off")
        for name in names:
            await connection.execute("SELECT queen.subscribe_v1($1, $2, 'all', NULL, false, true, 1)", name, QUEUE_MODE)
    finally:
        await connection.close()


# One instance


class Clients:
    """One process of clients."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._process = subprocess.Popen(
            [sys.executable, "-m", "queen_bench.waiters.client", msgspec.json.encode(plan).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> Any:  # noqa: ANN401 - decoded JSON
        """Its next answer."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise InstanceError("A process of clients has ended; its error stands above")
        return json.loads(line)

    def ask(self, command: str) -> Any:  # noqa: ANN401 - decoded JSON
        """Has it do something; its answer."""
        self.tell(command)
        return self.answer()

    def tell(self, command: str) -> None:
        """Has it do something."""
        if self._process.stdin:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Closes all its connections."""
        self._process.kill()
        self._process.wait()


@contextmanager
def _clients(
    port: int, prefix: str, count: int, queues: int, timeout_ms: int, workers: int
) -> Iterator[tuple[list[Clients], list[int]]]:
    """Processes with so many open connections in all, and the worker that each connection has reached.

    They are spread over the workers: the system's own choice may give one of them four fifths.
    """
    groups: list[Clients] = []
    try:
        for number, first in enumerate(range(0, count, _CLIENTS_EACH)):
            source = f"127.0.{number + 1}.1"
            some = min(_CLIENTS_EACH, count - first)
            groups.append(Clients(Plan(port, source, prefix, first, some, queues, timeout_ms, -(-some // workers))))
        yield groups, [pid for group in groups for pid in group.answer()]
    finally:
        for group in groups:
            group.end()


def _one_instance(
    dsn: str, profile: Profile, postmaster: psutil.Process | None, folder: Path, advance: Advance
) -> tuple[Idle, Latencies, Latencies]:
    advance("starting", 0.0)
    with instance(dsn, profile.workers, folder, {}) as one:
        before = one.memory_bytes()
        advance("connecting", 0.05)
        with _clients(one.port, "w", profile.waiters, profile.queues, _FOREVER_MS, profile.workers) as (groups, pids):
            connected = one.memory_bytes()
            advance("beginning to wait", 0.25)
            for group in groups:
                group.ask("wait")
            _settle(one)
            advance("idle", 0.4)
            worker_cpu, postgres_cpu = _idle_cpu(one, postmaster, profile.idle_s)
            waiting = one.memory_bytes()
            advance("waking", 0.6)
            woken = _wake(one, profile, groups, pids)
        advance("timeouts", 0.7)
        lateness = _lateness(one, profile)
    count = profile.waiters
    per_worker = tuple(sorted(Counter(pids).values()))
    idle = Idle(
        count, profile.queues, (connected - before) / count, (waiting - connected) / count, worker_cpu, postgres_cpu,
        per_worker,
    )  # fmt: skip
    return idle, woken, lateness


def _settle(one: Instance) -> None:
    """Returns when the workers have stopped working off what they were sent."""
    busy = True
    while busy:
        begin = one.cpu_s()
        time.sleep(1)
        busy = one.cpu_s() - begin > 0.5
    time.sleep(_SETTLE_S)


def _idle_cpu(one: Instance, postmaster: psutil.Process | None, seconds: float) -> tuple[float, float]:
    """CPU time of the workers and of PostgreSQL, in percent of a core; 0 for one on another machine."""

    def postgres_s() -> float:
        return usage.cpu_seconds(usage.family(postmaster)) if postmaster else 0.0

    workers, postgres = one.cpu_s(), postgres_s()
    time.sleep(seconds)
    return 100 * (one.cpu_s() - workers) / seconds, 100 * (postgres_s() - postgres) / seconds


def _wake(one: Instance, profile: Profile, groups: list[Clients], pids: list[int]) -> Latencies:
    """Pushes to the queues of waiters all over the range, each through a worker that does not hold the waiter."""
    connections = connection_to_each(one, profile.workers)
    step = max(1, min(profile.waiters, profile.queues) // profile.pushes)
    pushed: dict[int, int] = {}
    for number in list(range(0, min(profile.waiters, profile.queues), step))[: profile.pushes]:
        other = next((c for pid, c in connections.items() if pid != pids[number]), connections[pids[number]])
        pushed[number] = time.monotonic_ns()
        other.push(f"w{number}")
        time.sleep(profile.pause_ms / 1000)
    time.sleep(2)
    answered: dict[int, int] = {}
    for group in groups:
        for number, status, answered_ns in group.ask("report"):
            if status == 200:
                answered.setdefault(number % profile.queues, answered_ns)
    times = [(answered[number] - begin) / 1e6 for number, begin in pushed.items() if number in answered]
    strangers = len(set(answered) - set(pushed))
    return Latencies.of(times, len(pushed) - len(times) + strangers)


def _lateness(one: Instance, profile: Profile) -> Latencies:
    """How much later than after its timeout each of some long polls is answered."""
    late: list[float] = []
    failed = 0
    steps = 5
    for step in range(steps):
        timeout_ms = 500 + 317 * step
        with _clients(one.port, "t", profile.timeouts // steps, _TIMEOUT_QUEUES, timeout_ms, profile.workers) as (
            groups,
            _,
        ):
            for group in groups:
                group.ask("wait")
            for status, nanoseconds in [answer for group in groups for answer in group.ask("all")]:
                if status == 204 and nanoseconds >= timeout_ms * 1e6 - 1e6:
                    late.append(nanoseconds / 1e6 - timeout_ms)
                else:
                    failed += 1
    return Latencies.of(late, failed)


# Two instances


def _udp_settings() -> tuple[dict[str, str], dict[str, str]]:
    ports = []
    for _ in range(2):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    common = {"QUEEN_SYNC_SECRET": "bench"}
    one, other = (
        {**common, "QUEEN_UDP_NOTIFY_PORT": str(own), "QUEEN_UDP_PEERS": f"127.0.0.1:{peer}"}
        for own, peer in (ports, reversed(ports))
    )
    return one, other


def _two_instances(
    dsn: str, profile: Profile, folder: Path, settings: tuple[Mapping[str, str], Mapping[str, str]]
) -> Latencies:
    """Messages one after the other: pushed at one instance while a consumer waits at the other."""
    with ExitStack() as stack:
        here, there = (stack.enter_context(instance(dsn, profile.workers, folder, each)) for each in settings)
        producer, consumer = Connection(here.port), Connection(there.port)
        times: list[float] = []
        failed = 0
        path = "/api/v1/pop/queue/two?wait=true&timeout=10000&autoAck=true"
        for _ in range(profile.rounds):
            answer: list[tuple[int, int]] = []

            def consume(answer: list[tuple[int, int]] = answer) -> None:
                status, _ = consumer.request("GET", path)
                answer.append((status, time.monotonic_ns()))

            waiting = Thread(target=consume)
            waiting.start()
            time.sleep(0.01)  # it has looked, and waits
            begin = time.monotonic_ns()
            producer.push("two")
            waiting.join()
            status, end = answer[0] if answer else (0, 0)
            if status == 200:
                times.append((end - begin) / 1e6)
            else:
                failed += 1
        return Latencies.of(times, failed)
