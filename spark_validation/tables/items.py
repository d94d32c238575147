"""Each message of each call, by the life of its group."""

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .. import lives
from .calls import PUSHES
from .columns import acks_by_lease, bounds, few, is_foreign, message, shifts
from .stored import StoredTables


class Items(StoredTables):
    """Pushes, deliveries and acks."""

    @cached_property
    def lives(self) -> DataFrame | None:
        """By lane and group: the ends of its lives (``lives``); None if no group has several."""
        ends = lives.ends_of(self.changes)
        born = lives.begun(self.pops, self.groups) if self._database is not None else {}
        return self._keep_few(lives.by_lane(self.lanes, ends, born)) if ends or born else None

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
        last = F.try_element_at("ends", F.lit(-1))
        since = F.greatest(F.when(F.size("ends") > 0, last["completed"]), "born")
        whole = F.coalesce(F.when(F.size("ends") > 0, last["whole"]), F.lit(True))
        return self.lives.select("lane", "group", since.alias("since"), whole.alias("whole"))

    def _other_names(self) -> DataFrame:
        """By lane and group: the names (``life``) of its other lives."""
        assert self.lives is not None
        return self.lives.select("lane", "group", F.explode(lives.names(F.col("group"))).alias("life"))

    @cached_property
    def pushes(self) -> DataFrame:
        """Each message of each push and transaction, also of SQL."""
        hash_, offset = message("item")
        rows = self._in_lanes(PUSHES, "pushes").select(
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
            is_foreign("item").alias("foreign"),
        )
        return self._keep(self._undeleted(rows))

    @cached_property
    def deliveries(self) -> DataFrame:
        """Each delivered message of each pop."""
        return self._certain(self._all_deliveries)

    @cached_property
    def _all_deliveries(self) -> DataFrame:
        """Also of pops during a change of their group."""
        hash_, offset = message("item")
        pops = self._of_known_length(self._in_lanes(("pop",), "deliveries"), F.col("item.queue"))
        rows = pops.select(
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
            is_foreign("item").alias("foreign"),
        )
        return self._keep(self._in_lives(self._undeleted(rows)))

    @cached_property
    def acks(self) -> DataFrame:
        """Each item of each ack and transaction."""
        return self._certain(self._all_acks)

    @cached_property
    def _all_acks(self) -> DataFrame:
        """Also of those during a change of their group.

        One that ``may_finish`` may finish the message for the group, and one that ``finishes`` does. Where a queue
        keeps no dead letters, the last failure finishes a message, and no answer tells which one is the last.
        """
        hash_, offset = message("item")
        item = {name: F.col(f"item.{name}") for name in ("status", "lease", "outcome", "dead", "noop")}
        last = item["dead"] | (item["outcome"] == "unknown") | F.coalesce("letterless", F.lit(False))
        possible = (
            F.when(item["outcome"] == "fail", False)
            .when(item["status"] == "failed", last)
            .otherwise(item["status"] != "retry")
        )
        rows = self._in_lanes(("ack", "transaction"), "acks")
        rows = rows.join(few(self.letterless.withColumn("letterless", F.lit(True))), "lane", "left").select(
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
            (possible & (item["outcome"] == "ok") & ((item["status"] != "failed") | item["dead"])).alias("finishes"),
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
        return self._keep_few(rows[0].unionByName(rows[1]).distinct())

    @cached_property
    def holdings(self) -> DataFrame:
        """By lane, group and pop: its number of messages, the length of the lease, and the bounds of its offsets.

        Of all that are ``told``, of those at their ``first`` attempt, and of the ``silent`` ones about theirs; and the
        bounds of the distance from the position in the answer (``shifts``). A pop has one lease: as a key it is hashed,
        where the least text of many would be found by sorting all rows.
        """
        told, attempt = F.col("offset").isNotNull(), F.col("attempt")
        return self._keep(
            self.deliveries.where(~F.col("foreign"))
            .groupBy("lane", "group", "agent", "number", "lease")
            .agg(
                F.min("invoked").alias("invoked"),
                F.min("completed").alias("completed"),
                F.min("lease_seconds").alias("seconds"),
                F.max("auto_ack").alias("auto_ack"),
                F.count("*").alias("n"),
                F.count("offset").alias("told"),
                bounds(told).alias("offsets"),
                bounds(told & (attempt == 1)).alias("first"),
                bounds(told & attempt.isNull()).alias("silent"),
                shifts(told).alias("shifts"),
            )
        )

    @cached_property
    def leased_acks(self) -> DataFrame:
        """By lane, group, lease and call: the acks with a lease."""
        return self._keep(acks_by_lease(self.acks.where(F.col("lease").isNotNull())))

    @cached_property
    def hidden(self) -> DataFrame:
        """By queue and group: since when there may have been unrecorded deliveries, perhaps with autoAck.

        By a pop without an answer, or by an agent whose journal lacks rows (``tail``) and that popped there before, or
        of which no call is known. A pop that names no queue may have been answered from any. If they are all known, but
        not in which life of the group, they are only ``amid``.
        """
        columns = ("queue", "group", "auto_ack", "tail", "invoked")
        pops = self.pops.select("agent", *columns[:3], "call", "invoked")
        unknown = pops.where(F.col("call") == "unknown").withColumn("tail", F.lit(False))
        cut = (
            pops.join(F.broadcast(self.tails), "agent")
            .withColumn("invoked", F.col("since"))
            .withColumn("tail", F.lit(True))
        )
        named = pops.where(F.col("queue").isNotNull())
        anywhere = named.select("queue", "group").unionByName(self.drained.select("queue", "group")).distinct()
        blank = few(self.tails.where("blank").select(F.col("since").alias("invoked")))
        anywhere = anywhere.join(blank, how="cross").withColumns({"auto_ack": F.lit(True), "tail": F.lit(True)})
        rows = unknown.select(*columns).unionByName(cut.select(*columns))
        rows = few(rows.groupBy(*columns[:-1]).agg(F.min("invoked").alias("invoked")))
        nameless, queues = rows.where(F.col("queue").isNull()).drop("queue"), self.lanes.select("queue").distinct()
        rows = rows.where(F.col("queue").isNotNull()).unionByName(queues.join(nameless, how="cross").select(*columns))
        rows = rows.unionByName(anywhere.select(*columns))
        rows = rows.withColumn("amid", F.lit(False))
        if self.lives is not None:
            rows = rows.unionByName(self._hidden_in_lives(rows))
        return self._keep_few(
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
