"""A report as a table for people; in a file it is Markdown."""

from statistics import median

from rich import box
from rich.console import Console
from rich.table import Column, Table

from queen_bench.listing.results import TARGET_MS, Report

_FILE_WIDTH = 160


def show(report: Report, console: Console) -> None:
    """Prints the times of all operations, and whether they meet the target."""
    server, facts, profile = report.postgres, report.machine, report.profile
    console.print(
        f"PostgreSQL {server.version}{', embedded' if server.embedded else ''}; {facts.cpus} CPUs, {facts.processor}; "
        f"load before: {facts.load:.1f}; {profile.messages:,} messages over {profile.partitions:,} partitions, "
        f"{profile.runs} runs; target: below {TARGET_MS:.0f} ms; statistics refreshed in "
        f"{min(report.refresh_ms):,.0f} to {max(report.refresh_ms):,.0f} ms",
        markup=False,
    )
    table = Table(
        "operation", *[_right(each) for each in ("min ms", "median ms", "max ms", "CPU ms", "answer KiB")], "target"
    )
    for timing in report.timings:
        verdict = "met" if timing.met else "not met"
        figures = (f"{min(timing.ms):,.1f}", f"{timing.median_ms:,.1f}", f"{max(timing.ms):,.1f}")
        cpu = f"{median(timing.cpu_ms):,.0f}" if timing.cpu_ms else ""
        table.add_row(timing.operation, *figures, cpu, f"{timing.answer_bytes / 1024:,.0f}", verdict)
    if not console.is_terminal:
        table.box = box.MARKDOWN
        console = Console(file=console.file, width=_FILE_WIDTH, highlight=False)
    console.print(table)


def _right(header: str) -> Column:
    return Column(header, justify="right")
