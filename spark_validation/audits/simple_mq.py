"""simple-mq: the answers to its clients, and its tables.

The server's clock is not seen. What is certain: a message is taken between the invocation of its poll and the answer.
Messages that were requeued, or whose visibility timeout was changed, are omitted where that matters.
"""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import NEVER, SECOND, few, unless
from .basis import judges
from .evidence import sentence, violations

#: Maximum difference in speed between the clocks of clients and server.
_DRIFT = 0.999


def _timed(given: DataFrame, settings: DataFrame) -> DataFrame:
    return given.join(F.broadcast(settings.where(F.col("timeout").isNotNull())), "queue")


@checks("G-SMQ-1", level=Level.AUDIT)
@judges("delivery from a queue whose visibility timeout is known", _timed)
def a_message_is_given_to_one_at_a_time(given: DataFrame, settings: DataFrame, meddled: DataFrame) -> DataFrame:
    """Two deliveries of a message that are certainly closer together than the timeout of the first one's queue."""
    line = Window.partitionBy("message_id").orderBy("completed", "agent", "number")
    before = F.lag(F.struct("queue", "invoked", "completed")).over(line)
    pairs = given.where(F.col("completed") < NEVER).withColumn("before", before).where(F.col("before").isNotNull())
    apart = F.greatest(F.col("completed") - F.col("before.invoked"), F.col("before.completed") - F.col("invoked"))
    pairs = pairs.select("*", apart.alias("apart"), F.col("before.queue").alias("taken_from"))
    known = F.broadcast(settings.select(F.col("queue").alias("taken_from"), "timeout"))
    close = pairs.join(known, "taken_from").where(F.col("apart") < F.col("timeout") * SECOND * _DRIFT)
    found = close.join(few(meddled), "message_id", "left_anti").withColumn("apart", F.col("apart") / SECOND)
    return violations(found, sentence("message %s was delivered twice within %s s", "message_id", "apart"))


@checks("G-SMQ-2", level=Level.AUDIT)
def delivery_counts_rise_by_one(
    given: DataFrame,
    settings: DataFrame,
    meddled: DataFrame,
    unseen: DataFrame,
    stored_messages: DataFrame | None = None,
    stored_queues: DataFrame | None = None,
) -> DataFrame:
    """A delivery count that occurred twice, exceeds the maximum, comes before a lower one, or follows a gap.

    A gap may be a delivery that is not in the journals, if that is possible. Or a count that is stored lower than a
    delivery had it, unless the message is a dead letter now, or was requeued: then it is 0. Or that is stored above the
    maximum.
    """
    counted = given.join(few(meddled), "message_id", "left_anti")
    line = Window.partitionBy("message_id").orderBy("attempt", "completed")
    lag = F.lag(F.struct("attempt", "invoked")).over(line)
    rows = counted.withColumn("before", lag)
    again = rows.where(F.col("before.attempt") == F.col("attempt"))
    early = rows.where((F.col("before.attempt") < F.col("attempt")) & (F.col("before.invoked") > F.col("completed")))
    over = counted.join(F.broadcast(settings), "queue").where(F.col("attempt") > F.col("most"))
    step = F.col("attempt") - F.coalesce("before.attempt", F.lit(0))
    gap = unless(rows.where(step > 1), unseen)
    texts = (
        (again, sentence("message %s was delivered twice with the delivery count %s", "message_id", "attempt")),
        (early, sentence("message %s had the delivery count %s before a lower one", "message_id", "attempt")),
        (over, sentence("message %s has the delivery count %s, at most %s", "message_id", "attempt", "most")),
        (
            gap,
            sentence("message %s has the delivery count %s, but the one below is missing", "message_id", "attempt"),
        ),
    )
    found = [violations(table, text) for table, text in texts]
    if stored_messages is not None and stored_queues is not None:
        most = counted.groupBy("message_id").agg(F.max("attempt").alias("attempt"))
        live = F.broadcast(stored_queues.where(F.col("parent").isNull()).select("queue", "max_deliveries"))
        there = stored_messages.join(live, "queue")
        lower = there.join(most, "message_id").where(F.col("delivery_count").between(1, F.col("attempt") - 1))
        text = "message %s was delivered with the count %s, and is stored with %s"
        found.append(violations(lower, sentence(text, "message_id", "attempt", "delivery_count")))
        above = there.where(F.col("delivery_count") > F.col("max_deliveries"))
        text = "message %s is stored with the delivery count %s, at most %s"
        found.append(violations(above, sentence(text, "message_id", "delivery_count", "max_deliveries")))
    return reduce(DataFrame.unionByName, found)


def _dead_letter_queues(stored_queues: DataFrame) -> DataFrame:
    return stored_queues.where(F.col("parent").isNotNull())


def _letters(stored_messages: DataFrame, stored_queues: DataFrame) -> DataFrame:
    letters = _dead_letter_queues(stored_queues).select("queue", "max_deliveries")
    return stored_messages.join(F.broadcast(letters), "queue")


@checks("G-SMQ-3", level=Level.AUDIT)
@judges("message in a dead-letter queue", _letters)
def a_dead_letter_had_all_its_deliveries(
    stored_messages: DataFrame, stored_queues: DataFrame, enqueues: DataFrame, meddled: DataFrame
) -> DataFrame:
    """A message in a dead-letter queue that had fewer deliveries than the maximum of its original queue."""
    found = _letters(stored_messages, stored_queues).where(F.col("delivery_count") < F.col("max_deliveries"))
    sent = enqueues.where(F.col("outcome") == "ok").select("message_id", F.col("queue").alias("sent_to"))
    found = found.join(few(sent), "message_id").where(F.col("sent_to") != F.col("queue"))
    found = found.join(few(meddled), "message_id", "left_anti")
    return violations(
        found, sentence("message %s is a dead letter after %s deliveries", "message_id", "delivery_count")
    )


@checks("G-SMQ-4", level=Level.AUDIT)
def the_count_is_that_of_the_messages(stored_queues: DataFrame, stored_messages: DataFrame) -> DataFrame:
    """A queue whose message count differs from the number of its messages."""
    there = stored_messages.groupBy("queue").agg(F.count("*").alias("there"))
    counted = stored_queues.join(there, "queue", "left").withColumn("there", F.coalesce("there", F.lit(0)))
    found = counted.where(F.col("counted") != F.col("there"))
    return violations(found, sentence("counts %s messages, but has %s", "counted", "there"))


@checks("G-SMQ-5", "G-SMQ-9", level=Level.AUDIT)
def no_queue_is_above_its_size(stored_queues: DataFrame, stored_messages: DataFrame) -> DataFrame:
    """A queue or dead-letter queue with more messages than its size."""
    there = stored_messages.groupBy("queue").agg(F.count("*").alias("there"))
    found = stored_queues.join(there, "queue").where(F.col("there") > F.col("size"))
    return violations(found, sentence("has %s messages, but the size %s", "there", "size"))


def _seen(given: DataFrame, stored_messages: DataFrame | None = None) -> DataFrame:
    ids = given.select("message_id")
    return ids if stored_messages is None else ids.unionByName(stored_messages.select("message_id"))


@checks("G-SMQ-6", level=Level.AUDIT)
@judges("message that was delivered or is stored", _seen)
def what_is_given_was_sent(
    given: DataFrame,
    enqueues: DataFrame,
    meddled: DataFrame,
    tails: DataFrame,
    stored_messages: DataFrame | None = None,
    stored_queues: DataFrame | None = None,
) -> DataFrame:
    """A message, delivered or stored, with other data than was sent, in another queue, or that was never sent.

    Between a queue and the one of its dead letters, as the database tells of them, messages may move. Where a message
    that was requeued belongs is not judged.

    An enqueue without an answer may have stored its messages. Messages that were never sent are not reported if the
    journal of an agent was cut short, or if they were only stored: they may be older than the journals.
    """
    sent = enqueues.where(F.col("outcome") == "ok").select("message_id", F.col("payload_hash").alias("sent"))
    unsure = enqueues.where(F.col("outcome") == "unknown").select("queue", "payload_hash").distinct()
    seen = given.select("agent", "number", "position", "queue", "message_id", "payload_hash")
    other = F.col("sent") != F.col("payload_hash")
    text = sentence("message %s has other data than was sent", "message_id")
    found = violations(seen.join(sent, "message_id").where(other), text)
    strange = seen.join(sent.select("message_id"), "message_id", "left_anti")
    strange = unless(strange.join(few(unsure), ["queue", "payload_hash"], "left_anti"), tails)
    found = found.unionByName(violations(strange, sentence("message %s was never sent", "message_id")))
    if stored_messages is None or stored_queues is None:
        return found
    found = found.unionByName(violations(stored_messages.join(sent, "message_id").where(other), text))
    places = stored_messages.select("queue", "message_id").unionByName(seen.select("queue", "message_id")).distinct()
    places = places.join(few(meddled), "message_id", "left_anti")
    places = places.join(F.broadcast(stored_queues.select("queue", "parent", "dead_letter_queue")), "queue")
    to = enqueues.where(F.col("outcome") == "ok").select("message_id", F.col("queue").alias("sent_to"))
    astray = places.join(to, "message_id")
    for place in ("queue", "parent", "dead_letter_queue"):
        astray = astray.where(~F.col(place).eqNullSafe(F.col("sent_to")))
    return found.unionByName(
        violations(astray, sentence("message %s was sent to queue %s, and is in another", "message_id", "sent_to"))
    )


def _stored(enqueues: DataFrame, stored_queues: DataFrame, tails: DataFrame) -> DataFrame:
    there = F.broadcast(stored_queues.select("queue"))
    return unless(enqueues.where(F.col("outcome") == "ok").join(there, "queue"), tails)


@checks("G-SMQ-7", level=Level.AUDIT)
@judges("message that was answered as stored, beside journals of which none was cut short,", _stored)
def nothing_is_lost(
    enqueues: DataFrame,
    acknowledged: DataFrame,
    requeued: DataFrame,
    stored_messages: DataFrame,
    stored_queues: DataFrame,
    tails: DataFrame,
) -> DataFrame:
    """A message that was answered as stored, that no consumer can have acked, but that is in no queue.

    Messages of deleted queues are not checked, and none are if the journal of an agent was cut short: it may have acked
    any message. A message that was requeued to another queue is not checked: that may be deleted since.
    """
    stored = _stored(enqueues, stored_queues, tails)
    gone = acknowledged.where(F.col("outcome") != "fail").select("message_id").distinct()
    found = stored.join(gone, "message_id", "left_anti")
    home = F.broadcast(stored_queues.select("queue", F.coalesce("parent", "queue").alias("home")))
    moved = requeued.join(home, "queue", "left").select(F.col("message_id").alias("moved"), "home")
    elsewhere = (F.col("moved") == F.col("message_id")) & ~F.col("home").eqNullSafe(F.col("queue"))
    found = found.join(few(moved), elsewhere, "left_anti")
    found = found.join(stored_messages.select("message_id"), "message_id", "left_anti")
    return violations(found, sentence("message %s was answered as stored, but is in no queue", "message_id"))


def _accepted(acknowledged: DataFrame) -> DataFrame:
    return acknowledged.where(F.col("outcome") == "ok")


@checks("G-SMQ-8", level=Level.AUDIT)
@judges("successful ack", _accepted)
def what_is_acked_is_gone(
    acknowledged: DataFrame, given: DataFrame, stored_messages: DataFrame | None = None
) -> DataFrame:
    """A message that was delivered by a poll after its ack had been answered, is still stored, or was acked twice."""
    accepted = _accepted(acknowledged)
    done = accepted.groupBy("message_id").agg(F.min("completed").alias("done_at"), F.count("*").alias("acks"))
    first = Window.partitionBy("message_id").orderBy("completed", "agent", "number")
    twice = accepted.withColumn("place", F.row_number().over(first)).where(F.col("place") > 1)
    late = given.join(done, "message_id").where(F.col("invoked") > F.col("done_at"))
    found = violations(late, sentence("message %s was delivered after its ack had been answered", "message_id"))
    found = found.unionByName(violations(twice, sentence("message %s was acked twice with success", "message_id")))
    if stored_messages is None:
        return found
    left = stored_messages.join(done, "message_id")
    return found.unionByName(violations(left, sentence("message %s was acked, but is still stored", "message_id")))


@checks("G-SMQ-9", level=Level.AUDIT)
@judges("dead-letter queue", _dead_letter_queues)
def dead_letters_have_no_second_level(stored_queues: DataFrame) -> DataFrame:
    """A dead-letter queue that has a dead-letter queue."""
    found = _dead_letter_queues(stored_queues).where(F.col("dead_letter_queue").isNotNull())
    return violations(found, sentence("holds dead letters, and sends its own to %s", "dead_letter_queue"))
