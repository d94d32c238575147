"""Holders of old row versions: an idle transaction with a snapshot, or a physical replication slot with an xmin."""

import asyncio
import ctypes
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import asyncpg

from bench import database
from bench.scenario import MismatchError
from queen.core.errors import DatabaseSetupError
from queen.embedded import binaries

#: PostgreSQL counts time from 2000 on.
_EPOCH_S = 946_684_800
_COPY_BOTH, _CONNECTION_OK = 8, 0
_SHOWN_WITHIN_S, _PAUSE_S = 10.0, 0.05
_XMIN_OF_BACKEND = "SELECT backend_xmin::text FROM pg_stat_activity WHERE pid = $1"
_XMIN_OF_SLOT = "SELECT xmin::text FROM pg_replication_slots WHERE slot_name = $1"


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[None]:
    """A transaction that has read once, and is idle during the block, like that of ``pg_dump``.

    Raises:
        MismatchError: it held nothing in the end, so that the figures say nothing.
    """
    async with database.connection(url) as holder, database.connection(url) as other:
        await holder.execute("SET idle_in_transaction_session_timeout = 0")
        await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        pid = await holder.fetchval("SELECT pg_backend_pid()")
        before = await other.fetchval(_XMIN_OF_BACKEND, pid)
        yield
        after = await other.fetchval(_XMIN_OF_BACKEND, pid)
        if before is None or before != after:
            raise MismatchError(f"the transaction held {before} at first and {after} in the end, not the same snapshot")


@asynccontextmanager
async def slot(url: str) -> AsyncIterator[None]:
    """A physical replication slot that keeps what its standby's queries might see, during the block.

    It does so as long as it exists, even if the standby is down: no standby is connected in the block.

    Raises:
        DatabaseSetupError: this PostgreSQL, or its user, may not create replication slots.
        MismatchError: it held nothing in the end, so that the figures say nothing.
    """
    name = f"queen_bench_{uuid4().hex[:12]}"
    async with database.connection(url) as connection:
        try:
            await connection.execute("SELECT pg_create_physical_replication_slot($1)", name)
        except asyncpg.PostgresError as problem:
            raise DatabaseSetupError(
                f"A replication slot cannot be created: {problem}. It takes max_replication_slots > 0, "
                "wal_level = replica and a user with REPLICATION."
            ) from problem
        try:
            xmin = int(await connection.fetchval("SELECT pg_snapshot_xmin(pg_current_snapshot())::text"))
            position = await connection.fetchval("SELECT pg_current_wal_flush_lsn()::text")
            with _standby(url, name, position) as tell:
                tell(xmin)
                await _shown(connection, name, xmin)
            yield
            await _shown(connection, name, xmin)
        finally:
            await connection.execute("SELECT pg_drop_replication_slot($1)", name)


async def _shown(connection: "asyncpg.Connection[Any]", name: str, xmin: int) -> None:
    """Returns when the slot holds the xmin."""
    deadline = time.monotonic() + _SHOWN_WITHIN_S
    while (held := await connection.fetchval(_XMIN_OF_SLOT, name)) != str(xmin % (1 << 32)):
        if time.monotonic() > deadline:
            raise MismatchError(f"the replication slot holds the xmin {held}, and not {xmin}")
        await asyncio.sleep(_PAUSE_S)


class _Tell:
    """Hot-standby feedback over a connection that streams (PostgreSQL manual, section 54.4)."""

    def __init__(self, pq: Any, connection: Any) -> None:  # noqa: ANN401 - a library of C
        self._pq, self._connection = pq, connection

    def __call__(self, xmin: int) -> None:
        now_us = int((time.time() - _EPOCH_S) * 1e6)
        message = struct.pack("!cqIIII", b"h", now_us, xmin % (1 << 32), xmin >> 32, 0, 0)
        if self._pq.PQputCopyData(self._connection, message, len(message)) != 1 or self._pq.PQflush(self._connection):
            raise _problem(self._pq, self._connection)


@contextmanager
def _standby(url: str, name: str, position: str) -> Iterator[_Tell]:
    """Connects like a standby of the slot.

    Uses libpq of the embedded PostgreSQL: no driver for Python sends this message.
    """
    pq = _libpq()
    connection = pq.PQconnectdb(f"{url}{'&' if '?' in url else '?'}replication=true".encode())
    try:
        if pq.PQstatus(connection) != _CONNECTION_OK:
            raise _problem(pq, connection)
        result = pq.PQexec(connection, f'START_REPLICATION SLOT "{name}" PHYSICAL {position}'.encode())
        state = pq.PQresultStatus(result)
        pq.PQclear(result)
        if state != _COPY_BOTH:
            raise _problem(pq, connection)
        yield _Tell(pq, connection)
    finally:
        pq.PQfinish(connection)


def _problem(pq: Any, connection: Any) -> DatabaseSetupError:  # noqa: ANN401 - a library of C
    text = pq.PQerrorMessage(connection).decode(errors="replace").strip()
    return DatabaseSetupError(f"PostgreSQL accepts no replication connection: {text}. pg_hba.conf must allow it.")


def _libpq() -> Any:  # noqa: ANN401 - a library of C
    names = ("libpq.so.5", "libpq.5.dylib")
    files = [file for name in names if (file := binaries.folder().parent / "lib" / name).exists()]
    if not files:
        raise DatabaseSetupError("--slot needs libpq, which this build of the embedded PostgreSQL does not include")
    pq = ctypes.CDLL(str(files[0]))
    for function, result, arguments in (
        ("PQconnectdb", ctypes.c_void_p, [ctypes.c_char_p]),
        ("PQstatus", ctypes.c_int, [ctypes.c_void_p]),
        ("PQexec", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
        ("PQresultStatus", ctypes.c_int, [ctypes.c_void_p]),
        ("PQclear", None, [ctypes.c_void_p]),
        ("PQputCopyData", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
        ("PQflush", ctypes.c_int, [ctypes.c_void_p]),
        ("PQerrorMessage", ctypes.c_char_p, [ctypes.c_void_p]),
        ("PQfinish", None, [ctypes.c_void_p]),
    ):
        known = getattr(pq, function)
        known.restype, known.argtypes = result, arguments
    return pq
