"""Results as tables: figures by side, ratios of neighbours, targets. In a file they are Markdown."""

from collections.abc import Iterator, Sequence
from io import StringIO
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from bench.scenario import Results, Scenario, Session, Spread

_FILE_WIDTH = 200
#: Maximum of figures side by side.
_COLUMNS = 7


def show(scenario: Scenario, results: Results, earlier: Results | None, console: Console) -> None:
    """Prints all figures, which targets are met, and the ratios to an earlier session."""
    console.print(_title(results.session), markup=False, highlight=False)
    wide = len(results.sides) > 1 or len({figure for _, figure in results.figures}) > _COLUMNS
    figures = _figures(scenario, results) if wide else _of_one_side(results)
    tables = [figures, *_targets(scenario, results)]
    print_tables([*tables, *_beside(results, earlier)] if earlier else tables, console)


def _title(session: Session) -> str:
    facts, postgres, settings = session.machine, session.postgres, session.settings
    server = f"PostgreSQL {postgres.version}{', embedded' if postgres.embedded else ''}; " if postgres else ""
    plain = {name: value for name, value in settings.items() if isinstance(value, int | float | str)}
    given = ", ".join(f"{name} {f'{value:,}' if type(value) is int else value}" for name, value in plain.items())
    return (
        f"{session.scenario}: {server}Python {facts.python}; {facts.cpus} CPUs, "
        f"{facts.processor}; load before: {facts.load:.1f}; {given}"
    )


def _figures(scenario: Scenario, results: Results) -> Table:
    """A row for each figure: its median on each side, and ratios of sides."""
    sides = results.sides
    pairs = [f"{this} / {that}" for this, that in scenario.ratios if {this, that} <= set(sides)]
    found = table("Medians; ratios of neighbours: min / median / max", "", "", *sides, *pairs, texts=2)
    for case, figure in results.figures:
        values = [results.values(case, figure, side) for side in sides]
        cells = [number(median(each)) if each else "" for each in values]
        ratios = [spread(each, 2) if (each := results.values(case, figure, pair)) else "" for pair in pairs]
        found.add_row(case, figure, *cells, *ratios)
    return found


def _of_one_side(results: Results) -> Table:
    """A row for each case, a column for each figure."""
    [side] = results.sides
    cases, names = (list(dict.fromkeys(each)) for each in zip(*results.figures, strict=True))
    found = table("Min / median / max", "", *names)
    for case in cases:
        values = [results.values(case, name, side) for name in names]
        found.add_row(case, *[_three(each) if each else "" for each in values])
    return found


def _targets(scenario: Scenario, results: Results) -> Iterator[Table]:
    found = table("Targets", "", "", "of", "wanted", "measured", "", texts=3)
    for case, target, value, met in results.verdicts(scenario.targets):
        verdict = "[green]met[/]" if met else "[red]not met[/]"
        found.add_row(case, target.figure, target.of, target.wanted, f"{value:,.4g}", verdict)
    if found.row_count:
        yield found


def _beside(results: Results, earlier: Results) -> Iterator[Table]:
    then = earlier.session
    title = f"Beside {then.started_at}, load before: {then.machine.load:.1f}: ratio to the figures of then"
    found = table(title, "", "", *results.sides, texts=2)
    for case, figure in results.figures:
        cells = []
        for side in results.sides:
            before = earlier.values(case, figure, side)
            middle = median(before) if before else 0.0
            cells.append(spread([each / middle for each in results.values(case, figure, side)], 2) if middle else "")
        if any(cells):
            found.add_row(case, figure, *cells)
    yield found


def number(value: float) -> str:
    """A figure with its significant digits."""
    return f"{value:,.{0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 3}f}"


def _three(values: Sequence[float]) -> str:
    of = Spread.of(values)
    return " / ".join(map(number, (of.median,) if of.low == of.high else (of.low, of.median, of.high)))


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Smallest, middle and largest value."""
    of = Spread.of(values)
    return " / ".join(f"{value:,.{digits}f}" for value in (of.low, of.median, of.high))


def table(title: str, *columns: str, texts: int = 1) -> Table:
    """A table whose first columns are texts, and the others figures."""
    made = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place < texts else "right")
    return made


def print_tables(tables: Sequence[Table], console: Console) -> None:
    """Prints them one below the other."""
    if console.is_terminal:
        console.print(*tables)
        return
    text = StringIO()
    page = Console(file=text, width=_FILE_WIDTH, highlight=False)
    for each in tables:
        page.print(f"\n{each.title}", markup=False)
        each.title, each.box = None, box.MARKDOWN
        page.print(each)
    # By the given console, which handles a closed output.
    console.out(text.getvalue(), end="", highlight=False)
