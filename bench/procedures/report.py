"""A report as tables for people; in a file they are Markdown."""

from collections.abc import Iterator
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from queen_bench.procedures.results import Report, Spread

_FILE_WIDTH = 200


def show(report: Report, console: Console) -> None:
    """Prints all figures, and which targets are met."""
    server, facts = report.postgres, report.machine
    console.print(
        f"PostgreSQL {server.version}{', embedded' if server.embedded else ''}; {facts.cpus} CPUs, {facts.processor}; "
        f"load before: {facts.load:.1f}; {report.profile.runs} runs",
        markup=False,
    )
    tables = (*_rates(report), _times_and_bytes(report), _targets(report))
    if console.is_terminal:
        console.print(*tables)
        return
    page = Console(file=console.file, width=_FILE_WIDTH, highlight=False)
    for table in tables:
        page.print(f"\n{table.title}", markup=False)
        table.title, table.box = None, box.MARKDOWN
        page.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _rates(report: Report) -> Iterator[Table]:
    for scenario in dict.fromkeys(rate.scenario for rate in report.rates):
        title = f"{scenario}: messages a second (medians), and how many times the row table's"
        columns = ["a call", "connections", "queen", "row a message", "ratio: min / median / max"]
        rates = [rate for rate in report.rates if rate.scenario == scenario]
        logged = all(rate.logged for rate in rates)
        table = _table(title, *columns, *(("with the original's log", "ratio: min / median / max") if logged else ()))
        for rate in rates:
            queen, rows = (median(sample.rate for sample in samples) for samples in (rate.queen, rate.rows))
            cells = [str(rate.batch), str(rate.connections), f"{queen:,.0f}", f"{rows:,.0f}", _spread(rate.ratio, 1)]
            if rate.logged_ratio is not None:
                cells += [f"{median(sample.rate for sample in rate.logged):,.0f}", _spread(rate.logged_ratio, 1)]
            table.add_row(*cells)
        yield table


def _times_and_bytes(report: Report) -> Table:
    table = _table("Min / median / max over the runs", "", "queen", "row a message")
    wide = report.wildcard
    what = f"pop of any partition, {wide.ready} ready of {wide.partitions:,}: ms in the database"
    table.add_row(what, _spread(Spread.of(wide.queen_ms), 3), _spread(Spread.of(wide.rows_ms), 3))
    for storage in report.storage:
        table.add_row(
            f"{storage.scenario}: bytes stored a message",
            _spread(Spread.of(storage.queen_table)),
            _spread(Spread.of(storage.rows_table)),
        )
        table.add_row(
            f"{storage.scenario}: bytes of WAL a message",
            _spread(Spread.of(storage.queen_wal)),
            _spread(Spread.of(storage.rows_wal)),
        )
    return table


def _spread(spread: Spread, digits: int = 0) -> str:
    return " / ".join(f"{value:,.{digits}f}" for value in (spread.low, spread.median, spread.high))


def _targets(report: Report) -> Table:
    table = _table("Targets", "", "wanted", "measured", "")
    for target in report.targets:
        verdict = "[green]met[/]" if target.met else "[red]not met[/]"
        table.add_row(target.what, target.wanted, f"{target.measured:.3g}", verdict)
    return table
