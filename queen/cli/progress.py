"""Progress of long work, on standard error if that is a terminal."""

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
    """A progress bar."""
    return _shown(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def spinner() -> Progress:
    """A spinner, for work without progress reports."""
    return _shown(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())


def _shown(*columns: ProgressColumn) -> Progress:
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
