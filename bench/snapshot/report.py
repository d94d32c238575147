"""A report as a table for people; in a file it is Markdown."""

from rich.console import Console

from queen_bench.snapshot.results import COUNTED, Report, verdicts
from queen_bench.tables import print_tables, print_title, spread, table


def show(report: Report, console: Console) -> None:
    """Prints each figure without and with something that is held."""
    profile = report.profile
    print_title(report.machine, report.postgres, profile.pairs, console)
    what = "a replication slot with an xmin" if profile.slot else "a transaction with a snapshot"
    found = table(
        f"Without and with {what}: the last {COUNTED * profile.seconds:g} of {profile.seconds:g} s; "
        f"{profile.clients} clients, {profile.batch} messages a call, {profile.partitions} partitions",
        "", "without", "with", "ratio: min / median / max", "wanted", "",
    )  # fmt: skip
    for each in verdicts(report.pairs):
        found.add_row(
            each.what, f"{each.free:,.1f}", f"{each.held:,.1f}", spread(each.ratio, 2),
            f"{'<=' if each.most else '>='} {each.bound:g}", "[green]met[/]" if each.met else "[red]not met[/]",
        )  # fmt: skip
    print_tables([found], console)
