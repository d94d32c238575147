"""Partitions that move between databases (ADR 69): where to read them.

Databases are read one after the other. A partition that moves may come to one only after that was read, and be gone
from the other before that is. So the log that it leaves behind, which stays for an hour, is read too.
"""

from collections.abc import Sequence
from itertools import chain

import asyncpg

# Who reads several databases has read all of them long before ten minutes are over, in which fewer partitions move.
_LEAVING = """
WITH leaving AS (
    SELECT m.part_id AS number, m.queue_id, m.partition, s.last_off + 1 AS next_off
    FROM queen.moved_partitions AS m
    CROSS JOIN LATERAL (
        SELECT g.last_off FROM queen.segments AS g WHERE g.part_id = m.part_id ORDER BY g.last_off DESC LIMIT 1
    ) AS s
    WHERE m.state = 'sealed' OR (
        m.state = 'gone' AND m.changed_at > clock_timestamp() - interval '10 minutes'
        AND m.seq > (SELECT max(n.seq) FROM queen.moved_partitions AS n) - 100000
    )
)
"""
_NOTHING = """
WITH leaving AS (
    SELECT
        NULL::bigint AS number, NULL::bigint AS queue_id, NULL::text COLLATE "C" AS partition, NULL::bigint AS next_off
    WHERE false
)
"""


def with_leaving(query: str, databases: int) -> str:
    """A query to one of so many databases; its ``leaving`` are the partitions that have just left it, or are about to.

    They have the columns ``number``, ``queue_id``, ``partition`` and ``next_off``.
    """
    return (_LEAVING if databases > 1 else _NOTHING) + query


def homes(rows: Sequence[Sequence[asyncpg.Record]]) -> dict[int, asyncpg.Record]:
    """By partition: its row in the database where it is read; two may have one of a partition that moves."""
    found: dict[int, asyncpg.Record] = {}
    for row in chain(*rows):
        other = found.setdefault(row["number"], row)
        if (row["next_off"], other["leaving"]) > (other["next_off"], row["leaving"]):
            found[row["number"]] = row
    return found
