"""Measures cost: CPU and memory of processes, CPU of PostgreSQL, and blocks that a call accesses.

CPU and blocks stay the same on a busy machine. Elapsed time does not.
"""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg
import psutil
from msgspec import Struct

from bench.database import CONNECT_TIMEOUT_MS
from queen.core.errors import DatabaseSetupError
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool

#: The first id of user objects, with their TOAST tables. The meter's own access to catalogues is not counted.
_LOOK = (
    "SELECT pg_backend_pid() AS pid, coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0)::int8 AS blocks"
    " FROM pg_class AS c WHERE c.oid >= 16384 AND c.relkind IN ('r', 'i', 't', 'm')"
)
_REST_LIMIT_S, _PAUSE_S = 5.0, 0.0001
_SAMPLE_S = 1.0


# ---------------------------------------------------------------- processes


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """User and system time so far, of processes and of their ended children."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def found(pid: int) -> list[psutil.Process]:
    """The process with an id; none if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid)]
    return []


def family(root: psutil.Process) -> list[psutil.Process]:
    """A process and all its descendants, now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []


def memory_bytes(processes: Sequence[psutil.Process]) -> int:
    """Proportional set size: shared memory counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_full_info().pss
    return total


class Peak:
    """Peak memory of this process and its descendants, within a block."""

    def __init__(self) -> None:
        self._self, self._done = psutil.Process(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            held = 0
            for process in family(self._self):
                with contextlib.suppress(psutil.NoSuchProcess):
                    held += process.memory_info().rss
            self.bytes = max(self.bytes, held)


# ---------------------------------------------------------------- PostgreSQL


async def postmaster(connection: "asyncpg.Connection[Any]") -> psutil.Process | None:
    """The postmaster, if it runs on this machine."""
    pid = await connection.fetchval("SELECT pg_backend_pid()")
    with contextlib.suppress(psutil.NoSuchProcess):
        backend = psutil.Process(pid)
        return backend.parent() if "postgres" in backend.name() else None
    return None


def postgres_seconds(postmaster: psutil.Process | None) -> float | None:
    """CPU seconds of PostgreSQL so far, autovacuum included; ``None`` if it runs elsewhere."""
    return None if postmaster is None else cpu_seconds(family(postmaster))


class Taken(Struct, frozen=True):
    """Messages and their cost.

    Attributes:
        seconds: by the clock.
        python_s: CPU seconds of Python, without those of the clients; ``None`` if unknown.
        postgres_s: CPU seconds of PostgreSQL; ``None`` if that runs elsewhere.
        calls: of procedures; 0 if unknown.
    """

    messages: int
    seconds: float
    python_s: float | None = None
    postgres_s: float | None = None
    calls: int = 0

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(
            self.messages + other.messages, self.seconds + other.seconds, _sum(self.python_s, other.python_s),
            _sum(self.postgres_s, other.postgres_s), self.calls + other.calls,
        )  # fmt: skip

    def figures(self) -> dict[str, float]:
        """The reported figures."""
        cpu = {"Python": self.python_s, "PostgreSQL": self.postgres_s}
        each = {f"{part}, µs per message": 1e6 * s / self.messages for part, s in cpu.items() if s is not None}
        return {"messages/s": self.messages / self.seconds, **each}


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


class CpuMeter:
    """CPU of this process and of PostgreSQL, without that of the clients."""

    def __init__(self, postmaster: psutil.Process | None) -> None:
        self._postmaster, self._clients_s = postmaster, 0.0

    @contextmanager
    def client(self) -> Iterator[None]:
        """The block is work of a client. It must not await anything."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self._clients_s += time.thread_time() - begin

    async def measured(self, work: Callable[[], Awaitable[int]]) -> Taken:
        """The cost of work that returns its number of messages."""
        clients, postgres = self._clients_s, postgres_seconds(self._postmaster)
        python, begin = time.process_time(), time.perf_counter()
        messages = await work()
        seconds, spent = time.perf_counter() - begin, time.process_time() - python
        after = postgres_seconds(self._postmaster)
        grown = None if after is None or postgres is None else after - postgres
        return Taken(messages, seconds, spent - (self._clients_s - clients), grown)


# ---------------------------------------------------------------- one backend


class Cost(Struct, frozen=True):
    """The cost of a call in one backend.

    Attributes:
        cpu_s: CPU seconds of the backend.
        blocks: accesses to blocks of tables and indexes, in shared buffers or not.
    """

    cpu_s: float = 0.0
    blocks: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.cpu_s + other.cpu_s, self.blocks + other.blocks)

    def least(self, other: "Cost") -> "Cost":
        """The smaller of each figure: disturbances only add to it."""
        return Cost(min(self.cpu_s, other.cpu_s), min(self.blocks, other.blocks))


class BackendCpu:
    """CPU time of one backend on this machine: in nanoseconds if the kernel provides them, else in ticks of 10 ms.

    Raises:
        DatabaseSetupError: the backend is not a process of this machine, so its CPU is unknown.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._process = psutil.Process(pid)
            known = "postgres" in self._process.name()
        except psutil.NoSuchProcess:
            known = False
        if not known:
            raise DatabaseSetupError(
                "CPU of PostgreSQL can be measured only on the machine where it runs: name one here, or none for an "
                "embedded one."
            )
        file = Path(f"/proc/{pid}/schedstat")
        self._file = file if _tells(file) else None

    def seconds(self) -> float:
        """The CPU so far, when the backend is idle: the kernel updates it when a process stops running."""
        deadline, before = time.monotonic() + _REST_LIMIT_S, -1.0
        while True:
            rests = self._process.status() != psutil.STATUS_RUNNING
            now = self._read()
            if (rests and now == before) or time.monotonic() > deadline:
                return now
            before = now if rests else -1.0
            time.sleep(_PAUSE_S)

    def _read(self) -> float:
        if self._file is not None:
            return int(self._file.read_text().split(maxsplit=1)[0]) / 1e9
        times = self._process.cpu_times()
        return float(times.user + times.system)


def _tells(file: Path) -> bool:
    """Whether the kernel counts nanoseconds."""
    try:
        return int(file.read_text().split(maxsplit=1)[0]) > 0
    except (OSError, ValueError, IndexError):
        return False


class Meter:
    """Measures calls over a pool of one connection, so that all use one backend."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._cpu: dict[int, BackendCpu] = {}

    async def measure(self, call: Callable[[], Awaitable[object]], *, keep: bool) -> Cost:
        """The cost of a call as one transaction, which is rolled back unless ``keep``.

        Begin and end of the transaction are not counted, because a commit waits for the disk.
        """
        await self.pool.fetch("BEGIN")
        try:
            cpu, blocks = await self._look()
            began = cpu.seconds()
            await call()
            spent = cpu.seconds() - began
            _, blocks_after = await self._look()
        except BaseException:
            await self.pool.fetch("ROLLBACK")  # on a new connection, if the call was aborted
            raise
        await self.pool.fetch("COMMIT" if keep else "ROLLBACK")
        return Cost(spent, blocks_after - blocks)

    async def _look(self) -> tuple[BackendCpu, int]:
        """The current backend, and the blocks that its transaction has accessed."""
        [row] = await self.pool.fetch(_LOOK)
        pid = row["pid"]
        if pid not in self._cpu:
            self._cpu = {pid: BackendCpu(pid)}
        return self._cpu[pid], int(row["blocks"])


@asynccontextmanager
async def metered(url: str, call_timeout_s: float) -> AsyncIterator[Meter]:
    """A meter on a connection of its own to a database."""
    pool = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), 1, call_timeout_s)
    try:
        yield Meter(pool)
    finally:
        await pool.close()
