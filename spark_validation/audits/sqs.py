"""SQS: the answers to its clients.

The server's clock is not seen. What is certain: a message is stored, received or deleted between the sending of a
request and its answer.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..dialect import stacked
from ..sqs.tables import DRIFT, certain, is_fifo
from ..tables.columns import SECOND, few, unless
from .basis import judges
from .evidence import sentence, violations

#: For so long SQS knows a deduplication id, and the id of an attempt.
_KNOWN = int(300 * SECOND * DRIFT)
#: After so long it has forgotten a deduplication id, with a minute of grace.
_FORGOTTEN = 360 * SECOND


def _stored(sends: DataFrame) -> DataFrame:
    return sends.where(F.col("outcome") == "ok")


def _key() -> Column:
    """What a message is known by: the answer to a duplicate in the spool has an id that no consumer sees."""
    return F.coalesce(F.when(is_fifo(), F.col("deduplication")), F.col("message_id"))


def _counted(sends: DataFrame, left: DataFrame) -> DataFrame:
    """Answered sends to queues of which it is known how many messages they had later."""
    return _stored(sends).join(F.broadcast(left), "family").where(F.col("completed") < F.col("at"))


@checks("G-SQS-1", level=Level.AUDIT)
@judges("send to a queue whose messages were counted later", _counted)
def no_sent_message_is_lost(
    sends: DataFrame, left: DataFrame, received: DataFrame, deletions: DataFrame, tails: DataFrame
) -> DataFrame:
    """More messages were sent and certainly not deleted than a queue and its dead-letter queue have in the end.

    Nothing is lost if the journal of an agent was cut short: it may have deleted any message.
    """
    kept = _counted(sends, left).withColumn("key", _key())
    may = deletions.where(F.col("outcome") != "fail").select("family", "message_id")
    names = received.select("family", "message_id", _key().alias("key"))
    keys = may.join(names, ["family", "message_id"]).select("family", "key").distinct()
    kept = kept.join(may.distinct(), ["family", "message_id"], "left_anti").join(keys, ["family", "key"], "left_anti")
    one = F.min(F.struct("invoked", "agent", "number", "position", "message_id", "queue")).alias("one")
    rest = kept.groupBy("family", "there").agg(F.countDistinct("key").alias("rest"), one)
    found = rest.where(F.col("rest") > F.col("there")).select("rest", "there", "one.*")
    text = "%s messages were sent and not deleted, such as %s, but %s are left"
    return violations(unless(found, tails), sentence(text, "rest", "message_id", "there"))


@checks("G-SQS-1", level=Level.AUDIT)
@judges("send to a queue whose messages were counted later", _counted)
def no_more_is_left_than_was_sent(sends: DataFrame, left: DataFrame, gone: DataFrame, tails: DataFrame) -> DataFrame:
    """A queue and its dead-letter queue have more messages in the end than were sent and not deleted."""
    may = sends.where(F.col("outcome") != "fail")
    each = F.coalesce("message_id", F.concat_ws(" ", "agent", "number", "position"))
    rest = may.join(gone.withColumnRenamed("queue", "of"), "message_id", "left_anti")
    counts = rest.groupBy("family").agg(F.countDistinct(each).alias("rest"))
    sums = left.join(counts, "family", "left").withColumn("rest", F.coalesce("rest", F.lit(0)))
    found = sums.where(F.col("there") > F.col("rest")).withColumnRenamed("family", "queue")
    return violations(unless(found, tails), sentence("%s messages are left, but at most %s can be", "there", "rest"))


@checks("G-SQS-1", level=Level.AUDIT)
def what_is_received_was_sent(received: DataFrame, sends: DataFrame, tails: DataFrame) -> DataFrame:
    """A message with another body, group or deduplication id than was sent, or that was not sent to its queue before.

    What was sent again under a deduplication id may have another body or group: no answer tells which came first.
    A send without an answer may have stored its messages. Messages that were not sent before are not reported if the
    journal of an agent was cut short.
    """
    sent = (
        _stored(sends)
        .groupBy("family", "message_id")
        .agg(
            F.collect_set("payload_hash").alias("sent"),
            F.collect_set("group").alias("sent_to"),
            F.min("deduplication").alias("sent_as"),
            F.min("invoked").alias("since"),
        )
    )
    unsure = sends.where(F.col("outcome") == "unknown").select("family", "payload_hash").distinct()
    known = received.join(sent, ["family", "message_id"])
    named = is_fifo() & (F.col("sent_as") != F.col("deduplication"))
    differs = (F.size("sent") > 0) & ~F.array_contains("sent", F.col("payload_hash"))
    differs |= ~F.array_contains("sent_to", F.col("group"))
    other = known.where(differs | F.coalesce(named, F.lit(False)))
    strange = received.join(sent, ["family", "message_id"], "left_anti")
    strange = unless(strange.join(few(unsure), ["family", "payload_hash"], "left_anti"), tails)
    found = violations(
        other, sentence("message %s has another body, group or deduplication id than was sent", "message_id")
    )
    found = found.unionByName(violations(strange, sentence("message %s was never sent", "message_id")))
    tried = sends.where(F.col("outcome") != "ok").groupBy("family").agg(F.min("invoked").alias("tried"))
    early = known.join(few(tried), "family", "left").where(F.col("completed") < F.least("since", "tried"))
    text = sentence("message %s was received before it was sent", "message_id")
    return found.unionByName(violations(unless(early, tails), text))


def _limits(calls: DataFrame) -> DataFrame:
    """Receives that say how many messages they want. A repetition has those of the receive that it repeats."""
    return calls.where((F.col("kind") == "receive") & (F.col("batch") >= 1) & (F.col("lease") == ""))


@checks("G-SQS-1", level=Level.AUDIT)
@judges("receive that says how many messages it wants", _limits)
def no_receive_has_more_than_it_wants(calls: DataFrame) -> DataFrame:
    """A receive with more messages than it had asked for."""
    found = _limits(calls).withColumn("there", F.size("deliveries")).where(F.col("there") > F.col("batch"))
    return violations(found, sentence("has %s messages, but asked for %s", "there", "batch"))


@checks("G-SQS-1", level=Level.AUDIT)
def what_is_deleted_is_not_received_again(gone: DataFrame, received: DataFrame) -> DataFrame:
    """A message that was received by a request that was sent after the answer to its deletion."""
    late = received.join(gone, ["queue", "message_id"]).where(F.col("invoked") > F.col("gone_at"))
    return violations(late, sentence("message %s was received after its deletion had been answered", "message_id"))


@checks("G-SQS-2", level=Level.AUDIT)
def a_received_message_is_hidden(given: DataFrame) -> DataFrame:
    """A message that was received again certainly before its visibility timeout was over, or twice with one count."""
    line = Window.partitionBy("queue", "message_id").orderBy("attempt", "completed", "agent", "number", "position")
    before = F.lag(F.struct("attempt", "ending")).over(line)
    pairs = certain(given).withColumn("before", before).where(F.col("before").isNotNull())
    again = pairs.where(F.col("before.attempt") == F.col("attempt"))
    early = pairs.where(F.col("completed") < F.col("before.ending"))
    early = early.where(F.col("before.attempt").isNull() | (F.col("before.attempt") != F.col("attempt")))
    found = violations(early, sentence("message %s was received again while it was hidden", "message_id"))
    text = sentence("message %s was received twice with the receive count %s", "message_id", "attempt")
    return found.unionByName(violations(again, text))


def _in_groups(rows: DataFrame) -> DataFrame:
    return rows.where(is_fifo())


def _sent_in_groups(sends: DataFrame) -> DataFrame:
    """By message: the earliest time at which it can have been stored, and the latest of its first sending."""
    may = _in_groups(sends.where(F.col("outcome") != "fail"))
    began = may.groupBy("queue", "group", "deduplication").agg(F.min("invoked").alias("since"))
    stored = (
        _stored(may)
        .groupBy("queue", "group", "deduplication", "message_id")
        .agg(F.min("invoked").alias("asked"), F.min("completed").alias("by"))
    )
    joined = stored.join(began, ["queue", "group", "deduplication"], "left")
    return joined.select("queue", "group", "message_id", F.coalesce("since", "asked").alias("since"), "by")


def _received_in_groups(given: DataFrame) -> DataFrame:
    return _in_groups(given)


@checks("G-SQS-3", level=Level.AUDIT)
@judges("message of a FIFO queue that was received", _received_in_groups)
def a_group_is_received_in_order(sends: DataFrame, given: DataFrame) -> DataFrame:
    """A message of a group whose first receive came after the answer to a receive of one that was sent later.

    Or that stands behind such a one in the same answer. What was sent at once has no order.
    """
    sent = _sent_in_groups(sends)
    came = (
        _in_groups(given)
        .groupBy("queue", "message_id")
        .agg(
            F.min("completed").alias("seen"),
            F.min_by(
                F.struct("invoked", "agent", "number", "position"), F.when(F.col("attempt") == 1, F.col("invoked"))
            ).alias("first"),
        )
    )
    both = sent.join(came, ["queue", "message_id"])
    # From the last to the first: what was surely sent later stands before.
    columns = ("queue", "group", "message_id")
    stored = both.select(*columns, F.col("by").alias("at"), F.lit(1).alias("step"), "first")
    later = F.struct("seen", "message_id").alias("later")
    begun = both.select(*columns, F.col("since").alias("at"), F.lit(0).alias("step"), later)
    line = Window.partitionBy("queue", "group").orderBy(F.desc("at"), F.desc("step"), "message_id")
    line = line.rowsBetween(Window.unboundedPreceding, -1)
    events = stacked(stored, begun).withColumn("before", F.min("later").over(line))
    late = events.where((F.col("step") == 1) & (F.col("before.seen") < F.col("first.invoked")))
    late = late.withColumn("earlier", F.col("before.message_id")).select(*columns, "earlier", "first.*")
    text = sentence("message %s came after %s, which was sent later", "message_id", "earlier")
    found = violations(late, text)
    answer = Window.partitionBy("agent", "number", "queue", "group").orderBy("position")
    ordered = _in_groups(given).join(sent, ["queue", "group", "message_id"])
    ahead = ordered.withColumn("ahead", F.lag(F.struct("since", "message_id")).over(answer))
    behind = ahead.where(F.col("ahead.since") > F.col("by")).withColumn("earlier", F.col("ahead.message_id"))
    return found.unionByName(violations(behind, text))


@checks("G-SQS-3", level=Level.AUDIT)
@judges("message of a FIFO queue that was received", _received_in_groups)
def a_group_in_flight_is_not_received_by_others(given: DataFrame) -> DataFrame:
    """A message of a group that was received while another receive certainly had another message of it in flight."""
    rows = _in_groups(certain(given))
    held = F.struct("ending", "message_id")
    columns = ("queue", "group", "message_id", "agent", "number", "position", "completed")
    taken = rows.select(*columns, F.col("completed").alias("at"), F.lit(1).alias("step"), held.alias("held"))
    asked = rows.select(*columns, F.col("invoked").alias("at"), F.lit(0).alias("step"))
    line = Window.partitionBy("queue", "group").orderBy("at", "step", "message_id")
    line = line.rowsBetween(Window.unboundedPreceding, -1)
    events = stacked(taken, asked).withColumn("before", F.max("held").over(line))
    beside = (F.col("step") == 0) & (F.col("before.ending") > F.col("completed"))
    found = events.where(beside & (F.col("before.message_id") != F.col("message_id")))
    found = found.withColumn("other", F.col("before.message_id"))
    text = sentence("message %s was received while %s of its group was in flight", "message_id", "other")
    return violations(found, text)


def _named(sends: DataFrame) -> DataFrame:
    return _in_groups(_stored(sends)).where(F.col("deduplication").isNotNull())


@checks("G-SQS-4", level=Level.AUDIT)
@judges("send to a FIFO queue with a deduplication id", _named)
def a_deduplication_id_has_one_message(sends: DataFrame, received: DataFrame) -> DataFrame:
    """Within five minutes a deduplication id was answered with two messages, or consumers saw two.

    Judged within a group, which is right for either scope. What the spool answers does not count, only what came of it.
    """
    keys = ["queue", "group", "deduplication"]
    lost = sends.where((F.col("outcome") == "unknown") & F.col("deduplication").isNotNull())
    lost = lost.groupBy(*keys).agg(F.min("invoked").alias("maybe"))
    told = _named(sends).where(~F.col("spooled"))
    place = F.min(F.struct("completed", "agent", "number", "position")).alias("place")
    messages = told.groupBy(*keys, "message_id").agg(F.min("invoked").alias("since"), place)
    messages = messages.join(few(lost), keys, "left").withColumn("since", F.least("since", "maybe"))
    call = ("place.agent", "place.number", "place.position")
    line = Window.partitionBy(*keys).orderBy("place.completed", *call)
    twice = messages.withColumn("before", F.lag(F.struct("since", "message_id")).over(line))
    twice = twice.where(F.col("place.completed") < F.col("before.since") + _KNOWN)
    twice = twice.withColumn("other", F.col("before.message_id")).select(*keys, "message_id", "other", "place.*")
    text = sentence("the deduplication id %s has the messages %s and %s", "deduplication", "other", "message_id")
    found = violations(twice, text)
    seen = _in_groups(received).where(F.col("deduplication").isNotNull() & F.col("created_at").isNotNull())
    place = F.min(F.struct("created_at", "agent", "number", "position")).alias("place")
    seen = seen.groupBy(*keys, "message_id").agg(place)
    line = Window.partitionBy(*keys).orderBy("place.created_at", *call)
    pairs = seen.withColumn("before", F.lag(F.struct("place.created_at", "message_id")).over(line))
    pairs = pairs.where(F.col("place.created_at") - F.col("before.created_at") < _KNOWN)
    pairs = pairs.join(twice.select("queue", "message_id"), ["queue", "message_id"], "left_anti")
    pairs = pairs.withColumn("other", F.col("before.message_id")).select(*keys, "message_id", "other", "place.*")
    return found.unionByName(violations(pairs, text))


def _direct(sends: DataFrame) -> DataFrame:
    return _in_groups(_stored(sends)).where(~F.col("spooled"))


@checks("G-SQS-4", level=Level.AUDIT)
@judges("send to a FIFO queue that did not go through the spool", _direct)
def a_deduplication_id_is_forgotten(sends: DataFrame) -> DataFrame:
    """A send that was answered with a message which is certainly older than six minutes, so it is lost."""
    first = F.min("completed").over(Window.partitionBy("queue", "message_id"))
    late = _direct(sends).withColumn("by", first).where(F.col("invoked") > F.col("by") + _FORGOTTEN)
    text = sentence("a send was answered with message %s, which had been sent long before", "message_id")
    return violations(late, text)


def _repeated(repeatable: DataFrame) -> DataFrame:
    line = Window.partitionBy("queue", "repeats").orderBy("completed", "agent", "number")
    before = F.lag(F.struct("invoked", "completed", "messages", "ending")).over(line)
    pairs = repeatable.withColumn("before", before).where(F.col("before.messages").isNotNull())
    timely = F.least("before.ending", F.col("before.invoked") + _KNOWN)
    return pairs.where((F.col("invoked") > F.col("before.completed")) & (F.col("completed") < timely))


@checks("G-SQS-5", level=Level.AUDIT)
@judges("receive that was repeated with the id of its attempt", _repeated)
def a_repeated_receive_has_the_same_messages(repeatable: DataFrame) -> DataFrame:
    """Other messages or receive counts than the receive that it repeats, whose messages were all in flight."""
    found = _repeated(repeatable)
    differs = ~F.coalesce(F.col("messages") == F.col("before.messages"), F.lit(False))
    return violations(found.where(differs), sentence("attempt %s has other messages at its repetition", "repeats"))


def _limited(received: DataFrame, settings: DataFrame) -> DataFrame:
    """Received messages of queues that have a redrive policy, or get dead letters of one."""
    families = settings.where(F.col("most").isNotNull()).select("family").distinct()
    return received.join(F.broadcast(families), "family", "left_semi")


@checks("G-SQS-7", level=Level.AUDIT)
@judges("message of a queue with a redrive policy", _limited)
def dead_letters_come_after_the_last_receive(received: DataFrame, sends: DataFrame, settings: DataFrame) -> DataFrame:
    """A message that its queue gave out more often than its policy allows, or gave up before, or while it hid it."""
    over = received.where(F.col("attempt") > F.col("most"))
    limits = settings.where(F.col("most").isNotNull())
    sources = limits.select(F.col("queue").alias("source"), F.col("most").alias("limit"))
    sent = _stored(sends).select("message_id", F.col("queue").alias("source")).distinct()
    letters = received.join(sent, "message_id").join(F.broadcast(sources), "source")
    letters = letters.where(F.col("queue") != F.col("source"))
    early = letters.where(F.col("attempt") <= F.col("limit"))
    held = received.select(
        "message_id",
        F.col("queue").alias("source"),
        F.col("completed").alias("from"),
        F.col("ending").alias("held_until"),
    )
    rest = letters.where(F.col("attempt") > F.col("limit"))
    hidden = held.join(few(rest), ["message_id", "source"])
    hidden = hidden.where((F.col("invoked") > F.col("from")) & (F.col("completed") < F.col("held_until")))
    found = violations(
        over, sentence("message %s has the receive count %s, at most %s", "message_id", "attempt", "most")
    )
    text = sentence("message %s is a dead letter with the receive count %s", "message_id", "attempt")
    found = found.unionByName(violations(early, text))
    text = sentence("message %s is a dead letter, while queue %s hides it", "message_id", "source")
    return found.unionByName(violations(hidden, text))
