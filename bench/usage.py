"""CPU and memory of processes."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import psutil

from queen.db.dsn import connect, parse
from queen_bench.database import CONNECT_TIMEOUT_MS


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """User and system time so far, of processes and of those of their children that have ended."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def found(pid: int) -> list[psutil.Process]:
    """The process with an id; none, when it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid)]
    return []


def family(root: psutil.Process) -> list[psutil.Process]:
    """A process and all its descendants, now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []


def memory_bytes(processes: Sequence[psutil.Process]) -> int:
    """Proportional set size: what several share counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_full_info().pss
    return total


@asynccontextmanager
async def connection(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of its own to a database."""
    opened = await connect(parse(dsn, "queen bench", CONNECT_TIMEOUT_MS))
    try:
        yield opened
    finally:
        await opened.close()


async def postmaster(connection: "asyncpg.Connection[asyncpg.Record]") -> psutil.Process | None:
    """PostgreSQL's first process, if it runs on this machine."""
    pid = await connection.fetchval("SELECT pg_backend_pid()")
    with contextlib.suppress(psutil.NoSuchProcess):
        backend = psutil.Process(pid)
        return backend.parent() if "postgres" in backend.name() else None
    return None
