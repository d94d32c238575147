"""Tables for people, JSON for scripts."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import Raw
from rich.table import Table
from rich.text import Text

from queen.cli.output import out

#: Of a payload; all of it is in the JSON.
_PAYLOAD_CHARS = 2000
#: A pipe has no width; nothing is cut there.
_PIPE_CHARS = 1_000_000
Cell = str | int | float | Text | None


def document(value: object) -> None:
    """Prints a JSON document in one line."""
    out.out(compact(msgspec.json.encode(value)))


def compact(json: bytes | Raw) -> str:
    """JSON in one line, with the line ends and spaces between its parts taken out."""
    return msgspec.json.format(bytes(json), indent=-1).decode()


def table(*titles: str, right: Sequence[str] = (), folded: Sequence[str] = ()) -> Table:
    """An empty table.

    Args:
        titles: of its columns.
        right: columns of numbers.
        folded: columns that are broken into lines where there is no room; others are never cut.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        fold = title in folded
        made.add_column(title, justify="right" if title in right else "left", no_wrap=not fold, overflow="fold")
    return made


def add(to: Table, *cells: Cell) -> None:
    """Adds a row; text from messages and names is shown as it is, without power over the terminal."""
    to.add_row(*[cell if isinstance(cell, Text) else Text(clean("" if cell is None else str(cell))) for cell in cells])


def show(made: Table) -> None:
    """Prints a table: fitted to a terminal, as wide as it is elsewhere."""
    if out.is_terminal:
        out.print(made, soft_wrap=False)
    else:
        out.width = _PIPE_CHARS
        out.print(made)


def say(text: str) -> None:
    """Prints a line."""
    out.print(Text(clean(text)))


def clean(text: str) -> str:
    """The text with everything escaped that would move the cursor, change colours or break the line."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def payload(data: Raw) -> str:
    """A payload in one line, cut if it is very long."""
    text = compact(data)
    return text if len(text) <= _PAYLOAD_CHARS else f"{text[:_PAYLOAD_CHARS]}…"


def local(time: str | None) -> str:
    """A time of the server in the zone of whoever reads it, to the second."""
    if not time:
        return ""
    try:
        # The calendar's ends stand for infinities, and have no place in other zones.
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return time


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    whole = int(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{small_unit}"
    return f"{whole}s"


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def lines(values: Iterable[Raw]) -> None:
    """Prints a line of JSON for each."""
    for value in values:
        out.out(compact(value))
