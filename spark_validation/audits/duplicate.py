"""Idempotence: one transaction id, one message in a partition."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import few, unless
from .basis import judges
from .evidence import sentence, violations


@checks("G-IDEM-1", level=Level.AUDIT)
def a_transaction_id_is_stored_once(messages: DataFrame, kept: DataFrame | None = None) -> DataFrame:
    """A transaction id that occurs at several offsets of a partition, or was answered as queued more than once.

    What was answered as buffered may turn out as a duplicate. Offsets are from answers, deliveries, and the log. Not if
    retention has removed the first of them, or its queue was deleted since: then the id may be used again, which only a
    log shows.
    """
    several = (F.col("offset") != F.col("offset_high")) | (F.col("logged") > 1)
    stored = sentence("is stored at the offsets %s to %s", "offset", "offset_high")
    text = F.when(F.col("logged") > 1, stored)
    text = text.when(several, sentence("has the offsets %s to %s in answers and log", "offset", "offset_high"))
    doubled = messages.where(several | (F.col("direct") > 1))
    if kept is not None:
        doubled = doubled.join(few(kept.select("lane", "live", "made")), "lane")
        doubled = doubled.where(F.coalesce("offset", F.lit(0)) >= F.col("live"))
        doubled = doubled.where(F.coalesce("answered", "made") >= F.col("made"))
    return violations(
        doubled,
        text.otherwise(sentence("was answered as queued %s times", "direct")),
    )


def _duplicates(pushes: DataFrame, tails: DataFrame) -> DataFrame:
    return unless(pushes.where(F.col("duplicate") & (F.col("outcome") == "ok")), tails)


@checks("G-IDEM-3", level=Level.AUDIT)
@judges("push that was answered as a duplicate, beside journals of which none was cut short,", _duplicates)
def a_duplicate_has_an_original_in_its_partition(pushes: DataFrame, messages: DataFrame, tails: DataFrame) -> DataFrame:
    """A push that was answered as a duplicate although no other push had that transaction id in that partition.

    The log may be older than the journals: a duplicate of a message that is in the log, or was delivered, has an
    original. An agent whose journal was cut short may have pushed any message.
    """
    stored = (F.col("logged") > 0) | (F.col("deliveries") > 0)
    pushed = (F.col("attempts") - F.col("refused")).alias("pushed")
    alone = messages.where((F.col("queued") == 0) & ~stored).select("lane", "hash", pushed).where("pushed > 0")
    found = _duplicates(pushes, tails).join(few(alone), ["lane", "hash"])
    duplicates = F.count("*").over(Window.partitionBy("lane", "hash"))
    found = found.withColumn("duplicates", duplicates).where(F.col("pushed") == F.col("duplicates"))
    found = found.dropDuplicates(["lane", "hash"])
    return violations(found, F.lit("was answered as a duplicate, but no other push had it there"))
