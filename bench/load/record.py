"""Latency over time, from the record of k6's web dashboard: percentiles per period, which no other output has.

The file has one event per line. ``metric`` names metrics as they appear, ``param`` the aggregates per type of metric,
and ``snapshot`` has the values of one period: one list per metric, in the order of their names.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.load.results import Moment

_WANTED = ("med", "p(99)")


class _Event(Struct):
    event: str
    data: Any


def moments(path: Path, names: Mapping[str, str]) -> Iterator[Moment]:
    """The median and the 99th percentile per period and operation; empty if there is no file.

    Args:
        path: the file; an incomplete last line is ignored.
        names: operations by the names of k6's metrics.
    """
    if not path.exists():
        return
    metrics: set[str] = set()
    figures: list[str] = []
    begin: float | None = None
    decoder = msgspec.json.Decoder(_Event)
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            event = decoder.decode(line)
            if event.event == "param":
                figures = event.data["aggregates"]["trend"]
            elif event.event == "metric":
                metrics |= set(event.data)
            elif event.event == "snapshot" and metrics:
                values = dict(zip(sorted(metrics), event.data, strict=False))
                now = values["time"][0] / 1000
                begin = now if begin is None else begin
                yield from _of_period(now - begin, values, figures, names)


def _of_period(
    at: float, values: Mapping[str, list[float]], figures: list[str], names: Mapping[str, str]
) -> Iterator[Moment]:
    for metric, operation in names.items():
        if metric in values and any(values[metric]):
            found = dict(zip(figures, values[metric], strict=False))
            yield Moment(at, operation, *(found[name] for name in _WANTED))
