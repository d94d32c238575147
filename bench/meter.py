"""What calls cost PostgreSQL: CPU time of the backend that carries them out, and blocks of tables and indexes looked at.

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
_BLOCKS = (
    "SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0)::int8 AS n FROM pg_class AS c"
    " WHERE c.oid >= 16384 AND c.relkind IN ('r', 'i', 't', 'm')"
)
_IDLE_LIMIT_S, _LOOK_S = 5.0, 0.0001


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
        deadline = time.monotonic() + _IDLE_LIMIT_S
        before, now = -1.0, self._read()
        while (now != before or self._process.status() == psutil.STATUS_RUNNING) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            before, now = now, self._read()
        return now

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
    """Measures calls over a pool of one connection, so that all of them are of one backend. Made by ``metered``."""

    def __init__(self, pool: Pool, cpu: BackendCpu) -> None:
        self.pool, self._cpu = pool, cpu

    async def measure(self, call: Callable[[], Awaitable[object]], *, keep: bool) -> Cost:
        """The cost of what is called, as one transaction; it is undone unless it is to be kept.

        The time of beginning and ending the transaction is not counted: waiting for the disk is no matter of CPU.
        """
        await self.pool.fetch("BEGIN")
        try:
            before = await self._blocks()
            began = self._cpu.seconds()
            await call()
            spent = self._cpu.seconds() - began
            blocks = await self._blocks() - before
        except BaseException:
            await self.pool.fetch("ROLLBACK")
            raise
        await self.pool.fetch("COMMIT" if keep else "ROLLBACK")
        return Cost(spent, blocks)

    async def _blocks(self) -> int:
        [row] = await self.pool.fetch(_BLOCKS)
        return int(row["n"])


@asynccontextmanager
async def metered(url: str, call_timeout_s: float) -> AsyncIterator[Meter]:
    """A meter on a connection of its own to a database.

    Raises:
        DatabaseSetupError: PostgreSQL runs on another machine, or behind a pooler.
    """
    pool = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), 1, call_timeout_s)
    try:
        [row] = await pool.fetch("SELECT pg_backend_pid() AS pid")
        yield Meter(pool, BackendCpu(row["pid"]))
    finally:
        await pool.close()
