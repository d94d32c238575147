"""Consumer groups: each sees every message, whatever the others do."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import few, looked_up
from .basis import judges
from .evidence import violations
from .excuse import emptied, unless_all_given_up, unless_amid, unless_gone, unseen


def _stored(
    messages: DataFrame, drained: DataFrame, lanes: DataFrame, hidden: DataFrame, last_lives: DataFrame
) -> DataFrame:
    """By group: the messages that were stored before the queue was seen to be empty for it."""
    swallowed = unseen(hidden, F.col("swallowed") | F.col("tail"))
    empty = drained.join(swallowed, ["queue", "group"], "left_anti")
    known = F.coalesce("offset", "log_offset").alias("offset")
    groups = F.broadcast(emptied(empty, lanes, last_lives))
    due = messages.where(F.col("answered").isNotNull()).select("lane", "hash", known, "answered").join(groups, "lane")
    return due.where(F.col("answered") < F.col("empty_at")).drop("empty_at", "answered")


@checks("G-GRP-1", level=Level.AUDIT)
@judges("message that was stored before a group was seen to have emptied its queue (drained)", _stored, excused=True)
def every_group_gets_every_message(
    messages: DataFrame,
    fates: DataFrame,
    drained: DataFrame,
    lanes: DataFrame,
    hidden: DataFrame,
    last_lives: DataFrame,
    amid: DataFrame,
    kept: DataFrame | None = None,
    given_up: DataFrame | None = None,
) -> DataFrame:
    """A message that was stored before the queue was seen to be empty for a group, but was never delivered to it.

    Not if it was removed, deleted, or evicted, and not if a pop with autoAck without an answer, or a consumer whose
    journal was cut short, may have taken it, or it was delivered during a change of the group.
    """
    due = _stored(messages, drained, lanes, hidden, last_lives)
    given = fates.where(F.col("deliveries") > 0).select("lane", "group", "hash")
    missed = due.join(looked_up(given), ["lane", "group", "hash"], "left_anti")
    missed = unless_amid(unless_gone(missed, kept, given_up), amid)
    return violations(missed, F.lit("was stored, but never delivered to the group"))


def _given(
    fates: DataFrame, groups: DataFrame, lanes: DataFrame, hidden: DataFrame, last_lives: DataFrame
) -> DataFrame:
    known = groups.where("whole").join(hidden, ["queue", "group"], "left_anti")
    lanes = lanes.join(F.broadcast(known), "queue").select("lane", "group")
    lanes = F.broadcast(lanes.join(few(last_lives.where(~F.col("whole"))), ["lane", "group"], "left_anti"))
    return fates.where((F.col("deliveries") > 0) & F.col("offset").isNotNull()).join(lanes, ["lane", "group"])


@checks("G-GRP-3", level=Level.AUDIT)
@judges("delivery to a group that began at the oldest message", _given, excused=True)
def groups_begin_at_the_beginning(
    fates: DataFrame,
    kept: DataFrame,
    groups: DataFrame,
    lanes: DataFrame,
    hidden: DataFrame,
    last_lives: DataFrame,
    given_up: DataFrame,
) -> DataFrame:
    """A partition whose oldest stored message was not delivered to a group that began at the oldest message.

    Except for messages that were deleted or evicted.
    """
    first = _given(fates, groups, lanes, hidden, last_lives)
    first = first.groupBy("lane", "group").agg(F.min("offset").alias("offset"))
    late = first.join(few(kept.select("lane", "owed")), "lane").where(F.col("offset") > F.col("owed"))
    late = unless_all_given_up(late.withColumn("below", F.col("owed") - 1), given_up)
    return violations(late, F.lit("is the first message of its partition that the group got"))
