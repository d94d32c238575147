"""One row per message: what producers were told, what the log holds, and what groups did with it."""

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .. import lives
from ..dialect import stacked
from .columns import bounds, direct, few, may_be_stored, shifts
from .items import Items

_OF_LOG = ("log_offset", "logged_at", "logged_payload", "logged_sorted")


class Messages(Items):
    """Aggregated once from all rows."""

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
        parts = [
            self.pushes.select(
                "lane",
                "hash",
                F.col("invoked").alias("pushed"),
                F.when(stored, F.col("completed")).alias("answered"),
                queued.cast("int").alias("queued"),
                (stored & direct()).cast("int").alias("direct"),
                (F.col("outcome") == "fail").cast("int").alias("refused"),
                F.when(queued, F.col("offset")).alias("offset"),
                F.when(F.col("outcome") != "fail", F.col("payload_hash")).alias("pushed_payload"),
                F.when(stored & direct(), F.col("payload_hash")).alias("stored_payload"),
                (F.col("spooled") & ok).alias("spooled"),
                "compared",
                F.xxhash64("agent").alias("pusher"),
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
        rows = stacked(*parts)
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
                # What was stored is of a push that was answered so, if one was: of no duplicate, of no refused one.
                F.when(F.sum("direct") > 0, F.min("stored_payload"))
                .otherwise(F.min("pushed_payload"))
                .alias("pushed_low"),
                F.when(F.sum("direct") > 0, F.max("stored_payload"))
                .otherwise(F.max("pushed_payload"))
                .alias("pushed_high"),
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
            self._by_message(stacked(taken, said))
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
        return self._keep_few(rows.select("queue", "group").distinct())

    @cached_property
    def placed(self) -> DataFrame:
        """The pushes with their offset, from deliveries or the log if the answer does not have it."""
        known = self.pushes.where(F.col("offset").isNotNull())
        unknown = self.pushes.where(F.col("offset").isNull() & F.col("hash").isNotNull()).drop("offset")
        seen = self.messages.where(F.col("offset").isNotNull() | F.col("log_offset").isNotNull()).select(
            "lane", "hash", F.coalesce("offset", "log_offset").alias("offset")
        )
        return known.unionByName(self._keep(seen.join(few(unknown), ["lane", "hash"]).select(*known.columns)))

    @cached_property
    def requests(self) -> DataFrame:
        """By lane and call that pushed, but not with SQL: the bounds of the offsets of messages that it has stored.

        And those of the distance from the position in the call (``shifts``), of messages that it may have stored.
        """
        rows = self.placed.where("kind <> 'sql'").groupBy("lane", "agent", "number")
        return self._keep(
            rows.agg(
                F.min("invoked").alias("invoked"),
                F.min("completed").alias("completed"),
                bounds(direct()).alias("direct"),
                shifts(may_be_stored()).alias("shifts"),
            )
        )

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
