"""A report as a table for people; in a file it is Markdown."""

from rich.console import Console

from queen_bench.growth.results import RATIO_MIN, Report, ratios
from queen_bench.tables import print_tables, print_title, spread, table


def show(report: Report, console: Console) -> None:
    """Prints each operation in each full system beside the empty one."""
    print_title(report.machine, report.postgres, report.profile.runs, console)
    found = table(
        f"Beside the empty system: messages a second, and ratios min / median / max; wanted is a rate of {RATIO_MIN}",
        "full of", "", "a request", "empty", "full", "rate", "CPU", "",
    )  # fmt: skip
    for each in ratios(report.systems):
        found.add_row(
            each.system, each.operation, str(each.batch), f"{each.empty_rate:,.0f}", f"{each.full_rate:,.0f}",
            spread(each.rate, 2), spread(each.cpu, 2), "[green]met[/]" if each.met else "[red]not met[/]",
        )  # fmt: skip
    filled = table("Filling", "", "s")
    for system in report.systems:
        filled.add_row(system.name, f"{system.filled_s:,.0f}")
    print_tables([found, filled], console)
