"""A report as tables for people."""

from rich.console import Console

from queen_bench.audit.results import HOT_TARGET, READ_TARGET, Report, Size
from queen_bench.tables import print_tables, table


def show(report: Report, console: Console) -> None:
    """Prints what each audit cost at each size, and the reading of the log."""
    facts = report.machine
    console.print(
        f"{facts.cpus} CPUs, {facts.processor}; load before: {facts.load:.1f}; driver memory {report.driver_memory}",
        markup=False,
    )
    if each := report.reading:
        rate = each.messages / each.seconds
        console.print(
            f"the log: {each.messages:,} messages in {each.seconds:.1f} s, {rate:,.0f} a second (wanted "
            f"{READ_TARGET:,}: {'met' if rate >= READ_TARGET else 'not met'}), "
            f"{each.cpu_s / each.messages * 1e6:.2f} µs of CPU a message; "
            f"{each.written_meanwhile:,} written meanwhile, none of them read",
            markup=False,
        )
    if not report.sizes:
        return
    columns = [f"{size.messages:,}{f', {size.hot:.0%} hot' if size.hot else ''}: s / CPU s" for size in report.sizes]
    costs = table("Audits", "audit", *columns)
    for number, cost in enumerate(report.sizes[0].costs):
        costs.add_row(cost.name, *[_cell(size, number) for size in report.sizes])
    costs.add_row("all", *[f"{size.seconds:,.0f} / {size.cpu_s:,.0f}" for size in report.sizes])
    costs.add_row("CPU µs a message", *[f"{size.cpu_s / size.messages * 1e6:,.1f}" for size in report.sizes])
    costs.add_row("peak memory, MiB", *[f"{size.peak_bytes / 2**20:,.0f}" for size in report.sizes])
    costs.add_row("generator, CPU s", *[f"{size.generated_s:,.0f}" for size in report.sizes])
    print_tables([costs], console)
    for even, hot in _pairs(report):
        ratio = hot.seconds / even.seconds
        verdict = "met" if ratio <= HOT_TARGET else "not met"
        console.print(
            f"{even.messages:,} messages, {hot.hot:.0%} in one partition: {ratio:.2f} times as long, "
            f"{hot.cpu_s / even.cpu_s:.2f} times the CPU (wanted at most {HOT_TARGET}: {verdict})",
            markup=False,
        )


def _cell(size: Size, number: int) -> str:
    cost = size.costs[number]
    return f"{cost.seconds:,.1f} / {cost.cpu_s:,.1f}"


def _pairs(report: Report) -> list[tuple[Size, Size]]:
    even = {size.messages: size for size in report.sizes if not size.hot}
    return [(even[size.messages], size) for size in report.sizes if size.hot and size.messages in even]
