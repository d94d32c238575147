"""Output: tables for people, JSON for scripts."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Raw
from rich.table import Table
from rich.text import Text

from queen.cli.output import PIPE_CHARS, out

#: Characters of a payload on a terminal; JSON and pipes have all of it.
_PAYLOAD_CHARS = 2000
Cell = str | int | None


def document(value: object) -> None:
    """Prints a JSON document in one line."""
    out.out(compact(msgspec.json.encode(value)))


def compact(json: bytes | Raw) -> str:
    """JSON on one line, without whitespace between its parts."""
    return msgspec.json.format(bytes(json), indent=-1).decode()


class Listing:
    """A table; text from messages and names is escaped, so that it cannot control the terminal.

    Args:
        titles: of its columns.
        right: right-aligned columns, for numbers.
    """

    def __init__(self, *titles: str, right: Sequence[str] = ()) -> None:
        self._titles, self._right = titles, right
        self._rows: list[list[str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *cells: Cell) -> None:
        """Adds a row, with a cell for each title."""
        self._rows.append([clean("" if cell is None else str(cell)) for cell in cells])

    def table(self) -> Table:
        """One line per row. If space is short, texts are cut, but not numbers."""
        made = Table(box=None, pad_edge=False, header_style="bold")
        for title in self._titles:
            number = title in self._right
            made.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="ellipsis")
        for row in self._rows:
            made.add_row(*map(Text, row))
        return made

    def show(self) -> None:
        """Prints a table; on a narrow terminal each row as a list, like psql."""
        made = self.table()
        if not out.is_terminal:
            out.print(made)
        elif out.measure(made, options=out.options.update(width=PIPE_CHARS)).maximum <= out.width:
            out.print(made, soft_wrap=False)
        else:
            for row in self._rows:
                record(*zip(self._titles, row, strict=True))
                out.print()


def record(*facts: tuple[str, Cell]) -> None:
    """Prints the facts of one object, one or more lines each."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for title, value in facts:
        made.add_row(title, Text(clean("" if value is None else str(value))))
    out.print(made, soft_wrap=False)


def say(text: str) -> None:
    """Prints a line."""
    out.print(Text(clean(text)))


def clean(text: str) -> str:
    """The text with control characters escaped: they could move the cursor, change colours or break the line."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def payload(data: Raw) -> str:
    """A payload on one line; on a terminal it is cut if very long."""
    return cut(compact(data))


def cut(text: str) -> str:
    """A text; on a terminal it is cut if very long."""
    return text if len(text) <= _PAYLOAD_CHARS or not out.is_terminal else f"{text[:_PAYLOAD_CHARS]}…"


def local(time: str | None) -> str:
    """A time of the server in the local time zone, to the second."""
    if not time:
        return ""
    try:
        # The first and last dates stand for infinities, and cannot be converted to other zones.
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return time


def local_ms(milliseconds: int) -> str:
    """A time in milliseconds since 1970 in the local time zone, to the second."""
    return local(datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat())


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
    """Prints one line of JSON per element."""
    for value in values:
        out.out(compact(value))
