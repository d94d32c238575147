"""Retention: removes only messages that the settings of the queue allow."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import SECOND, few
from .evidence import sentence, violations


@checks("G-RET-1", level=Level.AUDIT)
def only_what_may_go_is_gone(heads: DataFrame, queues: DataFrame, messages: DataFrame | None = None) -> DataFrame:
    """A removed message that is younger than the shortest time after which its queue removes messages, or ever did.

    Its age is at most the time from its first push to the snapshot. Whether every group has acknowledged it, if the
    queue requires that, is not checked. In a queue that removes nothing, every partition must start at offset 0,
    regardless of its producers. A message that only an archive still has counts as removed. Eviction does not remove
    messages from the log.
    """
    times = [
        F.when(F.col(name) > 0, F.col(name))
        for name in ("retention_seconds", "completed_retention_seconds", "ttl_seconds", "kept_seconds")
    ]
    limits = queues.select("queue", "taken_at", F.least(*times).alias("keeps"))
    heads = heads.withColumn("oldest_offset", F.coalesce("live_oldest", "oldest_offset"))
    cut = heads.where(F.col("oldest_offset") > 0).join(F.broadcast(limits), "queue")
    never = cut.where(F.col("keeps").isNull()).withColumn("offset", F.col("oldest_offset"))
    found = violations(never, F.lit("is the oldest stored message, but its queue removes nothing"))
    if messages is None:
        return found
    timed = few(cut.where(F.col("keeps").isNotNull()).select("lane", "oldest_offset", "taken_at", "keeps"))
    # What was delivered was stored, whether its push was answered or not.
    gone = messages.where(F.coalesce("answered", "seen_at").isNotNull()).join(timed, "lane")
    young = gone.where(
        (F.col("offset") < F.col("oldest_offset"))
        & (F.col("taken_at") - F.col("pushed_from") < F.col("keeps") * SECOND)
    )
    text = sentence("was removed, but its queue keeps messages for %s s", "keeps")
    return found.unionByName(violations(young, text))
