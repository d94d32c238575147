"""A log of any size, written directly into the tables: one second per million messages."""

import random
from hashlib import sha256
from uuid import UUID, uuid4

import asyncpg

from queen.log.segment import encode_ends, encode_entry
from queen.postgres.setup import prepare

_SEGMENTS_A_COPY = 2_000
_CONNECT_MS = 60_000
_COLUMNS = ("part_id", "last_off", "n", "created_at", "flush", "ids", "ends", "data")


async def load(dsn: str, messages: int, partitions: int, a_segment: int, hot: float = 0.0, seed: int = 0) -> None:
    """Adds messages to a queue ``generated``; the share ``hot`` of the segments goes to one partition.

    Every second segment has transaction ids that a client chose. All messages have the same small payload.
    """
    await prepare(dsn, _CONNECT_MS)
    rng = random.Random(seed)
    connection = await asyncpg.connect(dsn)
    try:
        names = [str(number) for number in range(partitions)]
        heads = await _heads(connection, names)
        now = await connection.fetchval("SELECT clock_timestamp()")
        left = messages
        while left:
            rows: list[tuple[object, ...]] = []
            hashes: list[tuple[int, object, int]] = []
            while left and len(rows) < _SEGMENTS_A_COPY:
                n = min(left, a_segment)
                left -= n
                part = heads[0] if rng.random() < hot else rng.choice(heads)
                rows.append(_segment(part, n, now, len(rows) % 2 == 0, hashes))
            await connection.copy_records_to_table("segments", schema_name="queen", columns=_COLUMNS, records=rows)
            await connection.copy_records_to_table("transaction_ids", schema_name="queen", records=hashes)
    finally:
        await connection.close()


async def _heads(connection: asyncpg.Connection, names: list[str]) -> list[list[int]]:
    queue = await connection.fetchval(
        "INSERT INTO queen.queues (name) VALUES ('generated')"
        " ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id"
    )
    await connection.execute(
        "INSERT INTO queen.partitions (queue_id, name) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING",
        queue,
        names,
    )
    await connection.execute(
        "INSERT INTO queen.partition_locks (part_id) SELECT id FROM queen.partitions WHERE queue_id = $1"
        " ON CONFLICT DO NOTHING",
        queue,
    )
    rows = await connection.fetch(
        "SELECT l.part_id, l.next_off FROM queen.log_ends AS l"
        " JOIN queen.partitions AS p ON p.id = l.part_id WHERE p.queue_id = $1 ORDER BY 1",
        queue,
    )
    return [list(row) for row in rows]


def _segment(
    part: list[int], n: int, now: object, chosen: bool, hashes: list[tuple[int, object, int]]
) -> tuple[object, ...]:
    first, part[1] = part[1], part[1] + n
    texts = [f"{part[0]}-{offset}" if chosen else None for offset in range(first, first + n)]
    entries = [encode_entry(b'{"n":1}', text, None, None) for text in texts]
    ids = [sha256(text.encode()).digest()[:16] for text in texts if text]
    hashes += [(part[0], UUID(bytes=id_), first + place) for place, id_ in enumerate(ids)]
    data = b"[" + b",".join(entries) + b"]"
    ends = encode_ends(len(entry) + 1 for entry in entries)
    return part[0], part[1] - 1, n, now, uuid4(), b"".join(ids) or None, ends, data
