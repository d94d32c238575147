"""The tables for audits, made from journals and log.

Two of them have one row per message and cost one shuffle each; nearly every audit is a filter on one of them, and reads
single calls only for the flagged rows:

* ``messages``: by lane and message, what producers were told, what the log holds, and whether anybody was given it;
* ``fates``: by lane, group and message, how it was delivered and acked.

A *lane* is a hash of queue and partition. A message is known in its lane by a ``hash``: of 60 bits of the SHA-256
of its transaction id, or of its offset if the server made that. Times are microseconds of the server's clock:
``invoked`` is the earliest moment at which a call can have begun, ``completed`` the latest at which it can have ended
(``NEVER`` without an answer).
"""

from functools import cached_property
from typing import ClassVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from ..journal import changes
from ..journal.schema import QUEUE_MODE
from .columns import NUMBER_CHARS, SECOND, few, hash_of_offset, hash_of_text, number_of, offset_in
from .messages import Messages


class Tables(Messages):
    """Each table is made at its first use; the parameters of audits name tables.

    Attributes:
        interface: of the audits.
        of_database: the tables from a database; all others need journals.
        counted: the tables whose rows a report counts.
        flow: the types of calls with messages.
    """

    interface: ClassVar[str] = "queen"
    of_database: ClassVar[frozenset[str]] = frozenset(
        {
            "log",
            "heads",
            "cursors",
            "dead_letters",
            "queues",
            "groups",
            "kept",
            "deleted",
            "given_up",
            "flaws",
            "id_sums",
            "blank",
            "retired",
            "damaged",
            "waiting",
        }
    )
    counted: ClassVar[tuple[str, ...]] = (
        "pushes", "deliveries", "acks", "log", "heads", "cursors", "dead_letters",
    )  # fmt: skip
    flow: ClassVar[tuple[str, ...]] = ("push", "pop", "ack", "transaction", "sql")

    @cached_property
    def letters_gone(self) -> DataFrame:
        """Dead letters that operators deleted or replayed: lane, group and hash (null: all), and until when."""
        purges = [
            (row.queue, row.partition, row.group or None, row.completed)
            for row in self._changed(changes.LETTERS_DELETED)
        ]
        told = F.broadcast(self._spark.createDataFrame(purges, "q string, p string, g string, until bigint"))
        here = (F.col("q") == F.col("queue")) & F.coalesce(F.col("p") == F.col("partition"), F.lit(True))
        all_ = self.lanes.join(told, here).select("lane", "g", F.lit(None).cast("bigint").alias("h"), "until")
        one = (changes.LETTER_DELETED, changes.LETTER_REPLAYED, changes.MESSAGE_DELETED)
        group = F.when(F.col("only") != "", F.col("only")).alias("g")
        single = self._named_by(self._changed(*one)).select("lane", group, F.col("hash").alias("h"), "until")
        return all_.unionByName(single)

    @cached_property
    def released(self) -> DataFrame:
        """By lane: the ``changes`` with which operators deleted or gave up messages; each from ``at`` ``until``."""
        told = [
            (item.partition[:NUMBER_CHARS], row.invoked, row.completed)
            for row in self._changed(changes.GIVEN_UP, changes.MESSAGE_DELETED)
            for item in row.acks
        ]
        rows = F.broadcast(self._spark.createDataFrame(told, "part string, at bigint, until bigint"))
        known = self.lanes.select("lane", F.explode("numbers").alias("part")).join(rows, "part")
        return known.groupBy("lane").agg(F.collect_list(F.struct("at", "until")).alias("changes"))

    def _named_by(self, changed: list[Row]) -> DataFrame:
        """The messages that changes name: lane, hash, group (``only``; empty: all), and ``until`` when."""
        told = [
            (item.partition[:NUMBER_CHARS], item.transaction_id, item.group, row.completed)
            for row in changed
            for item in row.acks
        ]
        rows = F.broadcast(self._spark.createDataFrame(told, "part string, id string, only string, until bigint"))
        known = self.lanes.select("lane", F.explode("numbers").alias("part")).join(rows, "part")
        hash_ = F.when(number_of(F.col("id")) == F.col("part"), hash_of_offset(offset_in(F.col("id"))))
        return known.select("lane", "only", F.coalesce(hash_, hash_of_text(F.col("id"))).alias("hash"), "until")

    @cached_property
    def given_up(self) -> DataFrame:
        """By lane, group and offset: messages that are done for the group without a known ack.

        They were deleted, for all groups, or they are its dead letters, also by eviction or by hand, or were before
        somebody deleted those. A group that began in a queue with ``maxWaitTimeSeconds`` never gets what had waited for
        longer then.
        """
        groups = self.cursors.select("lane", "group")
        if self._inputs.calls is not None:
            groups = groups.unionByName(self.fates.select("lane", "group").distinct())
        deleted = groups.join(few(self.deleted.select("lane", "offset")), "lane").select("lane", "group", "offset")
        rows = deleted.unionByName(self.dead_letters.select("lane", "group", "offset")).unionByName(self._waited())
        if self._changed(changes.GIVEN_UP):
            rows = rows.unionByName(self._given_up_by_hand(groups))
        if self._inputs.calls is not None and self.lives is not None:
            names = few(self._other_names())
            rows = rows.unionByName(
                rows.join(names, ["lane", "group"]).select("lane", F.col("life").alias("group"), "offset")
            )
        return self._keep_few(rows.distinct())

    def _waited(self) -> DataFrame:
        """What had waited for too long when a group began, or when its dead letters were deleted."""
        assert self._database is not None
        spark = self._database.log.sparkSession
        told = [(row.queue, float(row.lease_seconds)) for row in self._waits()]
        told += [
            (row.queue, float(row.max_wait_seconds))
            for row in self._database.queues.where("max_wait_seconds > 0").collect()
        ]
        if not told:
            return spark.createDataFrame([], "lane bigint, group string, offset bigint")
        waits = (
            spark.createDataFrame(told, "queue string, wait double").groupBy("queue").agg(F.min("wait").alias("wait"))
        )
        begun = self.groups.where(F.col("group") != QUEUE_MODE).select(
            "queue", "group", F.coalesce("begun_at", "created_at").alias("at")
        )
        if purges := self._changed(changes.LETTERS_DELETED):
            gone = [(row.queue, row.group or None, row.completed) for row in purges]
            gone_ = F.broadcast(spark.createDataFrame(gone, "queue string, only string, at bigint"))
            all_ = self.groups.select("queue", "group").join(gone_, "queue")
            all_ = all_.where(F.col("only").isNull() | (F.col("only") == F.col("group")))
            begun = begun.unionByName(all_.select("queue", "group", "at"))
        before = (F.col("at") - F.col("wait") * SECOND).cast("bigint").alias("before")
        begun = begun.join(F.broadcast(waits), "queue").select("queue", "group", before)
        lanes = F.broadcast(self.heads.select("lane", "queue").join(F.broadcast(begun), "queue").drop("queue"))
        rows = self.log.join(lanes, "lane").where(F.col("created_at") <= F.col("before"))
        return rows.select("lane", "group", "offset")

    def _given_up_by_hand(self, groups: DataFrame) -> DataFrame:
        """What operators moved to the dead letters."""
        known = self._named_by(self._changed(changes.GIVEN_UP)).drop("until")
        rows = self.log.join(few(known), ["lane", "hash"]).select("lane", "only", "offset")
        rows = rows.join(few(groups.distinct()), "lane").where(
            (F.col("only") == "") | (F.col("only") == F.col("group"))
        )
        return rows.select("lane", "group", "offset")
