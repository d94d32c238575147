"""What the commands print for people: on a terminal with colours, else plain and never wrapped."""

import os
import sys
from typing import NoReturn

import typer
from rich.console import Console


class _Console(Console):
    """A console whose reader may leave: ``queen tail … | head`` ends well."""

    def on_broken_pipe(self) -> NoReturn:
        """Whoever reads has enough, so the command is done."""
        self.quiet = True
        # Python flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


# An emoji code, such as :heart:, is text like any other.
out = _Console(highlight=False, soft_wrap=True, emoji=False)
err = _Console(highlight=False, soft_wrap=True, emoji=False, stderr=True)


def fail(message: object, exit_code: int = 1) -> NoReturn:
    """Prints one line on standard error and ends the command."""
    err.print("[bold red]error:[/]", end=" ")
    err.print(str(message), markup=False)
    raise typer.Exit(exit_code)
