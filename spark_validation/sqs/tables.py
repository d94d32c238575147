"""The tables for audits of SQS, made from journals alone: an endpoint of SQS may be anybody's.

A message is known by its queue and id, a delivery also by its receive count. A *family* is a dead-letter queue with the
queues whose dead letters it gets, or a queue that has none.
"""

from functools import cached_property
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ..journal.schema import QUEUE_MODE
from ..tables import Tables
from ..tables.columns import NEVER, SECOND, few

#: Maximum difference in speed between the clocks of clients and server.
DRIFT = 0.999
_CALL = ("agent", "number", "position", "invoked", "completed")
_TOUCH = ("queue", "message_id", "invoked", "completed", "seconds", "handle")


def is_fifo() -> Column:
    """Whether the queue of a row is a FIFO queue: SQS demands that its name says so."""
    return F.col("queue").endswith(".fifo")


class SqsTables(Tables):
    """Each table is made at its first use; the parameters of audits name tables."""

    interface: ClassVar[str] = "sqs"
    of_database: ClassVar[frozenset[str]] = frozenset()
    counted: ClassVar[tuple[str, ...]] = ("sends", "received", "deletions")
    flow: ClassVar[tuple[str, ...]] = ("send", "receive", "delete", "hide")
    _OF_JOURNALS: ClassVar[frozenset[str]] = frozenset(
        {
            "calls",
            "clocks",
            "tails",
            "sends",
            "received",
            "given",
            "repeatable",
            "deletions",
            "gone",
            "settings",
            "left",
        }
    )

    def get(self, name: str) -> DataFrame | None:
        """A table; None if there are no journals, or it does not exist for SQS."""
        if self._inputs.calls is None or name not in self._OF_JOURNALS:
            return None
        table: DataFrame = getattr(self, name)
        return table

    def _told(self, kind: str, items: str, **fields: str) -> DataFrame:
        """One row per item: its call, queue, group (empty in a standard queue), id, and these fields."""
        names = {"queue": "queue", "group": "partition", "message_id": "message_id", **fields}
        columns = [F.col(f"item.{field}").alias(name) for name, field in names.items()]
        rows = self._items((kind,), items)
        return rows.select(*_CALL, F.col("lease").alias("asked"), F.col("lease_seconds").alias("seconds"), *columns)

    @cached_property
    def settings(self) -> DataFrame:
        """By queue: visibility timeout, most receives and family: the last of its dead-letter queues."""
        told = self.calls.where((F.col("kind") == "configured") & F.col("queue").isNotNull())
        told = told.select("queue", "lease_seconds", "retry_limit", "group").dropDuplicates(["queue"])
        queues = told.collect()
        dead = {row.queue: row.group for row in queues if row.group != QUEUE_MODE}
        rows = [(row.queue, row.lease_seconds, row.retry_limit, family(row.queue, dead)) for row in queues]
        return self._spark.createDataFrame(rows, "queue string, timeout double, most bigint, family string")

    def _with_family(self, rows: DataFrame) -> DataFrame:
        joined = rows.join(F.broadcast(self.settings), "queue", "left")
        return joined.withColumn("family", F.coalesce("family", F.col("queue")))

    @cached_property
    def sends(self) -> DataFrame:
        """Each message of each send."""
        fields = {
            "deduplication": "transaction_id",
            "outcome": "outcome",
            "spooled": "spooled",
            "payload_hash": "payload_hash",
        }
        return self._keep(self._with_family(self._told("send", "pushes", **fields)).drop("asked", "seconds"))

    @cached_property
    def received(self) -> DataFrame:
        """Each message of each receive; ``until``: up to when it was certainly hidden, if no call named it since.

        ``repeats``: the id of the attempt, null without one. ``untouched``: the same, but ended by calls that may have
        deleted it or changed its timeout. ``ending``: the same, but a change by its handle alone may have lengthened
        it. ``hidden_until``: the same, but for deletions.
        """
        fields = {
            "deduplication": "transaction_id",
            "attempt": "attempt",
            "created_at": "created_at",
            "payload_hash": "payload_hash",
        }
        rows = self._with_family(self._told("receive", "deliveries", **fields))
        timeout = F.coalesce("seconds", "timeout", F.lit(0.0)) * (SECOND * DRIFT)
        rows = rows.withColumn("until", (F.col("invoked") + timeout).cast("bigint"))
        rows = rows.withColumn("repeats", F.when(F.col("asked") != "", F.col("asked"))).drop("asked", "seconds")
        rows = _ended(rows, self._hidden, "hidden_until").drop("untouched")
        return self._keep(_ended(rows, self._touched, "ending"))

    @cached_property
    def given(self) -> DataFrame:
        """The deliveries without what a receive repeated of an earlier one with the id of its attempt."""
        first = F.struct("completed", "agent", "number", "position")
        same = ["queue", "message_id", "attempt", "repeats"]
        repeated = self.received.where(F.col("repeats").isNotNull())
        firsts = repeated.groupBy(*same).agg(F.min(first).alias("first")).select(*same, "first.*")
        keys = [*same, "completed", "agent", "number", "position"]
        once = repeated.join(firsts, keys, "left_semi")
        return self._keep(self.received.where(F.col("repeats").isNull()).unionByName(once))

    @cached_property
    def repeatable(self) -> DataFrame:
        """Each answered receive with the id of an attempt: its messages, and up to when they were surely in flight."""
        calls = self.calls.where((F.col("kind") == "receive") & (F.col("call") == "ok") & (F.col("lease") != ""))
        calls = calls.select("agent", "number", "invoked", "completed", "queue", F.col("lease").alias("repeats"))
        what = F.sort_array(F.collect_list(F.struct("message_id", "attempt"))).alias("messages")
        got = self.received.groupBy("agent", "number").agg(what, F.min("untouched").alias("ending"))
        return self._keep(calls.where(is_fifo()).join(got, ["agent", "number"], "left"))

    @cached_property
    def deletions(self) -> DataFrame:
        """Each deletion, with the receive count of its handle."""
        rows = self._told("delete", "acks", outcome="outcome", handle="lease").drop("asked", "seconds")
        return self._keep(self._with_family(rows).withColumn("attempt", F.col("handle").cast("bigint")))

    @cached_property
    def _hidden(self) -> DataFrame:
        """The changes of timeouts that may have had an effect; ``seconds``: the new timeout, if they certainly had."""
        rows = self._told("hide", "acks", outcome="outcome", handle="lease").where(F.col("outcome") != "fail")
        rows = rows.withColumn("seconds", F.when(F.col("outcome") == "ok", F.col("seconds")))
        return self._keep(rows.select(*_TOUCH))

    @cached_property
    def _touched(self) -> DataFrame:
        """All calls that may have made a message visible or removed it."""
        deleted = self.deletions.where(F.col("outcome") != "fail").withColumn("seconds", F.lit(None).cast("double"))
        return self._hidden.unionByName(deleted.select(*_TOUCH))

    @cached_property
    def gone(self) -> DataFrame:
        """The deletions that have certainly had an effect.

        A FIFO queue refuses a handle that is too old; a standard queue says of it, too, that it was successful.
        """
        done = self.deletions.where(F.col("outcome") == "ok")
        handles = self.received.groupBy("queue", "message_id", "attempt").agg(F.min("hidden_until").alias("valid"))
        timely = done.join(handles, ["queue", "message_id", "attempt"], "left")
        certain = timely.where(is_fifo() | (F.col("completed") < F.col("valid")))
        return self._keep(certain.groupBy("queue", "message_id").agg(F.min("completed").alias("gone_at")))

    @cached_property
    def left(self) -> DataFrame:
        """By family: the number of messages in all of its queues at the end, and since when it was so.

        None if a queue of it was not looked at.
        """
        seen = self.calls.where((F.col("kind") == "left") & F.col("batch").isNotNull())
        last = seen.groupBy("queue").agg(F.max_by("batch", "invoked").alias("there"), F.max("invoked").alias("at"))
        known = self.settings.select("queue", "family").join(last, "queue", "left")
        sums = known.groupBy("family").agg(
            F.sum("there").alias("there"), F.min("at").alias("at"), F.min(F.col("at").isNotNull()).alias("looked_at")
        )
        return self._keep(sums.where("looked_at").drop("looked_at"))


def _ended(rows: DataFrame, touched: DataFrame, name: str) -> DataFrame:
    """Deliveries with the end of the time in which the message was certainly hidden (``name``), and ``untouched``.

    The first touch ends it. If that certainly lengthened the timeout while it still ran, the second one does.
    """
    touch = F.struct(F.col("invoked").alias("at"), F.col("completed").alias("by"), "seconds", "handle")
    times = touched.groupBy("queue", "message_id").agg(F.collect_list(touch).alias("touches"))
    later = F.sort_array(F.filter("touches", lambda each: each["by"] > F.col("invoked")))
    rows = rows.join(few(times), ["queue", "message_id"], "left").withColumn("touches", later)
    rows = rows.withColumn("first", F.get("touches", F.lit(0))).withColumn("second", F.get("touches", F.lit(1)))
    alone = (F.col("first.at") > F.col("completed")) & (F.col("first.by") < F.col("until"))
    by_it = F.col("repeats").isNull() & (F.col("first.handle") == F.col("attempt").cast("string"))
    longer = (F.col("first.at") + F.col("first.seconds") * (SECOND * DRIFT)).cast("bigint")
    rows = rows.withColumn("untouched", F.least("until", "first.at"))
    lengthened = F.when(alone & by_it & longer.isNotNull(), F.least(longer, "second.at"))
    return rows.withColumn(name, F.coalesce(lengthened, "untouched")).drop("touches", "first", "second")


def family(queue: str, dead: dict[str, str]) -> str:
    """The last queue to which the dead letters of a queue, of those and so on, can go; of a circle the first name."""
    passed: list[str] = []
    while queue in dead and queue not in passed:
        passed.append(queue)
        queue = dead[queue]
    return min(passed[passed.index(queue) :]) if queue in passed else queue


def certain(rows: DataFrame) -> DataFrame:
    """The rows of calls that were answered."""
    return rows.where(F.col("completed") < NEVER)
