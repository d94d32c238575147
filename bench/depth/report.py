"""A report as a table for people; in a file it is Markdown."""

from statistics import median

from rich.console import Console

from queen_bench import tables
from queen_bench.depth.results import TARGET_RATIO, Report, p95


def show(report: Report, console: Console) -> None:
    """Prints the times of both queues in each run, and whether the target is met."""
    tables.print_title(report.machine, report.postgres, len(report.runs), console)
    table = tables.table(
        f"ms of polls, {report.profile.polls:,} of a queue with 1 and of one with {report.depth:,} messages, in turns",
        "run", "1: median", "p95", f"{report.depth:,}: median", "p95", "ratio of medians", "of p95",
    )  # fmt: skip
    for number, run in enumerate(report.runs, 1):
        times = (median(run.shallow_ms), p95(run.shallow_ms), median(run.deep_ms), p95(run.deep_ms))
        table.add_row(str(number), *[f"{value:.2f}" for value in times], f"{run.ratio:.2f}", f"{run.p95_ratio:.2f}")
    tables.print_tables([table], console)
    verdict = "met" if report.met else "not met"
    console.print(
        f"median of the ratios {report.ratio:.2f}, target at most {TARGET_RATIO}: {verdict}; "
        f"filled in {report.filling_s:,.0f} s",
        markup=False,
    )
