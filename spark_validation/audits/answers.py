"""Answers: what a call was answered fits what it asked for, and what was answered before."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import SECOND, accepted, few, hash_of_offset, is_empty, looked_up, offset_in, unless
from .basis import judges
from .evidence import cases, sentence, violations

_PARTITIONS_MAX = 1_000
MILLISECOND = 1_000
"""In microseconds: the precision of the clocks of some agents."""


def _answered(pops: DataFrame) -> DataFrame:
    return pops.where((F.col("call") == "ok") & (F.size("deliveries") > 0))


@checks("G-POP-1", level=Level.AUDIT)
@judges("pop that was answered with messages", _answered)
def pops_keep_to_their_limits(pops: DataFrame) -> DataFrame:
    """A pop that was answered with more messages or partitions than it asked for, with other ones, or without a lease.

    What the journal does not tell of the request is not judged.
    """
    rows = _answered(pops).withColumns(
        {
            "given": F.size("deliveries"),
            "places": F.array_distinct(
                F.transform("deliveries", lambda each: F.struct(each["queue"], each["partition"]))
            ),
        }
    )
    most = F.when(F.col("partitions") >= 1, F.col("partitions")).otherwise(F.lit(_PARTITIONS_MAX))
    rows = rows.withColumns({"parts": F.size("places"), "most": most})
    elsewhere = F.exists("places", lambda each: each["queue"] != F.col("queue"))
    beside = F.exists("places", lambda each: each["partition"] != F.col("partition"))
    wrong = (
        (F.col("given") > F.col("batch"), sentence("asked for %s messages, and got %s", "batch", "given")),
        (F.col("parts") > F.col("most"), sentence("asked for %s partitions, and got %s", "most", "parts")),
        (elsewhere, sentence("asked for messages of queue %s, and got one of another", "queue")),
        (beside, sentence("asked for messages of partition %s, and got one of another", "partition")),
        (~F.col("auto_ack") & (F.col("lease") == ""), F.lit("got messages without a lease")),
        (F.col("auto_ack") & (F.col("lease") != ""), F.lit("got a lease with autoAck")),
    )
    several = (
        rows.where(F.col("lease") != "")
        .groupBy("lease")
        .agg(F.count("*").alias("pops"), F.max("queue").alias("queue"), F.max("group").alias("group"))
    )
    twice = violations(several.where(F.col("pops") > 1), sentence("%s pops were given the same lease", "pops"))
    return cases(rows, *wrong).unionByName(twice)


def _calls(calls: DataFrame) -> DataFrame:
    return calls.where(F.col("kind").isin("push", "pop", "ack", "renew", "transaction"))


def _contradictory_calls(calls: DataFrame) -> DataFrame:
    ok = F.col("call") == "ok"

    def some(items: str, outcome: str) -> Column:
        return F.exists(items, lambda each: each["outcome"] == outcome)

    wrong = (
        (ok & F.col("answered").isNull(), "succeeded, but has no answer"),
        ((F.col("call") == "unknown") & F.col("answered").isNotNull(), "was answered, but its outcome is unknown"),
        (F.col("answered") < F.col("sent"), "was answered before it was sent"),
        (~ok & (some("pushes", "ok") | some("acks", "ok") | (F.size("deliveries") > 0)), "failed, but has results"),
        # A timer that was pushed has no outcome yet.
        (ok & some("acks", "unknown"), "succeeded, but not all of it has an outcome"),
    )
    told = [(each, F.concat(F.lit("a call of kind "), "kind", F.lit(f" {text}"))) for each, text in wrong]
    return cases(_calls(calls), *told)


@checks("G-ACK-4", "G-DUR-4", "G-IDEM-2", level=Level.AUDIT)
@judges("call", _calls)
def answers_do_not_contradict_themselves(
    calls: DataFrame, pushes: DataFrame, acks: DataFrame, pops: DataFrame, messages: DataFrame
) -> DataFrame:
    """An answer that no request can have, or that contradicts itself or what is stored.

    A dead letter by an ack as ``completed`` or ``retry``; ``noop`` for another status than ``completed``; a refused
    message that is stored; a buffered one with an offset; a push with an id of another partition; a delivery whose id
    is that of another offset; a call that was answered before it was sent, or whose outcome is another one than that of
    its items.
    """
    ok, refused = F.col("outcome") == "ok", F.col("outcome") == "fail"
    said = (
        (F.col("dead") & ~F.col("status").isin("failed", "dlq"), "became a dead letter by an ack as %s"),
        (F.col("noop") & ~F.col("status").isin("completed", "success"), "was done already, but an ack as %s succeeded"),
        (ok & ~F.col("status").isin("completed", "success", "failed", "retry", "dlq"), "was acked as %s"),
        (refused & (F.col("dead") | F.col("noop")), "was not acked as %s, and yet changed"),
    )
    placed = F.col("offset").isNotNull() & (F.col("hash") != hash_of_offset(F.col("offset")))
    stored = (
        (refused & (F.col("duplicate") | F.col("spooled")), "was refused as a duplicate, or as buffered"),
        (F.col("spooled") & F.col("duplicate"), "was answered as buffered and as a duplicate"),
        (F.col("spooled") & placed, "was answered as buffered, with an offset"),
        (ok & F.col("foreign"), "was answered with the id of a message of another partition"),
    )
    # A refused id in the form of a message id belongs to the message that gets it later.
    never = messages.where(
        (F.col("attempts") > 0) & (F.col("refused") == F.col("attempts")) & (F.col("logged") > 0)
    ).where(F.col("hash") != hash_of_offset(F.col("log_offset")))
    other = F.exists("deliveries", lambda each: each["offset"] != offset_in(each["message_id"]))
    found = [
        cases(acks, *((wrong, sentence(text, "status")) for wrong, text in said)),
        cases(pushes, *((wrong, F.lit(text)) for wrong, text in stored)),
        violations(never, F.lit("was refused, but is in the log")),
        violations(pops.where(other), F.lit("was answered with a message whose id is that of another offset")),
        _contradictory_calls(calls),
    ]
    return reduce(DataFrame.unionByName, found)


def _duplicates(pushes: DataFrame) -> DataFrame:
    return pushes.where(F.col("duplicate") & (F.col("outcome") == "ok") & F.col("offset").isNotNull())


@checks("G-IDEM-2", level=Level.AUDIT)
@judges("push that was answered as a duplicate, with the stored message", _duplicates)
def a_duplicate_names_the_stored_message(
    pushes: DataFrame, messages: DataFrame, kept: DataFrame | None = None
) -> DataFrame:
    """A push that was answered as a duplicate of another message than the one with its transaction id.

    Not if retention has removed the one that it names: then the id was free, and may have been used again.
    """
    told = few(_duplicates(pushes).withColumnRenamed("offset", "told").drop("completed", "invoked"))
    stored = messages.where(F.col("offset").isNotNull()).select("lane", "hash", "offset", "offset_high")
    other = stored.join(told, ["lane", "hash"]).where(
        (F.col("told") != F.col("offset")) & (F.col("told") != F.col("offset_high"))
    )
    if kept is not None:
        other = other.join(few(kept.select("lane", "live")), "lane", "left")
        other = other.where(F.col("told") >= F.coalesce("live", F.lit(0)))
    return violations(other, sentence("was answered as a duplicate of the message at offset %s", "told"))


def _whole(rows: DataFrame, tails: DataFrame) -> DataFrame:
    """The rows of agents whose journals are whole."""
    return rows.join(few(tails.select("agent")), "agent", "left_anti")


def _naming(leased_acks: DataFrame, tails: DataFrame) -> DataFrame:
    return _whole(leased_acks.where("accepted"), tails)


def _unseen(lanes: DataFrame, hidden: DataFrame) -> DataFrame:
    """Partitions and groups with deliveries that may be in no journal."""
    return few(lanes.join(F.broadcast(hidden.select("queue", "group")), "queue").select("lane", "group"))


@checks("G-LEASE-3", "G-LEASE-6", level=Level.AUDIT)
@judges("accepted ack that names its lease, of a consumer whose journal is whole", _naming)
def only_leases_that_were_given_can_ack(
    leased_acks: DataFrame,
    acks: DataFrame,
    holdings: DataFrame,
    fates: DataFrame,
    tails: DataFrame,
    hidden: DataFrame,
    lanes: DataFrame,
) -> DataFrame:
    """An accepted ack under a lease that no pop was given for that partition and group, or of what was not delivered.

    Only for partitions and groups of which the journals have deliveries, all of them, and with their lease.
    """
    known = holdings.where(~F.col("auto_ack")).groupBy("lane", "group").agg(F.min("lease").alias("least"))
    known = few(known.where(F.col("least") != "").join(_unseen(lanes, hidden), ["lane", "group"], "left_anti"))
    known = known.select("lane", "group")
    given = holdings.select("lane", "group", "lease").distinct()
    call = ["lane", "group", "lease", "agent", "number"]
    strange = _naming(leased_acks, tails).join(known, ["lane", "group"], "left_semi").where(F.col("lease") != "")
    strange = strange.join(given, ["lane", "group", "lease"], "left_anti").select(*call)
    under = acks.where(accepted()).join(few(strange), call)
    undelivered = fates.where((F.col("deliveries") == 0) & F.col("done_at").isNotNull()).select("lane", "group", "hash")
    undelivered = few(undelivered.join(known, ["lane", "group"], "left_semi"))
    astray = _whole(acks.where(accepted() & F.col("lease").isNotNull() & F.col("finishes")), tails)
    astray = astray.join(undelivered, ["lane", "group", "hash"]).join(few(strange), call, "left_anti")
    return violations(
        under, sentence("was acked under the lease %s, which no pop was given for it", "lease")
    ).unionByName(
        violations(astray, sentence("was acked under the lease %s, but never delivered to the group", "lease"))
    )


def _renewed(renewals: DataFrame, tails: DataFrame) -> DataFrame:
    return _whole(renewals.where((F.col("call") == "ok") & (F.col("lease") != "")), tails)


@checks("G-LEASE-3", "G-LEASE-4", level=Level.AUDIT)
@judges("successful renewal by a consumer whose journal is whole", _renewed)
def a_renewal_revives_no_lease(renewals: DataFrame, pops: DataFrame, tails: DataFrame) -> DataFrame:
    """A renewal that succeeded although its lease had certainly ended, or that no pop was given.

    A lease ends at the latest when its length has passed since the answer to its pop, or what was asked for since the
    answer to a renewal that was sent before this one was answered.
    """
    done = few(_renewed(renewals, tails))
    pop = pops.where((F.col("lease") != "") & ~F.col("auto_ack"))
    ends = pop.groupBy("lease").agg(
        F.max("queue").alias("queue"),
        F.max(F.col("completed") + (F.col("lease_seconds") * SECOND).cast("bigint")).alias("end"),
        F.max(F.col("lease_seconds").isNull()).alias("endless"),
    )
    known = ends.join(done, "lease", "right")
    unknown = known.where(F.col("endless").isNull())
    others = renewals.where(F.col("call") != "fail").select(
        "lease",
        F.col("agent").alias("a"),
        F.col("number").alias("n"),
        F.col("invoked").alias("began"),
        (F.col("completed") + (F.col("lease_seconds") * SECOND).cast("bigint")).alias("until"),
    )
    same = (F.col("a") == F.col("agent")) & (F.col("n") == F.col("number"))
    earlier = known.where(~F.col("endless")).join(few(others), "lease", "left")
    counts = ~same & (F.col("began") <= F.col("completed"))
    late = earlier.groupBy("lease", "queue", "agent", "number", "invoked", "end").agg(
        F.max(F.when(counts, F.col("until"))).alias("until")
    )
    late = late.where(F.col("invoked") > F.greatest("end", F.coalesce("until", F.lit(0))))
    return violations(unknown, F.lit("was renewed, but no pop was given this lease")).unionByName(
        violations(late, F.lit("was renewed after its end"))
    )


@checks("G-LEASE-5", level=Level.AUDIT)
@judges("delivery with its attempt", lambda deliveries: deliveries.where(F.col("attempt").isNotNull()))
def attempts_are_at_most_the_deliveries(
    fates: DataFrame, holdings: DataFrame, deliveries: DataFrame, hidden: DataFrame, lanes: DataFrame
) -> DataFrame:
    """A ``deliveryAttempt`` that is higher than the number of pops that got messages of that partition for that group.

    Not if there may have been deliveries that are in no journal.
    """
    pops = holdings.groupBy("lane", "group").agg(F.count("*").alias("pops"))
    pops = pops.join(_unseen(lanes, hidden), ["lane", "group"], "left_anti")
    high = fates.groupBy("lane", "group").agg(F.max("attempt_high").alias("attempt"))
    odd = high.join(pops, ["lane", "group"]).where(F.col("attempt") > F.col("pops")).select("lane", "group", "pops")
    found = deliveries.join(few(odd), ["lane", "group"]).where(F.col("attempt") > F.col("pops"))
    return violations(
        found, sentence("has attempt %s, but the group got messages of its partition %s times", "attempt", "pops")
    )


def _present(active: DataFrame, queues: DataFrame) -> DataFrame:
    return active.join(F.broadcast(queues.select("queue")), "queue", "left_semi")


@checks("G-GRP-1", "G-GRP-7", level=Level.AUDIT)
@judges("group in the journals whose queue is in the database", _present)
def no_group_is_forgotten(
    active: DataFrame, fates: DataFrame, groups: DataFrame, retired: DataFrame, queues: DataFrame, lanes: DataFrame
) -> DataFrame:
    """A group that was given messages of a queue, but that the database does not know, although nobody deleted it.

    Deleted groups leave a trace there. Not for a queue that was made after the last delivery.
    """
    there = groups.select("queue", "group").unionByName(retired.select("queue", "group"))
    lost = few(_present(active, queues).join(F.broadcast(there), ["queue", "group"], "left_anti"))
    given = fates.where(F.col("deliveries") > 0).join(few(lanes.select("lane", "queue")), "lane")
    given = given.join(lost, ["queue", "group"]).groupBy("queue", "group").agg(F.max("last_invoked").alias("last"))
    made = given.join(F.broadcast(queues.select("queue", "created_at")), "queue").where(
        F.col("last") > F.col("created_at")
    )
    return violations(made, F.lit("was given messages, but does not exist, and nobody deleted it"))


def _logged(fates: DataFrame, messages: DataFrame) -> DataFrame:
    """The deliveries of messages of the log, with their times."""
    told = fates.where(F.col("created_at").isNotNull())
    stored = messages.where((F.col("logged") == 1) & F.col("logged_at").isNotNull())
    rows = told.join(looked_up(stored.select("lane", "hash", "log_offset", "logged_at")), ["lane", "hash"])
    # A transaction id may have been used again, after retention had removed its first message.
    return rows.where((F.col("offset") == F.col("log_offset")) & (F.col("offset_high") == F.col("log_offset")))


@checks("G-ORD-5", level=Level.AUDIT)
@judges("delivery, with its createdAt, of a message of the log", _logged)
def delivered_times_are_those_of_the_log(fates: DataFrame, messages: DataFrame, queues: DataFrame) -> DataFrame:
    """A message that was delivered with another ``createdAt`` than it has in the log, by more than a millisecond.

    Not one that is earlier in the log, if PostgreSQL's clock has stepped: then it may have been set back.
    """
    rows = _logged(fates, messages)
    odd = F.col("created_at") < F.col("logged_at") - MILLISECOND
    if is_empty(queues.where("clock_stepped")):
        odd |= F.col("created_high") > F.col("logged_at") + MILLISECOND
    return violations(
        rows.where(odd).dropDuplicates(["lane", "hash"]), F.lit("was delivered with another createdAt than the log has")
    )


def _timed(messages: DataFrame, queues: DataFrame) -> DataFrame:
    """The messages that one push of an agent with a compared clock was answered to have stored."""
    stored = messages.where((F.col("logged") == 1) & (F.col("direct") == 1) & F.col("compared"))
    return unless(stored, queues.where("clock_stepped"))


@checks("G-ORD-5", level=Level.AUDIT)
@judges("push by an agent that compared its clock with that of PostgreSQL, which has not stepped,", _timed)
def messages_have_the_time_of_their_push(messages: DataFrame, queues: DataFrame) -> DataFrame:
    """A message of the log whose ``createdAt`` is before its push was sent, or after the push was answered."""
    rows = _timed(messages, queues)
    return cases(
        rows,
        (F.col("logged_at") < F.col("pushed_from") - MILLISECOND, F.lit("has a createdAt from before its push")),
        (
            F.col("logged_at") > F.col("answered") + MILLISECOND,
            F.lit("has a createdAt from after its push had been answered"),
        ),
    )


def _leased(cursors: DataFrame, active: DataFrame, hidden: DataFrame) -> DataFrame:
    """The cursors of groups of which every delivery is known."""
    known = F.broadcast(active.join(F.broadcast(hidden), ["queue", "group"], "left_anti"))
    return cursors.where(F.col("seen").isNotNull()).join(known, ["queue", "group"])


@checks("G-LEASE-1", level=Level.AUDIT)
@judges("cursor of a group of which every delivery is known", _leased)
def cursors_know_what_was_delivered(
    cursors: DataFrame, active: DataFrame, hidden: DataFrame, holdings: DataFrame
) -> DataFrame:
    """A cursor that holds another lease than its group was given, or does not know of a delivery.

    The lease lives at the time of the snapshot. The highest offset that a cursor says to have been delivered may be
    higher than any in the journals, because a group need not begin at the first one.
    """
    known = _leased(cursors, active, hidden).select("lane", "group", "lease", "upto", "seen")
    given = holdings.select("lane", "group", "lease", "auto_ack", F.col("offsets.highest").alias("last"))
    given = given.where(F.col("last").isNotNull())
    under = given.where(~F.col("auto_ack")).groupBy("lane", "group", "lease").agg(F.max("last").alias("last"))
    told = holdings.groupBy("lane", "group").agg(F.min("lease").alias("least")).where(F.col("least") != "")
    live = known.where(F.col("lease").isNotNull()).join(few(told), ["lane", "group"], "left_semi")
    live = live.join(under, ["lane", "group", "lease"], "left")
    other = live.where(F.col("last").isNull())
    wide = live.where(F.col("last") != F.col("upto")).withColumn("offset", F.col("last"))
    most = given.groupBy("lane", "group").agg(F.max("last").alias("offset"))
    blind = known.join(few(most), ["lane", "group"]).where(F.col("seen") < F.col("offset"))
    return (
        violations(other, sentence("is leased as %s in the database, which no pop was given", "lease"))
        .unionByName(violations(wide, sentence("is the last one of a lease, which ends at %s in the database", "upto")))
        .unionByName(violations(blind, sentence("was delivered, but the cursor knows only of those up to %s", "seen")))
    )
