"""The spool: what was answered as buffered is stored once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from queen_spec.guarantees import Level, checks

from ..tables import few
from .basis import judges
from .evidence import sentence, violations


def _buffered(messages: DataFrame, heads: DataFrame) -> DataFrame:
    kept = heads.groupBy("lane").agg(F.max("oldest_offset").alias("oldest"))
    return messages.where("spooled").join(few(kept), "lane", "left").where(F.coalesce("oldest", F.lit(0)) == 0)


@checks("G-SPOOL-2", level=Level.AUDIT)
@judges("message that was answered as buffered, in a partition of which nothing was removed,", _buffered)
def spooled_messages_are_stored_once(messages: DataFrame, heads: DataFrame) -> DataFrame:
    """A message that was answered as buffered, and the log does not hold it exactly once.

    Its place in the order of its partition is what ``pushes_keep_their_order`` judges. Not of partitions from which
    retention has removed something.
    """
    return violations(
        _buffered(messages, heads).where(F.col("logged") != 1),
        sentence("was spooled, and the log holds it %s times", "logged"),
    )
