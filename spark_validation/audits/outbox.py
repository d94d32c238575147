"""Pushes with SQL: a message is stored once if its transaction has committed, and never if it was rolled back."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import few
from .basis import judges
from .evidence import sentence, violations
from .excuse import unless_removed

_CALL = ["agent", "number"]


def _moved(pushes: DataFrame, kept: DataFrame, waiting: DataFrame) -> DataFrame:
    """The messages of transactions of SQL that the log has if they were committed."""
    pushed = pushes.where("kind = 'sql' AND hash IS NOT NULL").join(few(waiting), "lane", "left_anti")
    return unless_removed(pushed, kept, "completed")


@checks("G-OUT-1", level=Level.AUDIT)
@judges("push with SQL in a partition of which nothing waits in the outbox, and that nothing has removed,", _moved)
def pushes_with_sql_commit_with_their_transaction(
    pushes: DataFrame, messages: DataFrame, kept: DataFrame, waiting: DataFrame
) -> DataFrame:
    """A message that a transaction of SQL pushed, and that the log does not have once although it was committed.

    Or that exists although it was rolled back. Or, if the outcome of the transaction is unknown, that is not in the log
    although another message of the transaction exists. The last two only for messages that nothing else pushed. Not in
    partitions of which something waits in the outbox, is removed, or was deleted with its queue.
    """
    stored = messages.select(*("lane", "hash", "attempts", "refused", "deliveries", "logged", "log_offset"))
    there = (F.col("logged") > 0) | (F.col("deliveries") > 0)
    due = stored.join(few(_moved(pushes, kept, waiting).drop("offset")), ["lane", "hash"])
    lost = due.where((F.col("call") == "ok") & (F.col("logged") != 1))
    pushed = few(pushes.where("kind = 'sql' AND call <> 'ok'").select("lane", "hash", "call", *_CALL, "position"))
    others = stored.where(there).join(pushed, ["lane", "hash"])
    wrong = others.where((F.col("call") == "fail") & (F.col("attempts") == F.col("refused")))
    halves = others.where((F.col("call") == "unknown") & (F.col("attempts") == 1)).select(*_CALL).distinct()
    missing = due.where((F.col("call") == "unknown") & ~there).join(few(halves), _CALL)
    text = sentence("was pushed by a transaction that committed, but the log has it %s times", "logged")
    return (
        violations(lost.withColumn("offset", F.col("log_offset")), text)
        .unionByName(
            violations(
                wrong.withColumn("offset", F.col("log_offset")),
                F.lit("was pushed by a transaction that was rolled back, but exists"),
            )
        )
        .unionByName(violations(missing, F.lit("is missing, although another message of its transaction exists")))
    )
