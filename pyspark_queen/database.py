"""Connections to PostgreSQL."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import asyncpg

from .errors import UnreachableError
from .options import Log

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
async def connected(log: Log) -> AsyncGenerator[Connection]:
    """A connection; its errors say that PostgreSQL cannot be read, and which of several.

    Raises:
        UnreachableError: PostgreSQL cannot be reached, or refuses.
    """
    settings, which = {"application_name": APPLICATION}, f"database {log.name}: " if log.name else ""
    try:
        connection = await asyncpg.connect(log.dsn, timeout=CONNECT_S, server_settings=settings)
        try:
            yield connection
        finally:
            await connection.close(timeout=CONNECT_S)
    except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
        raise UnreachableError(f"{which}there is no log in this database: is dsn the database of the server?") from None
    except (*PROBLEMS, ValueError) as problem:
        raise UnreachableError(f"{which}PostgreSQL cannot be used: {reason(problem)}") from problem


@asynccontextmanager
async def reading(log: Log) -> AsyncGenerator[Connection]:
    """A connection with one view of the database: that of an exported snapshot, or of now."""
    async with connected(log) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        if log.snapshot is not None:
            await connection.execute(_SET_SNAPSHOT.format(log.snapshot.replace("'", "")))
        yield connection


Open = Callable[[Log], AbstractAsyncContextManager[Connection]]


@asynccontextmanager
async def each(logs: Sequence[Log], open_: Open) -> AsyncGenerator[list[tuple[Log, Connection]]]:
    """A connection to each database."""
    async with AsyncExitStack() as stack:
        yield [(log, await stack.enter_async_context(open_(log))) for log in logs]


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Runs it to its end."""
    with asyncio.Runner() as runner:
        return runner.run(work)
