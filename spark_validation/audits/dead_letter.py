"""Dead letters: neither early nor late nor twice, and kept."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..lives import plain
from ..tables.columns import few
from .basis import judges
from .evidence import sentence, violations
from .excuse import unless_amid, unseen


def _failures(acks: DataFrame, limits: DataFrame, lanes: DataFrame) -> DataFrame:
    """Acks that fail or bury a message, or may have, with the retry limit of its queue."""
    failures = acks.where(
        ((F.col("status") == "failed") & (F.col("outcome") != "fail")) | (F.col("dead") & (F.col("outcome") == "ok"))
    )
    known = lanes.join(F.broadcast(limits), "queue").select("lane", "queue", "limits")
    return _with_limits(failures.join(F.broadcast(known), "lane"))


def _with_limits(failures: DataFrame) -> DataFrame:
    """With the lowest and the highest retry limit that may have been in force: a later one ends an earlier one."""

    def over(one: Column) -> Column:
        return F.exists("limits", lambda other: (other["since"] > one["until"]) & (other["until"] < F.col("invoked")))

    began = F.filter("limits", lambda one: one["since"] <= F.col("completed"))
    possible = F.transform(F.filter(began, lambda one: ~over(one)), lambda one: one["retry_limit"])
    all_ = F.transform("limits", lambda one: one["retry_limit"])
    # What was in force before the first known one is unknown.
    told = F.exists("limits", lambda one: one["until"] < F.col("invoked"))
    chosen = F.when(told & (F.size(possible) > 0), possible).otherwise(all_)
    rows = failures.withColumn("lowest", F.array_min(chosen)).withColumn("highest", F.array_max(chosen))
    return rows.drop("limits")


def _letters(acks: DataFrame) -> DataFrame:
    return acks.where(F.col("dead") & (F.col("outcome") == "ok"))


@checks("G-DLQ-1", "G-DLQ-2", level=Level.AUDIT)
@judges("failure in a queue whose retry limit is known", _failures)
def dead_letters_come_in_time(
    acks: DataFrame, limits: DataFrame, lanes: DataFrame, hidden: DataFrame, amid: DataFrame, letterless: DataFrame
) -> DataFrame:
    """A message that is dead-lettered too early, too late, or twice.

    Too early: by a failed ack that cannot be failure number ``retryLimit`` + 1. Too late: not by the ack that must be.
    The number of earlier failures is known only within bounds, because of acks without an answer and concurrent acks.
    If the journal of a consumer was cut short, there may have been any number of further failures; and of a message
    that was acked during a change of the group. In a queue that keeps no dead letters, or once kept none, none is late.
    """
    message = ("lane", "group", "hash")
    judged = few(_failures(acks, limits, lanes))
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
    late = one.where(~F.col("dead") & (F.col("least") >= F.col("highest")))
    late = late.join(few(letterless), "lane", "left_anti")
    early = one.where(F.col("dead") & (F.col("most") < F.col("lowest")))
    early = early.join(few(unseen(hidden, F.col("tail"))), ["queue", "group"], "left_anti")
    early = unless_amid(early, amid)
    return (
        violations(twice, sentence("was dead-lettered %s times", "letters"))
        .unionByName(
            violations(
                late, sentence("was not dead-lettered after %s retries, and the limit is %s", "least", "highest")
            )
        )
        .unionByName(
            violations(early, sentence("was dead-lettered after %s retries, and the limit is %s", "most", "lowest"))
        )
    )


@checks("G-DLQ-1", level=Level.AUDIT)
@judges("message that was answered as a dead letter", _letters)
def answered_dead_letters_are_kept(
    acks: DataFrame,
    messages: DataFrame,
    dead_letters: DataFrame,
    queues: DataFrame,
    lanes: DataFrame,
    letters_gone: DataFrame,
) -> DataFrame:
    """A message that was answered as a dead letter, but is not stored exactly once as one.

    Only for queues with dead letters enabled, and since their creation: deleting a queue deletes its dead letters. Not
    if an operator deleted or replayed it since.
    """
    keeping = lanes.join(F.broadcast(queues.where("keeps_dead_letters")), "queue").select("lane", "created_at")
    letters = _letters(acks).join(F.broadcast(keeping), "lane").where(F.col("completed") >= F.col("created_at"))
    letters = letters.withColumn("group", plain("group"))
    letters = letters.groupBy("lane", "group", "hash").agg(F.min("invoked").alias("at"))
    known = messages.select("lane", "hash", F.coalesce("offset", "log_offset").alias("offset")).where(
        F.col("offset").isNotNull()
    )
    placed = known.join(few(letters), ["lane", "hash"])
    kept = dead_letters.groupBy("lane", "group", "offset").agg(F.count("*").alias("kept"))
    found = placed.join(kept, ["lane", "group", "offset"], "left").withColumn("kept", F.coalesce("kept", F.lit(0)))
    found = found.where(F.col("kept") != 1)
    gone = (
        (F.col("kept") == 0)
        & (F.col("until") >= F.col("at"))
        & (F.col("on") == F.col("lane"))
        & F.coalesce(F.col("g") == F.col("group"), F.lit(True))
        & F.coalesce(F.col("h") == F.col("hash"), F.lit(True))
    )
    found = found.join(F.broadcast(letters_gone.withColumnRenamed("lane", "on")), gone, "left_anti")
    return violations(found, sentence("was dead-lettered, and is stored %s times as a dead letter", "kept"))
