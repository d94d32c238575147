"""A snapshot of a database, valid while its transaction is open."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pyspark_queen import database
from pyspark_queen.source import QueenSource

from ..errors import DatabaseError, ReplicaError
from ..inputs import (
    Cursor,
    Database,
    DeadLetter,
    Deleted,
    Flaw,
    Group,
    Head,
    IdSum,
    Offsets,
    Queue,
    State,
    Waiting,
    as_database,
)
from . import flaws

MESSAGES_A_TASK = 500_000
NOTHING: Mapping[str, Mapping[str, int]] = MappingProxyType({})
_COLUMNS = "partitionNumber bigint, offset bigint, createdAt timestamp, transactionHash bigint, damage string"

_CHECKED = {
    "payload_hash": ("payloadHash", "bigint"),
    "sorted_hash": ("sortedHash", "bigint"),
    "id_key": ("idKey", "bigint"),
    "id_differs": ("idDiffers", "boolean"),
}

Row = TypeVar("Row", bound=Struct)

_HEADS = """
SELECT p.id AS part_id, q.name AS queue, p.name AS partition, l.next_off AS next_offset,
    coalesce(s.oldest, l.next_off) AS oldest_offset, (extract(epoch FROM p.created_at) * 1000000)::bigint AS created_at
FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
JOIN queen.log_ends AS l ON l.part_id = p.id
LEFT JOIN (SELECT part_id, min(last_off - n + 1) AS oldest FROM queen.segments GROUP BY part_id) AS s
ON s.part_id = p.id
"""
_CURSORS = """
SELECT q.name AS queue, p.name AS partition, g.name AS group, c.acked, c.ahead, c.upto, c.seen,
    CASE WHEN c.ready_at > clock_timestamp() AND c.ready_at < 'infinity' THEN c.lease::text END AS lease
FROM queen.partition_consumers AS c JOIN queen.partitions AS p ON p.id = c.part_id
JOIN queen.queues AS q ON q.id = p.queue_id JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
"""
_DEAD_LETTERS = """
SELECT q.name AS queue, p.name AS partition, d.consumer_group AS group, d.off AS offset, d.retry_count,
    (extract(epoch FROM d.failed_at) * 1000000)::bigint AS failed_at,
    (extract(epoch FROM d.created_at) * 1000000)::bigint AS created_at,
    ('x' || left(encode(sha256(convert_to(d.transaction_id, 'UTF8')), 'hex'), 15))::bit(60)::bigint AS id_hash,
    CASE WHEN d.key_id IS NULL THEN
        ('x' || left(encode(sha256(convert_to(d.payload::text, 'UTF8')), 'hex'), 13))::bit(52)::bigint
    END AS payload_hash
FROM queen.dead_letter_queue AS d JOIN queen.partitions AS p ON p.id = d.part_id
JOIN queen.queues AS q ON q.id = d.queue_id
"""
_GROUPS = """
SELECT q.name AS queue, g.name AS group, g.subscription_mode = 'all' AND g.starts_at IS NULL AS whole,
    (extract(epoch FROM g.created_at) * 1000000)::bigint AS created_at
FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id
"""
_DELETED = """
SELECT d.part_id, lower(u.run) AS first, upper(u.run) - 1 AS last
FROM queen.deleted_messages AS d CROSS JOIN LATERAL unnest(d.offsets) AS u (run)
"""
_QUEUES = """
SELECT to_jsonb(q)::text AS options, (extract(epoch FROM q.created_at) * 1000000)::bigint AS created_at
FROM queen.queues AS q
"""
_RETIRED = """
SELECT q.name AS queue, r.name AS group, false AS whole
FROM queen.retired_groups AS r JOIN queen.queues AS q ON q.id = r.queue_id
"""
_STEPPED = "SELECT true WHERE EXISTS (SELECT 1 FROM queen.clock_steps)"
# Sequences of one of several databases begin with its slot, above the lowest 40 bits.
_UNRECORDED = """
SELECT (
    SELECT coalesce(sum(p.messages), 0) + (SELECT coalesce(sum(o.n), 0) FROM queen.outbox AS o)
    FROM queen.outbox_position AS p
)::bigint + coalesce((
    SELECT s.last_value & 1099511627775 FROM pg_sequences AS s
    WHERE s.schemaname = 'queen' AND s.sequencename = 'timers_seq_seq'), 0)
"""
# Earlier releases had a row of the outbox per message, and those without an outbox have neither sequence.
_UNRECORDED_BEFORE = """
SELECT coalesce(sum(s.last_value), 0)::bigint FROM pg_sequences AS s
WHERE s.schemaname = 'queen' AND s.sequencename IN ('outbox_seq_seq', 'timers_seq_seq')
"""
_WAITING = """
SELECT q.name AS queue, o.partition
FROM (
    SELECT queue_id, unnest(partitions) AS partition FROM queen.outbox
    UNION SELECT queue_id, partition FROM queen.outbox_held
) AS o
JOIN queen.queues AS q ON q.id = o.queue_id
"""
_WAITING_BEFORE = _WAITING.replace("unnest(partitions) AS partition", "partition")
_CLOSE_S = 5
_INSTALLATION = "SELECT value #>> '{}' FROM queen.system_state WHERE key = 'installation'"


class Snapshot:
    """Holds the transaction whose snapshot all tasks use; close it after the last one.

    Like any long transaction, it blocks vacuum meanwhile.
    """

    def __init__(self, dsn: str, name: str = "") -> None:
        self._dsn, self.name, self._runner = dsn, name, asyncio.Runner()
        try:
            self.id, self.taken_at, self._name = self._runner.run(self._open())
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as problem:
            self._runner.close()
            raise DatabaseError(
                f"the database{f' {name}' if name else ''} cannot be read: {database.reason(problem)}. Is PostgreSQL "
                "running there? --dsn is a URL like postgresql://user:password@host:5432/database"
            ) from problem

    async def _open(self) -> tuple[str, int, str]:
        settings = {"application_name": "queen audit", "idle_in_transaction_session_timeout": "0"}
        self._connection = await asyncpg.connect(self._dsn, timeout=database.CONNECT_S, server_settings=settings)
        self._transaction = self._connection.transaction(isolation="repeatable_read", readonly=True)
        await self._transaction.start()
        if not await self._connection.fetchval("SELECT to_regclass('queen.segments') IS NOT NULL"):
            raise DatabaseError(
                f"there is no log in {f'database {self.name}' if self.name else 'this database'}: the schema queen is "
                "missing. Is it the server's database?"
            )
        return await self._connection.fetchrow(
            "SELECT pg_export_snapshot(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_database()"
        )  # type: ignore[return-value]

    @property
    def place(self) -> str:
        """Host and database for people, without user and password."""
        parts = urlsplit(self._dsn)
        hosts = parts.netloc.rpartition("@")[2] or ",".join(parse_qs(parts.query).get("host", []))
        return f"{hosts or 'the local socket'}, database {self._name}"

    @property
    def each(self) -> "list[Snapshot]":
        """The snapshots of all databases: this one."""
        return [self]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases the snapshot."""
        # The connection may be broken by now; the data read before is still valid.
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._runner.run(self._connection.close(timeout=_CLOSE_S))
        self._runner.close()

    def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Rows of a query under the snapshot.

        Raises:
            DatabaseError: the connection to the database broke.
        """
        try:
            rows: list[Any] = self._runner.run(self._connection.fetch(query, *arguments))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as problem:
            raise DatabaseError(f"the log cannot be read: {problem}. Its snapshot is lost: run it again") from problem
        return rows

    def messages(self) -> int:
        """The number of messages of the log."""
        return int(self.fetch("SELECT coalesce(sum(n), 0)::bigint FROM queen.segments")[0][0])

    def check_primary(self) -> None:
        """Checks that it can be compared with journals.

        Raises:
            ReplicaError: PostgreSQL is a replica, which may lag behind them.
        """
        if self.fetch("SELECT pg_is_in_recovery()")[0][0]:
            raise ReplicaError

    def installation(self) -> str | None:
        """The id of the installation."""
        return next((row[0] for row in self.fetch(_INSTALLATION)), None)

    def _rows(self, kind: type[Row], query: str) -> list[Row]:
        return [kind(**row) for row in self.fetch(query)]

    def _cursors(self) -> list[Cursor]:
        # PostgreSQL's multiranges exclude the upper end.
        return [
            Cursor(
                row["queue"],
                row["partition"],
                row["group"],
                row["acked"],
                tuple(Offsets(each.lower, each.upper - 1) for each in row["ahead"] or ()),
                row["lease"],
                row["upto"],
                row["seen"],
            )
            for row in self.fetch(_CURSORS)
        ]

    def _queues(self) -> list[Queue]:
        return [_queue(msgspec.json.decode(row["options"]), row["created_at"]) for row in self.fetch(_QUEUES)]

    def database(self, spark: SparkSession, messages_a_task: int = MESSAGES_A_TASK) -> Database:
        """The tables; each query that uses the log reads it again."""
        log = self.log(spark, messages_a_task, checked=True)
        return as_database(spark, log, self.state(), self.flaws(), self.id_sums())

    def log(
        self,
        spark: SparkSession,
        messages_a_task: int = MESSAGES_A_TASK,
        *,
        since: Mapping[str, Mapping[str, int]] = NOTHING,
        whole: bool = False,
        checked: bool = False,
    ) -> DataFrame:
        """The messages of the log.

        Args:
            spark: the session.
            messages_a_task: about how many one task reads.
            since: by queue and partition, the first offset to read; the oldest of the others.
            whole: with the messages themselves.
            checked: with hashes of their payloads and ids.
        """
        return read_log(spark, self._dsn, self.id, messages_a_task, since=since, whole=whole, checked=checked)

    def state(self) -> State:
        """Everything except the log."""
        return State(
            taken_at=self.taken_at,
            heads=self._rows(Head, _HEADS),
            cursors=self._cursors(),
            dead_letters=self._rows(DeadLetter, _DEAD_LETTERS),
            queues=self._queues(),
            groups=self._rows(Group, _GROUPS),
            deleted=self._rows(Deleted, _DELETED),
            retired=[Group(**row) for row in self._runner.run(self._tried(_RETIRED))],
            clock_stepped=bool(self._runner.run(self._tried(_STEPPED))),
            installation=self.installation(),
            unrecorded=(self._runner.run(self._tried(_UNRECORDED)) or self.fetch(_UNRECORDED_BEFORE))[0][0],
            waiting=self._waiting(),
        )

    def _waiting(self) -> list[Waiting]:
        """Nothing for a release without an outbox."""
        rows = self._runner.run(self._tried(_WAITING)) or self._runner.run(self._tried(_WAITING_BEFORE))
        return [Waiting(**row) for row in rows]

    def id_sums(self) -> list[IdSum]:
        """By partition: its transaction ids."""
        return [IdSum(**row) for row in self._runner.run(self._tried(flaws.IDS))]

    def flaws(self) -> list[Flaw]:
        """What tables say against each other; nothing of tables that a release does not have."""
        return self._runner.run(self._flaws())

    async def _flaws(self) -> list[Flaw]:
        found: list[Flaw] = []
        for audit, query in flaws.QUERIES.items():
            columns = 'queue, partition, "group", "offset", text'
            rows = await self._tried(f"SELECT f.* FROM ({query}) AS f ({columns}) LIMIT {flaws.LIMIT}")
            found += [Flaw(audit, *row) for row in rows]
        for audit, what, query in flaws.PARSED:
            try:
                await self._tried(query)
            except asyncpg.DataError as problem:
                found.append(Flaw(audit, text=f"{what}: {problem}"))
        return found

    async def _tried(self, query: str) -> list[Any]:
        try:
            async with self._connection.transaction():
                rows: list[Any] = await self._connection.fetch(query)
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError):
            return []
        return rows


def read_log(
    spark: SparkSession,
    dsn: str,
    snapshot: str,
    messages_a_task: int,
    *,
    since: Mapping[str, Mapping[str, int]],
    whole: bool,
    checked: bool,
) -> DataFrame:
    """The messages of the log; of several databases ``dsn`` and ``snapshot`` name all."""
    spark.dataSource.register(QueenSource)
    more = {"message": ("message", "string")} if whole else {}
    more |= _CHECKED if checked else {}
    columns = ", ".join((_COLUMNS, *(f"{name} {type_}" for name, type_ in more.values())))
    reader = spark.read.format(QueenSource.name()).schema(columns)
    rows = reader.options(
        dsn=dsn,
        snapshot=snapshot,
        startingOffsets=msgspec.json.encode({**since}).decode(),
        maxRecordsPerPartition=messages_a_task,
        # Gaps are for the audits to judge, and deletions too.
        failOnDataLoss=False,
        includeDeleted=True,
    ).load()
    return rows.select(
        F.col("partitionNumber").alias("part_id"),
        "offset",
        F.unix_micros("createdAt").alias("created_at"),
        F.col("transactionHash").alias("hash"),
        "damage",
        *[F.col(name).alias(alias) for alias, (name, _) in more.items()],
    )


def _queue(row: dict[str, Any], created_at: int) -> Queue:
    """A release without an option has no column for it, and ignores it."""
    retains = bool(row.get("retention_enabled"))
    buries = (row["dead_letter_queue"], row["dlq_after_max_retries"])
    return Queue(
        queue=row["name"],
        retry_limit=row["retry_limit"],
        keeps_dead_letters=True in buries or False not in buries,
        retention_seconds=row.get("retention_seconds") if retains else None,
        completed_retention_seconds=row.get("completed_retention_seconds"),
        ttl_seconds=row.get("ttl"),
        max_wait_seconds=row.get("max_wait_time_seconds"),
        created_at=created_at,
    )
