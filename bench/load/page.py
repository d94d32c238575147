"""Results of load as one HTML page with plots: no scripts, and nothing from other files."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.load.report import STEADY_S, groups
from bench.load.results import (
    PARTS,
    Comparison,
    Run,
    compare,
    compare_with_earlier,
    drifts,
    median_run,
    rates,
)
from spark_validation.figures import Series, Tick, lines, spreads, stacks
from spark_validation.page import document, table

_PERCENTILES = (("50 %", "median"), ("90 %", "p90"), ("95 %", "p95"), ("99 %", "p99"), ("99.9 %", "p999"))
_NAMES = {"server": "server", "postgres": "PostgreSQL", "load": "load"}
_STATEMENT = (
    "Values are medians of the runs; plots show the median run. The load ran on the machine of the server; "
    "its CPU is listed separately. Servers took turns, so noise hit both: compare ratios and their spread."
)
_EARLIER = 3
#: Columns of the results: what of a run, whose median is shown, with how many digits.
_MEDIANS: Mapping[str, tuple[Callable[[Run], float | None], int]] = {
    "messages/s": (lambda run: run.rate, 0),
    "median ms": (lambda run: run.key_latency[1].median if run.key_latency else None, 1),
    "p99 ms": (lambda run: run.key_latency[1].p99 if run.key_latency else None, 1),
    "CPU µs per message": (lambda run: run.cpu_us, 1),
    "server": (lambda run: run.part_us("server"), 1),
    "PostgreSQL": (lambda run: run.part_us("postgres"), 1),
    "load": (lambda run: run.part_us("load"), 1),
    "memory MB": (lambda run: run.memory_bytes / 1e6 if run.memory_bytes else None, 0),
    "table B": (lambda run: run.table_bytes, 0),
    "WAL B": (lambda run: run.wal_bytes, 0),
}


def as_html(runs: Sequence[Run], earlier: Sequence[Run], folder: Path, named: Sequence[Run] = ()) -> str:
    """The report.

    Args:
        runs: of one session, at least one.
        earlier: runs to compare with; the latest comparable sessions are shown.
        folder: with a folder of flame graphs per run.
        named: more runs to compare with, whose sessions are all shown.
    """
    parts = [
        f"<h1>Load</h1>{_facts(runs)}",
        "<h2>Results</h2>", _results(runs), _crossed(runs),
        _cpu_split(runs),
        *_against(compare(runs)),
        *_beside_earlier(runs, earlier, named),
        *(_scenario(runs, scenario, folder) for scenario in dict.fromkeys(run.scenario for run in runs)),
    ]  # fmt: skip
    return document("Load", parts)


def _facts(runs: Sequence[Run]) -> str:
    first = runs[0]
    facts, postgres = first.machine, first.postgres
    versions = [f"{server} {version}" for server, version in dict.fromkeys((run.server, run.version) for run in runs)]
    known = [
        *versions,
        f"PostgreSQL {postgres.version}{' (embedded)' if postgres.embedded else ''}" if postgres else "",
        *dict.fromkeys(run.load for run in runs), f"Python {facts.python}",
        *(f"{name} {of}" for name, of in facts.packages.items()),
        f"{facts.cpus} CPUs, {facts.processor}", f"{facts.memory_bytes / 2**30:.1f} GiB", facts.system,
        f"load before: {facts.load:.1f}",
    ]  # fmt: skip
    text = f"<p>{escape(first.started_at)}<br>{escape(' · '.join(each for each in known if each))}</p>"
    if postgres:
        settings = ", ".join(f"{name} = {value}" for name, value in postgres.settings.items() if value)
        text += f"<details><summary>Settings of PostgreSQL</summary><code>{escape(settings)}</code></details>"
    return f"{text}<p><small>{_STATEMENT}</small></p>"


def _results(runs: Sequence[Run]) -> str:
    columns = ("scenario", "server", "times of", *_MEDIANS, "stall s", "not sent")
    rows = [_row(scenario, server, some) for scenario, server, some in groups(runs)]
    return table(columns, rows, texts=3)


def _row(scenario: str, server: str, some: Sequence[Run]) -> list[str]:
    timed = [run.key_latency[0].replace("_", " ") for run in some if run.key_latency]
    return [
        scenario, server, timed[0] if timed else "",
        *(_middle(map(find, some), digits) for find, digits in _MEDIANS.values()),
        f"{max(run.stall_s for run in some):.0f}", f"{max(run.dropped for run in some):,}",
    ]  # fmt: skip


def _middle(values: Iterable[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):,.{digits}f}" if known else ""


def _crossed(runs: Sequence[Run]) -> str:
    found = [
        f"{scenario} ({server}): {text}"
        for scenario, server, some in groups(runs)
        for text in dict.fromkeys(text for run in some for text in run.crossed)
    ]
    if not found:
        return "<p class=valid>Every threshold was held.</p>"
    return "".join(f"<p class=invalid>Threshold crossed: {escape(text)}</p>" for text in found)


def _cpu_split(runs: Sequence[Run]) -> str:
    several = len({run.server for run in runs}) > 1
    rows = {}
    for scenario, server, some in groups(runs):
        amounts = {_NAMES[part]: [us for run in some if (us := run.part_us(part))] for part in PARTS}
        if split := {name: median(values) for name, values in amounts.items() if values}:
            rows[f"{scenario} · {server}" if several else scenario] = split
    return "<h2>Where the CPU goes</h2>" + stacks("CPU per message", "µs, as shares of the whole", rows) if rows else ""


def _against(comparisons: Sequence[Comparison]) -> Iterator[str]:
    if comparisons:
        first, second = comparisons[0].first, comparisons[0].second
        yield f"<h2>{escape(first)} beside {escape(second)}</h2>"
        yield from _spreads(comparisons, f"how many times that of {second}")


def _beside_earlier(runs: Sequence[Run], earlier: Sequence[Run], named: Sequence[Run]) -> Iterator[str]:
    sessions: dict[str, list[Run]] = {}
    for run in sorted((*earlier, *named), key=lambda run: run.session, reverse=True):
        sessions.setdefault(run.session, []).append(run)
    found = {session: some for session, then in sessions.items() if (some := compare_with_earlier(runs, then))}
    wanted = {run.session for run in named}
    last = [session for session in found if session not in wanted][:_EARLIER]
    for session, comparisons in found.items():
        if session in wanted or session in last:
            then = sessions[session][0]
            yield (
                f"<h2>Beside {escape(session)}</h2><p>{escape(then.machine.processor)}, {then.machine.cpus} CPUs, "
                f"load before: {then.machine.load:.1f} (now {runs[0].machine.load:.1f}); {escape(then.version)}</p>"
            )
            yield from _spreads(comparisons, "how many times that of then")


def _spreads(comparisons: Sequence[Comparison], unit: str) -> Iterator[str]:
    yield "<div class=plots>"
    servers = len({each.first for each in comparisons}) > 1
    for figure in dict.fromkeys(each.figure for each in comparisons):
        some = [each for each in comparisons if each.figure == figure]
        better = "more is better" if some[0].more_is_better else "less is better"
        rows = {
            f"{each.scenario} · {each.first}" if servers else each.scenario: (
                each.spread.low, each.median, each.spread.high,
            )
            for each in some
        }  # fmt: skip
        yield spreads(figure, f"{unit}: min, median, max; {better}", rows)
    yield "</div>"


def _scenario(runs: Sequence[Run], scenario: str, folder: Path) -> str:
    some = [run for run in runs if run.scenario == scenario]
    shown = [
        median_run([run for run in some if run.server == server]) for server in dict.fromkeys(r.server for r in some)
    ]
    settings = ", ".join(f"{name}={value}" for name, value in shown[0].settings.items() if name not in _OWN)
    parts = [
        f"<h2>{escape(scenario)}</h2><p><small>{len(some) // len(shown)} runs; {escape(settings)}</small></p>",
        "<div class=plots>",
        *_percentiles(shown), _throughput(shown), *_latencies(shown), *(_cores(run, len(shown) > 1) for run in shown),
        *_levels(shown),
        "</div>",
        *(_flame_graph(run, name, folder) for run in some for name in run.profiles),
    ]  # fmt: skip
    return "".join(parts)


#: Settings that the driver computes for each run.
_OWN = ("QUEEN_URL", "PREFIX", "SCENARIO", "SERVER", "JOURNAL", "KEEP")


def _line(run: Run, shown: Sequence[Run], text: str) -> str:
    return f"{run.server}: {text}" if len(shown) > 1 else text


def _percentiles(shown: Sequence[Run]) -> Iterator[str]:
    points = tuple(
        (_line(run, shown, operation.replace("_", " ")), float(place), getattr(latency, name))
        for run in shown
        for operation, latency in run.latency.items()
        for place, (_, name) in enumerate(_PERCENTILES)
    )
    ticks = [Tick(float(place), text) for place, (text, _) in enumerate(_PERCENTILES)]
    yield lines(Series("Latency by percentile", "ms", points), float(len(_PERCENTILES) - 1), ticks)


def _throughput(shown: Sequence[Run]) -> str:
    points = tuple((_line(run, shown, kind), at, rate) for run in shown for kind, at, rate in rates(run.timeline))
    return lines(Series("Throughput", "messages per second", points), _end(shown))


def _latencies(shown: Sequence[Run]) -> Iterator[str]:
    for operation in dict.fromkeys(moment.operation for run in shown for moment in run.moments):
        points = tuple(
            (_line(run, shown, name), moment.at, value)
            for run in shown
            for moment in run.moments
            if moment.operation == operation
            for name, value in (("median", moment.median), ("99 %", moment.p99))
        )
        yield lines(Series(f"Latency: {operation.replace('_', ' ')}", "ms, of each second", points), _end(shown))


def _cores(run: Run, named: bool) -> str:
    points = tuple(
        (_NAMES[part], after.at, (after.cpu[part] - before.cpu[part]) / (after.at - before.at))
        for before, after in pairwise(run.timeline)
        for part in PARTS
        if part in before.cpu and part in after.cpu
    )
    return lines(Series(f"CPU, {run.server}" if named else "CPU", "cores in use", points), _end([run]))


def _levels(shown: Sequence[Run]) -> Iterator[str]:
    for title, of in (("Memory of the server", "memory_bytes"), ("Tables with indexes", "table_bytes")):
        points = tuple(
            (_line(run, shown, title.split(maxsplit=1)[0].lower()), level.at, getattr(level, of) / 1e6)
            for run in shown
            for level in run.levels
            if getattr(level, of)
        )
        if len({x for _, x, _ in points}) > 1:
            yield lines(Series(title, "MB", points), _end(shown))
    for run in shown:
        if run.seconds >= STEADY_S and (found := drifts(run)):
            rows = [(each.figure, f"{each.first:,.1f}", f"{each.last:,.1f}", f"{each.ratio:.2f}") for each in found]
            yield f"<figure><figcaption>{escape(_line(run, shown, 'first and last third'))}</figcaption>"
            yield table(("median of", "first third", "last third", "ratio"), rows) + "</figure>"


def _end(shown: Sequence[Run]) -> float:
    ends = [series[-1].at for run in shown for series in (run.timeline, run.moments) if series]
    return max(ends, default=0.0) or 1.0


def _flame_graph(run: Run, name: str, folder: Path) -> str:
    """In a frame of its own: py-spy's pictures contain a script for zooming."""
    file = folder / run.folder / name
    if not file.exists():
        return ""
    data = b64encode(file.read_bytes()).decode()
    title = f"Flame graph: run {run.number}, {run.server}, {file.stem}"
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<iframe height=700 src="data:image/svg+xml;base64,{data}" title="{escape(title)}"></iframe></details>'
    )
