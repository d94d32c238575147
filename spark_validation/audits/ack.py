"""Acks: what is done stays done."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import done_ahead, few
from .basis import judges
from .evidence import sentence, violations


def _done(fates: DataFrame) -> DataFrame:
    return fates.where(F.col("done_at").isNotNull())


@checks("G-ACK-2", level=Level.AUDIT)
@judges("message that was acknowledged", _done)
def what_is_done_does_not_come_again(fates: DataFrame, deliveries: DataFrame) -> DataFrame:
    """A delivery by a pop that was sent after the ack of the message by this group had been answered.

    Not if a transaction id occurs for several messages: if retention had removed the first of them, that is possible.
    """
    message = ["lane", "group", "hash"]
    one = F.coalesce(F.col("offset") == F.col("offset_high"), F.lit(True))
    flagged = fates.where(one & (F.col("last_invoked") > F.col("done_at"))).select(*message, "done_at")
    again = deliveries.join(few(flagged), message).where(F.col("invoked") > F.col("done_at"))
    return violations(again, F.lit("was delivered after its ack had been answered"))


@checks("G-ACK-1", "G-DUR-2", level=Level.AUDIT)
@judges("message that was acknowledged", _done)
@judges("cursor", lambda cursors: cursors)
def answered_acks_are_below_the_cursor(fates: DataFrame, messages: DataFrame, cursors: DataFrame) -> DataFrame:
    """A message that was acknowledged by a group, but is above the group's cursor and not finished ahead of it.

    A cursor that was moved back by a seek is not distinguished from one that moved back by itself.
    """
    done = _done(fates)
    cursors = cursors.select("lane", "group", "acked", "ahead")
    placed = done.where(F.col("offset").isNotNull()).select("lane", "group", "hash", "offset")
    unplaced = few(done.where(F.col("offset").isNull()).select("lane", "group", "hash"))
    known = messages.select("lane", "hash", F.coalesce("offset", "log_offset").alias("offset"))
    placed = placed.unionByName(known.join(unplaced, ["lane", "hash"]).select(*placed.columns))
    undone = placed.join(few(cursors), ["lane", "group"]).where(F.col("offset") > F.col("acked"))
    return violations(undone.where(~done_ahead()), sentence("was acknowledged, but the cursor is at %s", "acked"))
