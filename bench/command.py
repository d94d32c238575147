"""``queen bench``: one subcommand per scenario, and ``load``, which has scenarios of its own."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

import typer
from msgspec import Struct
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.report import show
from bench.scenario import Scenario, read, run, write
from bench.scenarios import SCENARIOS
from queen.cli.audit import explained
from queen.cli.ending import interruptible
from queen.cli.errors import ExitCode, FailedError, UsageError
from queen.cli.output import can_be_written, conclude, err, even_unread, out, written
from queen.core.errors import QueenError

if TYPE_CHECKING:
    from bench.load.results import Run
    from bench.load.session import Asked
    from spark_validation.report import Report

bench = typer.Typer(name="bench", help="Measure the server and what it is made of.", no_args_is_help=True)

_Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL to measure; databases are created in it and dropped afterwards.",
        show_default="an embedded one in a temporary folder",
    ),
]
_Samples = Annotated[
    Path | None, typer.Option(help="File for all samples, as JSON lines.", dir_okay=False, show_default=False)
]
_Earlier = Annotated[
    Path | None,
    typer.Option(
        help="Samples of another session (--samples), for example of another commit, to compare with.",
        dir_okay=False,
        exists=True,
        show_default=False,
    ),
]
_Smoke = Annotated[bool, typer.Option("--smoke", help="A short run of seconds: shows that it works, not how fast.")]


@bench.callback()
def _bench() -> None:
    """Run benchmarks of the server and its parts."""


@bench.command("load")
def load(
    scenario: Annotated[
        list[str] | None,
        typer.Argument(help="Names of scenarios; `push-*` takes all that begin with `push-`.", show_default=False),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Server to measure.", show_default="one of this installation, started for it")
    ] = None,
    dsn: Annotated[
        str | None, typer.Option(help="Its PostgreSQL, to measure CPU, bytes and WAL.", show_default="embedded")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Another server, or RabbitMQ (amqp://); both are measured alternately.", show_default=False),
    ] = None,
    against_dsn: Annotated[
        str | None, typer.Option(help="The PostgreSQL of the other server, as --dsn.", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Workers of the started server.", min=1, show_default="2")] = None,
    seconds: Annotated[int | None, typer.Option(help="Of each run.", min=2, show_default="20; soak 1800")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs per scenario.", min=1, show_default="3; --smoke 1")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=value for the scripts, such as VUS=20.", show_default=False)
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Folder for results.jsonl and the files of each run.", file_okay=False)
    ] = Path("bench-results"),
    journal: Annotated[bool, typer.Option("--journal", help="Record every call, for an audit.")] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="Audit journals and log before the server is stopped; records every call.")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Flame graphs of the workers, by py-spy.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="File for the report with plots.", dir_okay=False, show_default="report.html in the folder"),
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another results.jsonl to compare with, besides earlier results in the folder.",
            dir_okay=False,
            exists=True,
            show_default=False,
        ),
    ] = None,
    smoke: _Smoke = False,
) -> None:
    """Load over HTTP by k6, and on WebSockets: rates, times, CPU, memory, bytes; as JSON lines and a page.

    Exit code 0: all thresholds held, and no audit found a violation; 1: not so; 2: the benchmark was not possible.
    """
    from bench.load import scenarios, session  # noqa: PLC0415 - `queen --help` is quick

    if list_:
        _list_scenarios()
        return
    can_be_written(html=html)
    _check_smoke(smoke, seconds=seconds, set=setting)
    try:
        known, named = _known([folder / session.RESULTS]), _known(earlier or [])
        wanted = scenarios.chosen(scenario)
        asked = session.Asked(
            wanted, url, dsn, against, against_dsn, workers, 2 if smoke else seconds, runs or (1 if smoke else 3),
            session.settings(setting or [], wanted, smoke=smoke), folder, journal or audit, audit, profile,
        )  # fmt: skip
        found, report, shown = _load(asked, partial(_show_load, known=known, named=named, folder=folder, html=html))
    except ValueError as wrong:
        raise UsageError(wrong) from None
    except QueenError as problem:
        raise FailedError(problem, ExitCode.IMPOSSIBLE) from None
    _show_audit(asked, report, found)
    _conclude_load(found, report, folder, 0 if shown else ExitCode.IMPOSSIBLE)


def _list_scenarios() -> None:
    from bench.load import scenarios  # noqa: PLC0415 - as above

    for each in scenarios.SCENARIOS:
        out.print(f"[bold]{each.name:22}[/] {each.about}", highlight=False)


def _known(files: list[Path]) -> "list[Run]":
    """The results of the files that exist."""
    from bench.load import results  # noqa: PLC0415 - as above

    return [run for file in files if file.exists() for run in results.read(file)]


def _show_audit(asked: "Asked", report: "Report | None", found: "list[Run]") -> None:
    """Prints the command that audits the journals of the session, if it has some and they were not audited."""
    from bench.load import results  # noqa: PLC0415 - as above

    if not asked.journal or report is not None or not found:
        return
    journals = shlex.join(["--journal", str(asked.folder / results.session_folder(found[0].session))])
    with even_unread():
        out.print(f"Audit it: queen audit {'--dsn … ' if asked.dsn else ''}{journals}", highlight=False, markup=False)


def _load(asked: "Asked", show: "Callable[[list[Run]], bool]") -> "tuple[list[Run], Report | None, bool]":
    """Runs a session and shows its results, also if it was interrupted or failed.

    The last element of the result: whether everything could be written.
    """
    from bench.load import session  # noqa: PLC0415 - as above

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
    from bench.load import page, report  # noqa: PLC0415 - as above

    place = html or folder / "report.html"
    fine = written(place, page.as_html(found, known, folder, named))
    with even_unread():
        report.show(found, out)
        if fine:
            out.print(f"The report with plots is in {place}", highlight=False)
    return fine


def _conclude_load(found: "list[Run]", report: "Report | None", folder: Path, shown: int) -> NoReturn:
    """Ends the command with the result of thresholds and audit, or else with that of ``shown``."""
    exit_code = int(any(run.crossed for run in found)) or shown
    if report is None:
        raise typer.Exit(exit_code)
    from bench.load import results  # noqa: PLC0415
    from queen.cli.audit import show  # noqa: PLC0415 - as above
    from spark_validation.report import as_html  # noqa: PLC0415

    place = folder / results.session_folder(found[0].session) / "audit.html"

    def told() -> None:
        show(report)
        out.print(f"The report of the audit is in {place}", highlight=False)

    conclude(exit_code or report.exit_code, told, (place, partial(as_html, report)))


def _command(scenario: Scenario) -> Callable[..., None]:
    """The command of a scenario: its options are its settings and the common options."""

    def measure(
        samples: Path | None, earlier: Path | None, smoke: bool, dsn: str | None = None, **given: object
    ) -> None:
        given = {name: value for name, value in given.items() if value is not None}
        _check_smoke(smoke, **{name: name in given for name in scenario.smoke})
        settings = scenario.settings(**{**(scenario.smoke if smoke else {}), **given})
        _measure(scenario, dsn, settings, samples, earlier)

    options = _options(scenario.settings) | ({"dsn": _Dsn} if scenario.needs == "postgres" else {})
    options |= {"samples": _Samples, "earlier": _Earlier, "smoke": _Smoke}
    measure.__doc__ = scenario.about
    measure.__annotations__ = {**options, "return": None}
    measure.__signature__ = Signature([  # type: ignore[attr-defined]
        Parameter(name, Parameter.KEYWORD_ONLY, default=False if name == "smoke" else None, annotation=annotation)
        for name, annotation in options.items()
    ])  # fmt: skip
    return measure


def _options(settings: type[Struct]) -> dict[str, Any]:
    """Annotations of the options of these settings; an omitted option is ``None``, and its help shows the default."""
    found: dict[str, Any] = {}
    defaults = settings()
    for name, hint in get_type_hints(settings, include_extras=True).items():
        if (option := next(iter(getattr(hint, "__metadata__", ())), None)) is not None:
            kind, default, option = hint.__origin__, getattr(defaults, name), copy(option)
            listed = get_origin(kind) is tuple
            option.show_default = " and ".join(map(str, default)) if listed else str(default)
            # A type made at run time, which type checkers do not know.
            given: Any = list[get_args(kind)[0]] if listed else kind  # type: ignore[misc]
            found[name] = Annotated[given | None, option]
    return found


def _measure(scenario: Scenario, dsn: str | None, settings: Struct, samples: Path | None, earlier: Path | None) -> None:
    """Runs a scenario, writes its samples, and prints its report."""
    can_be_written(samples=samples)
    try:
        before = read(earlier, scenario.name) if earlier else None
    except ValueError as wrong:
        raise UsageError(wrong) from None
    with explained() if scenario.needs == "spark" else nullcontext(), interruptible(), _progress() as advance:
        found = run(scenario, dsn, settings, advance)
    if samples is not None:
        write(samples, found)
    show(scenario, found, before, out)


def _check_smoke(smoke: bool, **given: object) -> None:
    """Ends the command if --smoke would override other options."""
    if smoke and (names := [f"--{name.replace('_', '-')}" for name, value in given.items() if value]):
        raise UsageError(f"--smoke has settings of its own: omit {' and '.join(names)}, or --smoke")


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
    """Shows the progress of a benchmark."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("PostgreSQL", total=1.0)

    def __call__(self, what: str, done: float) -> None:
        self._bar.update(self._task, completed=done, description=what)


for _scenario in SCENARIOS:
    bench.command(_scenario.name)(_command(_scenario))
