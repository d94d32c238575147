"""What a group need not be given, nor finish: what retention removed, somebody deleted, or the group gave up."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ..tables import few

_MESSAGE = ["lane", "group", "offset"]


def unless_gone(
    rows: DataFrame, heads: DataFrame | None, given_up: DataFrame | None, silent: DataFrame | None
) -> DataFrame:
    """The rows (``lane``, ``group``, ``offset``) whose message is there still, and that the group has not given up.

    Without a database all of them. In a partition of which something was removed, one of unknown offset may have been.
    """
    if heads is None or given_up is None or silent is None:
        return rows
    oldest = F.coalesce("live_oldest", "oldest_offset")
    kept = heads.groupBy("lane").agg(F.max(oldest).alias("oldest"))
    there = rows.join(few(kept), "lane", "left").where(F.coalesce("offset", F.lit(0)) >= F.coalesce("oldest", F.lit(0)))
    there = there.join(few(silent), "lane", "left_anti")
    return there.join(few(given_up), _MESSAGE, "left_anti").select(*rows.columns)


def unless_all_given_up(gaps: DataFrame, given_up: DataFrame | None, silent: DataFrame | None) -> DataFrame:
    """The gaps (``lane``, ``group``, between ``below`` and ``offset``) in which something was not given up."""
    if given_up is None or silent is None:
        return gaps
    gaps = gaps.join(few(silent), "lane", "left_anti")
    spans = few(gaps.select(*_MESSAGE, "below").distinct())
    inside = given_up.withColumnRenamed("offset", "gone").join(spans, ["lane", "group"])
    inside = inside.where((F.col("gone") > F.col("below")) & (F.col("gone") < F.col("offset")))
    counted = inside.groupBy(*_MESSAGE).agg(F.count("*").alias("gone"))
    left = F.col("offset") - F.col("below") - 1 - F.coalesce("gone", F.lit(0))
    return gaps.join(few(counted), _MESSAGE, "left").where(left > 0).select(*gaps.columns)
