"""The list of shards in each of their databases."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import asyncpg
from msgspec import Struct

from queen.core.errors import DatabaseSetupError, DatabaseUnavailableError, DataRejectedError
from queen.core.placement import Shard, ShardList
from queen.postgres.dsn import UNREACHABLE, Target
from queen.postgres.setup import open_connection
from queen.postgres.sqlstate import reason_of, translate

P = ParamSpec("P")
T = TypeVar("T")

READ = "SELECT * FROM queen.read_shards_v1()"
_STORE = "SELECT queen.store_shards_v1($1, $2, $3, $4, $5, $6, $7, $8)"
_CONTENTS = """
SELECT EXISTS (SELECT 1 FROM queen.queues) OR EXISTS (SELECT 1 FROM simple_mq.queues)
    OR EXISTS (SELECT 1 FROM simple_mq.sqs_queues),
    (SELECT count(*) FROM queen.partitions) + (SELECT count(*) FROM queen.moved_partitions WHERE state = 'sealed'),
    (SELECT count(*) FROM simple_mq.queues) + (SELECT count(*) FROM simple_mq.sqs_queues),
    (SELECT count(*) FROM queen.moved_partitions WHERE state IN ('awaited', 'sealed'))
"""
_MISMATCH = "QN007"
_READ_DEFINITIONS = "SELECT * FROM queen.read_definitions_v1()"
_TAKE_DEFINITIONS = "SELECT queen.take_definitions_v1($1, $2)"
#: Definitions that one call takes.
_STEP = 1000


def _that_says_what_was_lost(work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """The same; a connection that ends meanwhile is an outage."""

    @wraps(work)
    async def carried_out(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return await work(*arguments, **named)
        except UNREACHABLE as problem:
            if isinstance(translate(problem), DataRejectedError):
                raise
            places = " or ".join(each.place for each in arguments if isinstance(each, Target))
            raise DatabaseUnavailableError(
                f"The connection to PostgreSQL at {places} was lost: {reason_of(problem)}. Try again"
            ) from problem

    return carried_out


class Stored(Struct, frozen=True):
    """What a database knows of the installation.

    Attributes:
        shards: the list; ``None``: it is used alone, or new.
        own: the name of this database in the list.
        populated: whether it has queues.
        partitions: how many it has, with those that are on their way from it.
        queues: how many queues of simple-mq and SQS it has.
        moving: how many partitions are on their way from it, or are to come.
    """

    shards: ShardList | None
    own: str | None
    populated: bool
    partitions: int
    queues: int = 0
    moving: int = 0


@_that_says_what_was_lost
async def read(target: Target) -> Stored:
    """The list as a prepared database has it.

    Raises:
        DatabaseUnavailableError: it is unreachable.
        DatabaseSetupError: the log-in is refused.
    """
    connection = await open_connection(target)
    try:
        rows = await connection.fetch(READ)
        [contents] = await connection.fetch(_CONTENTS)
    finally:
        await connection.close()
    own = next((row["name"] for row in rows if row["own"]), None)
    return Stored(shards_of(rows), own, *contents)


def shards_of(rows: Sequence[Mapping[str, Any]]) -> ShardList | None:
    """The list from the rows of ``read_shards_v1``; ``None``: there are none."""
    if not rows:
        return None
    shards = [Shard(*[row[field] for field in Shard.__struct_fields__]) for row in rows]
    return ShardList(shards, rows[0]["version"], rows[0]["opened"])


@_that_says_what_was_lost
async def store(target: Target, shards: ShardList, own: str) -> None:
    """Stores a list in one database, which keeps a newer one.

    Raises:
        DatabaseUnavailableError: it is unreachable.
        DatabaseSetupError: it is another shard, or of another installation.
    """
    connection = await open_connection(target)
    each = shards.shards
    try:
        await connection.execute(
            _STORE, [s.slot for s in each], [s.name for s in each], [s.added_in for s in each],
            [s.drained_in for s in each], [s.retired for s in each], own, shards.version, shards.opened,
        )  # fmt: skip
    except asyncpg.PostgresError as problem:
        if problem.sqlstate != _MISMATCH:
            raise
        raise DatabaseSetupError(
            f"DATABASE_URLS names {target.place} {own!r}, but {problem}: give each database the name that it had before"
        ) from problem
    finally:
        await connection.close()


@_that_says_what_was_lost
async def copy_definitions(source: Target, target: Target) -> None:
    """Gives one database the queues, groups, streams and switches of another one, while requests may change both.

    What is read may be outdated when it is written. So it is read again, until it was the same before and after.

    Raises:
        DatabaseUnavailableError: one of them is unreachable.
    """
    reading, taking = await open_connection(source), await open_connection(target)
    try:
        rows, before = await reading.fetch(_READ_DEFINITIONS), list[asyncpg.Record]()
        while set(rows) != set(before):
            for page in [rows[begin : begin + _STEP] for begin in range(0, len(rows), _STEP)]:
                kinds, definitions = [row["kind"] for row in page], [row["definition"] for row in page]
                await taking.execute(_TAKE_DEFINITIONS, kinds, definitions)
            rows, before = await reading.fetch(_READ_DEFINITIONS), rows
    finally:
        await reading.close()
        await taking.close()
