"""What makes a benchmark's figures worthless."""

from queen.core.errors import QueenError


class MismatchError(QueenError):
    """What was measured did something else than it should: messages are missing, or a verdict is wrong."""

    code = "mismatch"
