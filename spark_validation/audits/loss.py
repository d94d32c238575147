"""Loss: acknowledged pushes are stored, complete and unchanged, and delivered messages are finished in the end."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import direct, done_ahead, few, looked_up, unless
from .basis import judges
from .evidence import sentence, violations
from .excuse import emptied, unless_amid, unless_gone, unless_removed, unseen


def _answered(messages: DataFrame, kept: DataFrame) -> DataFrame:
    """What was answered as stored, or pushed without an answer and delivered."""
    delivered = F.when(F.col("attempts") > 0, F.col("seen_at"))
    stored = messages.withColumn("stored", F.coalesce("answered", delivered))
    return unless_removed(stored.where(F.col("stored").isNotNull()), kept, "stored")


@checks("G-DUR-1", level=Level.AUDIT)
@judges("message that was answered as stored, or delivered, and that nothing has removed,", _answered)
def answered_pushes_are_in_the_log(messages: DataFrame, kept: DataFrame) -> DataFrame:
    """A message whose push was answered as stored, or that was delivered, but that is not in the log at its offset.

    Not if retention has removed its offset, and not for queues that are not in the database: they were deleted. A
    message of unknown offset may also be below the oldest stored one.
    """
    moved = (F.col("logged") == 1) & (F.col("log_offset") != F.col("offset"))
    lost = _answered(messages.where((F.col("logged") == 0) | moved), kept)
    text = F.when(moved, sentence("was answered with offset %s, but is stored at %s", "offset", "log_offset"))
    text = text.when(F.col("answered").isNull(), "was delivered, but is not in the log")
    return violations(lost, text.otherwise(F.lit("was answered as stored, but is not in the log")))


@checks("G-DUR-1", level=Level.AUDIT)
@judges("message of the log", lambda log: log)
def every_segment_can_be_read(damaged: DataFrame) -> DataFrame:
    """A segment of the log that cannot be read, with its offsets and the reason.

    The other audits judge the rest of the log.
    """
    return violations(damaged.withColumn("offset", F.col("first")), F.col("damage"))


def _seen(messages: DataFrame, tails: DataFrame) -> DataFrame:
    """Deliveries of messages of known pushes, or from before a journal was cut short (``told``)."""
    cut = few(tails.agg(F.min("since").alias("since")))
    told = F.col("since").isNull() | (F.col("seen_at") < F.col("since"))
    seen = messages.where(F.col("deliveries") > 0).join(cut, how="cross").withColumn("told", told)
    return seen.where((F.col("queued") > 0) | F.col("told"))


@checks("G-DUR-3", level=Level.AUDIT)
@judges("delivery of what the journals were answered to have stored, or before one of them was cut short,", _seen)
def deliveries_are_what_was_pushed(
    messages: DataFrame, pushes: DataFrame, deliveries: DataFrame, tails: DataFrame, outsiders: DataFrame
) -> DataFrame:
    """A delivered message that was not pushed to that partition, or only later, or with another payload or id.

    With a log, as many messages may come from others as were ever pushed with SQL or as timers. An agent whose journal
    was cut short may have pushed anything from then on, including repeated pushes of others. If
    messages without ids were pushed to a partition, and their ids were not answered, each message may be one of those.
    """
    seen = _seen(messages, tails)
    astray = deliveries.where("foreign")
    unpushed = seen.where(F.col("attempts") == 0).join(_lanes_of_nameless(pushes), "lane", "left_anti")
    explained = few(astray.select("lane", "hash").unionByName(outsiders))
    unpushed = unpushed.join(explained, ["lane", "hash"], "left_anti")
    # What came after a cut may have been pushed then, and again later.
    early = seen.where(F.col("told") & (F.col("seen_at") < F.col("pushed_from")))
    low, high = F.col("pushed_low"), F.col("pushed_high")
    odd = seen.where((low != high) | (F.col("seen_low") != low) | (F.col("seen_high") != high)).select(
        "lane", "hash", (F.col("direct") > 0).alias("known")
    )
    changed = deliveries.where(F.col("payload_hash").isNotNull()).join(few(odd), ["lane", "hash"])
    # If a push was answered as queued, what others had in mind is not stored.
    stored = direct() | (~F.col("known") & (F.col("outcome") != "fail"))
    sent = pushes.join(few(odd), ["lane", "hash"]).where(stored).select("lane", "hash", "payload_hash").distinct()
    changed = changed.join(few(sent), ["lane", "hash", "payload_hash"], "left_anti")
    return (
        violations(unpushed, F.lit("was delivered, but never pushed there"))
        .unionByName(violations(astray, F.lit("was delivered as of this partition, but its id is that of another one")))
        .unionByName(violations(early, F.lit("was delivered before it was pushed")))
        .unionByName(violations(changed, F.lit("was delivered with another payload than was pushed")))
    )


def _pushed_to(pushes: DataFrame, heads: DataFrame, tails: DataFrame) -> DataFrame:
    return unless(pushes.join(few(heads.select("lane")), "lane", "left_semi"), tails)


@checks("G-DUR-3", level=Level.AUDIT)
@judges("push to a partition of the log, by journals of which none was cut short,", _pushed_to)
def the_log_holds_what_was_pushed(
    messages: DataFrame, pushes: DataFrame, tails: DataFrame, outsiders: DataFrame
) -> DataFrame:
    """A message of the log whose transaction id was never pushed to that partition.

    Only for partitions to which the journals have pushes, because the log may be older, and no pushes of messages with
    unknown ids; and for none if a journal was cut short. As many messages may come from others as were ever pushed with
    SQL or as timers.
    """
    ours = messages.where(F.col("attempts") > 0).select("lane").distinct()
    strange = messages.where((F.col("attempts") == 0) & (F.col("logged") > 0)).join(few(ours), "lane", "left_semi")
    strange = unless(strange, tails).join(_lanes_of_nameless(pushes), "lane", "left_anti")
    strange = strange.join(few(outsiders), ["lane", "hash"], "left_anti")
    return violations(strange, F.lit("is in the log, but was never pushed"))


def _lanes_of_nameless(pushes: DataFrame) -> DataFrame:
    """Partitions that may have messages whose ids no journal has: server-assigned ids that were not answered."""
    nameless = pushes.where(F.col("hash").isNull() & (F.col("outcome") != "fail"))
    return few(nameless.select("lane").distinct())


def _unsuccessful(pushes: DataFrame) -> DataFrame:
    return pushes.where((F.col("kind") == "push") & (F.col("call") != "ok") & F.col("hash").isNotNull())


def _with_traces(pushes: DataFrame, drained: DataFrame, lanes: DataFrame, kept: DataFrame | None = None) -> DataFrame:
    """The messages of refused pushes, and of those without an answer if missing messages can be recognised."""
    calls = _unsuccessful(pushes)
    if kept is not None:
        return unless_removed(calls, kept, "completed")
    emptied = few(lanes.join(drained, "queue", "left_semi").select("lane", F.lit(True).alias("emptied")))
    return calls.join(emptied, "lane", "left").where((F.col("call") == "fail") | F.col("emptied")).drop("emptied")


@checks("G-DUR-4", level=Level.AUDIT)
@judges(
    "refused push, nor one without an answer that a log (--dsn) or an emptied queue (drained) tells of,", _with_traces
)
def a_request_is_stored_whole_or_not_at_all(
    pushes: DataFrame, messages: DataFrame, drained: DataFrame, lanes: DataFrame, kept: DataFrame | None = None
) -> DataFrame:
    """A push without an answer of which only some messages exist, or a refused one of which some exist.

    Only messages that no other request pushed count. Messages exist if they were delivered or are in the log. They do
    not exist if a log does not have them, or, without a log, if they were not delivered although a group has emptied
    the queue since.
    """
    alone = messages.where(F.col("attempts") == 1).select("lane", "hash", "deliveries", "logged", "seen_at")
    own = alone.join(few(_unsuccessful(pushes)), ["lane", "hash"])
    own = few(own.withColumn("there", (F.col("deliveries") > 0) | (F.col("logged") > 0)))
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
    if kept is not None:
        absent = unless_removed(absent, kept, "completed")
    else:
        absent = absent.where(F.col("empty_at") > F.col("seen"))
    missing = absent.groupBy(*call).agg(F.count("*").alias("missing"))
    found = found.join(missing, list(call), "left").where(F.col("stored") > 0)
    half = found.where((F.col("call") == "fail") | (F.col("missing") > 0)).withColumn(
        "missing", F.coalesce("missing", F.lit(0))
    )
    first = pushes.select(*call, "position", "lane", "hash").join(few(half), [*call, "position"])
    return violations(first, sentence("%s messages of its request are stored, %s are not", "stored", "missing"))


def _arrived(
    fates: DataFrame, drained: DataFrame, lanes: DataFrame, hidden: DataFrame, last_lives: DataFrame
) -> DataFrame:
    """The messages that were delivered to a group before the queue was seen to be empty for it."""
    empty = drained.join(unseen(hidden, F.col("tail")), ["queue", "group"], "left_anti")
    known = few(emptied(empty, lanes, last_lives))
    arrived = fates.where(F.col("deliveries") > 0).join(known, ["lane", "group"])
    return arrived.where(F.col("seen_at") < F.col("empty_at"))


@checks("G-ACK-3", level=Level.AUDIT)
@judges("delivery to a group that was seen to have emptied its queue (drained) later", _arrived, excused=True)
def what_was_delivered_is_done_in_the_end(
    fates: DataFrame,
    drained: DataFrame,
    lanes: DataFrame,
    hidden: DataFrame,
    last_lives: DataFrame,
    amid: DataFrame,
    kept: DataFrame | None = None,
    given_up: DataFrame | None = None,
) -> DataFrame:
    """A message that was delivered before the queue was seen to be empty, but that no consumer can have finished.

    Not if it was removed, deleted, or evicted, or acked during a change of the group.
    """
    unfinished = fates.where(~F.col("may_finish"))
    left = unless_gone(_arrived(unfinished, drained, lanes, hidden, last_lives), kept, given_up)
    left = unless_amid(left, amid)
    return violations(left, F.lit("was delivered, but neither finished nor delivered again"))


def _passed(
    messages: DataFrame,
    cursors: DataFrame,
    groups: DataFrame,
    active: DataFrame,
    hidden: DataFrame,
    last_lives: DataFrame,
) -> DataFrame:
    """By group with complete journals: the messages of the log that its cursors say are done."""
    judged = groups.where("whole").join(active, ["queue", "group"], "left_semi")
    judged = judged.join(unseen(hidden, F.col("tail") | F.col("swallowed")), ["queue", "group"], "left_anti")
    passed = cursors.join(F.broadcast(judged), ["queue", "group"], "left_semi").select(
        "lane", "group", "acked", "ahead"
    )
    passed = passed.join(few(last_lives.where(~F.col("whole"))), ["lane", "group"], "left_anti")
    rows = messages.where(F.col("logged") > 0).select("lane", F.col("log_offset").alias("offset"), "hash")
    return rows.join(few(passed), "lane").where((F.col("offset") <= F.col("acked")) | done_ahead())


@checks("G-ACK-3", "G-GRP-1", level=Level.AUDIT)
@judges(
    "message that is done by the cursor of a group that began at the oldest one and is known from whole journals",
    _passed,
    excused=True,
)
def cursors_pass_only_what_is_done(
    fates: DataFrame,
    messages: DataFrame,
    cursors: DataFrame,
    groups: DataFrame,
    active: DataFrame,
    hidden: DataFrame,
    last_lives: DataFrame,
    amid: DataFrame,
    kept: DataFrame,
    given_up: DataFrame,
) -> DataFrame:
    """A message of the log that is done by the cursor of a group, but that no consumer of it can have finished.

    Not if it was removed, deleted, or evicted, or delivered or acked during a change of the group. Only for groups in
    the journals that began at the oldest message, and if no journal was cut short.
    """
    rows = _passed(messages, cursors, groups, active, hidden, last_lives)
    done = fates.where("may_finish").select("lane", "group", "hash")
    skipped = rows.join(looked_up(done), ["lane", "group", "hash"], "left_anti")
    skipped = unless_amid(unless_gone(skipped, kept, given_up), amid)
    below = sentence("is at or below the cursor %s, but no consumer finished it", "acked")
    ahead = sentence("is done ahead of the cursor %s, but no consumer finished it", "acked")
    return violations(skipped, F.when(F.col("offset") <= F.col("acked"), below).otherwise(ahead))
