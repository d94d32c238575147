"""A report as tables for people."""

from rich.console import Console

from queen_bench.spool.results import Report, middle
from queen_bench.tables import print_tables, print_title, spread, table


def show(report: Report, console: Console) -> None:
    """Prints all figures, and which targets are met."""
    print_title(report.machine, report.postgres, report.profile.runs, console)
    rates = table(
        f"{report.profile.producers} producers: messages a second (medians), and ratios to normal: min / median / max",
        "a request", "normal", "spooling", "replay", "spooling / normal", "replay / normal",
    )  # fmt: skip
    for each in report.rates:
        figures = [f"{middle(samples):,.0f}" for samples in (each.normal, each.spooling, each.replay)]
        rates.add_row(str(each.batch), *figures, spread(each.spooling_ratio, 1), spread(each.replay_ratio, 1))
    drain = table("From the return of PostgreSQL to an empty spool", "messages", "seconds")
    drain.add_row(f"{report.drain.messages:,}", f"{report.drain.seconds:.1f}")
    targets = table("Targets", "what", "met")
    for text, met in report.targets:
        targets.add_row(text, "yes" if met else "no")
    print_tables([rates, drain, targets], console)
