"""Consumer groups: each sees every message, whatever the others do."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from queen_spec.guarantees import Level, checks

from ..tables import few
from .evidence import violations


@checks("G-GRP-1", level=Level.AUDIT)
def every_group_gets_every_message(
    messages: DataFrame, fates: DataFrame, drained: DataFrame, lanes: DataFrame, hidden: DataFrame
) -> DataFrame:
    """A message that was stored before the queue was seen to be empty for a group, and never delivered to it.

    Not when a pop with autoAck without an answer, or a consumer whose journal was cut short, may have taken it.
    """
    swallowed = hidden.where(F.col("swallowed") | F.col("tail"))
    empty = drained.join(swallowed, ["queue", "group"], "left_anti")
    groups = F.broadcast(lanes.join(F.broadcast(empty), "queue").select("lane", "group", "empty_at"))
    due = (
        messages.where(F.col("answered").isNotNull()).select("lane", "hash", "offset", "answered").join(groups, "lane")
    )
    due = due.where(F.col("answered") < F.col("empty_at")).drop("empty_at", "answered")
    given = fates.where(F.col("deliveries") > 0).select("lane", "group", "hash")
    return violations(
        due.join(given, ["lane", "group", "hash"], "left_anti"), F.lit("was stored, and never delivered to the group")
    )


@checks("G-GRP-3", level=Level.AUDIT)
def groups_begin_at_the_beginning(
    fates: DataFrame, heads: DataFrame, groups: DataFrame, lanes: DataFrame, hidden: DataFrame
) -> DataFrame:
    """A partition of which a group that began at the oldest message was not given the oldest that is kept."""
    known = groups.where("whole").join(hidden, ["queue", "group"], "left_anti")
    lanes = F.broadcast(lanes.join(F.broadcast(known), "queue").select("lane", "group"))
    first = fates.where((F.col("deliveries") > 0) & F.col("offset").isNotNull()).join(lanes, ["lane", "group"])
    first = first.groupBy("lane", "group").agg(F.min("offset").alias("offset"))
    late = first.join(few(heads.select("lane", "oldest_offset")), "lane").where(
        (F.col("offset") > 0) & (F.col("offset") > F.col("oldest_offset"))
    )
    return violations(late, F.lit("is the first of its partition that the group was given"))
