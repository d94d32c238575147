"""The inputs of audits: journals, and the parts of the database, read under one snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from .columns import spark_table


class LogRow(Struct, frozen=True):
    """A message of the log; ``hash`` is null if the server assigned its transaction id.

    ``part_id`` distinguishes successive queues of one name. ``damage``: why its segment cannot be read. Of a message in
    the database itself: the hash of its payload, and that of its JSON with sorted keys if that is another text; bits of
    the stored hash of its transaction id, and whether that is the hash of another id.
    """

    part_id: int
    offset: int
    created_at: int
    hash: int | None = None
    damage: str | None = None
    payload_hash: int | None = None
    sorted_hash: int | None = None
    id_key: int | None = None
    id_differs: bool | None = None


class WholeRow(LogRow, frozen=True):
    """A message of the log with all its data: ``message`` is its JSON object, with payload and transaction id."""

    message: str | None = None


class Head(Struct, frozen=True):
    """A partition: its log end, and the oldest kept offset (the log end if there is none).

    ``live_oldest``: the oldest offset in the database itself, if an archive has older ones. Of several databases:
    the name of its own (``database``), and when its queue was ``made`` there.
    """

    part_id: int
    queue: str
    partition: str
    next_offset: int
    oldest_offset: int
    created_at: int = 0
    live_oldest: int | None = None
    database: str | None = None
    made: int | None = None


class Offsets(Struct, frozen=True):
    """A run of offsets; both ends are included."""

    first: int
    last: int


class Cursor(Struct, frozen=True):
    """The cursor of a group in a partition: everything up to ``acked``, and the offsets in ``ahead``, are done.

    ``lease`` is live, and covers offsets up to ``upto``. ``seen``: the highest offset that the group was ever given.
    """

    queue: str
    partition: str
    group: str
    acked: int
    ahead: tuple[Offsets, ...] = ()
    lease: str | None = None
    upto: int | None = None
    seen: int | None = None


class DeadLetter(Struct, frozen=True):
    """A dead letter; with the hashes of its payload, if it is not encrypted, and of its transaction id."""

    queue: str
    partition: str
    group: str
    offset: int
    retry_count: int
    failed_at: int = 0
    payload_hash: int | None = None
    id_hash: int | None = None
    created_at: int | None = None


class Deleted(Struct, frozen=True):
    """A run of offsets, both ends included, whose messages were deleted; the log still has their offsets."""

    part_id: int
    first: int
    last: int


class Waiting(Struct, frozen=True):
    """A partition with messages that wait in the outbox, held back or not."""

    queue: str
    partition: str


class Queue(Struct, frozen=True):
    """The options of a queue that audits need; a retention or ttl of null or 0 seconds never removes anything.

    ``created_at``: microseconds since 1970; a queue that was deleted and made again is younger than its name. Of
    several databases, in which it is made at different times: the last of them.
    """

    queue: str
    retry_limit: int | None = None
    keeps_dead_letters: bool = True
    retention_seconds: int | None = None
    completed_retention_seconds: int | None = None
    ttl_seconds: int | None = None
    max_wait_seconds: int | None = None
    created_at: int = 0


class Group(Struct, frozen=True):
    """A consumer group of a queue; ``whole`` if it began at the oldest message of every partition.

    ``created_at``: microseconds since 1970; a group that was deleted and came again is younger than its name. Of
    several databases, in which it begins at different times: the first of them, and the last is ``begun_at``.
    """

    queue: str
    group: str
    whole: bool
    created_at: int = 0
    begun_at: int | None = None


class IdSum(Struct, frozen=True):
    """The transaction ids of a partition, without those of messages: their number and a checksum."""

    part_id: int
    ids: int
    checksum: int


class Flaw(Struct, frozen=True):
    """A row of a table that contradicts others, as the audit of that name sees it (``log/flaws.py``)."""

    audit: str
    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    offset: int | None = None
    text: str = ""


class State(Struct, frozen=True):
    """All of a database but its log. ``taken_at``: microseconds since 1970.

    ``unrecorded``: how many messages may have entered the log that no producer's journal can have: pushed with SQL, or
    as timers.

    Archives of earlier releases do not know what was ``deleted``, which groups are ``retired`` (deleted by somebody),
    whether PostgreSQL's clock has stepped, the id of the ``installation``, or what was ``waiting``.
    """

    taken_at: int
    heads: list[Head]
    cursors: list[Cursor]
    dead_letters: list[DeadLetter]
    queues: list[Queue]
    groups: list[Group]
    deleted: list[Deleted] = []
    retired: list[Group] = []
    clock_stepped: bool = False
    installation: str | None = None
    unrecorded: int = 0
    waiting: list[Waiting] = []


@dataclass(frozen=True)
class Database:
    """The tables of one snapshot; their rows are the structs of this module. ``taken_at``: microseconds since 1970."""

    log: DataFrame
    heads: DataFrame
    cursors: DataFrame
    dead_letters: DataFrame
    queues: DataFrame
    groups: DataFrame
    deleted: DataFrame
    retired: DataFrame
    waiting: DataFrame
    taken_at: int
    unrecorded: int = 0
    clock_stepped: bool = False
    id_sums: DataFrame | None = None
    flaws: DataFrame | None = None
    """None: without PostgreSQL nobody has looked for them."""
    homes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By queue and partition: the name of the one of several databases."""


def as_database(
    spark: SparkSession,
    log: DataFrame,
    state: State,
    flaws: list[Flaw] | None = None,
    id_sums: list[IdSum] | None = None,
) -> Database:
    """The state as tables beside its log."""
    tables = {
        name: spark_table(spark, kind, getattr(state, name))
        for name, kind in (
            ("heads", Head),
            ("cursors", Cursor),
            ("dead_letters", DeadLetter),
            ("queues", Queue),
            ("groups", Group),
            ("deleted", Deleted),
            ("retired", Group),
            ("waiting", Waiting),
        )
    }
    found = None if flaws is None else spark_table(spark, Flaw, flaws)
    sums = None if id_sums is None else spark_table(spark, IdSum, id_sums)
    return Database(
        log=log,
        **tables,
        taken_at=state.taken_at,
        unrecorded=state.unrecorded,
        clock_stepped=state.clock_stepped,
        flaws=found,
        id_sums=sums,
        homes={(head.queue, head.partition): head.database for head in state.heads if head.database is not None},
    )


@dataclass(frozen=True)
class Inputs:
    """Journals (rows of ``journal.schema.Call``), a database, or both."""

    calls: DataFrame | None = None
    database: Database | None = None
    clock_bound: int = 0
    """Maximum difference of clocks of agents that did not compare theirs with the server's, in microseconds."""
