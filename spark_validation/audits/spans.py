"""Calls have a length: one is certainly before another only if it was answered before that one was invoked."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


def with_greatest_before(spans: DataFrame, keys: tuple[str, ...], value: str) -> DataFrame:
    """The spans with ``before``: the greatest value among the spans of their keys that are certainly before them.

    Beginnings and ends are sorted together by time, so that one running maximum serves all of them; at the same time
    beginnings come first. ``value`` may be a struct, compared field by field.

    Args:
        spans: rows with ``invoked``, ``completed``, the keys and the value.
        keys: within what calls are compared.
        value: the column to compare.
    """
    # The spans are computed once: each is two rows.
    both = spans.withColumn("end", F.explode(F.array(F.lit(0), F.lit(1))))
    at = F.when(F.col("end") == 0, F.col("invoked")).otherwise(F.col("completed"))
    line = Window.partitionBy(*keys).orderBy(at, "end").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ended = F.when(F.col("end") == 1, F.col(value))
    return both.withColumn("before", F.max(ended).over(line)).where(F.col("end") == 0).drop("end")
