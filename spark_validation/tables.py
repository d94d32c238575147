"""The tables for audits, made from journals and log.

Two of them have one row per message and cost one shuffle each; nearly every audit is a filter on one of them, and reads
single calls only for the flagged rows:

* ``messages``: by lane and message, what producers were told, what the log holds, and whether anybody was given it; *
``fates``: by lane, group and message, how it was delivered and acked.

A *lane* is a 64-bit hash of queue and partition. A message is known in its lane by a 60-bit ``hash``: of its
transaction id, or of its offset if the server made the transaction id. Times are microseconds of the server's clock:
``invoked`` is the earliest moment at which a call can have begun, ``completed`` the latest at which it can have ended
(``NEVER`` without an answer).
"""

from functools import cached_property, reduce
from operator import and_
from typing import ClassVar

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from . import lives
from .inputs import Database, Inputs
from .journal import changes
from .journal.schema import QUEUE_MODE

NEVER = 1 << 60
"""A time after all others."""

SECOND = 1_000_000
"""In microseconds."""

_MESSAGE_KIND = "-8001-8000-"
_NUMBER_CHARS = 13
_OF_LOG = ("log_offset", "logged_at", "logged_payload", "logged_sorted")
_BROADCAST_ROWS = 500_000
_PUSHES = ("push", "transaction", "sql")


def lane() -> Column:
    """The lane of a row with queue and partition."""
    return F.xxhash64("queue", "partition")


def hash_of_offset(offset: Column) -> Column:
    """The hash of a message with a server-assigned transaction id; null if its offset is unknown."""
    return F.when(offset.isNotNull(), F.shiftrightunsigned(F.xxhash64(offset), 4))


def hash_of_text(text: Column) -> Column:
    """The hash of a client-chosen transaction id: the first 60 bits of its SHA-256."""
    return F.conv(F.substring(F.sha2(text, 256), 1, 15), 16, 10).cast("bigint")


def _is_message_id(id_: Column) -> Column:
    """Whether a text has the form of a message id. Public ids are documented in ``queen/log/ids.py``."""
    return (F.length(id_) == 36) & (F.substring(id_, 14, 11) == _MESSAGE_KIND)


def number_of(id_: Column) -> Column:
    """The partition in a message id, as its first digits; null for other texts."""
    return F.when(_is_message_id(id_), F.substring(id_, 1, _NUMBER_CHARS))


def _offset_in(id_: Column) -> Column:
    """The offset in a message id."""
    return F.conv(F.substring(id_, 25, 12), 16, 10).cast("bigint")


def offset_in(id_: Column) -> Column:
    """The offset in a message id; null for other texts."""
    return F.when(_is_message_id(id_), _offset_in(id_))


def _message(item: str) -> tuple[Column, Column]:
    """Hash and offset of an item of a call, in a partition of these ``numbers``.

    The id of a message of another partition, as a pipeline gives its output that of its input, is chosen like any
    other. Where no number is known every message id is taken for one of the partition.
    """
    chosen, told, numbers = F.col(f"{item}.transaction_id"), F.col(f"{item}.offset"), F.col("numbers")
    unknown = numbers.isNull() | (F.size(numbers) == 0)
    own = _is_message_id(chosen) & (unknown | F.array_contains(numbers, number_of(chosen)))
    message_id = F.col(f"{item}.message_id")
    offset = F.coalesce(
        told, F.when(_is_message_id(message_id), _offset_in(message_id)), F.when(own, _offset_in(chosen))
    )
    offset = F.when(~_is_foreign(item), offset)
    server_made = chosen.isNull() | own
    return F.when(server_made, hash_of_offset(offset)).otherwise(hash_of_text(chosen)).alias("hash"), offset.alias(
        "offset"
    )


def _is_foreign(item: str) -> Column:
    """Whether an item has the id of a message of another partition."""
    number, numbers = number_of(F.col(f"{item}.message_id")), F.col("numbers")
    known = number.isNotNull() & numbers.isNotNull() & (F.size(numbers) > 0)
    return F.coalesce(known & ~F.array_contains(numbers, number), F.lit(False))


def _bounds(rows: DataFrame, *by: str) -> DataFrame:
    """The common bounds ``low`` and ``high``; the widest ones if they contradict each other (``moved``)."""
    moved = F.max("moved") | (F.max("low") > F.min("high"))
    return rows.groupBy(*by).agg(
        F.when(moved, F.min("low")).otherwise(F.max("low")).alias("low"),
        F.when(moved, F.max("high")).otherwise(F.min("high")).alias("high"),
        F.sum("comparisons").alias("comparisons"),
        moved.alias("moved"),
    )


def few(rows: DataFrame) -> DataFrame:
    """Computes rows for a join now, and broadcasts them to its tasks if they are few.

    The other side needs no shuffle, these rows are not computed again, and if there are none, Spark omits all that
    depends on them.
    """
    found = rows.limit(_BROADCAST_ROWS + 1).toArrow()
    if found.num_rows > _BROADCAST_ROWS:
        return rows
    return F.broadcast(rows.sparkSession.createDataFrame(found)) if found.num_rows else rows.limit(0)


def _leaf(kept: DataFrame) -> DataFrame:
    """The same table without what it was made of.

    Spark finds out that a table is kept only after it has analysed all that it was made of, once per query and again on
    each side of a join: that took more CPU than anything else in the audit of 100,000 messages.
    """
    spark = kept.sparkSession
    plan = kept._jdf.queryExecution().withCachedData()  # noqa: SLF001 - Spark has no other way to a kept table
    dataset = spark.sparkContext._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]  # noqa: SLF001
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001


def unless(rows: DataFrame, any_of: DataFrame) -> DataFrame:
    """The rows; none if the other table has a row."""
    return rows if any_of.isEmpty() else rows.limit(0)


def looked_up(rows: DataFrame) -> DataFrame:
    """Rows of a table that lies by message, as the side of a join that is hashed: neither side has to be sorted.

    A part of such a table fits into memory (``session.partitions_of``), also where most messages are in one lane.
    """
    return rows.hint("shuffle_hash")


def accepted() -> Column:
    """Whether an ack was applied, and changed something."""
    return (F.col("outcome") == "ok") & (F.col("call") == "ok") & ~F.col("noop")


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


class Tables:
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

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._kept: list[DataFrame] = []

    def get(self, name: str) -> DataFrame | None:
        """A table; None if its source was not given."""
        of_database = name in self.of_database
        if self._database is None and of_database:
            return None
        if self._inputs.calls is None and not of_database:
            return None
        table: DataFrame | None = getattr(self, name)
        return table

    def close(self) -> None:
        """Frees the disk space of the cached tables."""
        for table in self._kept:
            table.unpersist()

    def read_log(self) -> None:
        """Reads the log to disk, if there is one: from then on, nothing reads the database."""
        if self._database is not None:
            self.log.count()

    def _keep(self, table: DataFrame) -> DataFrame:
        self._kept.append(table.persist(StorageLevel.DISK_ONLY))
        return _leaf(self._kept[-1])

    @property
    def _database(self) -> Database | None:
        return self._inputs.database

    # ------------------------------------------------------------ calls

    @cached_property
    def clocks(self) -> DataFrame:
        """By agent: bounds of the difference between its clock and the server's, and the number of comparisons.

        A server time D, rounded down to a multiple of p, was true at some moment between sending and answer. So the
        agent's clock is ahead by more than sent - D - p and by no more than answered - D, and all comparisons together
        bound it from both sides. Where they contradict each other one of the clocks drifted, or was set: then those of
        each half minute bound it for that time, and it was within the widest of these bounds.
        """
        assert self._inputs.calls is not None  # get() has looked
        calls = self._inputs.calls
        # A time of unknown precision gives no bounds.
        told = ("answered", "server_time", "server_precision")
        compared = calls.where((F.col("kind") == "clock") & reduce(and_, [F.col(name).isNotNull() for name in told]))
        ahead = compared.select(
            "agent",
            F.floor(F.col("sent") / (30 * SECOND)).alias("while"),
            (F.col("sent") - F.col("server_time") - F.col("server_precision")).alias("low"),
            (F.col("answered") - F.col("server_time")).alias("high"),
        )
        at_once = _bounds(ahead.withColumns({"moved": F.lit(False), "comparisons": F.lit(1)}), "agent", "while")
        bounds = _bounds(at_once, "agent")
        bound = self._inputs.clock_bound
        none = F.col("comparisons").isNull()
        clocks = (
            calls.select("agent")
            .distinct()
            .join(bounds, "agent", "left")
            .select(
                "agent",
                F.when(none, F.lit(-bound)).otherwise(F.col("low")).alias("low"),
                F.when(none, F.lit(bound)).otherwise(F.col("high")).alias("high"),
                F.coalesce("comparisons", F.lit(0)).alias("comparisons"),
                F.coalesce("moved", F.lit(False)).alias("moved"),
            )
        )
        return self._keep(clocks)

    @cached_property
    def calls(self) -> DataFrame:
        """The rows of the journals in the server's time."""
        assert self._inputs.calls is not None
        completed = F.coalesce(F.col("answered") - F.col("low"), F.lit(NEVER))
        return (
            self._inputs.calls.join(F.broadcast(self.clocks.select("agent", "low", "high", "comparisons")), "agent")
            .withColumn("compared", F.col("comparisons") > 0)
            .drop("comparisons")
            .withColumn("invoked", F.col("sent") - F.col("high"))
            .withColumn("completed", completed)
            .withColumn("group", F.coalesce("group", F.lit(QUEUE_MODE)))
            .withColumn("lease", F.coalesce("lease", F.lit("")))
            .withColumnRenamed("outcome", "call")
        )

    def _items(self, kinds: tuple[str, ...], items: str) -> DataFrame:
        rows = self.calls.where(F.col("kind").isin(*kinds))
        return rows.select(
            *[name for name in rows.columns if name not in ("pushes", "deliveries", "acks")],
            F.posexplode(items).alias("position", "item"),
        )

    def _in_lanes(self, kinds: tuple[str, ...], items: str) -> DataFrame:
        """The items with their lane, and the numbers of the partitions of that name."""
        rows = self._items(kinds, items).withColumn("lane", F.xxhash64("item.queue", "item.partition"))
        return rows.join(few(self.lanes.select("lane", "numbers")), "lane", "left")

    def _undeleted(self, rows: DataFrame) -> DataFrame:
        """The rows without those of deleted messages and partitions, which are no violations."""
        rows = rows.join(few(self.renewed.select("lane")), "lane", "left_anti")
        if self._database is None:
            return rows
        return rows.join(few(self.deleted.select("lane", "hash").distinct()), ["lane", "hash"], "left_anti")

    # ------------------------------------------------------------ what operators did

    @cached_property
    def changes(self) -> list[Row]:
        """What operators did, as far as journals have it."""
        if self._inputs.calls is None:
            return []
        rows = self.calls.where((F.col("kind") == "change") & (F.col("call") != "fail"))
        names = ("client", "invoked", "completed", "queue", "partition", "group")
        return rows.select(*names, "auto_ack", "retry_limit", "lease_seconds", "acks").collect()

    def _changed(self, *kinds: str) -> list[Row]:
        return [row for row in self.changes if row.client in kinds]

    @cached_property
    def lives(self) -> DataFrame | None:
        """By lane and group: the ends of its lives (``lives``); None if no group has several."""
        ends = lives.ends_of(self.changes)
        born = lives.begun(self.pops, self.groups) if self._database is not None else {}
        return self._keep(lives.by_lane(self.lanes, ends, born)) if ends or born else None

    def _in_lives(self, rows: DataFrame) -> DataFrame:
        """The rows of calls with the names of lives of groups."""
        if self.lives is None:
            return rows
        rows = rows.join(few(self.lives), ["lane", "group"], "left")
        name = lives.named(F.col("group"), F.col("invoked"), F.col("completed"))
        return rows.withColumn("group", name).drop("ends", "born")

    def _certain(self, rows: DataFrame) -> DataFrame:
        """The rows of calls of which it is known whether they came before or after changes of their group."""
        return rows if self.lives is None else rows.where(~F.col("group").endswith(lives.DURING))

    @cached_property
    def last_lives(self) -> DataFrame:
        """By lane and group with several lives: since when it has the last one, and whether that is ``whole``."""
        if self.lives is None:
            return self._empty("lane bigint, group string, since bigint, whole boolean")
        last = F.element_at("ends", -1)
        since = F.greatest(F.when(F.size("ends") > 0, last["completed"]), "born")
        whole = F.coalesce(F.when(F.size("ends") > 0, last["whole"]), F.lit(True))
        return self.lives.select("lane", "group", since.alias("since"), whole.alias("whole"))

    def _other_names(self) -> DataFrame:
        """By lane and group: the names (``life``) of its other lives."""
        assert self.lives is not None
        return self.lives.select("lane", "group", F.explode(lives.names(F.col("group"))).alias("life"))

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
        single = self._named_by(self._changed(changes.LETTER_DELETED, changes.LETTER_REPLAYED))
        return all_.unionByName(single.select("lane", F.col("only").alias("g"), F.col("hash").alias("h"), "until"))

    def _named_by(self, changed: list[Row]) -> DataFrame:
        """The messages that changes name: lane, hash, group (``only``; empty: all), and ``until`` when."""
        told = [
            (item.partition[:_NUMBER_CHARS], item.transaction_id, item.group, row.completed)
            for row in changed
            for item in row.acks
        ]
        rows = F.broadcast(self._spark.createDataFrame(told, "part string, id string, only string, until bigint"))
        known = self.lanes.select("lane", F.explode("numbers").alias("part")).join(rows, "part")
        hash_ = F.when(number_of(F.col("id")) == F.col("part"), hash_of_offset(_offset_in(F.col("id"))))
        return known.select("lane", "only", F.coalesce(hash_, hash_of_text(F.col("id"))).alias("hash"), "until")

    def _empty(self, schema: str) -> DataFrame:
        return self._spark.createDataFrame([], schema)

    @property
    def _spark(self) -> SparkSession:
        assert self._inputs.calls is not None
        return self._inputs.calls.sparkSession

    @cached_property
    def outsiders(self) -> DataFrame:
        """Messages without a push in the journals that may come from SQL or timers: as many as there were of those."""
        most = self._database.unrecorded if self._database is not None else 0
        if most:
            # Journals of SQL tell what it pushed.
            most -= self.pushes.where("kind = 'sql' AND outcome = 'ok'").count()
        if most <= 0:
            return self._empty("lane bigint, hash bigint")
        unpushed = self.messages.where(F.col("attempts") == 0).orderBy("lane", "log_offset", "hash")
        return self._keep(unpushed.select("lane", "hash").limit(most))

    @cached_property
    def pushes(self) -> DataFrame:
        """Each message of each push and transaction, also of SQL."""
        hash_, offset = _message("item")
        rows = self._in_lanes(_PUSHES, "pushes").select(
            "agent",
            "number",
            "position",
            "kind",
            "call",
            "compared",
            "invoked",
            "completed",
            "lane",
            hash_,
            offset,
            F.col("item.outcome").alias("outcome"),
            F.col("item.duplicate").alias("duplicate"),
            F.col("item.spooled").alias("spooled"),
            F.col("item.payload_hash").alias("payload_hash"),
        )
        return self._keep(self._undeleted(rows))

    @cached_property
    def deliveries(self) -> DataFrame:
        """Each delivered message of each pop."""
        return self._certain(self._all_deliveries)

    @cached_property
    def _all_deliveries(self) -> DataFrame:
        """Also of pops during a change of their group."""
        hash_, offset = _message("item")
        rows = self._in_lanes(("pop",), "deliveries").select(
            "agent",
            "number",
            "position",
            "invoked",
            "completed",
            "group",
            "auto_ack",
            "lease",
            "lease_seconds",
            "lane",
            hash_,
            offset,
            F.col("item.attempt").alias("attempt"),
            F.col("item.created_at").alias("created_at"),
            F.col("item.payload_hash").alias("payload_hash"),
            _is_foreign("item").alias("foreign"),
        )
        return self._keep(self._in_lives(self._undeleted(rows)))

    @cached_property
    def acks(self) -> DataFrame:
        """Each item of each ack and transaction."""
        return self._certain(self._all_acks)

    @cached_property
    def _all_acks(self) -> DataFrame:
        """Also of those during a change of their group.

        One that ``may_finish`` may finish the message for the group, and one that ``finishes`` does.
        """
        hash_, offset = _message("item")
        item = {name: F.col(f"item.{name}") for name in ("status", "lease", "outcome", "dead", "noop")}
        possible = (
            F.when(item["outcome"] == "fail", False)
            .when(item["status"] == "failed", item["dead"] | (item["outcome"] == "unknown"))
            .otherwise(item["status"] != "retry")
        )
        rows = self._in_lanes(("ack", "transaction"), "acks").select(
            "agent",
            "number",
            "position",
            "kind",
            "call",
            "invoked",
            "completed",
            "lane",
            F.col("item.group").alias("group"),
            hash_,
            offset,
            *[column.alias(name) for name, column in item.items()],
            possible.alias("may_finish"),
            (possible & (item["outcome"] == "ok")).alias("finishes"),
        )
        return self._keep(self._in_lives(self._undeleted(rows)))

    @cached_property
    def amid(self) -> DataFrame:
        """By lane and group: the messages that were delivered or acked during a change of the group.

        Nobody knows in which of its lives.
        """
        if self.lives is None:
            return self._empty("lane bigint, group string, hash bigint")
        during = F.col("group").endswith(lives.DURING)
        rows = [
            table.where(during).select("lane", lives.plain("group").alias("group"), "hash")
            for table in (self._all_deliveries, self._all_acks)
        ]
        return self._keep(rows[0].unionByName(rows[1]).distinct())

    @cached_property
    def holdings(self) -> DataFrame:
        """By lane, group and pop: its number of messages, and the length of the lease.

        A pop has one lease: as a key it is hashed, where the least text of many would be found by sorting all rows.
        """
        return self._keep(
            self.deliveries.where(~F.col("foreign"))
            .groupBy("lane", "group", "agent", "number", "lease")
            .agg(
                F.min("invoked").alias("invoked"),
                F.min("completed").alias("completed"),
                F.min("lease_seconds").alias("seconds"),
                F.max("auto_ack").alias("auto_ack"),
                F.count("*").alias("n"),
            )
        )

    @cached_property
    def leased_acks(self) -> DataFrame:
        """By lane, group, lease and call: the acks with a lease."""
        return self._keep(acks_by_lease(self.acks.where(F.col("lease").isNotNull())))

    @cached_property
    def named(self) -> DataFrame:
        """Each item of each call, with its transaction id, for evidence."""
        rows = []
        for kinds, items in ((_PUSHES, "pushes"), (("pop",), "deliveries")):
            hash_, _ = _message("item")
            rows.append(
                self._in_lanes(kinds, items).select(
                    "lane",
                    hash_,
                    "item.transaction_id",
                    "agent",
                    "number",
                    "position",
                )
            )
        return rows[0].unionByName(rows[1])

    @cached_property
    def pops(self) -> DataFrame:
        """All pops, also empty ones."""
        return self.calls.where(F.col("kind") == "pop").drop("pushes", "acks")

    @cached_property
    def renewals(self) -> DataFrame:
        """All renewals."""
        return self.calls.where(F.col("kind") == "renew").select(
            "agent", "number", "call", "invoked", "completed", "lease", "lease_seconds"
        )

    @cached_property
    def drained(self) -> DataFrame:
        """By queue and group: when the queue was last seen to be empty for it."""
        seen = self.calls.where(F.col("kind") == "drained")
        return self._keep(seen.groupBy("queue", "group").agg(F.max("invoked").alias("empty_at")))

    @cached_property
    def limits(self) -> DataFrame:
        """By queue: its retry limits (``limits``), if known, with the time at which each began to hold.

        If the database has another one than was told last, somebody changed it since, whenever that was.
        """
        given = (F.col("kind") == "configured") | (F.col("client") == changes.CONFIGURED)
        told = self.calls.where(given & F.col("retry_limit").isNotNull()).select(
            "queue",
            F.col("invoked").alias("since"),
            (F.coalesce("answered", "sent") - F.col("low")).alias("until"),
            "retry_limit",
        )
        limit = F.struct("since", "until", "retry_limit")
        by_queue = told.groupBy("queue").agg(F.array_sort(F.collect_set(limit)).alias("limits"))
        if self._database is None:
            return by_queue
        stored = self._database.queues.where(F.col("retry_limit").isNotNull()).select(
            "queue", F.col("retry_limit").alias("stored")
        )
        both = by_queue.join(F.broadcast(stored), "queue", "full")
        last = F.element_at("limits", -1)
        alone = F.array(
            F.struct(F.lit(0).alias("since"), F.lit(0).alias("until"), F.col("stored").alias("retry_limit"))
        )
        later = F.struct(
            last["since"].alias("since"), F.lit(NEVER).alias("until"), F.col("stored").alias("retry_limit")
        )
        changed = F.when(F.col("stored") != last["retry_limit"], F.array_append("limits", later)).otherwise(
            F.col("limits")
        )
        return both.select("queue", F.when(F.col("limits").isNull(), alone).otherwise(changed).alias("limits"))

    @cached_property
    def tails(self) -> DataFrame:
        """Agents whose journals lack rows, and since when: they were killed, or rows between others are missing.

        Each of their clients may have had a call under way from the end of its last known one on, which is ``told`` by
        the earliest time at which it can have ended, however many calls of others are known. Calls before the first
        known row are unknown. Of a ``blank`` agent no call is known.
        """
        told = F.coalesce("answered", "sent") - F.col("high")
        call = ~F.col("kind").isin("end", "clock", "configured", "fault")
        clients = self.calls.groupBy("agent", "client").agg(
            F.max(F.col("kind") == "end").alias("ended"),
            F.max("number").alias("last"),
            F.countDistinct("number").alias("rows"),
            F.max(F.when(call, F.greatest("invoked", told))).alias("known_until"),
            F.min("invoked").alias("known_from"),
            F.min("number").alias("first"),
        )
        agents = clients.groupBy("agent").agg(
            F.max("ended").alias("ended"),
            F.max("last").alias("last"),
            F.sum("rows").alias("rows"),
            F.min("known_until").alias("known_until"),
            F.min("known_from").alias("known_from"),
            F.min("first").alias("first"),
        )
        complete = F.col("rows") == F.col("last") + 1
        return self._keep(
            agents.where(~(F.col("ended") & complete))
            .withColumn("blank", F.col("known_until").isNull())
            .withColumn(
                "since",
                F.when(F.col("first") > 0, F.lit(0)).otherwise(
                    F.coalesce(F.when(complete, F.col("known_until")), "known_from")
                ),
            )
            .select("agent", "since", (F.col("last") + 1 - F.col("rows")).alias("missing"), "ended", "blank")
        )

    @cached_property
    def hidden(self) -> DataFrame:
        """By queue and group: since when there may have been unrecorded deliveries, perhaps with autoAck.

        By a pop without an answer, or by an agent whose journal lacks rows (``tail``) and that popped there before, or
        of which no call is known. If they are all known, but not in which life of the group, they are only ``amid``.
        """
        pops = self.pops.where(F.col("queue").isNotNull()).select(
            "agent", "queue", "group", "auto_ack", "call", "invoked"
        )
        unknown = pops.where(F.col("call") == "unknown").withColumn("tail", F.lit(False))
        cut = (
            pops.join(F.broadcast(self.tails), "agent")
            .withColumn("invoked", F.col("since"))
            .withColumn("tail", F.lit(True))
        )
        anywhere = pops.select("queue", "group").unionByName(self.drained.select("queue", "group")).distinct()
        blank = few(self.tails.where("blank").select(F.col("since").alias("invoked")))
        anywhere = anywhere.join(blank, how="cross").withColumns({"auto_ack": F.lit(True), "tail": F.lit(True)})
        columns = ("queue", "group", "auto_ack", "tail", "invoked")
        rows = unknown.select(*columns).unionByName(cut.select(*columns)).unionByName(anywhere.select(*columns))
        rows = rows.withColumn("amid", F.lit(False))
        if self.lives is not None:
            rows = rows.unionByName(self._hidden_in_lives(rows))
        return self._keep(
            rows.groupBy("queue", "group").agg(
                F.min("invoked").alias("hidden_since"),
                F.max("auto_ack").alias("swallowed"),
                F.max("tail").alias("tail"),
                F.min("amid").alias("amid"),
            )
        )

    def _hidden_in_lives(self, rows: DataFrame) -> DataFrame:
        """The rows for each life of their groups, and for all lives of a group with deliveries during a change."""
        names = self._other_names().join(F.broadcast(self.lanes.select("lane", "queue")), "lane")
        names = names.select("queue", "group", "life").distinct()
        other = rows.join(F.broadcast(names), ["queue", "group"]).drop("group").withColumnRenamed("life", "group")
        amid = self.amid.select("lane", "group").distinct()
        amid = amid.join(F.broadcast(self.lanes.select("lane", "queue")), "lane")
        unsure = amid.select(
            "queue",
            "group",
            *[F.lit(True).alias(name) for name in ("auto_ack", "tail", "amid")],
            F.lit(0).alias("invoked"),
        )
        alias = unsure.join(F.broadcast(names), ["queue", "group"]).drop("group").withColumnRenamed("life", "group")
        return other.unionByName(unsure).unionByName(alias)

    # ------------------------------------------------------------ lanes

    @cached_property
    def lanes(self) -> DataFrame:
        """The names of the lanes, with the known ``numbers`` of partitions of these names.

        A number belongs to one name: to that in the database, else to that of most calls, above all pushes. Where
        another name has it, a message went astray.
        """
        names = []
        for kinds, items, weight in (
            (_PUSHES, "pushes", 1_000),
            (("pop",), "deliveries", 1),
            (("ack", "transaction"), "acks", 1),
        ):
            # The messages of a call are in few partitions: repetitions are removed before they become rows.
            numbers = F.transform(F.col(f"{items}.message_id"), number_of)
            places = F.arrays_zip(F.col(f"{items}.queue"), F.col(f"{items}.partition"), numbers.alias("part"))
            rows = self.calls.where(F.col("kind").isin(*kinds)).select(
                F.explode(F.array_distinct(places)).alias("place")
            )
            names.append(rows.select("place.queue", "place.partition", "place.part", F.lit(weight).alias("weight")))
        if self._database is not None:
            number = F.regexp_replace(F.lpad(F.lower(F.hex("part_id")), 12, "0"), "^(.{8})", "$1-")
            stored = self._database.heads.select("queue", "partition", number.alias("part"))
            names.append(stored.withColumn("weight", F.lit(NEVER)))
        rows = (
            reduce(DataFrame.unionByName, names).groupBy("queue", "partition", "part").agg(F.sum("weight").alias("w"))
        )
        of_number = Window.partitionBy("part").orderBy(F.desc("w"), "queue", "partition")
        own = F.when(F.row_number().over(of_number) == 1, F.col("part"))
        named = rows.withColumn("own", own).groupBy("queue", "partition").agg(F.collect_set("own").alias("numbers"))
        # Without its lineage: nearly every table depends on it, and plans would grow without bounds.
        return named.withColumn("lane", lane()).localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)

    @cached_property
    def renewed(self) -> DataFrame:
        """Lanes with several successive partitions, each of which began at offset 0."""
        return self.lanes.where(F.size("numbers") > 1)

    # ------------------------------------------------------------ database

    @cached_property
    def heads(self) -> DataFrame:
        """The partitions of the log."""
        assert self._database is not None
        return self._keep(self._database.heads.withColumn("lane", lane()))

    @cached_property
    def kept(self) -> DataFrame:
        """By lane of a queue that there is: its oldest offsets, and the time at which the queue was ``made``.

        That which log or archive hold (``oldest``), that which the database holds (``live``), and that which groups
        must be given and finish (``owed``). Of what was stored before the queue was made nothing is to be seen.
        """
        assert self._database is not None
        heads = self.heads.groupBy("lane").agg(
            F.max("oldest_offset").alias("oldest"),
            F.max(F.coalesce("live_oldest", "oldest_offset")).alias("live"),
        )
        # Messages that wait too long are evicted, without a trace if the queue keeps no dead letters.
        silent = (F.col("max_wait_seconds") > 0) & ~F.col("keeps_dead_letters")
        if once := [row.queue for row in self._waits() if row.auto_ack]:
            silent = silent | F.col("queue").isin(once)
        queues = self.queues.select(
            "queue", F.col("created_at").alias("made"), F.coalesce(silent, F.lit(False)).alias("silent")
        )
        lanes = self.lanes if self._inputs.calls is not None else self.heads
        rows = lanes.select("queue", "lane").join(F.broadcast(queues), "queue").join(few(heads), "lane", "left")
        # A removed partition had all its messages, unless they were removed, and can deliver nothing.
        rows = rows.fillna(0, ["oldest"]).fillna(NEVER, ["live"])
        owed = F.when(F.col("silent"), NEVER).otherwise(F.col("live")).alias("owed")
        runs = F.collect_list(F.struct("first", "last")).alias("damaged")
        rows = rows.join(few(self.damaged.groupBy("lane").agg(runs)), "lane", "left")
        return self._keep(rows.select("lane", "oldest", "live", owed, "made", "damaged"))

    @cached_property
    def _whole_log(self) -> DataFrame:
        """The messages of the log, also those that cannot be read."""
        assert self._database is not None
        lanes = F.broadcast(self.heads.select("part_id", "lane"))
        known = F.coalesce("hash", hash_of_offset(F.col("offset")))
        rows = self._database.log.join(lanes, "part_id")
        checked = ("payload_hash", "sorted_hash", "id_key", "id_differs")
        return self._keep(rows.select("lane", "offset", known.alias("hash"), "created_at", "damage", *checked))

    @cached_property
    def log(self) -> DataFrame:
        """The messages of the log that can be read."""
        return self._whole_log.where(F.col("damage").isNull()).drop("damage")

    @cached_property
    def damaged(self) -> DataFrame:
        """The segments that cannot be read: lane, ``first`` and ``last`` offset, and why (``damage``)."""
        unreadable = self._whole_log.where(F.col("damage").isNotNull()).groupBy("lane", "damage")
        return self._keep(unreadable.agg(F.min("offset").alias("first"), F.max("offset").alias("last")))

    @cached_property
    def id_sums(self) -> DataFrame | None:
        """By lane: the number of transaction ids beside the log, and their checksum."""
        assert self._database is not None
        sums = self._database.id_sums
        if sums is None:
            return None
        lanes = self.heads.select("part_id", "lane", F.coalesce("live_oldest", "oldest_offset").alias("live"))
        return lanes.join(sums, "part_id", "left").fillna(0, ["ids", "checksum"])

    @cached_property
    def blank(self) -> DataFrame:
        """The offsets of deleted messages, by lane."""
        assert self._database is not None
        runs = self._database.deleted.select("part_id", F.explode(F.sequence("first", "last")).alias("offset"))
        return runs.join(F.broadcast(self.heads.select("part_id", "lane")), "part_id").select("lane", "offset")

    @cached_property
    def waiting(self) -> DataFrame:
        """The lanes with messages in the outbox."""
        assert self._database is not None
        return self._database.waiting.select(lane().alias("lane"))

    @cached_property
    def cursors(self) -> DataFrame:
        """The cursors of all groups."""
        assert self._database is not None
        return self._keep(self._database.cursors.withColumn("lane", lane()))

    @cached_property
    def dead_letters(self) -> DataFrame:
        """The dead letters."""
        assert self._database is not None
        return self._keep(self._database.dead_letters.withColumn("lane", lane()))

    @cached_property
    def deleted(self) -> DataFrame:
        """The offsets of the transaction ids of deleted messages, also if an id was used again."""
        assert self._database is not None
        runs = self._database.deleted.select("part_id", F.explode(F.sequence("first", "last")).alias("offset"))
        offsets = runs.join(F.broadcast(self.heads.select("part_id", "lane")), "part_id").select("lane", "offset")
        log = self.log.select("lane", "hash", "offset")
        gone = log.join(few(offsets), ["lane", "offset"]).select("lane", "hash").distinct()
        return self._keep(log.join(few(gone), ["lane", "hash"]))

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
        return self._keep(rows.distinct())

    def _waits(self) -> list[Row]:
        """Configurations of queues with a ``maxWaitTimeSeconds`` (``lease_seconds``)."""
        return [row for row in self._changed(changes.CONFIGURED) if (row.lease_seconds or 0) > 0]

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
            "queue", "group", F.col("created_at").alias("at")
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

    @cached_property
    def queues(self) -> DataFrame:
        """The options of the queues, with the time of the snapshot, and whether PostgreSQL's clock has stepped."""
        assert self._database is not None
        given = {"taken_at": self._database.taken_at, "clock_stepped": self._database.clock_stepped}
        return self._database.queues.withColumns({name: F.lit(value) for name, value in given.items()})

    @cached_property
    def flaws(self) -> DataFrame | None:
        """What tables of the database say against each other."""
        assert self._database is not None
        flaws = self._database.flaws
        return None if flaws is None else flaws.withColumn("lane", lane())

    @cached_property
    def groups(self) -> DataFrame:
        """The consumer groups."""
        assert self._database is not None
        return self._database.groups

    @cached_property
    def retired(self) -> DataFrame:
        """The consumer groups that somebody deleted."""
        assert self._database is not None
        return self._database.retired

    # ------------------------------------------------------------ one row per message

    @staticmethod
    def _by_message(rows: DataFrame) -> DataFrame:
        """The rows partitioned by message, so that joins of tables made from them need no shuffle."""
        parts = rows.sparkSession.conf.get("spark.sql.shuffle.partitions")
        assert parts is not None  # it has a default
        return rows.repartition(int(parts), "lane", "hash")

    @cached_property
    def messages(self) -> DataFrame:
        """By lane and hash: the outcomes of its pushes, how often the log has it (``logged``), and its deliveries."""
        ok = F.col("outcome") == "ok"
        # What SQL has pushed is stored some time after its commit, as what was spooled.
        stored = ok & (F.col("kind") != "sql")
        queued = ok & ~F.col("duplicate")
        direct = stored & queued & ~F.col("spooled")
        parts = [
            self.pushes.select(
                "lane",
                "hash",
                F.col("invoked").alias("pushed"),
                F.when(stored, F.col("completed")).alias("answered"),
                queued.cast("int").alias("queued"),
                direct.cast("int").alias("direct"),
                (F.col("outcome") == "fail").cast("int").alias("refused"),
                F.when(queued, F.col("offset")).alias("offset"),
                F.col("payload_hash").alias("pushed_payload"),
                (F.col("spooled") & ok).alias("spooled"),
                "compared",
                F.col("agent").alias("pusher"),
            ),
            self.deliveries.select(
                "lane", "hash", "offset", F.col("completed").alias("seen"), F.col("payload_hash").alias("seen_payload")
            ),
        ]
        if self._database is not None:
            logged = self.log.select(
                "lane",
                "hash",
                "offset",
                F.col("offset").alias("log_offset"),
                F.col("created_at").alias("logged_at"),
                F.col("payload_hash").alias("logged_payload"),
                F.col("sorted_hash").alias("logged_sorted"),
            )
            parts.append(self._undeleted(logged))
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionByName(part, allowMissingColumns=True)
        if "log_offset" not in rows.columns:
            rows = rows.withColumns({name: F.lit(None).cast("bigint") for name in _OF_LOG})
        return self._keep(
            self._by_message(rows.where(F.col("hash").isNotNull()))
            .groupBy("lane", "hash")
            .agg(
                F.count("pushed").alias("attempts"),
                F.sum("queued").alias("queued"),
                F.sum("direct").alias("direct"),
                F.sum("refused").alias("refused"),
                F.min("pushed").alias("pushed_from"),
                F.min("answered").alias("answered"),
                F.max("spooled").alias("spooled"),
                F.min("offset").alias("offset"),
                F.max("offset").alias("offset_high"),
                F.count("log_offset").alias("logged"),
                F.max("log_offset").alias("log_offset"),
                F.max("logged_at").alias("logged_at"),
                F.max("logged_payload").alias("logged_payload"),
                F.max("logged_sorted").alias("logged_sorted"),
                F.min("pusher").alias("pusher"),
                F.min("compared").alias("compared"),
                F.count("seen").alias("deliveries"),
                F.min("seen").alias("seen_at"),
                F.min("pushed_payload").alias("pushed_low"),
                F.max("pushed_payload").alias("pushed_high"),
                F.min("seen_payload").alias("seen_low"),
                F.max("seen_payload").alias("seen_high"),
            )
        )

    @cached_property
    def fates(self) -> DataFrame:
        """By lane, group and hash: the deliveries of a message to a group, and when the group was done with it."""
        taken = self.deliveries.select(
            "lane",
            "group",
            "hash",
            "offset",
            "invoked",
            "completed",
            "attempt",
            "created_at",
            F.col("auto_ack").alias("may_finish"),
            F.when(F.col("auto_ack"), F.col("completed")).alias("done_at"),
        )
        said = self.acks.select(
            "lane",
            "group",
            "hash",
            "may_finish",
            F.when(F.col("finishes"), F.col("completed")).alias("done_at"),
            F.when(F.col("finishes"), F.col("offset")).alias("done_offset"),
            (F.col("finishes") & F.col("dead")).cast("int").alias("letters"),
        )
        return self._keep(
            self._by_message(taken.unionByName(said, allowMissingColumns=True))
            .groupBy("lane", "group", "hash")
            .agg(
                F.count("invoked").alias("deliveries"),
                F.min("invoked").alias("first_invoked"),
                F.max("invoked").alias("last_invoked"),
                F.min("completed").alias("seen_at"),
                F.min("attempt").alias("attempt_low"),
                F.max("attempt").alias("attempt_high"),
                F.min("offset").alias("offset"),
                F.max("offset").alias("offset_high"),
                F.min("created_at").alias("created_at"),
                F.max("created_at").alias("created_high"),
                F.max("may_finish").alias("may_finish"),
                F.min("done_at").alias("done_at"),
                F.sum("letters").alias("letters"),
            )
        )

    @cached_property
    def active(self) -> DataFrame:
        """By queue and group: groups with deliveries or acks."""
        known = self.fates.select("lane", "group").unionByName(self.amid.select("lane", "group"))
        rows = known.distinct().join(few(self.lanes), "lane")
        # An earlier life of a group is not one that the database knows.
        rows = rows.where(~F.col("group").rlike(lives.MARK))
        return self._keep(rows.select("queue", "group").distinct())

    @cached_property
    def placed(self) -> DataFrame:
        """The pushes with their offset, from deliveries or the log if the answer does not have it."""
        known = self.pushes.where(F.col("offset").isNotNull())
        unknown = self.pushes.where(F.col("offset").isNull() & F.col("hash").isNotNull()).drop("offset")
        seen = self.messages.where(F.col("offset").isNotNull() | F.col("log_offset").isNotNull()).select(
            "lane", "hash", F.coalesce("offset", "log_offset").alias("offset")
        )
        return known.unionByName(self._keep(seen.join(few(unknown), ["lane", "hash"]).select(*known.columns)))
