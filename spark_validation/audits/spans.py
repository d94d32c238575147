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
    row = F.struct(*spans.columns)
    nothing = F.lit(None)
    begins = spans.select(
        *keys, F.col("invoked").alias("at"), F.lit(0).alias("end"), row.alias("span"), nothing.alias("v")
    )
    ends = spans.select(
        *keys, F.col("completed").alias("at"), F.lit(1).alias("end"), nothing.alias("span"), F.col(value).alias("v")
    )
    line = Window.partitionBy(*keys).orderBy("at", "end").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        begins.unionByName(ends)
        .withColumn("before", F.max("v").over(line))
        .where(F.col("end") == 0)
        .select("span.*", "before")
    )
