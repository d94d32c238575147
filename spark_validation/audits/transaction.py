"""Transactions: all or none, and each input once."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import done_ahead, few
from .basis import judges
from .evidence import sentence, violations
from .excuse import unless_removed

_CALL = ["agent", "number"]
_TRANSACTION = "kind = 'transaction'"


def _own(pushes: DataFrame, messages: DataFrame) -> DataFrame:
    """The messages that only transactions pushed, and whether each is ``there``."""
    pushed = pushes.where(_TRANSACTION).where(F.col("hash").isNotNull())
    alone = messages.where(F.col("attempts") == 1).select("lane", "hash", "deliveries", "logged", "seen_at")
    own = alone.join(few(pushed), ["lane", "hash"])
    return few(own.withColumn("there", (F.col("deliveries") > 0) | (F.col("logged") > 0)))


@checks("G-TXN-1", level=Level.AUDIT)
@judges("transaction with a push", lambda pushes: pushes.where(_TRANSACTION))
def a_transaction_happens_whole_or_not_at_all(
    pushes: DataFrame,
    acks: DataFrame,
    messages: DataFrame,
    fates: DataFrame,
    drained: DataFrame,
    lanes: DataFrame,
    kept: DataFrame | None = None,
    cursors: DataFrame | None = None,
) -> DataFrame:
    """A failed transaction of which a message exists, or a successful one that happened only in part.

    In a successful one no message may be missing, and no input may be delivered again, or be left by the cursor. (That
    of one that was answered is an answered ack.)

    It succeeded if it was answered so, or if one of its messages exists. With a log, a message is missing if the log
    does not have it, unless retention removed it or its queue was deleted; without one, if it was not delivered
    although a group has emptied the queue since.
    """
    empty = drained.groupBy("queue").agg(F.max("empty_at").alias("empty_at"))
    own = _own(pushes, messages).join(few(lanes), "lane").join(few(empty), "queue", "left")
    calls = own.groupBy(*_CALL).agg(
        F.min("call").alias("call"),
        F.min("position").alias("position"),
        F.max("there").alias("there"),
        F.least(F.min("completed"), F.min(F.when(F.col("there"), F.col("seen_at")))).alias("happened_at"),
    )
    failed = calls.where((F.col("call") == "fail") & F.col("there"))
    happened = few(calls.where((F.col("call") == "ok") | ((F.col("call") == "unknown") & F.col("there"))))
    absent = own.where(~F.col("there")).select(*_CALL, "lane", "offset", "completed", "empty_at").join(happened, _CALL)
    if kept is None:
        absent = absent.where(F.col("empty_at") > F.col("happened_at"))
    else:
        absent = unless_removed(absent, kept, "completed")
    inputs = acks.where(_TRANSACTION).select(*_CALL, "lane", "group", "hash").join(happened, _CALL)
    again = fates.select("lane", "group", "hash", "last_invoked").join(few(inputs), ["lane", "group", "hash"])
    again = again.where(F.col("last_invoked") > F.col("happened_at"))
    kinds = [
        (failed, "was pushed by a transaction that failed, but exists"),
        (absent, "was pushed by a transaction of which another message is missing"),
        (again, "was pushed by a transaction whose input was delivered again"),
    ]
    if cursors is not None:
        kinds.append((_left(acks, messages, cursors, happened), "was pushed by a transaction whose input is not done"))
    found = [each.select(*_CALL, "position").distinct().withColumn("text", F.lit(text)) for each, text in kinds]
    first = pushes.select(*_CALL, "position", "lane", "hash").join(
        few(reduce(DataFrame.unionByName, found)), [*_CALL, "position"]
    )
    return violations(first, F.col("text"))


def _left(acks: DataFrame, messages: DataFrame, cursors: DataFrame, happened: DataFrame) -> DataFrame:
    """The transactions without an answer that happened, and of which the cursor of a group has left an input."""
    silent = few(happened.where(F.col("call") == "unknown").select(*_CALL, "position"))
    inputs = acks.where(_TRANSACTION).where(F.col("status").isin("completed", "success"))
    inputs = inputs.select(*_CALL, "lane", "group", "hash").join(silent, _CALL)
    places = messages.select("lane", "hash", F.coalesce("offset", "log_offset").alias("offset"))
    placed = places.join(few(inputs), ["lane", "hash"]).join(
        few(cursors.select("lane", "group", "acked", "ahead")), ["lane", "group"]
    )
    return placed.where((F.col("offset") > F.col("acked")) & ~done_ahead())


@checks("G-TXN-2", level=Level.AUDIT)
@judges("transaction with an ack", lambda acks: acks.where(_TRANSACTION))
def each_input_makes_its_output_once(pushes: DataFrame, acks: DataFrame, messages: DataFrame) -> DataFrame:
    """A message that several successful transactions acknowledge for one group."""
    own = _own(pushes, messages).where("there").select(*_CALL).distinct().withColumn("seen", F.lit(True))
    inputs = acks.where(_TRANSACTION).select(*_CALL, "call", "lane", "group", "hash").distinct()
    shared = inputs.groupBy("lane", "group", "hash").agg(F.count("*").alias("n")).where(F.col("n") > 1)
    inputs = inputs.join(few(shared), ["lane", "group", "hash"]).join(own, _CALL, "left")
    happened = inputs.where((F.col("call") == "ok") | F.col("seen"))
    several = happened.groupBy("lane", "group", "hash").agg(F.count("*").alias("happened")).where(F.col("happened") > 1)
    return violations(several, sentence("is the input of %s transactions that succeeded", "happened"))
