"""Leases: which consumer holds a partition, and until when.

The server's clock is not seen. What is certain: a lease begins between the invocation of its pop and the answer. So it
lives at least until the invocation plus its length, if nothing ends it before (``surely_until``), and at most until the
answer plus its length, if nothing renews it (``at_most_until``).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..dialect import stacked
from ..tables.columns import NEVER, SECOND, accepted, acks_by_lease, few
from .basis import judges
from .evidence import sentence, violations
from .spans import with_greatest_before

_LEASE = ["lane", "group", "lease"]
_CALL = [*_LEASE, "agent", "number"]


def _timed() -> Column:
    return ~F.col("auto_ack") & F.col("seconds").isNotNull()


@checks("G-LEASE-1", level=Level.AUDIT)
@judges("lease whose length the journals tell (lease_seconds)", lambda holdings: holdings.where(_timed()))
def a_lease_excludes_all_others(
    holdings: DataFrame,
    deliveries: DataFrame,
    acks: DataFrame,
    leased_acks: DataFrame,
    renewals: DataFrame,
    tails: DataFrame,
    released: DataFrame,
    kept: DataFrame | None = None,
) -> DataFrame:
    """A lease that certainly overlaps with another one of its partition and group, or a delivery during a live lease.

    A lease of a consumer whose journal was cut short may have been released at any time since. So may one whose
    messages retention has removed; and one in whose partition an operator deleted or gave up a message, since then.
    """
    # An ack that names no lease applies to the one that covers its message.
    free = few(acks.where((F.col("outcome") != "fail") & F.col("lease").isNull()).drop("lease"))
    covering = deliveries.select("lane", "group", "hash", "lease").join(free, ["lane", "group", "hash"])
    said = stacked(leased_acks, acks_by_lease(covering))
    held = _surely_until(holdings, said.where(F.col("acked") > 0), renewals, tails)
    held = _unless_released(held, released, kept)
    line = Window.partitionBy("lane", "group").orderBy("completed", "agent", "number")
    before = line.rowsBetween(Window.unboundedPreceding, -1)
    holds = F.col("surely_until") > F.col("completed")
    value = F.struct("surely_until", F.col("lease").alias("holder"))
    held = held.withColumns({"value": value, "most": F.max(value).over(before)})
    # One whose lease may have ended before its answer overlaps with none: it is only a delivery.
    other = F.when(holds, F.col("most")).otherwise(F.col("before"))
    found = with_greatest_before(held, ("lane", "group"), "value").withColumn("other", other)
    found = found.where(F.col("completed") < F.col("other.surely_until")).withColumn("holder", F.col("other.holder"))
    overlap, beside = "overlaps with the lease %s", "was delivered while the lease %s was live"
    return violations(found, F.when(holds, sentence(overlap, "holder")).otherwise(sentence(beside, "holder")))


def _surely_until(held: DataFrame, said: DataFrame, renewals: DataFrame, tails: DataFrame) -> DataFrame:
    """The earliest possible end of each holding: by time, by a nack, by the ack of the last message, or unseen."""
    so_far = Window.partitionBy(*_LEASE).orderBy("at").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    said = said.withColumn("acked", F.sum("acked").over(so_far)).select(*_LEASE, "at", "acked", "nack")
    said = said.join(held.where(~F.col("auto_ack")).select(*_LEASE, "n"), _LEASE)
    over = said.where(F.col("nack") | (F.col("acked") >= F.col("n"))).groupBy(*_LEASE).agg(F.min("at").alias("over"))
    granted = (
        renewals.where(F.col("call") == "ok")
        .groupBy("lease")
        .agg(F.max(F.col("invoked") + (F.col("lease_seconds") * SECOND).cast("bigint")).alias("renewed"))
    )
    by_time = F.greatest(F.col("invoked") + (F.col("seconds") * SECOND).cast("bigint"), F.col("renewed"))
    end = F.least(
        by_time,
        F.col("over"),
        F.when(F.col("since") >= F.col("completed"), F.col("since")).when(F.col("since").isNotNull(), F.lit(0)),
    )
    return (
        held.join(over, _LEASE, "left")
        .join(few(granted), "lease", "left")
        .join(few(tails.select("agent", "since")), "agent", "left")
        .withColumn("surely_until", F.when(_timed(), end).otherwise(F.lit(0)))
        .select(*held.columns, "surely_until")
    )


def _unless_released(held: DataFrame, released: DataFrame, kept: DataFrame | None) -> DataFrame:
    """With an earlier end if the server may have released the lease because its messages were taken away."""
    later = F.filter("changes", lambda change: change["until"] >= F.col("invoked"))
    at = F.array_min(F.transform(later, lambda change: change["at"]))
    rows = held.join(few(released), "lane", "left").withColumn("surely_until", F.least("surely_until", at))
    if kept is not None:
        rows = rows.join(few(kept.select("lane", "live")), "lane", "left")
        gone = F.coalesce(F.col("offsets.lowest") < F.col("live"), F.lit(False))
        rows = rows.withColumn("surely_until", F.when(gone, F.lit(0)).otherwise(F.col("surely_until")))
    return rows.select(*held.columns)


def _at_most_until(held: DataFrame, renewals: DataFrame) -> DataFrame:
    """The latest possible end of each holding: by time, or because a later pop got messages of that lane."""
    possible = (
        renewals.where(F.col("call") != "fail")
        .groupBy("lease")
        .agg(F.max(F.col("completed") + (F.col("lease_seconds") * SECOND).cast("bigint")).alias("renewed"))
    )
    by_time = F.greatest(F.col("completed") + (F.col("seconds") * SECOND).cast("bigint"), F.col("renewed"))
    latest = (
        F.when(F.col("auto_ack"), F.col("completed")).when(F.col("seconds").isNull(), F.lit(NEVER)).otherwise(by_time)
    )
    rows = held.join(few(possible), "lease", "left").withColumn("latest", latest)
    # Each is two rows: one that asks for its end, and one that takes the lane from earlier ones.
    both = rows.withColumn("ask", F.explode(F.array(F.lit(0), F.lit(1))))
    at = F.when(F.col("ask") == 1, F.col("completed")).otherwise(F.col("invoked"))
    line = Window.partitionBy("lane", "group").orderBy(F.desc(at), "ask").rowsBetween(Window.unboundedPreceding, 0)
    taken = F.min(F.when(F.col("ask") == 0, F.col("completed"))).over(line)
    rows = both.withColumn("taken", taken).where(F.col("ask") == 1)
    return rows.select(*held.columns, F.least("latest", "taken").alias("at_most_until"))


def _told_whole(holdings: DataFrame, tails: DataFrame) -> DataFrame:
    whole = holdings.join(few(tails.select("agent")), "agent", "left_anti")
    return whole.where(F.col("lease") != "")


@checks("G-LEASE-3", level=Level.AUDIT)
@judges("lease of a consumer whose journal is whole", _told_whole)
@judges("accepted ack that names its lease", lambda leased_acks: leased_acks.where("accepted"))
def an_ended_lease_acks_nothing(
    leased_acks: DataFrame,
    acks: DataFrame,
    holdings: DataFrame,
    renewals: DataFrame,
    fates: DataFrame,
    tails: DataFrame,
) -> DataFrame:
    """An accepted ack under a lease that had certainly expired, unless it may repeat an earlier ack.

    Not for a consumer whose journal was cut short: it may have renewed its lease, or acked before.
    """
    over = _told_whole(_at_most_until(holdings, renewals), tails).select(*_LEASE, "at_most_until")
    late = leased_acks.where("accepted").join(over, _LEASE).where(F.col("at") > F.col("at_most_until"))
    late = acks.where(accepted()).join(few(late.select(*_CALL)), _CALL)
    message = ["lane", "group", "hash"]
    others = acks.where("may_finish").select(
        *message,
        F.col("agent").alias("a"),
        F.col("number").alias("n"),
        F.col("position").alias("p"),
        F.col("invoked").alias("began"),
    )
    others = others.join(few(late.select(*message, "agent", "number", "position", "completed")), message)
    same = (F.col("a") == F.col("agent")) & (F.col("n") == F.col("number")) & (F.col("p") == F.col("position"))
    excused = (
        others.where(~same & (F.col("began") <= F.col("completed"))).select("agent", "number", "position").distinct()
    )
    taken = fates.where(F.col("done_at").isNotNull()).select(*message, "done_at").join(few(late), message)
    taken = taken.where(F.col("done_at") < F.col("invoked")).select("agent", "number", "position")
    found = late.join(excused.unionByName(taken), ["agent", "number", "position"], "left_anti")
    return violations(found, sentence("was acked under the lease %s, which had expired", "lease"))


@checks("G-LEASE-5", level=Level.AUDIT)
@judges("delivery with its attempt", lambda deliveries: deliveries.where(F.col("attempt").isNotNull()))
def attempts_rise(fates: DataFrame, deliveries: DataFrame, hidden: DataFrame, lanes: DataFrame) -> DataFrame:
    """A ``deliveryAttempt`` that is not 1 at the first delivery, or not greater than an earlier one.

    Nor have two deliveries the same one, whichever came first.
    """
    message = ["lane", "group", "hash"]
    odd = fates.where((F.col("deliveries") > 1) | (F.col("attempt_high") != 1)).select(*message)
    rows = deliveries.where(F.col("attempt").isNotNull()).join(few(odd), message)
    # A transaction id may be used again after retention has removed its first message.
    stored = (*message, "offset")
    rows = rows.join(few(lanes.select("lane", "queue")), "lane").join(
        few(hidden.select("queue", "group", "hidden_since")), ["queue", "group"], "left"
    )
    same = Window.partitionBy(*stored)
    ordered = same.orderBy("invoked", "completed", "agent", "number")
    rows = rows.withColumn("place", F.row_number().over(ordered)).withColumn("next", F.lead("invoked").over(ordered))
    alone = F.coalesce(F.col("next") > F.col("completed"), F.lit(True))
    unseen = F.coalesce(F.col("hidden_since") > F.col("completed"), F.lit(True))
    first = rows.where((F.col("place") == 1) & alone & unseen & (F.col("attempt") != 1))
    alike = Window.partitionBy(*stored, "attempt").orderBy("invoked", "completed", "agent", "number")
    rows = with_greatest_before(rows.withColumn("nth", F.row_number().over(alike)), stored, "attempt")
    falls = F.coalesce(F.col("before") >= F.col("attempt"), F.lit(False))
    again = rows.where(falls | (F.col("nth") > 1))
    text = F.when(falls, sentence("has attempt %s after attempt %s", "attempt", "before"))
    return violations(first, sentence("has attempt %s at its first delivery", "attempt")).unionByName(
        violations(again, text.otherwise(sentence("was delivered twice with attempt %s", "attempt")))
    )
