"""Errors that end a command, and the exit codes: the table in docs/cli.md."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    #: Something was refused, violated, or needs attention.
    FAILED = 1
    #: Nothing could be done or found out: a usage error, or a server or database that cannot be reached.
    IMPOSSIBLE = 2
    #: ``queen verify``: nothing is violated, but some checks have no result.
    NO_RESULT = 3
    #: Ctrl-C.
    INTERRUPTED = 130


class FailedError(Exception):
    """An error that ends a command; ``str()`` is one line for people, with advice."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: object, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = ExitCode(exit_code)


class UsageError(FailedError):
    """A usage error; nothing was done."""

    exit_code = ExitCode.IMPOSSIBLE
