"""Confirmation of actions that cannot be undone."""

import sys

import typer

from queen.cli.client.connection import UsageError


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the user confirms.

    Raises:
        UsageError: there is no terminal.
        typer.Exit: the user declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask: use --yes to do it without asking")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
