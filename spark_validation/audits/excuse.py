"""Messages that need not exist, be delivered, or be finished: removed by retention, deleted, or given up by a group."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ..tables.columns import few

_MESSAGE = ["lane", "group", "offset"]


def unseen(hidden: DataFrame, how: Column) -> DataFrame:
    """The groups with deliveries that no journal may have, and that were so; ``unless_amid`` excuses the others."""
    return hidden.where(how & ~F.col("amid"))


def unless_amid(rows: DataFrame, amid: DataFrame) -> DataFrame:
    """The rows (``lane``, ``group``, ``hash``) of whose message the life of each delivery and ack is known."""
    return rows.join(few(amid), ["lane", "group", "hash"], "left_anti")


def unless_removed(rows: DataFrame, kept: DataFrame, stored: str = "answered") -> DataFrame:
    """The rows (``lane``, ``offset``) whose message should be in log or archive, and was stored by a time.

    Without queues that the database does not have, or that are younger than the message: they were deleted. In a
    partition of which something was removed, one of unknown offset may have been. Nor those in a damaged segment, which
    is a violation itself.
    """
    there = rows.join(few(kept.select("lane", "oldest", "made", "damaged")), "lane")
    there = there.where(F.col(stored) >= F.col("made"))
    held = F.coalesce("offset", F.when(F.col("oldest") == 0, F.lit(0))) >= F.col("oldest")
    inside = F.exists(
        "damaged", lambda run: F.coalesce(F.col("offset").between(run["first"], run["last"]), F.lit(True))
    )
    return there.where(held & ~F.coalesce(inside, F.lit(False))).drop("oldest", "made", "damaged")


def emptied(drained: DataFrame, lanes: DataFrame, last_lives: DataFrame) -> DataFrame:
    """By lane and group: when its queue was last seen to be empty (``empty_at``).

    Not of a group that has begun again since, or not at the oldest message.
    """
    rows = lanes.join(F.broadcast(drained), "queue").select("lane", "group", "empty_at")
    other = rows.join(few(last_lives), ["lane", "group"])
    other = other.where(~(F.col("whole") & (F.col("since") < F.col("empty_at")))).select("lane", "group")
    return rows.join(few(other), ["lane", "group"], "left_anti")


def unless_gone(rows: DataFrame, kept: DataFrame | None, given_up: DataFrame | None) -> DataFrame:
    """The rows (``lane``, ``group``, ``offset``) whose message exists, and that the group has not given up.

    Without a database all of them. In a partition with removed messages, one of unknown offset may be among them.
    """
    if kept is None or given_up is None:
        return rows
    there = rows.join(few(kept.select("lane", "owed")), "lane")
    there = there.where(F.coalesce("offset", F.lit(0)) >= F.col("owed")).drop("owed")
    return there.join(few(given_up), _MESSAGE, "left_anti")


def unless_all_given_up(gaps: DataFrame, given_up: DataFrame | None) -> DataFrame:
    """The gaps (``lane``, ``group``, between ``below`` and ``offset``) with messages that were not given up."""
    if given_up is None:
        return gaps
    spans = few(gaps.select(*_MESSAGE, "below").distinct())
    inside = given_up.withColumnRenamed("offset", "gone").join(spans, ["lane", "group"])
    inside = inside.where((F.col("gone") > F.col("below")) & (F.col("gone") < F.col("offset")))
    counted = inside.groupBy(*_MESSAGE).agg(F.count("*").alias("gone"))
    left = F.col("offset") - F.col("below") - 1 - F.coalesce("gone", F.lit(0))
    return gaps.join(few(counted), _MESSAGE, "left").where(left > 0).select(*gaps.columns)
