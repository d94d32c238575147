"""Gathers the facts for ``queen doctor``, on one connection and without writes; and accepts a clock.

The queries are here and not in ``sql/``, because they must work if Queen's procedures are missing or of another
version.
"""

import time
from typing import Any

import asyncpg

from queen.core.diagnosis import ClockStep, DatabaseFacts, Lag, SchemaFacts, Session, Table
from queen.core.errors import DatabaseSetupError
from queen.core.statistics import OutboxState, TimersState
from queen.postgres.dsn import Target
from queen.postgres.durability import durability
from queen.postgres.setup import open_connection, scripts

_GENERAL = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
    pg_is_in_recovery() AS standby, current_setting('max_connections')::int AS connections_max,
    pg_has_role('pg_read_all_stats', 'USAGE') AS sees_others,
    -- A role that may not see other sessions counts all connections to databases.
    CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE')
        THEN (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
        ELSE (SELECT sum(numbackends) FROM pg_stat_database) END::int AS connections,
    (SELECT max(age(datfrozenxid)) FROM pg_database) AS transaction_age,
    (SELECT setting::bigint * 8 FROM pg_settings WHERE name = 'shared_buffers') AS shared_buffers_kb,
    to_regclass('queen.migrations') IS NOT NULL AS installed
"""
_SESSIONS = """
SELECT pid, coalesce(application_name, '') AS application, coalesce(state, '') AS state,
    greatest(0, date_part('epoch', clock_timestamp() - xact_start)) AS transaction_s,
    CASE WHEN wait_event_type = 'Lock' OR wait_event = 'SyncRep'
        THEN greatest(0, date_part('epoch', clock_timestamp() - query_start)) ELSE 0 END AS waiting_s,
    CASE WHEN wait_event_type = 'Lock' THEN pg_blocking_pids(pid) ELSE '{}' END AS blocked_by,
    coalesce(wait_event = 'SyncRep', false) AS commits
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY xact_start
"""
_TABLES = """
SELECT format('%I.%I', schemaname, relname) AS name, n_live_tup, n_dead_tup, pg_total_relation_size(relid) AS bytes
FROM pg_stat_user_tables WHERE schemaname IN ('queen', 'simple_mq') ORDER BY schemaname, relname
"""
_PREPARED = "SELECT date_part('epoch', clock_timestamp() - prepared) FROM pg_prepared_xacts"
_RETAINED = """
SELECT coalesce(max(pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)), 0)::bigint
FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL
"""
_LAGS = """
SELECT q.name AS queue, g.name AS consumer_group, t.total_lag,
    greatest(0, date_part('epoch', clock_timestamp() - t.oldest_at)) AS seconds
FROM queen.group_stats AS t
JOIN queen.consumer_groups_metadata AS g ON g.id = t.grp_id
JOIN queen.queues AS q ON q.id = g.queue_id
WHERE t.total_lag > 0 AND t.oldest_at IS NOT NULL
ORDER BY t.oldest_at LIMIT 5
"""
_STEPS = """
SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') AS at, seconds, measured, distrusted
FROM queen.clock_steps WHERE at > clock_timestamp() - make_interval(secs => greatest(86400, distrusted))
ORDER BY id DESC
"""
_OUTBOX = """
SELECT w.n + h.n, greatest(0, date_part('epoch', clock_timestamp() - least(w.since, h.since))), p.n,
    greatest(0, date_part('epoch', clock_timestamp() - p.since))
FROM (SELECT coalesce(sum(n), 0) AS n, min(pushed_at) AS since FROM queen.outbox) AS w,
    (SELECT count(*) AS n, min(pushed_at) AS since FROM queen.outbox_held) AS h,
    (SELECT count(*) AS n, min(since) AS since FROM queen.outbox_held_partitions) AS p
"""
_HELD_CODES = "SELECT DISTINCT split_part(reason, ':', 1) AS code FROM queen.outbox_held_partitions ORDER BY code"
_TIMERS = "SELECT * FROM queen.count_timers_v1(100000)"
_AGE = "SELECT date_part('epoch', clock_timestamp() - min(computed_at)) FROM queen.queue_stats"


async def examine(target: Target) -> DatabaseFacts:
    """The facts about a database.

    Raises:
        DatabaseSetupError: it refuses the log-in.
        DatabaseUnavailableError: PostgreSQL is unreachable.
    """
    connection = await open_connection(target)
    try:
        async with connection.transaction(readonly=True):
            return await _facts(connection)
    finally:
        await connection.close()


async def accept_clock(target: Target) -> float:
    """Declares PostgreSQL's clock correct; returns the seconds by which it was distrusted.

    Raises:
        DatabaseSetupError: it refuses the log-in, or there is nothing to accept.
        DatabaseUnavailableError: PostgreSQL is unreachable.
    """
    connection = await open_connection(target)
    try:
        return float(await connection.fetchval("SELECT queen.accept_clock_v1()"))
    except asyncpg.PostgresError as problem:
        raise DatabaseSetupError(
            f"The clock of {target.place} cannot be accepted ({problem}). Start a server of this version on "
            "that database first, or use a role that may change Queen's tables"
        ) from problem
    finally:
        await connection.close()


async def _facts(connection: "asyncpg.Connection[Any]") -> DatabaseFacts:
    general = await connection.fetchrow(_GENERAL)
    assert general is not None  # noqa: S101 - it has no FROM
    durable = await durability(connection)
    return DatabaseFacts(
        version=general["version"].split(maxsplit=1)[0],
        version_number=general["number"],
        settings={**durable.settings, "shared_buffers_kb": str(general["shared_buffers_kb"])},
        connections=general["connections"],
        connections_max=general["connections_max"],
        standby=general["standby"],
        clock_ahead_s=await _clock_ahead_s(connection),
        transaction_age=general["transaction_age"],
        tables=[Table(*row) for row in await connection.fetch(_TABLES)],
        sessions=[Session(*row) for row in await connection.fetch(_SESSIONS)],
        prepared=[row[0] for row in await connection.fetch(_PREPARED)],
        retained_bytes=await connection.fetchval(_RETAINED),
        schema=await _schema(connection) if general["installed"] else None,
        sources=durable.sources,
        database=durable.database,
        role=durable.role,
        standbys=durable.standbys,
        sees_others=general["sees_others"],
    )


async def _clock_ahead_s(connection: "asyncpg.Connection[Any]") -> float:
    """Seconds by which PostgreSQL's clock is ahead, with an error of up to half of the fastest of some round trips."""
    looks = []
    for _ in range(3):
        began = time.time()
        theirs: float = await connection.fetchval("SELECT date_part('epoch', clock_timestamp())")
        ended = time.time()
        looks.append((ended - began, theirs - (began + ended) / 2))
    return min(looks)[1]


async def _schema(connection: "asyncpg.Connection[Any]") -> SchemaFacts:
    applied = {row[0] for row in await connection.fetch("SELECT name FROM queen.migrations")}
    known = {script.name for script in scripts("migrations")}
    missing, unknown = sorted(known - applied), sorted(applied - known)
    if missing:
        return SchemaFacts(missing, unknown)
    return SchemaFacts(
        missing,
        unknown,
        [Lag(*row) for row in await connection.fetch(_LAGS)],
        await connection.fetchval(_AGE),
        await connection.fetchval("SELECT count(*) FROM queen.dead_letter_queue"),
        [ClockStep(*row) for row in await connection.fetch(_STEPS)],
        await connection.fetchval("SELECT EXISTS (SELECT 1 FROM queen.clock WHERE repaired_part IS NOT NULL)"),
        OutboxState(*(await connection.fetch(_OUTBOX))[0]),
        [row["code"] for row in await connection.fetch(_HELD_CODES)],
        TimersState(*(await connection.fetch(_TIMERS))[0]),
    )
