"""``queen bench``: one sub-command a benchmark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from queen.cli.audit import explained
from queen.cli.ending import interruptible
from queen.cli.output import can_be_written, conclude, err, even_unread, fail, out, written
from queen.core.errors import QueenError

if TYPE_CHECKING:
    from queen_audit.report import Report
    from queen_bench.load.results import Run
    from queen_bench.load.session import Asked

_CANNOT = 2

bench = typer.Typer(name="bench", help="Measure the server and what it is made of.", no_args_is_help=True)

_Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL to measure; databases are made in it and dropped afterwards.",
        show_default="an embedded one in a temporary folder",
    ),
]
_Json = Annotated[
    Path | None, typer.Option(help="File to write the whole report to.", dir_okay=False, show_default=False)
]
_Smoke = Annotated[bool, typer.Option("--smoke", help="Take seconds: shows that it works, not how fast.")]


@bench.callback()
def _bench() -> None:
    """Measure the server and what it is made of."""


@bench.command("procedures")
def procedures(
    dsn: _Dsn = None,
    seconds: Annotated[float | None, typer.Option(help="Of each rate in each run.", min=0.01, show_default="1")] = None,
    runs: Annotated[int | None, typer.Option(help="How often all is measured.", min=1, show_default="5")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Push, pop and ack through the stored procedures, beside a table with one row a message."""
    _measure("procedures", dsn, json, smoke=smoke, seconds=seconds, runs=runs)


@bench.command("load")
def load(
    scenario: Annotated[
        list[str] | None,
        typer.Argument(help="Names of scenarios; `push-*` takes all that begin so.", show_default=False),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Say which scenarios there are.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Server to measure.", show_default="one of this installation, started for it")
    ] = None,
    dsn: Annotated[
        str | None, typer.Option(help="Its PostgreSQL, to look at CPU, bytes and WAL.", show_default="embedded")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Another server; both are measured in turns.", show_default=False)
    ] = None,
    against_dsn: Annotated[
        str | None, typer.Option(help="The PostgreSQL of the other server, as --dsn.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers of the server that is started.", min=1, show_default="2")
    ] = None,
    seconds: Annotated[int | None, typer.Option(help="Of each run.", min=2, show_default="20; soak 1800")] = None,
    runs: Annotated[
        int | None, typer.Option(help="How often each scenario is run.", min=1, show_default="3; --smoke 1")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=value for the scripts, as VUS=20.", show_default=False)
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Where results.jsonl and the files of each run go.", file_okay=False)
    ] = Path("bench-results"),
    journal: Annotated[bool, typer.Option("--journal", help="Write down every call, for an audit.")] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="Audit journals and log before the server is gone; writes down every call.")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Flame graphs of the workers, by py-spy.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="File for the report with plots.", dir_okay=False, show_default="report.html in the folder"),
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            help="A results.jsonl to compare with, beside what the folder holds from before.",
            dir_okay=False,
            exists=True,
            show_default=False,
        ),
    ] = None,
    smoke: _Smoke = False,
) -> None:
    """Load over HTTP by k6: rates, times, CPU, memory and bytes a message; as JSON lines and as a page with plots.

    0: all thresholds were held, and no audit found a violation; 1: not so; 2: it cannot be done as asked.
    """
    from queen_bench.load import results, scenarios, session  # noqa: PLC0415 - `queen --help` is quick

    if list_:
        for each in scenarios.SCENARIOS:
            out.print(f"[bold]{each.name:22}[/] {each.about}", highlight=False)
        return
    can_be_written(html=html)
    _check_smoke(smoke, seconds=seconds, set=setting)
    there = folder / session.RESULTS
    try:
        known = results.read(there) if there.exists() else []
        named = [run for file in earlier or () for run in results.read(file)]
        wanted = scenarios.chosen(scenario or ["push-100", "pop-ack-100", "flow-1000"])
        asked = session.Asked(
            wanted, url, dsn, against, against_dsn, workers, 2 if smoke else seconds, runs or (1 if smoke else 3),
            session.settings(setting or [], wanted, smoke=smoke), folder, journal or audit, audit, profile,
        )  # fmt: skip
        found, report, shown = _load(asked, partial(_show_load, known=known, named=named, folder=folder, html=html))
    except ValueError as wrong:
        fail(wrong, _CANNOT)
    except QueenError as problem:
        fail(problem)
    _conclude_load(found, report, folder, 0 if shown else _CANNOT)


def _load(asked: "Asked", show: "Callable[[list[Run]], bool]") -> "tuple[list[Run], Report | None, bool]":
    """Carries out a session, and shows what it found, also if it was ended in the middle, or failed then.

    Whether all of that could be written comes last.
    """
    from queen_bench.load import session  # noqa: PLC0415 - as above

    found: list[Run] = []
    try:
        with interruptible(), _progress() as advance:
            report = session.carry_out(asked, advance, found)
    except BaseException:
        if found:
            show(found)
        raise
    return found, report, show(found)


def _show_load(found: "list[Run]", *, known: "list[Run]", named: "list[Run]", folder: Path, html: Path | None) -> bool:
    """Writes the page with plots and prints the tables; whether it could be written."""
    from queen_bench.load import page, report  # noqa: PLC0415 - as above

    place = html or folder / "report.html"
    fine = written(place, page.as_html(found, known, folder, named))
    with even_unread():
        report.show(found, out)
        if fine:
            out.print(f"The report with plots is in {place}", highlight=False)
    return fine


def _conclude_load(found: "list[Run]", report: "Report | None", folder: Path, shown: int) -> NoReturn:
    """Ends the command with what thresholds and audit came to, or what ``shown`` says if these were fine."""
    exit_code = int(any(run.crossed for run in found)) or shown
    if report is None:
        raise typer.Exit(exit_code)
    from queen.cli.audit import show  # noqa: PLC0415 - as above
    from queen_audit.report import as_html  # noqa: PLC0415
    from queen_bench.load import results  # noqa: PLC0415

    place = folder / results.session_folder(found[0].session) / "audit.html"

    def told() -> None:
        show(report)
        out.print(f"The report of the audit is in {place}", highlight=False)

    conclude(exit_code or report.exit_code, told, (place, partial(as_html, report)))


@bench.command("spool")
def spool(
    dsn: _Dsn = None,
    seconds: Annotated[float | None, typer.Option(help="Of each rate in each run.", min=0.01, show_default="2")] = None,
    runs: Annotated[int | None, typer.Option(help="How often all is measured.", min=1, show_default="5")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Pushes through the engine to PostgreSQL and to the spool, and the replay."""
    _measure("spool", dsn, json, smoke=smoke, seconds=seconds, runs=runs)


@bench.command("engine")
def engine(
    dsn: _Dsn = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of each layer in each run.", min=0.01, show_default="2")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="How often all is measured.", min=1, show_default="5")] = None,
    http: Annotated[bool, typer.Option("--http/--no-http", help="Measure a whole server with k6, too.")] = True,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Procedures alone, the engine without HTTP, and a server, in turns: which layer takes what of a message."""
    _measure("engine", dsn, json, smoke=smoke, seconds=seconds, runs=runs, http=http)


@bench.command("growth")
def growth(
    dsn: _Dsn = None,
    messages: Annotated[int | None, typer.Option(help="Retained.", min=100, show_default="10000000")] = None,
    partitions: Annotated[int | None, typer.Option(help="Of one queue.", min=100, show_default="1000000")] = None,
    groups: Annotated[int | None, typer.Option(help="Of one queue.", min=1, show_default="100")] = None,
    seconds: Annotated[float | None, typer.Option(help="Of each rate in each run.", min=0.01, show_default="2")] = None,
    runs: Annotated[int | None, typer.Option(help="How often all is measured.", min=1, show_default="5")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Push, pop and ack in systems full of messages, of partitions and of groups, each beside an empty one."""
    given = {"messages": messages, "partitions": partitions, "groups": groups}
    _measure("growth", dsn, json, smoke=smoke, seconds=seconds, runs=runs, **given)


@bench.command("checkers")
def checkers(
    calls: Annotated[int, typer.Option(help="Length of the history.", min=1000)] = 1_000_000,
    json: _Json = None,
) -> None:
    """All checkers of the specification on one long, valid history."""
    from queen_bench.checkers import report, runner  # noqa: PLC0415 - `queen --help` does not wait for the benchmark

    try:
        can_be_written(json=json)
        with interruptible(), _progress() as advance:
            found = runner.run(calls, advance)
    except QueenError as problem:
        fail(problem)
    _write(found, json)
    report.show(found, out)


@bench.command("audit")
def audit(
    messages: Annotated[
        list[int] | None, typer.Option(help="Of a run; may be repeated.", min=1000, show_default="1000000")
    ] = None,
    hot: Annotated[
        list[float] | None,
        typer.Option(help="Part of a run that lies in one partition; may be repeated.", show_default="0 and 0.3"),
    ] = None,
    read: Annotated[int, typer.Option(help="Messages of a log in PostgreSQL that is read; 0: none.", min=0)] = 0,
    driver_memory: Annotated[str | None, typer.Option(help="Heap of Spark's driver.", show_default="4g")] = None,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """All audits of generated runs, valid ones, and the reading of a log."""
    _check_smoke(smoke, messages=messages, hot=hot, driver_memory=driver_memory)
    import msgspec  # noqa: PLC0415 - `queen --help` does not wait for the benchmark

    with explained(), interruptible():
        from queen_bench.audit import report, runner  # noqa: PLC0415

        sizes = messages or ([] if read else [1_000_000])
        profile = runner.Profile(
            tuple(sizes),
            tuple(hot if hot is not None else (0.0, 0.3)),
            read,
            driver_memory=driver_memory or "4g",
            master=master,
        )
        if smoke:
            profile = msgspec.structs.replace(profile, messages=(10_000,), hot=(0.3,), warm_up=0, driver_memory="1g")
        can_be_written(json=json)
        with _progress() as advance:
            found = runner.run(profile, advance)
    _write(found, json)
    report.show(found, out)


@bench.command("waiters")
def waiters(
    dsn: _Dsn = None,
    waiters: Annotated[int | None, typer.Option(help="Long polls.", min=1, show_default="30000")] = None,
    queues: Annotated[int | None, typer.Option(help="Queues that they wait at.", min=1, show_default="as many")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Idle long polls by the ten thousand, and how soon they hear of a message; then two instances side by side."""
    _measure("waiters", dsn, json, smoke=smoke, waiters=waiters, queues=queues or waiters)


@bench.command("listing")
def listing(
    dsn: _Dsn = None,
    partitions: Annotated[int | None, typer.Option(help="Of the queue.", min=100, show_default="100000")] = None,
    messages: Annotated[int | None, typer.Option(help="In the queue.", min=100, show_default="1000000")] = None,
    runs: Annotated[int | None, typer.Option(help="How often each is asked for.", min=1, show_default="9")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Every listing and status operation of a large queue, over HTTP."""
    _measure("listing", dsn, json, smoke=smoke, partitions=partitions, messages=messages, runs=runs)


@bench.command("retention")
def retention(
    dsn: _Dsn = None,
    messages: Annotated[
        int | None, typer.Option(help="To remove in each run.", min=1000, show_default="1000000")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="RETENTION_BATCH_SIZE of the service.", min=1, show_default="1000")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="RETENTION_INTERVAL of the service, in seconds: a sweep that lasts longer takes more of the time.",
            min=0.1,
            show_default="300",
        ),
    ] = None,
    runs: Annotated[int | None, typer.Option(help="How often all is measured.", min=1, show_default="3")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """What retention removes a second, and what pushes and pops feel of it beside their quiet selves."""
    _measure(
        "retention", dsn, json, smoke=smoke, messages=messages, batch_size=batch_size, interval_s=interval, runs=runs
    )


@bench.command("depth")
def depth(
    dsn: _Dsn = None,
    messages: Annotated[int | None, typer.Option(help="In the deep queue.", min=1, show_default="5000000")] = None,
    polls: Annotated[int | None, typer.Option(help="Of each queue in a run.", min=10, show_default="1000")] = None,
    runs: Annotated[int | None, typer.Option(help="How often all is measured.", min=1, show_default="5")] = None,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Polls of a simple-mq queue with one message and of one with millions, in turns, over HTTP."""
    _measure("depth", dsn, json, smoke=smoke, messages=messages, polls=polls, runs=runs)


@bench.command("held-snapshot")
def held_snapshot(
    dsn: _Dsn = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of each side of a pair; the last fifth counts.", min=1, show_default="600")
    ] = None,
    pairs: Annotated[int | None, typer.Option(help="How often both are measured.", min=1, show_default="3")] = None,
    clients: Annotated[int | None, typer.Option(help="That push, pop and ack.", min=1, show_default="4")] = None,
    slot: Annotated[bool, typer.Option("--slot", help="A replication slot holds an xmin instead.")] = False,
    json: _Json = None,
    smoke: _Smoke = False,
) -> None:
    """Push, pop and ack beside a transaction that holds a snapshot, and without it, in turns."""
    given = {"seconds": seconds, "pairs": pairs, "clients": clients, "slot": slot or None}
    _measure("snapshot", dsn, json, smoke=smoke, **given)


def _check_smoke(smoke: bool, **given: object) -> None:
    """Ends the command where --smoke would win over other options."""
    if smoke and (names := [f"--{name.replace('_', '-')}" for name, value in given.items() if value]):
        fail(f"--smoke has settings of its own: leave out {' and '.join(names)}, or --smoke", _CANNOT)


def _measure(name: str, dsn: str | None, json: Path | None, *, smoke: bool, **given: float | None) -> None:
    """Carries out the benchmark of a package on a PostgreSQL. What is not given is as in its profile.

    Each of these packages has ``results.Profile`` and ``results.SMOKE``, ``runner.run`` and ``report.show``.
    """
    import msgspec  # noqa: PLC0415 - `queen --help` does not wait for the benchmark
    import uvloop  # noqa: PLC0415

    from queen_bench import database  # noqa: PLC0415

    can_be_written(json=json)
    results, runner, report = (import_module(f"queen_bench.{name}.{part}") for part in ("results", "runner", "report"))
    profile = results.SMOKE if smoke else results.Profile()
    profile = msgspec.structs.replace(profile, **{key: value for key, value in given.items() if value is not None})
    try:
        with interruptible(), _progress() as advance, database.server(dsn) as url:
            found = uvloop.run(runner.run(url, profile, advance, embedded=dsn is None))  # the loop of a worker
    except QueenError as problem:
        fail(problem)
    _write(found, json)
    report.show(found, out)


def _write(found: object, json: Path | None) -> None:
    if json is not None:
        import msgspec  # noqa: PLC0415 - as above

        json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))


@contextmanager
def _progress() -> "Iterator[_Advance]":
    columns = (
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        yield _Advance(bar)


class _Advance:
    """Shows how far a benchmark is."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("PostgreSQL", total=1.0)

    def __call__(self, what: str, done: float) -> None:
        self._bar.update(self._task, completed=done, description=what)
