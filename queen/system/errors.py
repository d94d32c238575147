"""Errors that prevent a start of the server."""

from queen.core.errors import QueenError


class StartError(QueenError):
    """The server cannot start or continue; ``str()`` is one line that says what is wrong, where, and what to do."""

    code = "start"


class FolderInUseError(StartError):
    """The data folder is locked by another running process."""
