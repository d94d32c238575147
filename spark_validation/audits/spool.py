"""The spool: what was answered as buffered is stored once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from queen_spec.guarantees import Level, checks

from .basis import judges
from .evidence import sentence, violations
from .excuse import unless_removed


def _buffered(messages: DataFrame, kept: DataFrame) -> DataFrame:
    return unless_removed(messages.where("spooled"), kept)


@checks("G-SPOOL-2", level=Level.AUDIT)
@judges("message that was answered as buffered, and that nothing has removed,", _buffered)
def spooled_messages_are_stored_once(messages: DataFrame, kept: DataFrame) -> DataFrame:
    """A message that was answered as buffered, and the log does not hold it exactly once.

    Its place in the order of its partition is what ``pushes_keep_their_order`` judges. Not when retention has removed
    it, or may have, and not of queues that the database does not have: they were deleted.
    """
    return violations(
        _buffered(messages, kept).where(F.col("logged") != 1),
        sentence("was spooled, and the log holds it %s times", "logged"),
    )
