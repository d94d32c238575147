"""Results of load as tables; in a file they are Markdown."""

from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.load.results import Comparison, Latency, Run, compare, drifts, median_run
from bench.report import print_tables, spread, table

#: A shorter run shows no slow changes.
STEADY_S = 60.0


def show(runs: Sequence[Run], console: Console) -> None:
    """Prints rates, times and costs."""
    tables = [_rates(runs), _times(runs)]
    if comparisons := compare(runs):
        tables.append(_comparisons(comparisons))
    if steady := _steadiness(runs):
        tables.append(steady)
    print_tables(tables, console)


def groups(runs: Sequence[Run]) -> Iterable[tuple[str, str, list[Run]]]:
    """The runs by scenario and server."""
    for scenario, server in dict.fromkeys((run.scenario, run.server) for run in runs):
        yield scenario, server, [run for run in runs if (run.scenario, run.server) == (scenario, server)]


def _rates(runs: Sequence[Run]) -> Table:
    found = table(
        "Medians of the runs", "scenario", "server", "messages/s", "CPU µs per message", "server / PostgreSQL / load s",
        "MB", "table B", "WAL B", "stall s", "not sent", "thresholds", texts=2,
    )  # fmt: skip
    for scenario, server, some in groups(runs):
        found.add_row(
            scenario, server, f"{median(run.rate for run in some):,.0f}", _middle(run.cpu_us for run in some),
            _cpu(some), _middle((run.memory_bytes or 0) / 1e6 for run in some),
            _middle(run.table_bytes for run in some), _middle(run.wal_bytes for run in some),
            f"{max(run.stall_s for run in some):.1f}", f"{max(run.dropped for run in some):,}", _thresholds(some),
        )  # fmt: skip
    return found


def _cpu(runs: Sequence[Run]) -> str:
    return " / ".join(_seconds(run.cpu.get(name) for run in runs) for name in ("server", "postgres", "load"))


def _thresholds(runs: Sequence[Run]) -> str:
    crossed = sorted({text for run in runs for text in run.crossed})
    return "[red]" + "; ".join(crossed) + "[/]" if crossed else "held"


def _seconds(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.1f}" if known else "?"


def _middle(values: Iterable[float | None]) -> str:
    known = [value for value in values if value]
    return f"{median(known):,.0f}" if known else ""


def _steadiness(runs: Sequence[Run]) -> Table | None:
    found = table(
        "The last third of a run beside the first", "scenario", "server", "figure", "first", "last", "ratio", texts=2
    )
    for scenario, server, some in groups(runs):
        run = median_run(some)
        for each in drifts(run) if run.seconds >= STEADY_S else ():
            found.add_row(scenario, server, each.figure, f"{each.first:,.1f}", f"{each.last:,.1f}", f"{each.ratio:.2f}")
    return found if found.row_count else None


def _times(runs: Sequence[Run]) -> Table:
    found = table("Milliseconds: median / 95 % / 99 % / longest", "scenario", "server", "what", "calls", "ms", texts=2)
    for scenario, server, some in groups(runs):
        for what in dict.fromkeys(what for run in some for what in run.latency):
            times = [run.latency[what] for run in some if what in run.latency]
            found.add_row(scenario, server, what, f"{sum(each.calls for each in times):,}", _spread(times))
    return found


def _spread(found: Sequence[Latency]) -> str:
    middles = [median(getattr(each, name) for each in found) for name in ("median", "p95", "p99")]
    return " / ".join(f"{value:,.1f}" for value in [*middles, max(each.longest for each in found)])


def _comparisons(comparisons: Sequence[Comparison]) -> Table:
    first, second = comparisons[0].first, comparisons[0].second
    title = f"How many times the figures of {second} {first} has"
    found = table(title, "scenario", "figure", "runs", "min / median / max", texts=2)
    for each in comparisons:
        found.add_row(each.scenario, each.figure, str(len(each.ratios)), spread(each.ratios, 2))
    return found
