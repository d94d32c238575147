"""The steps by which a partition moves to another database (ADR 69): ``sql/procedures/move_partitions.sql``."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import asyncpg
import msgspec
from msgspec import Struct

Connection = Any  # asyncpg.Connection, or one of a pool

READ = "SELECT * FROM queen.read_moves_v1($1)"
_LIST = "SELECT * FROM queen.list_homes_v1($1, $2, $3, $4)"
_SEALED = (
    "SELECT m.part_id, m.queue, m.partition, m.slot, q.id IS NOT NULL AS alive FROM queen.moved_partitions AS m"
    " LEFT JOIN queen.queues AS q ON q.id = m.queue_id WHERE m.state = 'sealed' ORDER BY m.part_id"
)
_AWAITED = "SELECT part_id FROM queen.moved_partitions WHERE state = 'awaited' ORDER BY part_id"
_AWAIT = "SELECT queen.await_partition_v1($1, $2, $3)"
_NO_LONGER = "SELECT queen.await_no_longer_v1($1)"
_SEAL = "SELECT queen.seal_partition_v1($1, $2)"
_READ_SEALED = "SELECT queen.read_sealed_v1($1)"
_GROUPS = "SELECT DISTINCT consumer_group FROM queen.dead_letter_queue WHERE part_id = -$1::bigint"
_CYCLE_GROUPS = (
    "SELECT DISTINCT y.grp_id, g.name FROM queen.stream_cycles AS y"
    " JOIN queen.consumer_groups_metadata AS g ON g.id = y.grp_id WHERE y.part_id = -$1::bigint"
)
_NUMBER_GROUPS = "SELECT * FROM queen.number_groups_v1($1, $2)"
_OPEN = "SELECT queen.open_partition_v1($1, $2)"
_FORGET = "SELECT queen.forget_partition_v1($1)"
_KEYS = "SELECT kind, key FROM queen.list_timer_keys_v1($1, $2)"
_TAKEN_KEYS = "SELECT kind, key FROM queen.find_taken_keys_v1($1, $2, $3)"
_DEFINITIONS = "SELECT kind, definition FROM queen.read_definitions_v1()"
_TAKE_DEFINITIONS = "SELECT queen.take_definitions_v1($1, $2)"
_MESSAGES = "SELECT coalesce(sum(n), 0) FROM queen.segments WHERE part_id = $1"

#: What has to be copied as it is, by table: the columns, and where the rows are at the source.
_COPIED = {
    "segments": ("part_id, last_off, n, created_at, flush, ids, ends, data, cut", "part_id = $1"),
    "transaction_ids": ("part_id, hash, off", "part_id = $1"),
}
_LETTERS = (
    "off, transaction_id, trace_id, producer_sub, payload, error, retry_count, created_at, failed_at, key_id, headers"
)
_TRACES = "id, off, consumer_group, event_type, data, worker, created_at"
_STATE = "stream_id, key, value, window_end, updated_at"
_CYCLE = "stream_id, flush, cycled_at"
#: Pieces of what PostgreSQL sends that are on their way between the two databases.
_PIECES = 8


class Placed(Struct, frozen=True):
    """A partition of a database, and the shard on which the list places it."""

    part_id: int
    queue: str
    partition: str
    home: str


class Sealed(Struct, frozen=True):
    """A partition that is on its way from a database; ``alive``: its queue is still there."""

    part_id: int
    queue: str
    partition: str
    slot: int
    alive: bool


class BusyError(Exception):
    """A partition cannot be moved now; the text says why."""


async def read_homes(
    source: Connection, queue: str | None, partition: str | None, after: int, limit: int
) -> list[Placed]:
    """A page of the partitions of a database."""
    return [Placed(*row) for row in await source.fetch(_LIST, queue, partition, after, limit)]


async def read_sealed(source: Connection) -> list[Sealed]:
    """Partitions that are on their way from a database."""
    return [Sealed(*row) for row in await source.fetch(_SEALED)]


async def read_awaited(target: Connection) -> list[int]:
    """Partitions for which a database is ready."""
    return [row[0] for row in await target.fetch(_AWAITED)]


async def take_definitions(source: Connection, target: Connection, queues: Collection[str]) -> None:
    """Makes queues and groups at the target that it lacks: they began while it was down."""
    wanted = [await each.fetch(_DEFINITIONS) for each in (source, target)]
    theirs, own = [{_key(row): row for row in rows} for rows in wanted]
    lacking = [theirs[key] for key in theirs if key not in own and key[0] in {"queue", "group"} and key[1] in queues]
    if lacking:
        await target.execute(
            _TAKE_DEFINITIONS, [row["kind"] for row in lacking], [row["definition"] for row in lacking]
        )


def _key(row: Any) -> tuple[str, str, str]:  # noqa: ANN401 - a record
    definition = msgspec.json.decode(row["definition"])
    if row["kind"] == "group":
        return "group", definition["queue"], definition["name"]
    return row["kind"], definition.get("name", ""), ""


async def expect(source: Connection, target: Connection, part_id: int, queue: str, partition: str) -> bool:
    """Step 1; false: it is at the target already.

    Raises:
        BusyError: something at the target is in the way.
    """
    keys = [list(row) for row in await source.fetch(_KEYS, queue, partition)]
    if keys and (taken := await target.fetch(_TAKEN_KEYS, queue, *zip(*keys, strict=True))):
        raise BusyError(f"a {taken[0]['kind']} with the key {taken[0]['key']!r} is there, too: cancel one of the two")
    verdict = await target.fetchval(_AWAIT, part_id, queue, partition)
    if verdict not in {"awaited", "here"}:
        raise BusyError(verdict)
    return bool(verdict == "awaited")


async def expect_no_longer(target: Connection, part_id: int) -> None:
    """Ends a move before step 2."""
    await target.fetchval(_NO_LONGER, part_id)


async def seal(source: Connection, part_id: int, slot: int) -> bool:
    """Step 2; false: there is no such partition any more.

    Raises:
        BusyError: not now.
    """
    try:
        verdict = await source.fetchval(_SEAL, part_id, slot)
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as problem:
        raise BusyError("a transaction uses it") from problem
    if verdict not in {"sealed", "gone"}:
        raise BusyError(verdict)
    return bool(verdict == "sealed")


async def bring(source: Connection, target: Connection, part_id: int) -> int | None:
    """Steps 3 and 4, one transaction at the target; how many messages. ``None``: the queue was deleted meanwhile.

    Raises:
        BusyError: something at the target is in the way since step 1.
    """
    contents = await source.fetchval(_READ_SEALED, part_id)
    transaction = target.transaction()
    await transaction.start()
    try:
        opened = await _copy(source, target, part_id) and await target.fetchval(_OPEN, part_id, contents)
    except BaseException as problem:
        if not target.is_closed():
            await transaction.rollback()
        if isinstance(problem, asyncpg.UniqueViolationError):
            raise BusyError(f"another timer or schedule is there: {problem.detail} Cancel that one") from problem
        raise
    if not opened:
        await transaction.rollback()
        return None
    await transaction.commit()
    return int(await source.fetchval(_MESSAGES, part_id))


async def forget(source: Connection, part_id: int) -> None:
    """Step 5."""
    await source.fetchval(_FORGET, part_id)


async def _copy(source: Connection, target: Connection, part_id: int) -> bool:
    """Copies the log of a partition, and what belongs to it; false: its queue was deleted."""
    cycles = {row["grp_id"]: row["name"] for row in await source.fetch(_CYCLE_GROUPS, part_id)}
    names = {row[0] for row in await source.fetch(_GROUPS, part_id)} | set(cycles.values())
    # At least one name, to learn the number of the queue.
    numbers = await target.fetch(_NUMBER_GROUPS, part_id, sorted(names) or ["__QUEUE_MODE__"])
    if not numbers:
        return False
    queue_id, groups = numbers[0]["queue_id"], {row["name"]: row["grp_id"] for row in numbers}
    for table, (columns, where) in _COPIED.items():
        query = f"SELECT {columns} FROM queen.{table} WHERE {where}"  # noqa: S608
        await _pipe(source, target, table, columns, query, part_id)
    await _copy_rows(source, target, part_id, queue_id, groups, {old: groups[name] for old, name in cycles.items()})
    return True


async def _copy_rows(
    source: Connection, target: Connection, part_id: int, queue_id: int, groups: dict[str, int], cycles: dict[int, int]
) -> None:
    """Copies what refers to numbers that differ, or has numbers of its own."""
    own, theirs = list(groups.values()), list(groups)
    await _pipe(
        source, target, "dead_letter_queue", f"queue_id, part_id, grp_id, consumer_group, {_LETTERS}",
        f"SELECT $2::bigint, $1::bigint, u.number, u.name, {_LETTERS} FROM queen.dead_letter_queue AS d"  # noqa: S608
        " JOIN unnest($3::bigint[], $4::text[]) AS u (number, name) ON u.name = d.consumer_group"
        " WHERE d.part_id = -$1::bigint ORDER BY d.id",
        part_id, queue_id, own, theirs,
    )  # fmt: skip
    await _pipe(
        source, target, "stream_state", f"part_id, {_STATE}",
        f"SELECT $1::bigint, {_STATE} FROM queen.stream_state WHERE part_id = -$1::bigint",  # noqa: S608
        part_id,
    )  # fmt: skip
    await _pipe(
        source, target, "stream_cycles", f"part_id, grp_id, {_CYCLE}",
        f"SELECT $1::bigint, u.number, {_CYCLE} FROM queen.stream_cycles AS y"  # noqa: S608
        " LEFT JOIN unnest($2::bigint[], $3::bigint[]) AS u (number, old) ON u.old = y.grp_id"
        " WHERE y.part_id = -$1::bigint",
        part_id, list(cycles.values()), list(cycles),
    )  # fmt: skip
    deleted = await source.fetchval("SELECT offsets::text FROM queen.deleted_messages WHERE part_id = $1", part_id)
    if deleted is not None:
        await target.execute(
            "INSERT INTO queen.deleted_messages VALUES ($1, $2::text::int8multirange)", part_id, deleted
        )
    await _pipe(
        source, target, "traces", f"queue_id, part_id, {_TRACES}",
        f"SELECT $2::bigint, $1::bigint, {_TRACES} FROM queen.traces WHERE part_id = -$1::bigint",  # noqa: S608
        part_id, queue_id,
    )  # fmt: skip
    await _pipe(
        source, target, "trace_names", "name, trace_id",
        "SELECT n.name, n.trace_id FROM queen.trace_names AS n JOIN queen.traces AS t ON t.id = n.trace_id"
        " WHERE t.part_id = -$1::bigint",
        part_id,
    )  # fmt: skip


async def _pipe(
    source: Connection, target: Connection, table: str, columns: str, query: str, *arguments: object
) -> None:
    """Copies the rows of a query into a table, with bounded memory."""
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES)

    async def read() -> None:
        await source.copy_from_query(query, *arguments, output=pieces.put, format="binary")
        await pieces.put(None)

    async def each() -> AsyncIterator[bytes]:
        while (piece := await pieces.get()) is not None:
            yield piece

    async def write() -> None:
        await target.copy_to_table(
            table, schema_name="queen", columns=columns.split(", "), source=each(), format="binary"
        )

    both = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        await asyncio.gather(*both)
    finally:
        for each_of_both in both:
            each_of_both.cancel()
        await asyncio.gather(*both, return_exceptions=True)
