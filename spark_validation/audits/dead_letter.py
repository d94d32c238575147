"""Dead letters: neither early nor late nor twice, and kept."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables import few
from .basis import judges
from .evidence import sentence, violations


def _failures(acks: DataFrame, limits: DataFrame, lanes: DataFrame) -> DataFrame:
    """Acks that fail or bury a message, or may have, with the retry limit of its queue."""
    failures = acks.where(
        ((F.col("status") == "failed") & (F.col("outcome") != "fail")) | (F.col("dead") & (F.col("outcome") == "ok"))
    )
    known = lanes.join(F.broadcast(limits), "queue").select("lane", "queue", "retry_limit")
    return failures.join(F.broadcast(known), "lane")


def _letters(acks: DataFrame) -> DataFrame:
    return acks.where(F.col("dead") & (F.col("outcome") == "ok"))


@checks("G-DLQ-1", "G-DLQ-2", level=Level.AUDIT)
@judges("failure in a queue whose retry limit is known", _failures)
def dead_letters_come_in_time(acks: DataFrame, limits: DataFrame, lanes: DataFrame, hidden: DataFrame) -> DataFrame:
    """A message that is dead-lettered too early, too late, or twice.

    Too early: by a failed ack that cannot be failure number ``retryLimit`` + 1. Too late: not by the ack that must be.
    The number of earlier failures is known only within bounds, because of acks without an answer and concurrent acks.
    If the journal of a consumer was cut short, there may have been any number of further failures.
    """
    message = ("lane", "group", "hash")
    judged = _failures(acks, limits, lanes)
    failed = F.col("status") == "failed"
    call = F.struct(
        F.col("agent"), F.col("number"), F.col("invoked"), F.col("completed"), (F.col("outcome") == "ok").alias("ok")
    )
    all_ = few(
        judged.groupBy(*message).agg(
            F.collect_set(F.when(failed, call)).alias("calls"),
            F.sum((F.col("dead") & (F.col("outcome") == "ok")).cast("int")).alias("letters"),
        )
    )
    twice = all_.where(F.col("letters") > 1)
    one = judged.where(failed & (F.col("outcome") == "ok") & (F.col("kind") == "ack")).join(all_, list(message))

    def other(each: Column) -> Column:
        return (each["agent"] != F.col("agent")) | (each["number"] != F.col("number"))

    least = F.size(F.filter("calls", lambda each: other(each) & each["ok"] & (each["completed"] < F.col("invoked"))))
    most = F.size(F.filter("calls", lambda each: other(each) & (each["invoked"] < F.col("completed"))))
    one = one.withColumn("least", least).withColumn("most", most)
    late = one.where(~F.col("dead") & (F.col("least") >= F.col("retry_limit")))
    early = one.where(F.col("dead") & (F.col("most") < F.col("retry_limit")))
    early = early.join(few(hidden.where("tail")), ["queue", "group"], "left_anti")
    return (
        violations(twice, sentence("was dead-lettered %s times", "letters"))
        .unionByName(
            violations(
                late, sentence("was not dead-lettered after %s retries, and the limit is %s", "least", "retry_limit")
            )
        )
        .unionByName(
            violations(
                early, sentence("was dead-lettered after %s retries, and the limit is %s", "most", "retry_limit")
            )
        )
    )


@checks("G-DLQ-1", level=Level.AUDIT)
@judges("message that was answered as a dead letter", _letters)
def answered_dead_letters_are_kept(
    acks: DataFrame, messages: DataFrame, dead_letters: DataFrame, queues: DataFrame, lanes: DataFrame
) -> DataFrame:
    """A message that was answered as a dead letter, but is not stored exactly once as one.

    Only for queues with dead letters enabled, and since their creation: deleting a queue deletes its dead letters.
    """
    keeping = lanes.join(F.broadcast(queues.where("keeps_dead_letters")), "queue").select("lane", "created_at")
    letters = _letters(acks).join(F.broadcast(keeping), "lane").where(F.col("completed") >= F.col("created_at"))
    letters = letters.select("lane", "group", "hash").distinct()
    known = messages.select("lane", "hash", F.coalesce("offset", "log_offset").alias("offset")).where(
        F.col("offset").isNotNull()
    )
    placed = known.join(few(letters), ["lane", "hash"])
    kept = dead_letters.groupBy("lane", "group", "offset").agg(F.count("*").alias("kept"))
    found = placed.join(kept, ["lane", "group", "offset"], "left").withColumn("kept", F.coalesce("kept", F.lit(0)))
    return violations(
        found.where(F.col("kept") != 1), sentence("was dead-lettered, and is stored %s times as a dead letter", "kept")
    )
