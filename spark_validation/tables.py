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
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from .inputs import Database, Inputs
from .journal.schema import QUEUE_MODE

NEVER = 1 << 60
"""A time after all others."""

SECOND = 1_000_000
"""In microseconds."""

_MESSAGE_KIND = "-8001-8000-"
_NUMBER_CHARS = 13
_BROADCAST_ROWS = 500_000


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
    server_made = chosen.isNull() | own
    return F.when(server_made, hash_of_offset(offset)).otherwise(hash_of_text(chosen)).alias("hash"), offset.alias(
        "offset"
    )


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
            "retired",
        }
    )
    counted: ClassVar[tuple[str, ...]] = (
        "pushes", "deliveries", "acks", "log", "heads", "cursors", "dead_letters",
    )  # fmt: skip
    flow: ClassVar[tuple[str, ...]] = ("push", "pop", "ack", "transaction")

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

    def _keep(self, table: DataFrame) -> DataFrame:
        self._kept.append(table.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

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

    @cached_property
    def pushes(self) -> DataFrame:
        """Each message of each push and transaction."""
        hash_, offset = _message("item")
        rows = self._in_lanes(("push", "transaction"), "pushes").select(
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
        )
        return self._keep(self._undeleted(rows))

    @cached_property
    def acks(self) -> DataFrame:
        """Each item of each ack and transaction.

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
        return self._keep(self._undeleted(rows))

    @cached_property
    def holdings(self) -> DataFrame:
        """By lane, group and pop: its number of messages, and the length of the lease.

        A pop has one lease: as a key it is hashed, where the least text of many would be found by sorting all rows.
        """
        return self._keep(
            self.deliveries.groupBy("lane", "group", "agent", "number", "lease").agg(
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
        for kinds, items in ((("push", "transaction"), "pushes"), (("pop",), "deliveries")):
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
        """By queue: its retry limit, if known."""
        told = self.calls.where(F.col("kind") == "configured").select("queue", "retry_limit")
        if self._database is not None:
            stored = self._database.queues.select("queue", "retry_limit")
            told = told.unionByName(stored.join(told, "queue", "left_anti"))
        return (
            told.where(F.col("retry_limit").isNotNull()).groupBy("queue").agg(F.max("retry_limit").alias("retry_limit"))
        )

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
        of which no call is known.
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
        return self._keep(
            rows.groupBy("queue", "group").agg(
                F.min("invoked").alias("hidden_since"),
                F.max("auto_ack").alias("swallowed"),
                F.max("tail").alias("tail"),
            )
        )

    # ------------------------------------------------------------ lanes

    @cached_property
    def lanes(self) -> DataFrame:
        """The names of the lanes, with the known ``numbers`` of partitions of these names."""
        names = []
        for kinds, items in (
            (("push", "transaction"), "pushes"),
            (("pop",), "deliveries"),
            (("ack", "transaction"), "acks"),
        ):
            # The messages of a call are in few partitions: repetitions are removed before they become rows.
            numbers = F.transform(F.col(f"{items}.message_id"), number_of)
            places = F.arrays_zip(F.col(f"{items}.queue"), F.col(f"{items}.partition"), numbers.alias("part"))
            rows = self.calls.where(F.col("kind").isin(*kinds)).select(
                F.explode(F.array_distinct(places)).alias("place")
            )
            names.append(rows.select("place.queue", "place.partition", "place.part"))
        if self._database is not None:
            number = F.regexp_replace(F.lpad(F.lower(F.hex("part_id")), 12, "0"), "^(.{8})", "$1-")
            names.append(self._database.heads.select("queue", "partition", number.alias("part")))
        rows = reduce(DataFrame.unionByName, names)
        named = rows.groupBy("queue", "partition").agg(F.collect_set("part").alias("numbers"))
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
        queues = self.queues.select(
            "queue", F.col("created_at").alias("made"), F.coalesce(silent, F.lit(False)).alias("silent")
        )
        lanes = self.lanes if self._inputs.calls is not None else self.heads
        rows = lanes.select("queue", "lane").join(F.broadcast(queues), "queue").join(few(heads), "lane", "left")
        # A removed partition had all its messages, unless they were removed, and can deliver nothing.
        rows = rows.fillna(0, ["oldest"]).fillna(NEVER, ["live"])
        owed = F.when(F.col("silent"), NEVER).otherwise(F.col("live")).alias("owed")
        return self._keep(rows.select("lane", "oldest", "live", owed, "made"))

    @cached_property
    def log(self) -> DataFrame:
        """The messages of the log."""
        assert self._database is not None
        lanes = F.broadcast(self.heads.select("part_id", "lane"))
        known = F.coalesce("hash", hash_of_offset(F.col("offset")))
        rows = self._database.log.join(lanes, "part_id").select("lane", "offset", known.alias("hash"), "created_at")
        return self._keep(rows)

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

        They were deleted, for all groups, or they are its dead letters, also by eviction or by hand.
        """
        groups = self.cursors.select("lane", "group")
        if self._inputs.calls is not None:
            groups = groups.unionByName(self.fates.select("lane", "group").distinct())
        deleted = groups.join(few(self.deleted.select("lane", "offset")), "lane").select("lane", "group", "offset")
        return self._keep(deleted.unionByName(self.dead_letters.select("lane", "group", "offset")).distinct())

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
        queued = ok & ~F.col("duplicate")
        direct = queued & ~F.col("spooled")
        parts = [
            self.pushes.select(
                "lane",
                "hash",
                F.col("invoked").alias("pushed"),
                F.when(ok, F.col("completed")).alias("answered"),
                queued.cast("int").alias("queued"),
                direct.cast("int").alias("direct"),
                (F.col("outcome") == "fail").cast("int").alias("refused"),
                F.when(queued, F.col("offset")).alias("offset"),
                F.col("payload_hash").alias("pushed_payload"),
                (F.col("spooled") & ok).alias("spooled"),
                "compared",
            ),
            self.deliveries.select(
                "lane", "hash", "offset", F.col("completed").alias("seen"), F.col("payload_hash").alias("seen_payload")
            ),
        ]
        if self._database is not None:
            logged = self.log.select(
                "lane", "hash", "offset", F.col("offset").alias("log_offset"), F.col("created_at").alias("logged_at")
            )
            parts.append(self._undeleted(logged))
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionByName(part, allowMissingColumns=True)
        if "log_offset" not in rows.columns:
            rows = rows.withColumns({name: F.lit(None).cast("bigint") for name in ("log_offset", "logged_at")})
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
        rows = self.fates.select("lane", "group").distinct().join(few(self.lanes), "lane")
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
