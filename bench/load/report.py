"""Results of load as tables for people; in a file they are Markdown."""

from collections.abc import Iterable, Sequence
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from queen_bench.load.results import Comparison, Latency, Run, compare

_FILE_WIDTH = 200


def show(runs: Sequence[Run], console: Console) -> None:
    """Prints rates, times, and what they cost."""
    tables = [_rates(runs), _times(runs)]
    if comparisons := compare(runs):
        tables.append(_comparisons(comparisons))
    if console.is_terminal:
        console.print(*tables)
        return
    page = Console(file=console.file, width=_FILE_WIDTH, highlight=False)
    for table in tables:
        page.print(f"\n{table.title}", markup=False)
        table.title, table.box = None, box.MARKDOWN
        page.print(table)


def groups(runs: Sequence[Run]) -> Iterable[tuple[str, str, list[Run]]]:
    """Scenario, server and runs of each."""
    for scenario, server in dict.fromkeys((run.scenario, run.server) for run in runs):
        yield scenario, server, [run for run in runs if (run.scenario, run.server) == (scenario, server)]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    return table


def _rates(runs: Sequence[Run]) -> Table:
    table = _table(
        "Medians of the runs", "scenario", "server", "messages/s", "CPU µs a message", "server / PostgreSQL / load s",
        "MB", "table B", "WAL B", "stall s", "thresholds",
    )  # fmt: skip
    for scenario, server, some in groups(runs):
        cpu = " / ".join(
            f"{median(run.cpu.get(name, 0.0) for run in some):.1f}" for name in ("server", "postgres", "load")
        )
        crossed = sorted({text for run in some for text in run.crossed})
        table.add_row(
            scenario, server, f"{median(run.rate for run in some):,.0f}", _middle(run.cpu_us for run in some), cpu,
            _middle((run.memory_bytes or 0) / 1e6 for run in some), _middle(run.table_bytes for run in some),
            _middle(run.wal_bytes for run in some), f"{max(run.stall_s for run in some):.1f}",
            "[red]" + "; ".join(crossed) + "[/]" if crossed else "held",
        )  # fmt: skip
    return table


def _middle(values: Iterable[float | None]) -> str:
    known = [value for value in values if value]
    return f"{median(known):,.0f}" if known else ""


def _times(runs: Sequence[Run]) -> Table:
    table = _table("Milliseconds: median / 95 % / 99 % / longest", "scenario", "server", "what", "calls", "ms")
    for scenario, server, some in groups(runs):
        for what in dict.fromkeys(what for run in some for what in run.latency):
            found = [run.latency[what] for run in some if what in run.latency]
            table.add_row(scenario, server, what, f"{sum(each.calls for each in found):,}", _spread(found))
    return table


def _spread(found: Sequence[Latency]) -> str:
    middles = [median(getattr(each, name) for each in found) for name in ("median", "p95", "p99")]
    return " / ".join(f"{value:,.1f}" for value in [*middles, max(each.longest for each in found)])


def _comparisons(comparisons: Sequence[Comparison]) -> Table:
    first, second = comparisons[0].first, comparisons[0].second
    table = _table(f"How many times the rate of {second} {first} reaches", "scenario", "runs", "min / median / max")
    for each in comparisons:
        spread = (min(each.ratios), each.median, max(each.ratios))
        table.add_row(each.scenario, str(len(each.ratios)), " / ".join(f"{value:.2f}" for value in spread))
    return table
