"""A report as tables for people."""

from math import isfinite

from rich.console import Console

from queen_bench.engine.results import Report, Shape, middle
from queen_bench.tables import print_tables, print_title, spread, table


def show(report: Report, console: Console) -> None:
    """Prints rates of all layers, and what a message costs in each."""
    print_title(report.machine, report.postgres, report.profile.runs, console)
    rates = table(
        "Messages a second (medians), and how many times the layer below: min / median / max",
        "", "a request", "clients", "procedures", "engine", "HTTP, 1 worker", "engine / procedures", "HTTP / engine",
    )  # fmt: skip
    costs = table(
        "CPU of a message in µs, by layer: min / median / max",
        "", "a request", "requests a call", "PostgreSQL", "driver", "engine", "HTTP", "all",
    )  # fmt: skip
    for each in report.shapes:
        rates.add_row(*_name(each), str(each.clients), *_rates(each))
        costs.add_row(*_name(each), f"{_requests_a_call(each):.1f}", *_costs(each))
    print_tables([rates, costs], console)


def _name(shape: Shape) -> tuple[str, str]:
    return shape.operation, str(shape.batch)


def _rates(shape: Shape) -> list[str]:
    layers = (shape.calls, shape.engine, shape.http)
    figures = [f"{middle(costs, lambda cost: cost.rate):,.0f}" if costs else "" for costs in layers]
    http = spread(shape.ratio(shape.http, shape.engine), 2) if shape.http else ""
    return [*figures, spread(shape.ratio(shape.engine, shape.calls), 2), http]


def _requests_a_call(shape: Shape) -> float:
    return middle(shape.engine, lambda cost: cost.messages / shape.batch / max(cost.calls, 1))


def _costs(shape: Shape) -> list[str]:
    layers = shape.layers
    figures = [spread(layers[name], 1) if name in layers else "" for name in ("PostgreSQL", "driver", "engine", "HTTP")]
    whole = middle(shape.http or shape.engine, lambda cost: cost.cpu_us)
    return [*figures, f"{whole:,.1f}" if isfinite(whole) else ""]
