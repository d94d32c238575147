"""A report as a table for people; in a file it is Markdown."""

from rich import box
from rich.console import Console
from rich.table import Table

from queen_bench.checkers.runner import Report

_FILE_WIDTH = 200
_TARGET_EVENTS, _TARGET_S = 1_000_000, 10.0


def show(report: Report, console: Console) -> None:
    """Prints the time of each checker and of all."""
    facts = report.machine
    console.print(
        f"{report.calls:,} calls, {report.events:,} events; Python {facts.python}, {facts.processor}; "
        f"load before: {facts.load:.1f}",
        markup=False,
    )
    table = Table("checker", box=box.ROUNDED if console.is_terminal else box.MARKDOWN)
    for column in ("judged", "CPU s"):
        table.add_column(column, justify="right")
    for timing in report.timings:
        table.add_row(timing.name, f"{timing.judged:,}", f"{timing.seconds:.2f}")
    table.add_row("all together", "", f"{report.seconds:.2f}")
    page = console if console.is_terminal else Console(file=console.file, width=_FILE_WIDTH, highlight=False)
    page.print(table)
    share = _TARGET_EVENTS / report.events
    page.print(
        f"{_TARGET_EVENTS:,} events: {report.seconds * share:.1f} s (target: {_TARGET_S:g} s); "
        f"ten times the calls took {10 * report.growth:.1f} times as long",
        markup=False,
    )
