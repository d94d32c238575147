"""Gathers what decides how many disks have an answered push, for the start of a server and ``queen doctor``."""

from typing import Any

import asyncpg

from queen.core.diagnosis import DurabilityFacts

_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "autovacuum")
_SOURCES = "SELECT name, setting, source FROM pg_settings WHERE name = ANY($1::text[])"
#: Not base backups, and not subscribers. A role that may not see other sessions sees no states.
_GENERAL = """
SELECT current_database(), current_user, (
    SELECT count(*) FROM pg_stat_replication AS r
    WHERE coalesce(r.state, 'streaming') = 'streaming' AND coalesce(r.application_name, '') <> 'pg_basebackup'
        AND NOT EXISTS (SELECT 1 FROM pg_replication_slots AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'))
"""


async def durability(connection: "asyncpg.Connection[Any]") -> DurabilityFacts:
    """The facts, for the role of the connection."""
    rows = await connection.fetch(_SOURCES, _SETTINGS)
    general = await connection.fetchrow(_GENERAL)
    assert general is not None  # noqa: S101 - it has no FROM
    database, role, standbys = general
    settings, sources = ({name: row[place] for name, *row in rows} for place in (0, 1))
    return DurabilityFacts(settings, sources, database, role, standbys)
