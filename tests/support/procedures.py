"""Calls of the stored procedures on one connection, without the server around them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from queen.log.segment import encode_ends, encode_plain
from tests.support.locks import Connection

_PUSH = (
    "SELECT * FROM queen.push_messages_v1("
    "$1, false, $2, $3, $4, $5, $6, NULL, NULL, NULL, (SELECT version FROM queen.push_options), NULL)"
)
_POP = (
    "SELECT * FROM queen.pop_unified_batch_v1(ARRAY[$1::int], ARRAY[$2::int], ARRAY[$3::uuid], ARRAY[$4::int], "
    "ARRAY[1], ARRAY[$5::bigint], ARRAY[$6::bigint], 1000000, 1000000)"
)
_ACK = (
    "SELECT * FROM queen.ack_messages_v1($1, $2, $3, $4, $5, $5, NULL, array_fill(NULL::text, ARRAY[$6::int]), false)"
)

#: Offsets of messages, by partition.
Offsets = dict[int, list[int]]


async def resolve(connection: Connection, queue: str, names: Sequence[str]) -> list[int]:
    """The numbers of partitions, made where missing; those of a queue that is being deleted are left out."""
    rows = await connection.fetch(
        "SELECT part_id FROM queen.resolve_partitions_v1($1, $2, true)", [queue] * len(names), names
    )
    return [row["part_id"] for row in rows if row["part_id"] is not None]


async def push(connection: Connection, payloads: Mapping[int, Sequence[bytes]]) -> dict[tuple[int, int], bytes]:
    """Appends a segment to each partition; partition and offset of each message, if all partitions were there."""
    parts = sorted(payloads)
    data = [b"[" + encode_plain(payloads[part]) + b"]" for part in parts]
    ends = [encode_ends([len(payload) + 13 for payload in payloads[part]]) for part in parts]
    counts = [len(payloads[part]) for part in parts]
    rows = await connection.fetch(_PUSH, uuid4(), parts, counts, data, ends, [None] * len(parts))
    first = {row["part_id"]: row["first_off"] for row in rows}
    if None in first.values():
        return {}
    return {(part, first[part] + place): each for part in parts for place, each in enumerate(payloads[part])}


async def pop(
    connection: Connection, group: int, lease: UUID | None, batch: int = 1000, partitions: int = 1000,
    seconds: int | None = None, part: int | None = None,
) -> Offsets:  # fmt: skip
    """What a pop delivers; without a lease it is completed."""
    return offsets_of(await connection.fetch(_POP, batch, partitions, lease, seconds, group, part))


def offsets_of(rows: Iterable[Any]) -> Offsets:
    """What the rows of a pop deliver."""
    found: Offsets = {}
    for row in rows:
        if row["pop"] is not None:
            offsets = range(row["off"], row["off"] + len(row["ends"]) // 4)
            found.setdefault(row["part_id"], []).extend(off for off in offsets if off not in (row["skip"] or ()))
    return found


async def ack(connection: Connection, group: int, lease: UUID | None, kinds: Mapping[tuple[int, int], str]) -> None:
    """Says what became of messages, by partition and offset."""
    count = len(kinds)
    parts, offsets = zip(*kinds, strict=True)
    await connection.fetch(_ACK, parts, [group] * count, [lease] * count, [*kinds.values()], offsets, count)


async def subscribe(connection: Connection, queue: str, group: str, step: int = 1000) -> int:
    """The number of a group with all its cursors."""
    while True:
        row = await connection.fetchrow(
            "SELECT grp_id, complete FROM queen.subscribe_v1($1, $2, 'all', NULL, true, true, $3)", queue, group, step
        )
        assert row is not None
        if row["complete"]:
            return int(row["grp_id"])
