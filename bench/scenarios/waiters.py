"""Ten thousands of idle long polls, and how soon a message reaches them; then two instances."""

import asyncio
import resource
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from threading import Thread
from typing import Annotated

import psutil
from msgspec import Struct
from typer import Option

from bench import database, meter
from bench.http_client import AnswerError, Connection
from bench.load.target import Target as Server
from bench.load.target import started
from bench.long_polls import Clients, long_polls
from bench.scenario import Progress, Sample, Scenario, Target, percentiles
from queen.log.requests import QUEUE_MODE
from queen.postgres.setup import prepare

#: Open files of a worker that are not long polls, and some reserve.
_FILES_BESIDE = 2000
#: Seconds after the last long poll until the first fast checks are over.
_SETTLE_S = 8.0
_FOREVER_MS = 3_600_000
_TIMEOUT_QUEUES, _TIMEOUT_STEPS = 50, 5
_RESOLVE = "SELECT queen.resolve_partitions_v1($1::text[], array_fill('Default'::text, ARRAY[cardinality($1)]), true)"
_SUBSCRIBE = "SELECT queen.subscribe_v1($1, $2, 'all', NULL, false, true, 1)"
_QUIET = {"LOG_LEVEL": "warning"}


class Settings(Struct, frozen=True):
    """The sizes.

    Attributes:
        workers: of the instance.
        idle_s: seconds without messages in which CPU time is measured.
        pushes: messages, each to the queue of another long poll, through a worker that does not hold it.
        pause_ms: between two pushes.
        timeouts: long polls whose delay after the timeout is measured.
        rounds: messages from one instance to a consumer at another, per transport of notifications.
    """

    waiters: Annotated[int, Option(help="Long polls.", min=1)] = 30_000
    queues: Annotated[int, Option(help="Queues of the long polls; 0: one each.", min=0)] = 0
    workers: int = 2
    idle_s: float = 30.0
    pushes: int = 1000
    pause_ms: float = 5.0
    timeouts: int = 1000
    rounds: int = 1000

    @property
    def queues_used(self) -> int:
        """The queues; the n-th long poll waits at the n-th one."""
        return self.queues or self.waiters


async def measure(dsn: str, settings: Settings, progress: Progress) -> AsyncIterator[Sample]:
    """One instance with all long polls, then two instances, with NOTIFY alone and with UDP."""
    _allow_files(settings.waiters, settings.workers)
    async with database.scratch_database(dsn) as url:
        async with database.connection(url) as connection:
            postmaster = await meter.postmaster(connection)
        progress("making queues", 0.0)
        await _make_queues(url, settings)
        with started(url, settings.workers, _QUIET) as server:
            for sample in _One(server, settings, postmaster, progress).samples():
                yield sample
    async with database.scratch_database(dsn) as url:
        ways: dict[str, Sequence[Mapping[str, str]]] = {"NOTIFY": ({}, {}), "UDP": _udp_settings()}
        for number, (way, variables) in enumerate(ways.items()):
            progress(f"two instances, {way}", 0.8 + 0.1 * number)
            found = await asyncio.to_thread(_two_instances, url, settings, variables)
            yield Sample(f"push on one instance to long poll on another, {way}", _SIDE, 0, found)


def _allow_files(waiters: int, workers: int) -> None:
    """Raises the limit of open files, which the workers inherit, for their shares of the long polls."""
    wanted = waiters // workers * 21 // 20 + _FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError):
        raise AnswerError(
            f"{waiters} waiters need {wanted} open files, and this user may have {hard}: raise it (ulimit -Hn), or "
            "measure fewer with --waiters"
        ) from None


async def _make_queues(url: str, settings: Settings) -> None:
    """Creates all queues with their groups, so that only waiting is measured."""
    await prepare(url, database.CONNECT_TIMEOUT_MS)
    names = [f"w{n}" for n in range(settings.queues_used)] + [f"t{n}" for n in range(_TIMEOUT_QUEUES)]
    async with database.connection(url) as connection:
        await connection.execute(_RESOLVE, names)
        await connection.execute("ANALYZE; SET synchronous_commit = off")
        for name in names:
            await connection.execute(_SUBSCRIBE, name, QUEUE_MODE)


def _times(milliseconds: Sequence[float], failed: int) -> dict[str, float]:
    """``failed``: cases without an answer, or with an unexpected one."""
    return {"cases": len(milliseconds), "failed": failed, **percentiles(milliseconds)}


class _One:
    """One instance with long polls."""

    def __init__(
        self, server: Server, settings: Settings, postmaster: psutil.Process | None, progress: Progress
    ) -> None:
        self._server, self._settings, self._postmaster, self._progress = server, settings, postmaster, progress
        self._workers = server.worker_processes()

    def samples(self) -> Iterator[Sample]:
        """Their cost while idle, how soon they are woken, how late their timeouts are."""
        settings, count = self._settings, self._settings.waiters
        before = meter.memory_bytes(self._workers)
        self._progress("connecting", 0.05)
        port, queues = self._server.port, settings.queues_used
        with long_polls(port, "w", count, queues, _FOREVER_MS, settings.workers) as (groups, pids):
            connected = meter.memory_bytes(self._workers)
            self._progress("beginning to wait", 0.25)
            for group in groups:
                group.ask("wait")
            self._settle()
            self._progress("idle", 0.4)
            cpu = self._idle_cpu()
            waiting = meter.memory_bytes(self._workers)
            memory = {
                "bytes of memory per idle connection": (connected - before) / count,
                "more bytes per long poll": (waiting - connected) / count,
            }
            share = max(Counter(pids).values()) / count
            yield Sample(f"{count:,} idle long polls", _SIDE, 0, {**memory, **cpu, "largest share of a worker": share})
            self._progress("waking", 0.6)
            yield Sample("push on one worker to long poll on the other", _SIDE, 0, self._wake(groups, pids))
        self._progress("timeouts", 0.7)
        yield Sample("lateness of timeouts", _SIDE, 0, self._lateness())

    def _settle(self) -> None:
        """Returns when the workers are idle."""
        busy = True
        while busy:
            begin = meter.cpu_seconds(self._workers)
            time.sleep(1)
            busy = meter.cpu_seconds(self._workers) - begin > 0.5
        time.sleep(_SETTLE_S)

    def _idle_cpu(self) -> dict[str, float]:
        """CPU time of the workers and of PostgreSQL, in percent of a core; without PostgreSQL's if it is elsewhere."""
        workers, postgres = meter.cpu_seconds(self._workers), meter.postgres_seconds(self._postmaster)
        time.sleep(self._settings.idle_s)
        after, spent = meter.postgres_seconds(self._postmaster), meter.cpu_seconds(self._workers) - workers
        known = {} if after is None or postgres is None else {"PostgreSQL, % of a core": after - postgres}
        used = {"workers, % of a core": spent, **known}
        return {name: 100 * seconds / self._settings.idle_s for name, seconds in used.items()}

    def _wake(self, groups: list[Clients], pids: list[int]) -> dict[str, float]:
        """Pushes to queues from the whole range, each through a worker that does not hold the queue's long poll."""
        settings, queues = self._settings, min(self._settings.waiters, self._settings.queues_used)
        pushed: dict[int, int] = {}
        with ExitStack() as stack:
            connections = self._connection_to_each(stack)
            for number in list(range(0, queues, max(1, queues // settings.pushes)))[: settings.pushes]:
                other = next((c for pid, c in connections.items() if pid != pids[number]), connections[pids[number]])
                pushed[number] = time.monotonic_ns()
                _push(other, f"w{number}")
                time.sleep(settings.pause_ms / 1000)
            time.sleep(2)
        answered: dict[int, int] = {}
        for group in groups:
            for number, status, answered_ns in group.ask("report"):
                if status == 200:
                    answered.setdefault(number % settings.queues_used, answered_ns)
        times = [(answered[number] - begin) / 1e6 for number, begin in pushed.items() if number in answered]
        strangers = len(set(answered) - set(pushed))
        return _times(times, len(pushed) - len(times) + strangers)

    def _connection_to_each(self, stack: ExitStack) -> dict[int, Connection]:
        """One connection to each worker, by its process id."""
        found: dict[int, Connection] = {}
        for _ in range(1000):
            with ExitStack() as trial:
                connection = trial.enter_context(Connection(self._server.url))
                pid = int(connection.json("GET", "/health")["worker_id"])
                if pid not in found:
                    found[pid] = connection
                    stack.push(trial.pop_all())
            if len(found) == self._settings.workers:
                return found
        raise AnswerError(f"A thousand connections reached {len(found)} of {self._settings.workers} workers")

    def _lateness(self) -> dict[str, float]:
        """The delay of the answers of some long polls after their timeouts."""
        late, failed, count = list[float](), 0, self._settings.timeouts // _TIMEOUT_STEPS
        for step in range(_TIMEOUT_STEPS):
            timeout_ms, port = 500 + 317 * step, self._server.port
            with long_polls(port, "t", count, _TIMEOUT_QUEUES, timeout_ms, self._settings.workers) as (groups, _):
                for group in groups:
                    group.ask("wait")
                for status, nanoseconds in [answer for group in groups for answer in group.ask("all")]:
                    if status == 204 and nanoseconds >= timeout_ms * 1e6 - 1e6:
                        late.append(nanoseconds / 1e6 - timeout_ms)
                    else:
                        failed += 1
        return _times(late, failed)


def _push(connection: Connection, queue: str) -> None:
    connection.ask("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": 1}]}, 201)


def _udp_settings() -> tuple[dict[str, str], dict[str, str]]:
    ports = []
    for _ in range(2):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    one, other = (
        {"QUEEN_SYNC_SECRET": "bench", "QUEEN_UDP_NOTIFY_PORT": str(own), "QUEEN_UDP_PEERS": f"127.0.0.1:{peer}"}
        for own, peer in (ports, reversed(ports))
    )
    return one, other


def _two_instances(dsn: str, settings: Settings, variables: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Messages one after the other: pushed at one instance while a consumer waits at the other."""
    path = "/api/v1/pop/queue/two?wait=true&timeout=10000&autoAck=true"
    with ExitStack() as stack:
        servers = [stack.enter_context(started(dsn, settings.workers, {**each, **_QUIET})) for each in variables]
        producer, consumer = (stack.enter_context(Connection(server.url)) for server in servers)
        times: list[float] = []
        answer: list[tuple[int, int]] = []

        def consume() -> None:
            status, _ = consumer.request("GET", path)
            answer.append((status, time.monotonic_ns()))

        for _ in range(settings.rounds):
            answer.clear()
            waiting = Thread(target=consume)
            waiting.start()
            time.sleep(0.01)  # its check is over, and it waits
            begin = time.monotonic_ns()
            _push(producer, "two")
            waiting.join()
            times += [(end - begin) / 1e6 for status, end in answer if status == 200]
        return _times(times, settings.rounds - len(times))


_SIDE = "queen"
_P99 = {
    "push on one worker to long poll on the other": 50,
    "push on one instance to long poll on another, NOTIFY": 50,
    "push on one instance to long poll on another, UDP": 10,
}

SCENARIO = Scenario(
    "waiters",
    "Ten thousands of idle long polls, and how soon a message reaches them; then two instances.",
    "postgres",
    measure,
    Settings,
    smoke={"waiters": 60, "idle_s": 0.5, "pushes": 20, "pause_ms": 1, "timeouts": 20, "rounds": 20},
    targets=(
        Target("* idle long polls", "workers, % of a core", _SIDE, "< 5"),
        Target("* idle long polls", "more bytes per long poll", _SIDE, "< 10000"),
        *(Target(case, "p99 ms", _SIDE, f"< {bound}") for case, bound in _P99.items()),
        Target("lateness of timeouts", "longest ms", _SIDE, "< 50"),
        Target("*", "failed", _SIDE, "= 0"),
    ),
)
