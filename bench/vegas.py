"""Draws ``docs/vegas.svg``, the limit of Vegas over a database whose knee moves: ``python -m bench.vegas``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.knee import Knee, simulate
from queen.core.concurrency import Vegas, VegasSettings

_KNEES = ((0.0, 20), (60.0, 8), (120.0, 30))
_SECONDS, _LIMIT_MAX = 180.0, 40
_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 300, 46, 16


def _x(second: float) -> float:
    return _LEFT + second / _SECONDS * (_WIDTH - _LEFT - 12)


def _y(limit: float) -> float:
    return _TOP + (1 - limit / _LIMIT_MAX) * (_HEIGHT - _TOP - 40)


def knee_at(second: float) -> int:
    """The knee of the database at this time."""
    return next(knee for begin, knee in reversed(_KNEES) if second >= begin)


def draw(trace: Sequence[tuple[float, int]]) -> str:
    """The picture, as SVG."""
    steps: list[tuple[float, int]] = []
    for second, limit in trace:
        if not steps or steps[-1][1] != limit:
            steps += [(second, steps[-1][1] if steps else limit), (second, limit)]
    points = " ".join(f"{_x(second):.1f},{_y(limit):.1f}" for second, limit in steps)
    ends = [begin for begin, _ in _KNEES[1:]] + [_SECONDS]
    bands = "".join(
        f'<rect x="{_x(begin):.1f}" y="{_y(knee * 1.2):.1f}" width="{_x(end) - _x(begin):.1f}"'
        f' height="{_y(knee * 0.8) - _y(knee * 1.2):.1f}" fill="#cfe3f5"/>'
        for (begin, knee), end in zip(_KNEES, ends, strict=True)
    )
    rows = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{_y(n):.1f}" y2="{_y(n):.1f}" stroke="#ddd"/>'
        f'<text x="{_LEFT - 8}" y="{_y(n) + 4:.1f}" text-anchor="end">{n}</text>'
        for n in range(0, _LIMIT_MAX + 1, 10)
    )
    columns = "".join(
        f'<text x="{_x(n):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{n}</text>'
        for n in range(0, int(_SECONDS) + 1, 30)
    )
    style = 'font-family="sans-serif" font-size="12"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {style}>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>{bands}{rows}{columns}'
        f'<polyline points="{points}" fill="none" stroke="#1b5fa8" stroke-width="1.5"/>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 5}" text-anchor="middle">'
        "seconds; line: calls in flight that Vegas allows; bands: within 20 % of what the database takes at a time"
        "</text></svg>\n"
    )


def main(path: Path) -> None:
    """Writes the picture."""
    database = Knee(_KNEES[0][1], 10.0, 0.2)

    def move(second: float) -> None:
        database.knee = knee_at(second)

    path.write_text(draw(simulate(Vegas(64, VegasSettings()), database, _SECONDS, 1, move)))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/vegas.svg"))
