"""The spool: messages answered as buffered are stored once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from .basis import judges
from .evidence import sentence, violations
from .excuse import unless_removed


def _buffered(messages: DataFrame, kept: DataFrame) -> DataFrame:
    return unless_removed(messages.where("spooled"), kept)


@checks("G-SPOOL-2", level=Level.AUDIT)
@judges("message that was answered as buffered, and that nothing has removed,", _buffered)
def spooled_messages_are_stored_once(messages: DataFrame, kept: DataFrame) -> DataFrame:
    """A message that was answered as buffered, but is not in the log exactly once.

    ``pushes_keep_their_order`` checks its order. Not if retention has removed it, or may have, and not for queues that
    are not in the database: they were deleted.
    """
    return violations(
        _buffered(messages, kept).where(F.col("logged") != 1),
        sentence("was spooled, but the log has it %s times", "logged"),
    )
