"""How far long work is: on standard error if that is a terminal, and only while it lasts."""

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from queen.cli.output import err


def bar() -> Progress:
    """What is done of how many."""
    return _shown(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def spinner() -> Progress:
    """For work of which nothing is heard before it is done."""
    return _shown(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())


def _shown(*columns: ProgressColumn) -> Progress:
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
