"""A database for one benchmark: created beside those of the user, never in them, and dropped afterwards."""

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
from msgspec import Struct

from queen.core.errors import DatabaseSetupError, DatabaseUnavailableError, DataRejectedError
from queen.embedded.server import EmbeddedPostgres
from queen.postgres.dsn import UNREACHABLE, connect, parse
from queen.postgres.pool import Pool
from queen.postgres.sqlstate import reason_of

CONNECT_TIMEOUT_MS = 10_000
#: Time limit of a call; a longer one is an error.
_CALL_TIMEOUT_S = 600.0
_MAX_CONNECTIONS = 50
_SETTINGS = (
    "autovacuum", "checkpoint_timeout", "fsync", "full_page_writes", "jit", "max_wal_size", "shared_buffers",
    "shared_preload_libraries", "synchronous_commit", "synchronous_standby_names", "wal_compression", "wal_level",
    "wal_sync_method",
)  # fmt: skip
#: Without these, a push is answered before it is on the disk, and its speed is meaningless.
_REQUIRED = ("fsync", "synchronous_commit", "full_page_writes")


class Postgres(Struct, frozen=True):
    """The measured PostgreSQL."""

    version: str
    embedded: bool
    settings: dict[str, str]


@contextmanager
def server(dsn: str | None) -> Iterator[str]:
    """The PostgreSQL of the user, or an embedded one in a temporary folder during the block."""
    if dsn is not None:
        yield dsn
        return
    with tempfile.TemporaryDirectory(prefix="queen-bench-") as folder:
        # As root, PostgreSQL runs as another user, which needs search permission.
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder) / "data", _MAX_CONNECTIONS) as postgres:
            yield postgres.dsn


@asynccontextmanager
async def scratch_database(dsn: str) -> AsyncIterator[str]:
    """The connection string of an empty database, which is dropped at the end of the block.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unreachable, or the user may not create a database.
        DatabaseSetupError: commits of this server do not wait for the disk.
    """
    name = f"queen_bench_{uuid4().hex[:12]}"
    try:
        own = await connect(parse(dsn, "queen bench", CONNECT_TIMEOUT_MS))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as problem:
        raise DatabaseUnavailableError(
            f"PostgreSQL for the benchmark is unreachable: {reason_of(problem)}"
        ) from problem
    try:
        await _check(own)
        await _make(own, name)
        try:
            yield _with_database(parse(dsn, "queen bench", CONNECT_TIMEOUT_MS).url, name)
        finally:
            await _drop(dsn, name)
    finally:
        await own.close()


@asynccontextmanager
async def connection(dsn: str) -> "AsyncIterator[asyncpg.Connection[Any]]":
    """A connection of its own to a database."""
    opened = await connect(parse(dsn, "queen bench", CONNECT_TIMEOUT_MS))
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def pool(url: str, size: int) -> AsyncIterator[Pool]:
    """Several connections to a database."""
    opened = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), size, _CALL_TIMEOUT_S)
    try:
        yield opened
    finally:
        await opened.close()


async def checkpoint(pool: Pool) -> None:
    """Makes a checkpoint, if this user may, so that no measurement pays for the dirty pages of an earlier one."""
    with suppress(DataRejectedError):
        await pool.fetch("CHECKPOINT")


async def _drop(dsn: str, name: str) -> None:
    """Over a connection of its own: the first one may have been broken meanwhile, or its server stopped."""
    try:
        async with connection(dsn) as other:
            await other.execute(f"DROP DATABASE {name} WITH (FORCE)")
    except UNREACHABLE as problem:
        # Only a warning, so that neither results nor the error of the measurement are lost.
        sys.stderr.write(f"The benchmark's database {name} is left behind: {reason_of(problem)}\n")


async def _check(connection: "asyncpg.Connection[Any]") -> None:
    for name in _REQUIRED:
        if (value := await connection.fetchval(f"SHOW {name}")) != "on":
            raise DatabaseSetupError(
                f"{name} is {value!r}: the benchmark measures only where a commit waits for the disk. Set it to on."
            )


async def _make(connection: "asyncpg.Connection[Any]", name: str) -> None:
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    except asyncpg.InsufficientPrivilegeError as problem:
        raise DatabaseUnavailableError(
            f"The benchmark creates a database of its own, and this user may not: {problem}. "
            "Grant it with ALTER ROLE ... CREATEDB, or name another user in --dsn."
        ) from problem


def _with_database(url: str, name: str) -> str:
    parts = urlsplit(url)
    query = {key: value for key, value in parse_qsl(parts.query) if key not in ("dbname", "database")}
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", urlencode(query, safe="/:,"), ""))


async def describe_server(dsn: str, *, embedded: bool) -> Postgres:
    """Version and settings of a PostgreSQL by its address."""
    async with connection(dsn) as opened:
        return await describe(opened, embedded=embedded)


async def describe(connection: "asyncpg.Connection[Any]", *, embedded: bool) -> Postgres:
    """Version and settings of a PostgreSQL."""
    rows = await connection.fetch(
        "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY($1) ORDER BY name", _SETTINGS
    )
    version: str = await connection.fetchval("SHOW server_version")
    return Postgres(version.split(maxsplit=1)[0], embedded, {row["name"]: row["value"] for row in rows})
