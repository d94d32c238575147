"""What the database has."""

from functools import cached_property

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from ..journal import changes
from .calls import Calls
from .columns import NEVER, few, hash_of_bits, hash_of_offset, lane


class StoredTables(Calls):
    """The log, and the tables beside it."""

    def read_log(self) -> None:
        """Reads the log to disk, if there is one: from then on, nothing reads the database."""
        if self._database is not None:
            self.log.count()

    @cached_property
    def heads(self) -> DataFrame:
        """The partitions of the log."""
        assert self._database is not None
        return self._keep_few(self._database.heads.withColumn("lane", lane()))

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
            F.max("made").alias("made_there"),
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
        made = F.coalesce("made_there", "made").alias("made")
        return self._keep_few(rows.select("lane", "oldest", "live", owed, made, "damaged"))

    def _waits(self) -> list[Row]:
        """Configurations of queues with a ``maxWaitTimeSeconds`` (``lease_seconds``)."""
        return [row for row in self._changed(changes.CONFIGURED) if (row.lease_seconds or 0) > 0]

    @cached_property
    def _whole_log(self) -> DataFrame:
        """The messages of the log, also those that cannot be read; ``hash`` is that of the tables, not that stored."""
        assert self._database is not None
        lanes = F.broadcast(self.heads.select("part_id", "lane"))
        known = F.coalesce(hash_of_bits(F.col("hash")), hash_of_offset(F.col("offset")))
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
        return self._keep_few(unreadable.agg(F.min("offset").alias("first"), F.max("offset").alias("last")))

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
        return self._keep_few(self._database.cursors.withColumn("lane", lane()))

    @cached_property
    def dead_letters(self) -> DataFrame:
        """The dead letters."""
        assert self._database is not None
        letters = self._database.dead_letters.withColumns({"lane": lane(), "id_hash": hash_of_bits(F.col("id_hash"))})
        return self._keep_few(letters)

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
    def queues(self) -> DataFrame:
        """The options of the queues, with the time of the snapshot, and whether PostgreSQL's clock has stepped.

        And the shortest time after which messages were ever removed, as far as operators set it (``kept_seconds``).
        """
        assert self._database is not None
        given = {"taken_at": self._database.taken_at, "clock_stepped": self._database.clock_stepped}
        told = [(row.queue, row.lease_seconds) for row in self._changed(changes.RETENTION) if row.lease_seconds]
        queues = self._database.queues
        once = queues.sparkSession.createDataFrame(told, "queue string, kept double")
        once = once.groupBy("queue").agg(F.min("kept").cast("bigint").alias("kept_seconds"))
        queues = queues.join(F.broadcast(once), "queue", "left")
        return queues.withColumns({name: F.lit(value) for name, value in given.items()})

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

    @property
    def _configured(self) -> DataFrame:
        """The options of queues that journals tell."""
        return self._options_and_changes.where(
            (F.col("kind") == "configured") | (F.col("client") == changes.CONFIGURED)
        )

    @cached_property
    def limits(self) -> DataFrame:
        """By queue: its retry limits (``limits``), if known, with the time at which each began to hold.

        If the database has another one than was told last, somebody changed it since, whenever that was.
        """
        told = self._configured.where(F.col("retry_limit").isNotNull()).select(
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
        # All may be null, as in the other arrays: for Sail, arrays are of another type otherwise.
        zero, never = F.col("stored") * 0, F.greatest(last["until"], F.lit(NEVER))
        now = F.col("stored").alias("retry_limit")
        alone = F.array(F.when(F.col("stored").isNotNull(), F.struct(zero.alias("since"), zero.alias("until"), now)))
        later = F.struct(last["since"].alias("since"), never.alias("until"), now)
        changed = F.when(F.col("stored") != last["retry_limit"], F.array_append("limits", later)).otherwise(
            F.col("limits")
        )
        return both.select("queue", F.when(F.col("limits").isNull(), alone).otherwise(changed).alias("limits"))

    @cached_property
    def letterless(self) -> DataFrame:
        """The lanes of queues that keep no dead letters, or once kept none."""
        queues = self._configured.where(F.col("auto_ack") & (F.col("call") != "fail")).select("queue")
        if self._database is not None:
            queues = queues.unionByName(self._database.queues.where(~F.col("keeps_dead_letters")).select("queue"))
        return self._keep_few(self.lanes.join(F.broadcast(queues.distinct()), "queue").select("lane"))

    def _undeleted(self, rows: DataFrame) -> DataFrame:
        """The rows without those of deleted messages and partitions, which are no violations."""
        rows = rows.join(few(self.renewed.select("lane")), "lane", "left_anti")
        if self._database is None:
            return rows
        return rows.join(few(self.deleted.select("lane", "hash").distinct()), ["lane", "hash"], "left_anti")
