"""What calls cost PostgreSQL: CPU time of the backend, and blocks of tables and indexes that it looks at.

Both say the same on a machine that is busy with other work, which elapsed time does not.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from msgspec import Struct

from queen.core.errors import DatabaseSetupError
from queen.db.dsn import parse
from queen.db.pool import Pool
from queen_bench.database import CONNECT_TIMEOUT_MS

#: Objects of users begin here, with their TOAST tables. The meter's own look at catalogues is not counted.
_LOOK = (
    "SELECT pg_backend_pid() AS pid, coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0)::int8 AS blocks"
    " FROM pg_class AS c WHERE c.oid >= 16384 AND c.relkind IN ('r', 'i', 't', 'm')"
)
_REST_LIMIT_S, _PAUSE_S = 5.0, 0.0001


class Cost(Struct, frozen=True):
    """What something cost.

    Attributes:
        cpu_s: CPU seconds of the backend.
        blocks: of tables and indexes, each time one was looked at, in shared buffers or not.
    """

    cpu_s: float = 0.0
    blocks: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.cpu_s + other.cpu_s, self.blocks + other.blocks)

    def least(self, other: "Cost") -> "Cost":
        """The smaller of each figure: what disturbs a measurement only adds to it."""
        return Cost(min(self.cpu_s, other.cpu_s), min(self.blocks, other.blocks))


class BackendCpu:
    """CPU time of one backend on this machine: to the nanosecond where the kernel tells, else to its ticks of 10 ms.

    Raises:
        DatabaseSetupError: the backend is no process of this machine, so that nobody can look at its CPU.
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
        """So far, when the backend has come to rest: the kernel adds up what was used when a process stops running."""
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
    """Whether the kernel counts there."""
    try:
        return int(file.read_text().split(maxsplit=1)[0]) > 0
    except (OSError, ValueError, IndexError):
        return False


class Meter:
    """Measures calls over a pool of one connection, so that all of them are of one backend."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._cpu: dict[int, BackendCpu] = {}

    async def measure(self, call: Callable[[], Awaitable[object]], *, keep: bool) -> Cost:
        """The cost of what is called, as one transaction; it is undone unless it is to be kept.

        The time of beginning and ending the transaction is not counted: waiting for the disk is no matter of CPU.
        """
        await self.pool.fetch("BEGIN")
        try:
            cpu, blocks = await self._look()
            began = cpu.seconds()
            await call()
            spent = cpu.seconds() - began
            _, blocks_after = await self._look()
        except BaseException:
            await self.pool.fetch("ROLLBACK")  # on a new connection, if the call was given up
            raise
        await self.pool.fetch("COMMIT" if keep else "ROLLBACK")
        return Cost(spent, blocks_after - blocks)

    async def _look(self) -> tuple[BackendCpu, int]:
        """The backend of now, and the blocks that its transaction has looked at."""
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
