"""What keeps the server from starting."""

from queen.core.errors import QueenError


class StartError(QueenError):
    """The server cannot start or go on; ``str()`` is one line that says what is wrong, where, and what to do."""

    code = "start"


class FolderInUseError(StartError):
    """The data folder belongs to another process, which runs."""
