"""A report as tables for people; in a file they are Markdown."""

from rich import box
from rich.console import Console
from rich.table import Table

from queen_bench.waiters.results import Latencies, Report, targets

_FILE_WIDTH = 200


def show(report: Report, console: Console) -> None:
    """Prints all figures, and which targets are met."""
    server, facts, idle = report.postgres, report.machine, report.idle
    console.print(
        f"PostgreSQL {server.version}{', embedded' if server.embedded else ''}; {facts.cpus} CPUs, {facts.processor}; "
        f"load before: {facts.load:.1f}",
        markup=False,
    )
    console.print(
        f"{idle.waiters:,} long polls at {idle.queues:,} queues, by worker: {', '.join(map(str, idle.per_worker))}; "
        f"idle: workers {idle.worker_cpu:.1f} %, PostgreSQL {idle.postgres_cpu:.1f} % of a core; "
        f"memory: {idle.connection_bytes:,.0f} bytes a connection, {idle.waiter_bytes:,.0f} more a long poll",
        markup=False,
    )
    times = _table("Milliseconds", "", "cases", "failed", "p50", "p95", "p99", "worst")
    _add(times, "push on one worker to long poll on the other", report.woken)
    _add(times, "lateness of timeouts", report.lateness)
    _add(times, "push on one instance to long poll on another, NOTIFY", report.notify)
    _add(times, "the same, UDP", report.udp)
    verdicts = _table("Targets", "", "wanted", "measured", "")
    for target in targets(report):
        verdict = "[green]met[/]" if target.met else "[red]not met[/]"
        verdicts.add_row(target.what, target.wanted, f"{target.measured:,.4g}", verdict)
    page = console if console.is_terminal else Console(file=console.file, width=_FILE_WIDTH, highlight=False)
    for table in (times, verdicts):
        if not console.is_terminal:
            page.print(f"\n{table.title}\n", markup=False)
            table.title, table.box = None, box.MARKDOWN
        page.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _add(table: Table, what: str, times: Latencies) -> None:
    figures = [f"{value:,.1f}" for value in (times.p50, times.p95, times.p99, times.worst)]
    table.add_row(what, f"{times.count:,}", str(times.failed), *figures)
