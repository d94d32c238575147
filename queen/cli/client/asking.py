"""What cannot be taken back asks first."""

import sys

import typer

from queen.cli.client.connection import UsageError


def confirm(question: str, *, yes: bool) -> None:
    """Returns if it is wanted.

    Raises:
        UsageError: nobody is there to be asked.
        typer.Exit: it is not wanted.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is there to answer: --yes does it without asking")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
