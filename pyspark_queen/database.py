"""Connections to PostgreSQL."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import asyncpg

from .errors import UnreachableError

CONNECT_S = 30
"""Time limit of a new connection."""

APPLICATION = "queen spark"
_SET_SNAPSHOT = "SET TRANSACTION SNAPSHOT '{}'"
Connection: TypeAlias = "asyncpg.Connection[Any]"
_T = TypeVar("_T")

PROBLEMS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What asyncpg raises."""


def reason(problem: BaseException) -> str:
    """The reason why a database cannot be read; a timeout error has no text."""
    return f"no answer in {CONNECT_S} s" if isinstance(problem, TimeoutError) else str(problem) or repr(problem)


@asynccontextmanager
async def connected(dsn: str) -> AsyncGenerator[Connection]:
    """A connection; its errors say that PostgreSQL cannot be read.

    Raises:
        UnreachableError: PostgreSQL cannot be reached, or refuses.
    """
    try:
        connection = await asyncpg.connect(dsn, timeout=CONNECT_S, server_settings={"application_name": APPLICATION})
        try:
            yield connection
        finally:
            await connection.close(timeout=CONNECT_S)
    except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
        raise UnreachableError("there is no log in this database: is dsn the database of the server?") from None
    except (*PROBLEMS, ValueError) as problem:
        raise UnreachableError(f"PostgreSQL cannot be used: {reason(problem)}") from problem


@asynccontextmanager
async def reading(dsn: str, snapshot: str | None) -> AsyncGenerator[Connection]:
    """A connection with one view of the database: that of an exported snapshot, or of now."""
    async with connected(dsn) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        if snapshot is not None:
            await connection.execute(_SET_SNAPSHOT.format(snapshot.replace("'", "")))
        yield connection


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Runs it to its end."""
    with asyncio.Runner() as runner:
        return runner.run(work)
