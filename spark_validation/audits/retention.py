"""Retention: it removes only what the settings of the queue allow."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from queen_spec.guarantees import Level, checks

from ..tables import SECOND, few
from .evidence import sentence, violations


@checks("G-RET-1", level=Level.AUDIT)
def only_what_may_go_is_gone(heads: DataFrame, queues: DataFrame, messages: DataFrame | None = None) -> DataFrame:
    """A message that is gone and younger than the shortest time after which its queue removes messages.

    Its age is at most the time from its first push to the snapshot; that it was completed by every group, where the
    queue asks for that, is not looked at. In a queue that removes nothing every partition has to begin at offset 0,
    whoever pushed there. What an archive still has is gone all the same. What waited for too long is only given up: it
    stays in the log.
    """
    times = [
        F.when(F.col(name) > 0, F.col(name))
        for name in ("retention_seconds", "completed_retention_seconds", "ttl_seconds")
    ]
    limits = queues.select("queue", "taken_at", F.least(*times).alias("keeps"))
    heads = heads.withColumn("oldest_offset", F.coalesce("live_oldest", "oldest_offset"))
    cut = heads.where(F.col("oldest_offset") > 0).join(F.broadcast(limits), "queue")
    never = cut.where(F.col("keeps").isNull()).withColumn("offset", F.col("oldest_offset"))
    found = violations(never, F.lit("is the oldest kept, and its queue removes nothing"))
    if messages is None:
        return found
    timed = few(cut.where(F.col("keeps").isNotNull()).select("lane", "oldest_offset", "taken_at", "keeps"))
    gone = messages.where(F.col("answered").isNotNull()).join(timed, "lane")
    young = gone.where(
        (F.col("offset") < F.col("oldest_offset"))
        & (F.col("taken_at") - F.col("pushed_from") < F.col("keeps") * SECOND)
    )
    text = sentence("was removed, and its queue keeps messages for %s s", "keeps")
    return found.unionByName(violations(young, text))
