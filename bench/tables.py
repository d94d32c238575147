"""Tables of a report, for people; in a file they are Markdown."""

from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table

from queen_bench.database import Postgres
from queen_bench.machine import Machine
from queen_bench.procedures.results import Spread

_FILE_WIDTH = 200


def print_title(facts: Machine, server: Postgres, runs: int, console: Console) -> None:
    """One line that says where the figures come from."""
    console.print(
        f"PostgreSQL {server.version}{', embedded' if server.embedded else ''}; {facts.cpus} CPUs, {facts.processor}; "
        f"load before: {facts.load:.1f}; {runs} runs",
        markup=False,
    )


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text, and the others figures."""
    made = Table(title=title, title_justify="left")
    made.add_column(columns[0])
    for column in columns[1:]:
        made.add_column(column, justify="right")
    return made


def spread(values: Spread, digits: int = 0) -> str:
    """Smallest, middle and largest value."""
    return " / ".join(f"{value:,.{digits}f}" for value in (values.low, values.median, values.high))


def print_tables(tables: Sequence[Table], console: Console) -> None:
    """Prints them one below the other."""
    if console.is_terminal:
        console.print(*tables)
        return
    text = StringIO()
    page = Console(file=text, width=_FILE_WIDTH, highlight=False)
    for each in tables:
        page.print(f"\n{each.title}", markup=False)
        each.title, each.box = None, box.MARKDOWN
        page.print(each)
    # By the console that was given: it knows what to do when its reader has left.
    console.out(text.getvalue(), end="", highlight=False)
