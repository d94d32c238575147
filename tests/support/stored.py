"""A database of its own with the schema, and what is stored in it, without a server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from tests.support.servers import create_database, drop_database

_MAKE = "SELECT count(*) FROM queen.resolve_partitions_v1(array_fill($1::text, ARRAY[$2::int]), $3::text[], true)"


@asynccontextmanager
async def own_database(postgres: str, connections: int = 1) -> AsyncIterator[Pool]:
    """Connections to it; with one of them all calls are of its transaction."""
    url = await create_database(postgres)
    try:
        await prepare(url, 5000)
        pool = Pool(parse(url, "queen test", 5000), connections, 60)
        yield pool
        await pool.close()
    finally:
        await drop_database(postgres, url)


async def value(pool: Pool, sql: str, *arguments: object) -> Any:
    """The first field of the only row."""
    [row] = await pool.fetch(sql, *arguments)
    return row[0]


async def make_partitions(pool: Pool, queue: str, partitions: int, prefix: str = "p") -> None:
    """Partitions ``p0`` and so on."""
    await pool.fetch(_MAKE, queue, partitions, [f"{prefix}{n}" for n in range(partitions)])
