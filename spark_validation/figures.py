"""Plots as inline SVG, without scripts, fonts or other files."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import log

from msgspec import Struct

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 220, 64, 24, 8
_CHARACTER, _LARGE = 6.8, 1000
_ROW, _WIDE_LEFT = 24, 190
_GRID, _ROWS = "#e6e9ef", (0.25, 0.5, 0.75)
_FAULT = "#c0262d"
_COLOURS = ("#2458a6", "#c0562d", "#157f3b", "#7a3fa0", "#8a6d00", "#3f8f9c")


class Tick(Struct, frozen=True):
    """A position on an axis with its text."""

    x: float
    text: str


class Series(Struct, frozen=True):
    """Figures under one title; ``points`` are (line, x, y), and x is seconds since the beginning or a rank.

    Attributes:
        over_time: x is seconds since the beginning of the run; else a rank, drawn as bars.
        marks: (seconds, text) of faults, shown in a plot over time.
    """

    title: str
    unit: str
    points: tuple[tuple[str, float, float], ...]
    over_time: bool = True
    marks: tuple[tuple[float, str], ...] = ()


def lines(series: Series, right: float, ticks: Sequence[Tick] = ()) -> str:
    """One line for each name, over the seconds of the run, which are the same for all plots: ``right`` is the last.

    With ``ticks``, x is something else, and they say what.
    """
    if not series.points:
        return ""
    top = max([*(point[2] for point in series.points), 1e-9])

    def place(x: float, y: float) -> str:
        return f"{_x(x, right):.1f},{_y(y, top):.1f}"

    names = list(dict.fromkeys(point[0] for point in series.points))
    drawn = [
        f'<polyline fill="none" stroke="{_colour(number)}" stroke-width="1.5"{_dashes(number)} points="'
        + " ".join(place(x, y) for line, x, y in sorted(series.points) if line == name)
        + '"/>'
        for number, name in enumerate(names)
    ]
    drawn += [*_marks(series.marks, right), *_ticks(ticks, right)]
    return _figure(series, top, "" if ticks else f"{right:.0f} s", drawn, names)


def _ticks(ticks: Sequence[Tick], right: float) -> Iterator[str]:
    for tick in ticks:
        x = _x(tick.x, right)
        anchor = "end" if tick.x >= right else "middle"
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="{_GRID}"/>'
        yield _text(x, _HEIGHT - 8, tick.text, anchor=anchor)


def stacks(title: str, unit: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A bar of the same length per row, split into its parts, with the amount of each."""
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    height = _TOP + _ROW * len(rows) + 6
    drawn: list[str] = []
    for number, (name, row) in enumerate(rows.items()):
        x, y, whole = float(_WIDE_LEFT), _TOP + _ROW * number + 4, sum(row.values()) or 1.0
        drawn.append(_text(x - 6, y + 14, name, anchor="end"))
        for part, amount in row.items():
            width = amount / whole * (_WIDTH - _WIDE_LEFT)
            colour = _colour(parts.index(part))
            drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 6}" fill="{colour}"/>')
            if width > _CHARACTER * len(_number(amount)):
                drawn.append(_text(x + 4, y + 14, _number(amount), colour="#fff"))
            x += width
    return _captioned(title, unit, height, drawn, parts)


def spreads(title: str, unit: str, rows: Mapping[str, tuple[float, float, float]]) -> str:
    """Ratios, smallest, middle and largest of each row, beside a line at 1; the scale is logarithmic."""
    if not rows:
        return ""
    bound = max(1.2, *(max(high, 1 / low) for low, _, high in rows.values()))
    height, bottom = _TOP + _ROW * len(rows) + _BOTTOM, _TOP + _ROW * len(rows)

    def x(ratio: float) -> float:
        return _WIDE_LEFT + (log(ratio) / log(bound) + 1) / 2 * (_WIDTH - _WIDE_LEFT - 60)

    drawn = []
    for ratio in (1 / bound, 1.0, bound):
        drawn.append(f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="{_TOP}" y2="{bottom}" stroke="#9aa3b2"/>')
        drawn.append(_text(x(ratio), bottom + 16, f"{ratio:.2g}", anchor="middle"))
    for number, (name, (low, middle, high)) in enumerate(rows.items()):
        y = _TOP + _ROW * (number + 0.5)
        drawn += [
            _text(_WIDE_LEFT - 6, y + 4, name, anchor="end"),
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" stroke="{_colour(0)}" stroke-width="4"/>',
            f'<circle cx="{x(middle):.1f}" cy="{y}" r="6" fill="{_colour(0)}"/>',
            _text(x(high) + 10, y + 4, f"{middle:.2f}"),
        ]
    return _captioned(title, unit, height, drawn)


def _legend(names: Sequence[str]) -> str:
    """The names in the colours of their lines, as HTML, which wraps by itself."""
    shown = "".join(
        f'<span style="color:{_colour(number)}">{escape(name)}</span> ' for number, name in enumerate(names)
    )
    return f"<div class=legend>{shown}</div>" if shown else ""


def _dashes(number: int) -> str:
    """Lines that share a colour are dashed."""
    return ' stroke-dasharray="5 3"' if number >= len(_COLOURS) else ""


def _marks(marks: Sequence[tuple[float, str]], right: float) -> Iterator[str]:
    """A line per mark, with its text in the highest row that has room."""
    taken: list[float] = []
    for at, text in sorted(marks):
        x, width = _x(at, right), _CHARACTER * len(text) + 6
        begin = x if x + width < _WIDTH else x - width
        row = next((row for row, end in enumerate(taken) if end <= begin), len(taken))
        taken[row : row + 1] = [begin + width]
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"'
        yield f'{line} stroke="{_FAULT}" stroke-dasharray="4 3"/>'
        yield _text(begin + 3, _TOP + 12 * (row + 1), text, colour=_FAULT)


def bars(series: Series) -> str:
    """One bar per point, in the order of x; its name is below if there is room for all, and in its title."""
    points = sorted(series.points, key=lambda point: point[1])
    if not points:
        return ""
    top, width = max(*(point[2] for point in points), 1e-9), (_WIDTH - _LEFT) / len(points)
    drawn = [
        f'<rect x="{_LEFT + number * width:.1f}" y="{_y(y, top):.1f}" width="{max(width - 1, 0.5):.1f}" '
        f'height="{_HEIGHT - _BOTTOM - _y(y, top):.1f}" fill="{_COLOURS[0]}">'
        f"<title>{escape(name)}: {y:g}</title></rect>"
        for number, (name, _, y) in enumerate(points)
    ]
    named = all(_CHARACTER * len(name) <= width for name, _, _ in points)
    if named:
        drawn += [
            _text(_LEFT + (number + 0.5) * width, _HEIGHT - 8, name, anchor="middle")
            for number, (name, _, _) in enumerate(points)
        ]
    return _figure(series, top, "" if named else f"{len(points)}", drawn)


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "#1c2330") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _x(x: float, right: float) -> float:
    return _LEFT + x / right * (_WIDTH - _LEFT - 10)


def _y(y: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _BOTTOM - _TOP)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _LARGE else f"{value:.3g}"


def _figure(series: Series, top: float, right: str, drawn: list[str], names: Sequence[str] = ()) -> str:
    base = _HEIGHT - _BOTTOM
    frame = (
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{base}" y2="{base}" stroke="#9aa3b2"/>'
        f'<line x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP}" y2="{base}" stroke="#9aa3b2"/>'
    )
    frame += _text(_LEFT - 6, _TOP + 10, _number(top), anchor="end") + _text(_LEFT - 6, base, "0", anchor="end")
    frame += _text(_WIDTH - 4, _HEIGHT - 6, right, anchor="end")
    frame += "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID}"/>'
        + _text(_LEFT - 6, y + 4, _number(top * part), anchor="end")
        for part in _ROWS
        for y in [_y(part, 1.0)]
    )
    return _captioned(series.title, series.unit, _HEIGHT, [frame, *drawn], names)


def _captioned(title: str, unit: str, height: float, drawn: Sequence[str], names: Sequence[str] = ()) -> str:
    caption = f"<figcaption>{escape(title)} <small>({escape(unit)})</small></figcaption>{_legend(names)}"
    return f'<figure>{caption}<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{"".join(drawn)}</svg></figure>'
