"""``queen audit``: judges the whole log and the journals of a load test, one verdict a guarantee; and its archive."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from queen.cli.interface import Interface
from queen.cli.output import ReaderLeft, can_be_written, conclude, err, fail, out
from queen.cli.progress import bar as progress_bar
from queen.core.errors import QueenError
from queen_audit.errors import AuditError

if TYPE_CHECKING:
    from queen_audit.live.windows import Finding
    from queen_audit.report import Report
    from queen_audit.run import Verdict

_CANNOT = 2
_DAY_S = 86_400
_STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow"}
_INSTALL = "pyspark is missing. Install it with: python3 -m pip install 'queen-for-python[audit]'"
_SPARK = frozenset({"pyspark", "py4j", "pyarrow", "numpy", "pandas"})

audit = typer.Typer(name="audit", invoke_without_command=True)

Dsn = Annotated[
    str | None,
    typer.Option(help="PostgreSQL with the log; else QUEEN_AUDIT_DSN.", envvar="QUEEN_AUDIT_DSN", show_default=False),
]
Journal = Annotated[Path | None, typer.Option(help="Folder of journals (docs/journal.md).", show_default=False)]
Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], spark://host:port, k8s://…")]
DriverMemory = Annotated[str, typer.Option(help="Heap of Spark's driver, which does the work in local mode.")]


def _number(value: float | None) -> float | None:
    """Refuses what is neither below nor above any limit."""
    if value is not None and isnan(value):
        raise typer.BadParameter("nan is no number of seconds")
    return value


@audit.callback()
def judge(
    context: typer.Context,
    dsn: Dsn = None,
    journal: Journal = None,
    archive: Annotated[
        Path | None, typer.Option(help="Folder of an archive of the log (queen audit archive).", show_default=False)
    ] = None,
    interface: Annotated[
        Interface, typer.Option(help="Whose run it was: Queen's interface, or simple-mq's.")
    ] = Interface.queen,
    master: Master = "local[*]",
    guarantee: Annotated[
        list[str] | None, typer.Option(help="Only audits of this guarantee; may be repeated.", show_default="all")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="File for the report as HTML.", dir_okay=False)] = None,
    json: Annotated[Path | None, typer.Option(help="File for the report as JSON.", dir_okay=False)] = None,
    max_evidence: Annotated[
        int, typer.Option(help="Violations to show of each audit; all are counted.", min=0, max=100_000)
    ] = 20,
    driver_memory: DriverMemory = "4g",
    clock_bound: Annotated[
        float,
        typer.Option(
            help="Seconds by which clocks of agents may differ that did not compare theirs.",
            min=0,
            max=_DAY_S,
            callback=_number,
        ),
    ] = 0.0,
) -> None:
    """Audit a log and journals: 0 no violation, 1 violations, 2 it cannot be judged."""
    if context.invoked_subcommand:
        # What an environment variable says is for the command, too.
        sources = [context.get_parameter_source(name) for name in context.params]
        if any(source and source.name == "COMMANDLINE" for source in sources):
            fail(f"give options behind the command: queen audit {context.invoked_subcommand} --dsn …", _CANNOT)
        return
    if dsn is None and journal is None and archive is None:
        fail("nothing to audit: give --dsn, --journal, or both; --archive beside or instead of --dsn", _CANNOT)
    if archive and interface is not Interface.queen:
        fail("an archive holds the log of Queen's interface: leave out --archive or --interface", _CANNOT)
    can_be_written(report=report, json=json)
    with explained():
        from queen_audit import command  # noqa: PLC0415 - `queen --help` does not wait for Spark
        from queen_audit.report import as_html, as_json  # noqa: PLC0415

        wanted = tuple(each.upper() for each in guarantee or ())
        where = command.Where(master, driver_memory)
        request = command.Request(dsn, journal, archive, where, wanted, max_evidence, clock_bound, interface.value)
        with progress_bar() as bar:
            task = bar.add_task("starting Spark", total=None)

            def progress(done: int, total: int, name: str) -> None:
                bar.update(task, completed=done, total=total, description=name.replace("_", " "))

            made = command.make(request, progress)
    files = ((json, partial(as_json, made)), (report, partial(as_html, made)))
    conclude(made.exit_code, partial(show, made), *files)


@audit.command("archive")
def archive(
    folder: Annotated[Path, typer.Argument(help="Folder of the archive; made if it is not there.", show_default=False)],
    dsn: Dsn = None,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "4g",
) -> None:
    """Add to an archive what the log has beyond it, as Parquet by queue and day; checked against the log.

    0 done, 1 done, but messages had been removed before, 2 it cannot be done.
    """
    if dsn is None:
        fail("nothing to archive: give --dsn, or set QUEEN_AUDIT_DSN", _CANNOT)
    with explained(), progress_bar() as bar:
        bar.add_task("archiving", total=None)
        from queen_audit import command  # noqa: PLC0415 - as above

        done = command.archive(dsn, folder, command.Where(master, driver_memory))
    if done.too_late:
        err.print(f"{done.too_late} messages were removed from the log before they could be archived", style="yellow")
    text = f"archived {done.rows} messages of {done.parts} partitions in {done.files} files"
    conclude(int(done.too_late > 0), lambda: out.print(text, markup=False))


@audit.command("watch")
def watch(
    dsn: Dsn = None,
    journal: Journal = None,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "4g",
    interval: Annotated[
        float, typer.Option(help="Seconds between two looks.", min=0.1, max=30, callback=_number)
    ] = 5.0,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long to watch.", min=0, show_default="until it is ended", callback=_number),
    ] = None,
    clock_bound: Annotated[
        float, typer.Option(help="Seconds by which clocks of agents may differ.", min=0, max=_DAY_S, callback=_number)
    ] = 1.0,
    json: Annotated[
        Path | None, typer.Option(help="File for the violations, a line of JSON each.", dir_okay=False)
    ] = None,
) -> None:
    """Watch new segments of a log, and journals (*.jsonl) that agents are writing, and tell violations as they come.

    Order, gaps and duplicates, within the last messages of each partition. Ends with Ctrl-C: 0 none, 1 violations.
    """
    if dsn is None and journal is None:
        fail("nothing to watch: give --dsn, --journal, or both", _CANNOT)
    can_be_written(json=json)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    told = _Told(json, ended)
    with explained():
        from queen_audit import command  # noqa: PLC0415 - as above

        request = command.Watch(dsn, journal, command.Where(master, driver_memory), interval, clock_bound)
        command.watch(request, told, _Until(ended, seconds))
    conclude(int(told.count > 0), lambda: out.print(f"{told.count} violations", style="red" if told.count else "green"))


class _Told:
    """Tells violations as they come, and counts them; ends the watch when nobody reads them any more."""

    def __init__(self, json: Path | None, ended: threading.Event) -> None:
        self.count = 0
        self._json, self._ended = json, ended

    def found(self, finding: "Finding") -> None:
        """Writes it down, and prints it."""
        import msgspec  # noqa: PLC0415 - as above

        self.count += 1
        if self._json:
            with self._json.open("ab") as file:
                file.write(msgspec.json.encode(finding) + b"\n")
        try:
            out.print(f"{_clock()} {finding.guarantee} {_place(finding)}: {finding.text}", markup=False)
        except ReaderLeft:
            self._ended.set()

    def noticed(self, text: str) -> None:
        """Prints what is not of the violations."""
        err.print(f"{_clock()} {text}", style="yellow", markup=False)


def _clock() -> str:
    return f"{datetime.now(UTC):%H:%M:%S}"


class _Until:
    """True until it was ended, or so many seconds after the first question."""

    def __init__(self, ended: threading.Event, seconds: float | None) -> None:
        self._ended, self._seconds = ended, seconds
        self._deadline: float | None = None

    def __call__(self) -> bool:
        if self._deadline is None:
            err.print("watching", style="dim")
            self._deadline = time.monotonic() + (inf if self._seconds is None else self._seconds)
        return not self._ended.is_set() and time.monotonic() < self._deadline


def _place(finding: "Finding") -> str:
    return f"{finding.queue}/{finding.partition}" + (f" group {finding.group}" if finding.group else "")


@contextmanager
def explained() -> Iterator[None]:
    """What keeps an audit from being made is told in one line."""
    try:
        yield
    except ModuleNotFoundError as problem:
        fail(_INSTALL if (problem.name or "").partition(".")[0] in _SPARK else problem, _CANNOT)
    except (AuditError, QueenError, ValueError, OSError) as problem:
        fail(problem, _CANNOT)


def show(made: "Report") -> None:
    """Prints what was found."""
    guarantees = _table("guarantee", "result", "violations", "audits")
    for each in made.guarantees:
        guarantees.add_row(each.id, _result(each.result), str(each.violations or ""), str(len(each.audits)))
    audits = _table("audit", "guarantees", "result", "violations", "")
    for verdict in made.verdicts:
        found = str(verdict.violations or "")
        audits.add_row(verdict.audit, " ".join(verdict.ids), _result(verdict.result), found, Text(verdict.text))
    for rows in (guarantees, audits):
        out.print(rows)
        if out.is_terminal:
            out.print()
    for verdict in made.verdicts:
        _show_evidence(verdict)
    for note in made.notes:
        out.print(note, style="yellow", markup=False)
    out.print(made.summary, style="red" if made.exit_code else "green")


def _table(*columns: str) -> Table:
    """Plain on a terminal; elsewhere Markdown, and as wide as it takes."""
    made = Table(box=None if out.is_terminal else box.MARKDOWN, pad_edge=not out.is_terminal)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def _result(result: str) -> Text:
    return Text(result, style=_STYLES[result])


def _show_evidence(verdict: "Verdict") -> None:
    from queen_audit.report import line_of  # noqa: PLC0415 - as above

    if not verdict.evidence:
        return
    out.print(f"{verdict.audit}: {len(verdict.evidence)} of {verdict.violations} violations", style="bold")
    for each in verdict.evidence:
        out.print(f"- {line_of(each)}", markup=False)
    out.print()
