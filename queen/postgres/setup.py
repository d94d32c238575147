"""Prepares a database: version check, migrations once, procedures at every start; several servers may do it at once."""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import asyncpg
from msgspec import Struct

from queen.core.diagnosis import Finding, Grade, judge_durability
from queen.core.errors import DatabaseSetupError, DatabaseUnavailableError, DataRejectedError
from queen.postgres import earlier_procedures
from queen.postgres.dsn import UNREACHABLE, Target, connect, parse
from queen.postgres.durability import durability
from queen.postgres.sqlstate import reason_of, translate

#: Serialises the set-up of all servers of a database; the number is arbitrary and must never change.
_LOCK = 0x71756565_6E  # "queen"
_OLDEST = 140000
#: Key in ``queen.system_state`` of the hash of the current procedures.
_PROCEDURES = "procedures"
_SQL = files("queen") / "sql"
#: ``least`` leaves out what is NULL. reserved_connections is new in PostgreSQL 16.
_CONNECTIONS_ALLOWED = (
    "SELECT least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    " - coalesce(current_setting('reserved_connections', true)::int, 0), nullif(r.rolconnlimit, -1),"
    " nullif(d.datconnlimit, -1))"
    " FROM pg_roles AS r CROSS JOIN pg_database AS d WHERE r.rolname = current_user AND d.datname = current_database()"
)


class DatabaseInfo(Struct, frozen=True):
    """A prepared database.

    Attributes:
        version: of PostgreSQL, such as ``18.4``.
        place: its address, without secrets.
        pooled: whether connections go through a transaction pooler.
        connections_max: connections that it allows to this user; ``None`` behind a pooler, which shares them.
        applied: migrations that this call has applied.
        doubts: findings about answered pushes that a crash, or a failover, can lose.
    """

    version: str
    place: str
    pooled: bool
    connections_max: int | None = None
    applied: tuple[str, ...] = ()
    doubts: tuple[Finding, ...] = ()


def scripts(folder: str) -> list[Traversable]:
    """The SQL scripts of a folder of ``sql/``, in the order in which they are applied: subfolders last."""
    return list(_walk(_SQL / folder))


def _walk(folder: Traversable) -> Iterator[Traversable]:
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    yield from (entry for entry in entries if entry.name.endswith(".sql"))
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry)


def check_version(number: int, text: str) -> None:
    """Raises DatabaseSetupError for a PostgreSQL that is too old; ``number`` is its ``server_version_num``."""
    if number < _OLDEST:
        raise DatabaseSetupError(
            f"PostgreSQL {text} is too old: Queen needs {_OLDEST // 10000} or newer. Upgrade it, or use "
            "another with --dsn."
        )


def check_isolation(isolation: str) -> None:
    """Raises DatabaseSetupError for a default isolation that loses messages, if a pooler prevents another one."""
    if isolation != "read committed":
        raise DatabaseSetupError(
            f"default_transaction_isolation is {isolation} for the user of --dsn. Queen needs read "
            "committed, and cannot change it through a connection pooler: set it with ALTER ROLE or ALTER "
            "DATABASE, then RECONNECT the pooler."
        )


async def is_pooled(connection: "asyncpg.Connection[Any]") -> bool:
    """Whether connections go through a pooler: it names another back end at log-in than the one that answers."""
    pid: int = await connection.fetchval("SELECT pg_backend_pid()")
    return pid != connection.get_server_pid()


async def _migrate(connection: "asyncpg.Connection[Any]") -> tuple[str, ...]:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    await connection.execute("SET LOCAL client_min_messages = warning")
    await connection.execute(
        "CREATE SCHEMA IF NOT EXISTS queen;"
        "CREATE TABLE IF NOT EXISTS queen.migrations"
        " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp());"
        "COMMENT ON TABLE queen.migrations IS 'The migrations of sql/migrations that have been applied.'"
    )
    done = {row["name"] for row in await connection.fetch("SELECT name FROM queen.migrations")}
    known = {script.name: script for script in scripts("migrations")}
    if unknown := done - known.keys():
        raise DatabaseSetupError(
            f"The schema is newer than this version of Queen: it has {max(unknown)}, which this version does "
            "not know. Start the version that created it, or a newer one."
        )
    missing = tuple(sorted(known.keys() - done))
    for name in missing:
        await connection.execute(known[name].read_text())
        await connection.execute("INSERT INTO queen.migrations (name) VALUES ($1)", name)
    before = await _upgraded(connection)
    for script in _replaced():
        await connection.execute(script.read_text())
    if before is None:
        await earlier_procedures.keep_restored(connection)
    else:
        await earlier_procedures.remember(connection, before)
    await connection.execute(
        "INSERT INTO queen.system_state (key, value, updated_at) VALUES ($1, to_jsonb($2::text), clock_timestamp())"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"
        " WHERE system_state.value <> excluded.value",
        _PROCEDURES,
        _fingerprint(),
    )
    return missing


async def _upgraded(connection: "asyncpg.Connection[Any]") -> dict[str, str] | None:
    """The procedures that this version is about to replace by its own; ``None`` if they are its own."""
    made = await connection.fetchval("SELECT value #>> '{}' FROM queen.system_state WHERE key = $1", _PROCEDURES)
    return None if made == _fingerprint() else await earlier_procedures.definitions(connection)


def _replaced() -> list[Traversable]:
    """The scripts that are replaced at every start."""
    return [script for folder in ("internal", "procedures") for script in scripts(folder)]


def _fingerprint() -> str:
    """The hash of all procedures of this version."""
    return hashlib.sha256(b"".join(script.read_bytes() for script in _replaced())).hexdigest()


async def _is_made(connection: "asyncpg.Connection[Any]") -> bool:
    """Whether the database already has exactly the schema of this version."""
    if not await connection.fetchval("SELECT to_regclass('queen.system_state') IS NOT NULL"):
        return False
    try:
        done = {row["name"] for row in await connection.fetch("SELECT name FROM queen.migrations")}
        made = await connection.fetchval("SELECT value #>> '{}' FROM queen.system_state WHERE key = $1", _PROCEDURES)
    except asyncpg.InsufficientPrivilegeError:
        return False
    return done == {script.name for script in scripts("migrations")} and made == _fingerprint()


async def open_connection(target: Target) -> "asyncpg.Connection[Any]":
    """A connection for one task.

    Raises:
        DatabaseSetupError: PostgreSQL refuses the log-in, or there is no such database.
        DatabaseUnavailableError: PostgreSQL is unreachable.
    """
    place = target.place
    try:
        return await connect(target)
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError) as problem:
        raise DatabaseSetupError(
            f"PostgreSQL at {place} refused the login: {problem}. Check user and password in --dsn, "
            "DATABASE_URL or PG_*."
        ) from problem
    except asyncpg.InvalidCatalogNameError as problem:
        raise DatabaseSetupError(
            f"PostgreSQL at {place}: {problem}. Create the database, or name another one."
        ) from problem
    except UNREACHABLE as problem:
        raise DatabaseUnavailableError(
            f"PostgreSQL at {place} is unreachable: {reason_of(problem)}. Is it running, and are host and port right?"
        ) from problem


def _told(problem: Exception, place: str, *, lost: bool) -> DatabaseUnavailableError | DatabaseSetupError:
    """The error for a set-up that failed."""
    if lost or not isinstance(translate(problem), DataRejectedError):
        return DatabaseUnavailableError(
            f"The connection to PostgreSQL at {place} was lost during the setup of the schema: "
            f"{reason_of(problem)}. The setup was rolled back: start again"
        )
    return DatabaseSetupError(f"PostgreSQL at {place} refused the schema: {problem}")


async def prepare(url: str, connect_timeout_ms: int) -> DatabaseInfo:
    """Prepares a database for use.

    Raises:
        SettingError: the connection string is malformed.
        DatabaseUnavailableError: PostgreSQL is unreachable, or the connection was lost.
        DatabaseSetupError: log-in refused, too old, no right to create the schema, a schema newer than the code, or a
            default isolation that loses messages behind a pooler.
    """
    target = parse(url, "queen setup", connect_timeout_ms)
    # There may be a pooler: nothing is prepared, and all happens in one transaction.
    connection = await open_connection(
        Target(target.url, target.place, target.application_name, target.connect_timeout_s, True)
    )
    try:
        version: str = await connection.fetchval("SHOW server_version")
        check_version(int(await connection.fetchval("SHOW server_version_num")), version)
        async with connection.transaction():
            pooled = await is_pooled(connection)
            isolation = await connection.fetchval("SHOW default_transaction_isolation")
            allowed = await connection.fetchval(_CONNECTIONS_ALLOWED)
            doubts = [each for each in judge_durability(await durability(connection)) if each.grade is not Grade.OK]
        if pooled:
            check_isolation(isolation)
        try:
            async with connection.transaction(isolation="read_committed"):
                applied = await _migrate(connection)
        except asyncpg.InsufficientPrivilegeError as problem:
            # A server without the right to change the schema: its owner runs `queen init` (docs/security.md).
            if not await _is_made(connection):
                raise DatabaseSetupError(
                    f"The user of --dsn has no permission to set up the schema queen in {target.place}: "
                    f"{problem}. Run `queen init` of this version as the owner of the schema, or as a user "
                    "who may create it."
                ) from problem
            applied = ()
    except asyncpg.ReadOnlySQLTransactionError as problem:
        raise DatabaseSetupError(
            f"PostgreSQL at {target.place} is read-only (a standby?). Name the primary, or all hosts with "
            "target_session_attrs=read-write."
        ) from problem
    except UNREACHABLE as problem:
        raise _told(problem, target.place, lost=connection.is_closed()) from problem
    finally:
        if not connection.is_closed():
            await connection.close()
    version = version.split(maxsplit=1)[0]
    return DatabaseInfo(version, target.place, pooled, None if pooled else allowed, applied, tuple(doubts))
