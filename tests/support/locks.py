"""Connections that hold locks beside each other, and a way to know that one of them waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

import asyncpg

from queen.postgres.setup import prepare
from tests.support.processes import PATIENCE_S

Connection: TypeAlias = "asyncpg.Connection[Any]"


@asynccontextmanager
async def prepared_connections(dsn: str, count: int) -> AsyncIterator[list[Connection]]:
    """Connections to a database with the schema; a wait for a lock fails in the end."""
    await prepare(dsn, 5000)
    async with AsyncExitStack() as stack:
        opened = [await asyncpg.connect(dsn) for _ in range(count)]
        for connection in opened:
            stack.push_async_callback(connection.close)
            await connection.execute("SET lock_timeout = '30s'")
        yield opened


async def until_waiting(observer: Connection, waiter: Connection, call: "asyncio.Task[Any]") -> None:
    """Returns when a connection waits for a lock, or its call has ended without."""
    async with asyncio.timeout(PATIENCE_S):
        while not call.done() and not await _is_blocked(observer, waiter):
            pass


async def _is_blocked(observer: Connection, waiter: Connection) -> bool:
    return bool(await observer.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", waiter.get_server_pid()))
