"""A report as a table for people; in a file it is Markdown."""

from collections.abc import Callable, Sequence
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from queen_bench.retention.results import RATIO_MAX, Report, Run, p99, ratios

_FILE_WIDTH = 160


def show(report: Report, console: Console) -> None:
    """Prints what was removed, and what the others felt of it."""
    server, facts, profile = report.postgres, report.machine, report.profile
    console.print(
        f"PostgreSQL {server.version}{', embedded' if server.embedded else ''}; {facts.cpus} CPUs, {facts.processor}; "
        f"load before: {facts.load:.1f}; {profile.runs} runs; {profile.messages:,} messages in {profile.partitions} "
        f"partitions, {profile.batch} a segment, at most {profile.batch_size} a transaction; beside it "
        f"{profile.rate:g} pushes and {profile.rate:g} pops with acks a second",
        markup=False,
    )
    if console.is_terminal:
        console.print(_table(report))
        return
    table = _table(report)
    table.box = box.MARKDOWN
    Console(file=console.file, width=_FILE_WIDTH, highlight=False).print(table)


def _table(report: Report) -> Table:
    table = Table()
    table.add_column("")
    table.add_column("min / median / max", justify="right")
    rows: Sequence[tuple[str, Callable[[Run], float], int]] = (
        ("messages removed a second", lambda run: run.removed / run.seconds, 0),
        ("share of the time in calls", lambda run: run.busy_s / run.seconds, 2),
        ("push, quiet: p99 in ms", lambda run: p99(run.quiet.push_ms), 1),
        ("push, beside retention: p99 in ms", lambda run: p99(run.beside.push_ms), 1),
        ("push: ratio", lambda run: p99(run.beside.push_ms) / p99(run.quiet.push_ms), 2),
        ("pop and ack, quiet: p99 in ms", lambda run: p99(run.quiet.pop_ms), 1),
        ("pop and ack, beside retention: p99 in ms", lambda run: p99(run.beside.pop_ms), 1),
        ("pop and ack: ratio", lambda run: p99(run.beside.pop_ms) / p99(run.quiet.pop_ms), 2),
    )
    for name, value, digits in rows:
        found = sorted(value(run) for run in report.runs)
        spread = (found[0], median(found), found[-1])
        table.add_row(name, " / ".join(f"{each:,.{digits}f}" for each in spread))
    met = all(ratio <= RATIO_MAX for ratio in ratios(report.runs))
    table.add_row(f"both ratios at most {RATIO_MAX:g}", "[green]met[/]" if met else "[red]not met[/]")
    return table
