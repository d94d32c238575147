"""What the commands print for people: on a terminal with colours, else plain and never wrapped."""

from typing import NoReturn

import typer
from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, soft_wrap=True, stderr=True)


def fail(message: object, exit_code: int = 1) -> NoReturn:
    """Prints one line on standard error and ends the command."""
    err.print("[bold red]error:[/]", end=" ")
    err.print(str(message), markup=False)
    raise typer.Exit(exit_code)
