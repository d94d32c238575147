"""What the journals have: calls in the server's time, and the partitions that they name."""

from functools import cached_property, reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from ..journal import changes
from ..journal.schema import QUEUE_MODE
from .base import Base
from .columns import NEVER, SECOND, few, lane, message, number_of

PUSHES = ("push", "transaction", "sql")


def _bounds(rows: DataFrame, *by: str) -> DataFrame:
    """The common bounds ``low`` and ``high``; the widest ones if they contradict each other (``moved``)."""
    moved = F.max("moved") | (F.max("low") > F.min("high"))
    return rows.groupBy(*by).agg(
        F.when(moved, F.min("low")).otherwise(F.max("low")).alias("low"),
        F.when(moved, F.max("high")).otherwise(F.min("high")).alias("high"),
        F.sum("comparisons").alias("comparisons"),
        moved.alias("moved"),
    )


class Calls(Base):
    """The rows of journals."""

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
        bound = F.lit(self._inputs.clock_bound).cast("bigint")
        none = F.col("comparisons").isNull()
        clocks = (
            calls.select("agent")
            .distinct()
            .join(bounds, "agent", "left")
            .select(
                "agent",
                F.when(none, -bound).otherwise(F.col("low")).alias("low"),
                F.when(none, bound).otherwise(F.col("high")).alias("high"),
                F.coalesce("comparisons", F.lit(0)).alias("comparisons"),
                F.coalesce("moved", F.lit(False)).alias("moved"),
            )
        )
        return self._keep_few(clocks)

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

    @cached_property
    def _options_and_changes(self) -> DataFrame:
        """What operators did, and the options of queues, as far as journals have it."""
        return self._keep_few(self.calls.where(F.col("kind").isin("change", "configured")).drop("pushes", "deliveries"))

    @cached_property
    def changes(self) -> list[Row]:
        """What operators did."""
        if self._inputs.calls is None:
            return []
        rows = self._options_and_changes.where((F.col("kind") == "change") & (F.col("call") != "fail"))
        names = ("client", "invoked", "completed", "queue", "partition", "group")
        return rows.select(*names, "auto_ack", "retry_limit", "lease_seconds", "acks").collect()

    def _changed(self, *kinds: str) -> list[Row]:
        return [row for row in self.changes if row.client in kinds]

    @cached_property
    def pops(self) -> DataFrame:
        """All pops, also empty ones."""
        rows = self.calls.where(F.col("kind") == "pop").drop("pushes", "acks")
        return self._of_known_length(rows, F.coalesce("queue", F.get("deliveries", 0)["queue"]))

    def _of_known_length(self, pops: DataFrame, queue: Column) -> DataFrame:
        """Without the length of a lease that the ``leaseTime`` of its queue contradicts: an operator has changed it."""
        told = [(row.queue, row.lease_seconds) for row in self._changed(changes.LEASE)]
        if not told:
            return pops
        times = pops.sparkSession.createDataFrame(told, "of string, seconds double")
        times = times.groupBy("of").agg(F.min("seconds").alias("least"), F.max("seconds").alias("most"))
        rows = pops.withColumn("of", queue).join(F.broadcast(times), "of", "left")
        seconds = F.col("lease_seconds")
        same = F.col("least").isNull() | ((F.col("least") == seconds) & (F.col("most") == seconds))
        return rows.withColumn("lease_seconds", F.when(same, seconds)).select(*pops.columns)

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
        return self._keep_few(seen.groupBy("queue", "group").agg(F.max("invoked").alias("empty_at")))

    @cached_property
    def named(self) -> DataFrame:
        """Each item of each call, with its transaction id, for evidence."""
        rows = []
        for kinds, items in ((PUSHES, "pushes"), (("pop",), "deliveries")):
            hash_, _ = message("item")
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
    def tails(self) -> DataFrame:
        """Agents whose journals lack rows, and since when: they were killed, or rows between others are missing.

        Each of their clients may have had a call under way from the end of its last known one on, which is ``told`` by
        the earliest time at which it can have ended, however many calls of others are known. Calls before the first
        known row are unknown. Of a ``blank`` agent no call is known.
        """
        told = F.coalesce("answered", "sent") - F.col("high")
        call = ~F.col("kind").isin("end", "clock", "configured", "fault")
        clients = self.calls.groupBy("agent", "client").agg(
            F.max(F.when(F.col("kind") == "end", F.col("number"))).alias("end"),
            F.max("number").alias("last"),
            F.countDistinct("number").alias("rows"),
            F.max(F.when(call, F.greatest("invoked", told))).alias("known_until"),
            F.min("invoked").alias("known_from"),
            F.min("number").alias("first"),
        )
        agents = clients.groupBy("agent").agg(
            F.coalesce(F.max("end") == F.max("last"), F.lit(False)).alias("ended"),
            F.max("last").alias("last"),
            F.sum("rows").alias("rows"),
            F.min("known_until").alias("known_until"),
            F.min("known_from").alias("known_from"),
            F.min("first").alias("first"),
        )
        complete = F.col("rows") == F.col("last") + 1
        return self._keep_few(
            agents.where(~(F.col("ended") & complete))
            .withColumn("blank", F.col("known_until").isNull())
            .withColumn(
                "since",
                F.when(F.col("first") > 0, F.lit(0).cast("bigint")).otherwise(
                    F.coalesce(F.when(complete, F.col("known_until")), "known_from")
                ),
            )
            .select("agent", "since", (F.col("last") + 1 - F.col("rows")).alias("missing"), "ended", "blank")
        )

    @cached_property
    def lanes(self) -> DataFrame:
        """The names of the lanes, with the known ``numbers`` of partitions of these names."""
        return self._lanes.drop("told", "since")

    @cached_property
    def _lanes(self) -> DataFrame:
        """Also whether calls have ``told`` a number, and since when there are calls.

        A number belongs to one name: to that in the database, else to that of most calls, above all pushes. Where
        another name has it, a message went astray. So it did where an answer has a number of which no partition can
        have been then: that in the database was made before, and was still there at the snapshot.
        """
        names = []
        for kinds, items, weight in (
            (PUSHES, "pushes", 1_000),
            (("pop",), "deliveries", 1),
            (("ack", "transaction"), "acks", 1),
        ):
            # The messages of a call are in few partitions: repetitions are removed before they become rows.
            places = F.transform(
                F.col(items),
                lambda each: F.struct(
                    each["queue"].alias("queue"),
                    each["partition"].alias("partition"),
                    number_of(each["message_id"]).alias("part"),
                ),
            )
            rows = self.calls.where(F.col("kind").isin(*kinds)).select(
                F.explode(F.array_distinct(places)).alias("place"), "invoked", "completed"
            )
            told = F.col("place.part").isNotNull().alias("told")
            columns = ("place.queue", "place.partition", "place.part", "invoked", "completed")
            rows = rows.select(*columns, told, F.lit(weight).alias("weight"))
            names.append(rows.withColumn("made", F.lit(None).cast("bigint")))
        if self._database is not None:
            number = F.regexp_replace(F.lpad(F.lower(F.hex("part_id")), 12, "0"), "^(.{8})", "$1-")
            # Of several databases, a partition may have moved; and an archive does not tell when one was made.
            alone = F.col("database").isNull() & (F.col("created_at") > 0)
            made = F.when(alone, F.col("created_at")).otherwise(NEVER).alias("made")
            stored = self._database.heads.select("queue", "partition", number.alias("part"), made)
            none = F.lit(None).cast("bigint")
            stored = stored.withColumns({"invoked": none, "completed": none, "told": F.lit(False)})
            names.append(stored.withColumn("weight", F.lit(NEVER)))
        of_part = reduce(DataFrame.unionByName, names).groupBy("queue", "partition", "part")
        rows = of_part.agg(
            F.sum("weight").alias("w"),
            F.max("told").alias("told"),
            F.min("invoked").alias("from"),
            F.min("completed").alias("since"),
            F.max("made").alias("made"),
        )
        of_number = Window.partitionBy("part").orderBy(F.desc("w"), "queue", "partition")
        first = F.row_number().over(of_number) == 1
        own = F.when(first & ~self._never_was(), F.col("part"))
        by_name = rows.withColumn("own", own).groupBy("queue", "partition")
        named = by_name.agg(
            F.collect_set("own").alias("numbers"), F.max("told").alias("told"), F.min("since").alias("since")
        )
        return self._keep_few(named.withColumn("lane", lane()))

    def _never_was(self) -> Column:
        """Whether no partition can have had the number of a name when calls told it."""
        if self._database is None or self._database.clock_stepped:
            return F.lit(False)
        there = F.max("made").over(Window.partitionBy("queue", "partition"))
        during = (F.col("from") > there) & (F.col("since") < self._database.taken_at)
        return F.col("made").isNull() & F.coalesce(during, F.lit(False))

    @cached_property
    def renewed(self) -> DataFrame:
        """Lanes with several successive partitions, each of which began at offset 0.

        Where no call has told a number, that is so if there were calls before the queue was made.
        """
        several = F.size("numbers") > 1
        if self._database is None:
            return self._lanes.where(several).select("lane", "queue", "partition")
        made = F.broadcast(self._database.queues.select("queue", F.col("created_at").alias("made")))
        unnamed = F.coalesce(~F.col("told") & (F.col("since") < F.col("made")), F.lit(False))
        rows = self._lanes.join(made, "queue", "left").where(several | unnamed)
        return rows.select("lane", "queue", "partition")
