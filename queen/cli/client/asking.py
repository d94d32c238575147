"""Confirmation of actions that cannot be undone."""

import sys

from queen.cli.errors import ExitCode, FailedError, UsageError
from queen.cli.output import err


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the user confirms.

    Raises:
        UsageError: there is no terminal.
        FailedError: the user declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask: use --yes to do it without asking")
    err.print(f"{question} [y/N]:", end=" ", markup=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise FailedError("nothing was done: you did not answer yes", ExitCode.FAILED)
