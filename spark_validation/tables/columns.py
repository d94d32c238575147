"""Columns and steps that several tables and audits share: lanes, hashes, joins with few rows."""

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ..dialect import first_rows, is_sail, of_arrow

_Answer = TypeVar("_Answer")

NEVER = 1 << 60
"""A time after all others."""

SECOND = 1_000_000
"""In microseconds."""

NUMBER_CHARS = 13
_DIGITS = 15
_ID_CHARS, _MESSAGE_ID = 36, "^[0-9a-f]{8}-[0-9a-f]{4}-8001-8000-[0-9a-f]{12}"
_BROADCAST_ROWS, _DRIVER_ROWS = 500_000, 50_000


def lane() -> Column:
    """The lane of a row with queue and partition."""
    return F.xxhash64("queue", "partition")


def hash_of_offset(offset: Column) -> Column:
    """The hash of a message with a server-assigned transaction id; null if its offset is unknown."""
    return F.when(offset.isNotNull(), F.shiftrightunsigned(F.xxhash64(offset), 4))


def hash_of_text(text: Column) -> Column:
    """The hash of a client-chosen transaction id: of the first 60 bits of its SHA-256, which the log has.

    It is the hash of their digits: to make a number of these (``conv``) takes longer than the SHA-256.
    """
    return _hash_of_digits(F.substring(F.sha2(text, 256), 1, _DIGITS))


def hash_of_bits(bits: Column) -> Column:
    """The hash of a client-chosen transaction id, from the first 60 bits of its SHA-256; null without them."""
    return _hash_of_digits(F.lpad(F.lower(F.hex(bits)), _DIGITS, "0"))


def _hash_of_digits(digits: Column) -> Column:
    return F.when(digits.isNotNull(), F.xxhash64(digits))


def is_message_id(id_: Column) -> Column:
    """Whether a text has the form of a message id. Public ids are documented in ``queen/log/ids.py``."""
    # What only looks like one has no number: Spark would read the digits before the first other character.
    return (F.length(id_) == _ID_CHARS) & id_.rlike(_MESSAGE_ID)


def number_of(id_: Column) -> Column:
    """The partition in a message id, as its first digits; null for other texts."""
    return F.when(is_message_id(id_), F.substring(id_, 1, NUMBER_CHARS))


def _offset_in(id_: Column) -> Column:
    """The offset in a message id."""
    return F.conv(F.substring(id_, 25, 12), 16, 10).cast("bigint")


def offset_in(id_: Column) -> Column:
    """The offset in a message id; null for other texts."""
    return F.when(is_message_id(id_), _offset_in(id_))


def message(item: str) -> tuple[Column, Column]:
    """Hash and offset of an item of a call, in a partition of these ``numbers``.

    The id of a message of another partition, as a pipeline gives its output that of its input, is chosen like any
    other. Where no number is known every message id is taken for one of the partition.
    """
    chosen, told, numbers = F.col(f"{item}.transaction_id"), F.col(f"{item}.offset"), F.col("numbers")
    unknown = numbers.isNull() | (F.size(numbers) == 0)
    own = is_message_id(chosen) & (unknown | F.array_contains(numbers, number_of(chosen)))
    message_id = F.col(f"{item}.message_id")
    offset = F.coalesce(
        told, F.when(is_message_id(message_id), _offset_in(message_id)), F.when(own, _offset_in(chosen))
    )
    offset = F.when(~is_foreign(item), offset)
    server_made = chosen.isNull() | own
    return F.when(server_made, hash_of_offset(offset)).otherwise(hash_of_text(chosen)).alias("hash"), offset.alias(
        "offset"
    )


def is_foreign(item: str) -> Column:
    """Whether an item has the id of a message of another partition."""
    number, numbers = number_of(F.col(f"{item}.message_id")), F.col("numbers")
    known = number.isNotNull() & numbers.isNotNull() & (F.size(numbers) > 0)
    return F.coalesce(known & ~F.array_contains(numbers, number), F.lit(False))


class Answers:
    """What queries have answered: many audits ask the same of the same tables.

    A query is known by what Spark makes of it, so tables must not change: forget all when they are freed. And by the
    names of its columns, which Spark does not compare: two empty tables with the same types are the same for it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...], int], list[tuple[DataFrame, Any]]] = {}

    def of(self, what: str, rows: DataFrame, ask: Callable[[DataFrame], _Answer]) -> _Answer:
        """The answer to a question, asked once."""
        if is_sail():
            return ask(rows)  # Sail does not tell which queries are the same, and answers in milliseconds
        there = self._known.setdefault((what, tuple(rows.columns), rows.semanticHash()), [])
        found: _Answer
        for other, found in there:
            if other.sparkSession is rows.sparkSession and other.sameSemantics(rows):
                return found
        found = ask(rows)
        there.append((rows, found))
        return found

    def forget(self) -> None:
        """Forgets all."""
        self._known.clear()


answers = Answers()
"""Those of the audit that runs."""


def few(rows: DataFrame) -> DataFrame:
    """Computes rows for a join now, and broadcasts them to its tasks if they are few.

    The other side needs no shuffle, these rows are not computed again, and if there are none, Spark omits all that
    depends on them.
    """
    found = answers.of("few", rows, lambda table: _in_driver(table, _BROADCAST_ROWS))
    return rows if found is None else found


def in_driver(rows: DataFrame) -> DataFrame | None:
    """The rows, in the driver: queries about them alone need no tasks; None if they are too many for that."""
    return answers.of("in driver", rows, lambda table: _in_driver(table, _DRIVER_ROWS))


def _in_driver(rows: DataFrame, most: int) -> DataFrame | None:
    found = first_rows(rows, most + 1).toArrow()
    if found.num_rows > most:
        return None
    return F.broadcast(of_arrow(rows.sparkSession, found)) if found.num_rows else rows.limit(0)


def is_empty(rows: DataFrame) -> bool:
    """Whether there are no rows."""
    return answers.of("empty", rows, lambda some: not first_rows(some.select(F.lit(1)), 1).collect())


def leaf(kept: DataFrame) -> DataFrame:
    """The same table without what it was made of.

    Spark finds out that a table is kept only after it has analysed all that it was made of, once per query and again on
    each side of a join: that took more CPU than anything else in the audit of 100,000 messages.
    """
    spark = kept.sparkSession
    plan = kept._jdf.queryExecution().withCachedData()  # noqa: SLF001 - Spark has no other way to a kept table
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001


def unless(rows: DataFrame, any_of: DataFrame) -> DataFrame:
    """The rows; none if the other table has a row."""
    return rows if is_empty(any_of) else rows.limit(0)


def looked_up(rows: DataFrame) -> DataFrame:
    """Rows of a table that lies by message, as the side of a join that is hashed: neither side has to be sorted.

    A part of such a table fits into memory (``session.partitions_of``), also where most messages are in one lane.
    """
    return rows.hint("shuffle_hash")


def accepted() -> Column:
    """Whether an ack was applied, and changed something."""
    return (F.col("outcome") == "ok") & (F.col("call") == "ok") & ~F.col("noop")


def direct() -> Column:
    """Whether a push was answered as queued: it has stored the message."""
    return (F.col("outcome") == "ok") & ~F.col("duplicate") & ~F.col("spooled")


def done_ahead() -> Column:
    """Whether ``offset`` is among the runs that a group has finished ahead of its cursor (``ahead``)."""
    return F.exists("ahead", lambda run: F.col("offset").between(run["first"], run["last"]))


def may_be_stored() -> Column:
    """Whether a push has stored the message, or may have."""
    return (F.col("outcome") != "fail") & ~F.col("duplicate")


def acks_by_lease(acks: DataFrame) -> DataFrame:
    """By lane, group, lease and call: how many messages may have been acked ``at`` once, and other outcomes."""
    sent = F.col("outcome") != "fail"
    nack = (F.col("status") == "retry") | ((F.col("status") == "failed") & ~F.col("dead"))
    return acks.groupBy("lane", "group", "lease", "agent", "number").agg(
        F.min("invoked").alias("at"),
        F.sum(sent.cast("int")).alias("acked"),
        F.max(sent & nack).alias("nack"),
        F.max(accepted()).alias("accepted"),
    )


def bounds(which: Column, value: Column | None = None) -> Column:
    """Of rows that are aggregated: the ``lowest`` and the ``highest`` offset, or other value, of some of them."""
    some = F.when(which, F.col("offset") if value is None else value)
    return F.struct(F.min(some).alias("lowest"), F.max(some).alias("highest"))


def shifts(which: Column) -> Column:
    """The bounds of the distance of offset and position: one that differs shows offsets that do not rise by one."""
    return bounds(which, F.col("offset") - F.col("position"))
