"""A report as tables for people."""

from collections.abc import Iterator
from statistics import median

from rich.console import Console
from rich.table import Table

from queen_bench.procedures.results import Report, Spread
from queen_bench.tables import print_tables, print_title, spread, table


def show(report: Report, console: Console) -> None:
    """Prints all figures, and which targets are met."""
    print_title(report.machine, report.postgres, report.profile.runs, console)
    print_tables((*_rates(report), _times_and_bytes(report), _targets(report)), console)


def _rates(report: Report) -> Iterator[Table]:
    for scenario in dict.fromkeys(rate.scenario for rate in report.rates):
        title = f"{scenario}: messages a second (medians), and how many times the row table's"
        columns = ["a call", "connections", "queen", "row a message", "ratio: min / median / max"]
        rates = [rate for rate in report.rates if rate.scenario == scenario]
        logged = all(rate.logged for rate in rates)
        shown = table(title, *columns, *(("with the original's log", "ratio: min / median / max") if logged else ()))
        for rate in rates:
            queen, rows = (median(sample.rate for sample in samples) for samples in (rate.queen, rate.rows))
            cells = [str(rate.batch), str(rate.connections), f"{queen:,.0f}", f"{rows:,.0f}", spread(rate.ratio, 1)]
            if rate.logged_ratio is not None:
                cells += [f"{median(sample.rate for sample in rate.logged):,.0f}", spread(rate.logged_ratio, 1)]
            shown.add_row(*cells)
        yield shown


def _times_and_bytes(report: Report) -> Table:
    found = table("Min / median / max over the runs", "", "queen", "row a message")
    wide = report.wildcard
    what = f"pop of any partition, {wide.ready} ready of {wide.partitions:,}: ms in the database"
    found.add_row(what, spread(Spread.of(wide.queen_ms), 3), spread(Spread.of(wide.rows_ms), 3))
    for storage in report.storage:
        found.add_row(
            f"{storage.scenario}: bytes stored a message",
            spread(Spread.of(storage.queen_table)),
            spread(Spread.of(storage.rows_table)),
        )
        found.add_row(
            f"{storage.scenario}: bytes of WAL a message",
            spread(Spread.of(storage.queen_wal)),
            spread(Spread.of(storage.rows_wal)),
        )
    return found


def _targets(report: Report) -> Table:
    found = table("Targets", "", "wanted", "measured", "")
    for target in report.targets:
        verdict = "[green]met[/]" if target.met else "[red]not met[/]"
        found.add_row(target.what, target.wanted, f"{target.measured:.3g}", verdict)
    return found
