"""The run: a large queue is filled through the procedures, and each listing is asked for over HTTP."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import psutil

from queen.core.errors import DatabaseUnavailableError
from queen.db.dsn import connect, parse
from queen.db.pool import Pool
from queen_bench import database, machine, programs
from queen_bench.listing.results import Profile, Report, Timing
from queen_bench.procedures.segments import Segments
from queen_bench.procedures.side import MessageSource

#: Is told what comes next, and how much of the whole is done.
Progress = Callable[[str, float], None]

_QUEUE, _GROUP = "bench", "group"
_CALL_TIMEOUT_S = 120.0
_START_TIMEOUT_S = 60.0
_CONNECTIONS = 2
#: Of the time, filling takes so much.
_FILLING = 0.9


async def run(dsn: str, profile: Profile, progress: Progress, *, embedded: bool) -> Report:
    """Measures everything in a database of its own.

    Raises:
        QueenError: the server cannot be used.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = machine.describe()
    async with database.scratch_database(dsn) as url:
        target = parse(url, "queen bench", database.CONNECT_TIMEOUT_MS)
        pool = Pool(target, _CONNECTIONS, _CALL_TIMEOUT_S)
        try:
            await _fill(Segments(pool, url), profile, progress)
            await pool.fetch("VACUUM ANALYZE")
            # Another server's is not for every user to know.
            [row] = await pool.fetch("SHOW data_directory") if embedded else [None]
        finally:
            await pool.close()
        with _server(url) as (port, server):
            await asyncio.to_thread(_operations, port)
            processes = _processes(server, str(row["data_directory"])) if row else []
            timings, refresh_ms = await asyncio.to_thread(_measure, port, profile, progress, processes)
        connection = await connect(target)
        try:
            postgres = await database.describe(connection, embedded=embedded)
        finally:
            await connection.close()
    return Report(started_at, profile, facts, postgres, timings, refresh_ms)


async def _fill(side: Segments, profile: Profile, progress: Progress) -> None:
    """Pushes one message to each partition in turn; a group consumes a part of them."""
    await side.set_up()
    await side.make_partitions(_QUEUE, profile.partitions)
    await side.subscribe(_QUEUE, _GROUP)
    source, pushed = MessageSource(), 0
    while pushed < profile.messages:
        numbers = [(pushed + n) % profile.partitions for n in range(min(profile.step, profile.messages - pushed))]
        await side.push(_QUEUE, [source.take(1, number, chosen=False)[0] for number in numbers])()
        pushed += len(numbers)
        progress("filling the queue", _FILLING * pushed / profile.messages)
    for _ in range(profile.partitions // 100):
        await side.pop_and_ack(_QUEUE, _GROUP, 3)


@contextlib.contextmanager
def _server(url: str) -> Iterator[tuple[int, int]]:
    """A server with one worker on the database; its port and process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "queen_command", "serve", "--port", str(port), "--workers", "1"],
        env={**os.environ, "DATABASE_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with programs.ending(process):
        _wait_until_healthy(port, process)
        yield port, process.pid


def _wait_until_healthy(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            if _ask(port, "GET", "/health")[0] == 200:
                return
        time.sleep(0.1)
    raise DatabaseUnavailableError("The server for the benchmark did not start")


def _ask(port: int, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_CALL_TIMEOUT_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _measure(
    port: int, profile: Profile, progress: Progress, processes: Sequence[psutil.Process]
) -> tuple[list[Timing], list[float]]:
    refresh_ms = [_timed(port, "POST", "/api/v1/stats/refresh")[0] for _ in range(profile.runs)]
    operations = _operations(port)
    timings = []
    for number, path in enumerate(operations):
        progress(path.partition("?")[0], _FILLING + (1 - _FILLING) * number / len(operations))
        timing = Timing(f"GET {path}", [], [], 0)
        for _ in range(profile.runs):
            before = _cpu_ms(processes)
            ms, timing.answer_bytes = _timed(port, "GET", path)
            timing.ms.append(ms)
            if processes:
                timing.cpu_ms.append(_cpu_ms(processes) - before)
        timings.append(timing)
    return timings, refresh_ms


def _cpu_ms(processes: Sequence[psutil.Process]) -> float:
    """CPU time of these processes so far."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total * 1000


def _processes(server: int, data_directory: str) -> list[psutil.Process]:
    """The server with its workers, and the PostgreSQL of a data folder."""
    found = [psutil.Process(server), *psutil.Process(server).children(recursive=True)]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == data_directory:
                found.append(process)
    return found


def _timed(port: int, method: str, path: str) -> tuple[float, int]:
    """Milliseconds and bytes of an answer.

    Raises:
        DatabaseUnavailableError: it is not a 200.
    """
    began = time.perf_counter()
    status, body = _ask(port, method, path)
    ms = (time.perf_counter() - began) * 1000
    if status != 200:
        raise DatabaseUnavailableError(f"{method} {path} was answered {status}: {body[:200]!r}")
    return ms, len(body)


def _operations(port: int) -> list[str]:
    """Every listing and status operation, with the parameters that people use."""
    messages: dict[str, Any] = json.loads(_ask(port, "GET", f"/api/v1/messages?queue={_QUEUE}&limit=1")[1])
    newest = messages["messages"][0]
    own = f"{newest['partitionId']}/{newest['transactionId']}"
    past = datetime.fromisoformat(newest["createdAt"]).replace(second=0, microsecond=0)
    earlier = f"to={datetime.fromtimestamp(past.timestamp() - 60, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return [
        "/api/v1/resources/overview",
        "/api/v1/resources/queues",
        f"/api/v1/resources/queues/{_QUEUE}",
        f"/api/v1/resources/queues/{_QUEUE}?limit=1000&offset=99000",
        f"/api/v1/resources/queues/{_QUEUE}/depth?group={_GROUP}",
        f"/api/v1/resources/partitions?queue={_QUEUE}",
        "/api/v1/resources/namespaces",
        "/api/v1/resources/tasks",
        "/api/v1/messages",
        f"/api/v1/messages?queue={_QUEUE}",
        f"/api/v1/messages?queue={_QUEUE}&offset=5000",
        f"/api/v1/messages?queue={_QUEUE}&{earlier}",
        *[f"/api/v1/messages?queue={_QUEUE}&status={s}" for s in ("pending", "processing", "completed", "dead_letter")],
        f"/api/v1/messages?queue={_QUEUE}&partition=77",
        f"/api/v1/messages/{own}",
        f"/api/v1/dlq?queue={_QUEUE}",
        "/api/v1/consumer-groups",
        f"/api/v1/consumer-groups/{_GROUP}",
        f"/api/v1/consumer-groups/{_GROUP}?limit=1000&offset=99000",
        "/api/v1/consumer-groups/lagging?minLagSeconds=0",
        f"/api/v1/traces/{own}",
        "/api/v1/traces/names",
        "/api/v1/status",
        "/api/v1/status/queues",
        f"/api/v1/status/queues/{_QUEUE}",
        f"/api/v1/status/queues/{_QUEUE}/messages",
        "/api/v1/status/analytics",
        "/api/v1/analytics/system-metrics",
        "/api/v1/analytics/worker-metrics",
        "/api/v1/analytics/queue-lag",
        "/api/v1/analytics/queue-ops",
        "/api/v1/analytics/queue-parked-replicas",
        "/api/v1/analytics/retention",
        "/api/v1/analytics/postgres-stats",
        "/metrics",
    ]
