"""The definitions that upgrades have replaced: each procedure can be returned to the one before, while servers run.

Names and results stay the same, so the server calls the earlier one as it calls the current one, from its next call on.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import asyncpg
from msgspec import Struct

_DEFINITIONS = """
SELECT
    n.nspname || '.' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ') '
        || pg_get_function_result(p.oid) AS signature,
    pg_get_functiondef(p.oid) AS definition
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname IN ('queen', 'simple_mq') AND p.prokind = 'f'
"""
_REMEMBER = """
INSERT INTO queen.earlier_procedures (signature, definition) SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT (signature) DO UPDATE SET definition = excluded.definition, replaced_at = excluded.replaced_at
"""
#: By its name, with or without its schema; another one may have other arguments.
_NAMED = "split_part(signature, '(', 1) IN ($1, 'queen.' || $1)"
_LIST = "SELECT signature, replaced_at, restored FROM queen.earlier_procedures ORDER BY signature"


class EarlierProcedure(Struct, frozen=True):
    """A procedure of which an earlier version is kept, since when, and whether that is in use."""

    signature: str
    replaced_at: datetime
    restored: bool


async def definitions(connection: "asyncpg.Connection[Any]") -> dict[str, str]:
    """All procedures and helpers, by signature."""
    return {row["signature"]: row["definition"] for row in await connection.fetch(_DEFINITIONS)}


async def remember(connection: "asyncpg.Connection[Any]", before: Mapping[str, str]) -> None:
    """Keeps what an upgrade has changed; from now on the current versions are in use."""
    now = await definitions(connection)
    changed = [signature for signature, text in before.items() if now.get(signature, text) != text]
    await forget_restored(connection)
    await connection.execute("DELETE FROM queen.earlier_procedures WHERE signature <> ALL($1)", list(now))
    await connection.execute(_REMEMBER, changed, [before[signature] for signature in changed])


async def keep_restored(connection: "asyncpg.Connection[Any]") -> None:
    """Puts the restored versions in place again, after a start has created all current ones."""
    for row in await connection.fetch(
        "SELECT definition FROM queen.earlier_procedures WHERE restored ORDER BY signature"
    ):
        await connection.execute(row["definition"])


async def list_earlier(connection: "asyncpg.Connection[Any]") -> list[EarlierProcedure]:
    """The procedures of which an earlier version can be restored."""
    return [EarlierProcedure(*row) for row in await connection.fetch(_LIST)]


async def restore(connection: "asyncpg.Connection[Any]", name: str) -> list[str]:
    """Returns to the earlier version of a procedure; the signatures, none if no earlier version is kept."""
    async with connection.transaction():
        rows = await connection.fetch(
            f"UPDATE queen.earlier_procedures SET restored = true WHERE {_NAMED} RETURNING signature, definition",  # noqa: S608
            name,
        )
        for row in rows:
            await connection.execute(row["definition"])
    return [row["signature"] for row in rows]


async def forget_restored(connection: "asyncpg.Connection[Any]") -> None:
    """Marks every earlier version as not in use; the next start creates the current ones."""
    await connection.execute("UPDATE queen.earlier_procedures SET restored = false WHERE restored")
