"""What is stored: tables of the database that contradict each other."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from .basis import judges
from .evidence import violations


def _of(flaws: DataFrame, audit: str) -> DataFrame:
    return violations(flaws.where(F.col("audit") == audit), F.col("text"))


@checks("G-ACK-1", "G-ACK-3", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def cursors_stand_in_the_log(flaws: DataFrame) -> DataFrame:
    """A cursor that nothing explains.

    It stands beyond the log end or below the oldest message, waits for a push or for a time although it has messages,
    holds messages that its group was not given, or counts failures of messages that are done.
    """
    return _of(flaws, "cursors_stand_in_the_log")


@checks("G-GRP-1", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def groups_have_their_cursors(flaws: DataFrame) -> DataFrame:
    """A consumer group without a cursor in a partition of its queue, or with two, or a cursor without a group.

    Or a group whose beginning contradicts its mode, or that has the number of another one.
    """
    return _of(flaws, "groups_have_their_cursors")


@checks("G-DLQ-1", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def dead_letters_are_of_their_messages(flaws: DataFrame) -> DataFrame:
    """A dead letter of a group, a partition or an offset that never was, or of a deleted message."""
    return _of(flaws, "dead_letters_are_of_their_messages")


@checks("G-DUR-1", "G-ORD-2", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def partitions_are_complete(flaws: DataFrame) -> DataFrame:
    """A partition without its queue, or with contradictory segments; rows of a partition that does not exist."""
    return _of(flaws, "partitions_are_complete")


@checks("G-TIME-2", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def no_time_lies_ahead(flaws: DataFrame) -> DataFrame:
    """A time of something that happened which is later than the snapshot, or before its queue or partition was made.

    Not if PostgreSQL's clock has stepped.
    """
    return _of(flaws, "no_time_lies_ahead")


@checks("G-OUT-1", "G-TIM-1", "G-TIM-3", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def what_waits_can_enter_the_log(flaws: DataFrame) -> DataFrame:
    """A message of the outbox, a timer or a schedule that never enters the log as it is.

    The outbox has passed it, its queue does not exist, or it is no message.
    """
    return _of(flaws, "what_waits_can_enter_the_log")
