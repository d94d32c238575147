"""Loss: what was answered is there, whole and unchanged, and what arrived is done in the end."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from queen_spec.guarantees import Level, checks

from ..tables import few
from .evidence import sentence, violations


@checks("G-DUR-1", level=Level.AUDIT)
def answered_pushes_are_in_the_log(
    messages: DataFrame, heads: DataFrame, queues: DataFrame, lanes: DataFrame
) -> DataFrame:
    """A message whose push was answered as stored, and the log does not hold it at the offset of the answer.

    Not when retention has removed its offset, and not of queues that the database does not have: they were deleted. A
    message whose offset nobody was told may lie below the oldest kept one too.
    """
    there = lanes.join(F.broadcast(queues.select("queue")), "queue", "left_semi")
    kept = heads.groupBy("lane").agg(F.max("oldest_offset").alias("oldest"))
    kept = there.join(kept, "lane", "left").select("lane", F.coalesce("oldest", F.lit(0)).alias("oldest"))
    moved = (F.col("logged") == 1) & (F.col("log_offset") != F.col("offset"))
    lost = messages.where(F.col("answered").isNotNull() & ((F.col("logged") == 0) | moved)).join(few(kept), "lane")
    lost = lost.where(F.coalesce("offset", F.when(F.col("oldest") == 0, F.lit(0))) >= F.col("oldest"))
    text = F.when(moved, sentence("was answered with offset %s, and lies at %s", "offset", "log_offset"))
    return violations(lost, text.otherwise(F.lit("was answered as stored, and the log does not hold it")))


@checks("G-DUR-3", level=Level.AUDIT)
def deliveries_are_what_was_pushed(
    messages: DataFrame, pushes: DataFrame, deliveries: DataFrame, tails: DataFrame
) -> DataFrame:
    """A delivered message that nobody pushed to that partition, or only later, or with another payload.

    A journal that was cut short may have pushed anything from then on. In a partition to which somebody pushed messages
    without ids, and was told none, each message may be one of those.
    """
    seen = messages.where(F.col("deliveries") > 0)
    cut = few(tails.agg(F.min("since").alias("since")))
    unpushed = (
        seen.where(F.col("attempts") == 0)
        .join(cut, how="cross")
        .where(F.col("since").isNull() | (F.col("seen_at") < F.col("since")))
        .join(_lanes_of_nameless(pushes), "lane", "left_anti")
    )
    early = seen.where(F.col("seen_at") < F.col("pushed_from"))
    low, high = F.col("pushed_low"), F.col("pushed_high")
    odd = seen.where((low != high) | (F.col("seen_low") != low) | (F.col("seen_high") != high)).select("lane", "hash")
    changed = deliveries.where(F.col("payload_hash").isNotNull()).join(few(odd), ["lane", "hash"])
    sent = few(pushes.select("lane", "hash", "payload_hash").join(few(odd), ["lane", "hash"]).distinct())
    changed = changed.join(sent, ["lane", "hash", "payload_hash"], "left_anti")
    return (
        violations(unpushed, F.lit("was delivered, and never pushed there"))
        .unionByName(violations(early, F.lit("was delivered before it was pushed")))
        .unionByName(violations(changed, F.lit("was delivered with another payload than it was pushed with")))
    )


@checks("G-DUR-3", level=Level.AUDIT)
def the_log_holds_what_was_pushed(messages: DataFrame, pushes: DataFrame, tails: DataFrame) -> DataFrame:
    """A message of the log whose transaction id nobody pushed to that partition.

    Only of partitions to which somebody of the journals pushed, since the log may be older than they are, and nobody
    messages of which no id is known; and of none when a journal was cut short.
    """
    ours = messages.where(F.col("attempts") > 0).select("lane").distinct()
    strange = messages.where((F.col("attempts") == 0) & (F.col("logged") > 0)).join(few(ours), "lane", "left_semi")
    strange = strange.join(few(tails.limit(1).select("agent")), how="left_anti", on=F.lit(True))
    strange = strange.join(_lanes_of_nameless(pushes), "lane", "left_anti")
    return violations(strange, F.lit("is in the log, and nobody pushed it"))


def _lanes_of_nameless(pushes: DataFrame) -> DataFrame:
    """Where messages may lie of which no journal knows an id: the server made it, and told nobody."""
    nameless = pushes.where(F.col("hash").isNull() & (F.col("outcome") != "fail"))
    return few(nameless.select("lane").distinct())


@checks("G-DUR-4", level=Level.AUDIT)
def a_request_is_stored_whole_or_not_at_all(
    pushes: DataFrame, messages: DataFrame, drained: DataFrame, lanes: DataFrame, heads: DataFrame | None = None
) -> DataFrame:
    """A push without an answer of which some messages are there and some are not, or a refused one of which some are.

    Judged by the messages that this request alone pushed. There is what was delivered or lies in the log; not there
    is, with a log, what it does not hold, and without one what was not delivered although a group has emptied the
    queue since.
    """
    calls = pushes.where((F.col("kind") == "push") & (F.col("call") != "ok") & F.col("hash").isNotNull())
    own = messages.where(F.col("attempts") == 1).join(few(calls), ["lane", "hash"])
    own = own.withColumn("there", (F.col("deliveries") > 0) | (F.col("logged") > 0))
    empty = drained.groupBy("queue").agg(F.max("empty_at").alias("empty_at"))
    own = own.join(few(lanes), "lane").join(few(empty), "queue", "left")
    call = ("agent", "number")
    found = own.groupBy(*call).agg(
        F.min("call").alias("call"),
        F.sum(F.col("there").cast("int")).alias("stored"),
        F.min(F.when(F.col("there"), F.col("seen_at"))).alias("seen"),
        F.min("position").alias("position"),
    )
    absent = own.where(~F.col("there")).join(found.select(*call, "seen"), list(call))
    if heads is not None:
        kept = heads.groupBy("lane").agg(F.max("oldest_offset").alias("oldest"))
        absent = absent.join(few(kept), "lane", "left").where(F.coalesce("oldest", F.lit(0)) == 0)
    else:
        absent = absent.where(F.col("empty_at") > F.col("seen"))
    missing = absent.groupBy(*call).agg(F.count("*").alias("missing"))
    found = found.join(missing, list(call), "left").where(F.col("stored") > 0)
    half = found.where((F.col("call") == "fail") | (F.col("missing") > 0)).withColumn(
        "missing", F.coalesce("missing", F.lit(0))
    )
    first = half.join(pushes.select(*call, "position", "lane", "hash"), [*call, "position"])
    return violations(first, sentence("%s messages of its request are stored, %s are not", "stored", "missing"))


@checks("G-ACK-3", level=Level.AUDIT)
def what_was_delivered_is_done_in_the_end(
    fates: DataFrame, drained: DataFrame, lanes: DataFrame, hidden: DataFrame
) -> DataFrame:
    """A message that was delivered before the queue was seen to be empty, and that nobody may have finished."""
    open_ = fates.where((F.col("deliveries") > 0) & ~F.col("may_finish")).join(few(lanes), "lane")
    left = open_.join(few(drained), ["queue", "group"]).where(F.col("seen_at") < F.col("empty_at"))
    left = left.join(few(hidden.where("tail")), ["queue", "group"], "left_anti")
    return violations(left, F.lit("was delivered, never finished, and did not come again"))


@checks("G-ACK-3", "G-GRP-1", level=Level.AUDIT)
def cursors_pass_only_what_is_done(
    fates: DataFrame,
    messages: DataFrame,
    cursors: DataFrame,
    groups: DataFrame,
    lanes: DataFrame,
    hidden: DataFrame,
) -> DataFrame:
    """A message of the log at or below the cursor of a group that nobody of that group may have finished.

    Of groups that began at the oldest message, that the journals know, and of which no journal was cut short.
    """
    known = fates.select("lane", "group").distinct().join(few(lanes), "lane").select("queue", "group").distinct()
    judged = groups.where("whole").join(known, ["queue", "group"], "left_semi")
    judged = judged.join(hidden.where(F.col("tail") | F.col("swallowed")), ["queue", "group"], "left_anti")
    passed = cursors.join(F.broadcast(judged), ["queue", "group"], "left_semi").select("lane", "group", "acked")
    rows = messages.where(F.col("logged") > 0).select("lane", F.col("log_offset").alias("offset"), "hash")
    rows = rows.join(few(passed), "lane").where(F.col("offset") <= F.col("acked"))
    done = fates.where("may_finish").select("lane", "group", "hash")
    skipped = rows.join(done, ["lane", "group", "hash"], "left_anti")
    return violations(skipped, sentence("lies at or below the cursor %s, and nobody finished it", "acked"))
