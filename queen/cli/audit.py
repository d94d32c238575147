"""``queen audit``: checks the log and the journals of a load test, with one verdict per guarantee; and its archive."""

import re
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

from queen.cli.client.options import Context, OfPartition, OfQueue, Token, Url, moment
from queen.cli.client.reach import chosen
from queen.cli.client.showing import document
from queen.cli.ending import interruptible
from queen.cli.errors import ExitCode, FailedError, UsageError
from queen.cli.interface import Interface
from queen.cli.output import Json, ReaderLeft, can_be_written, conclude, err, out
from queen.cli.progress import told
from queen.core.errors import QueenError
from spark_validation.errors import AuditError

if TYPE_CHECKING:
    from spark_validation.live.windows import Finding
    from spark_validation.report import Report
    from spark_validation.run import Verdict

_DAY_S = 86_400
#: Violations of an audit whose history is printed; files have them all.
_HISTORIES = 3
_STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow"}
_INSTALL = "Modules for audits are missing. Install them with: python3 -m pip install 'queen-for-python[audit]'"
#: A Path has one slash where s3a://bucket has two.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_INTERRUPTED = "interrupted: nothing was written"
_SPARK = frozenset({"pyspark", "py4j", "pysail", "grpc", "grpc_status", "google", "pyarrow", "numpy", "pandas"})

audit = typer.Typer(name="audit", invoke_without_command=True)

Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL with the log, or NAME=URL of several databases in one text, as in DATABASE_URLS; by default "
        "QUEEN_AUDIT_DSN.",
        envvar="QUEEN_AUDIT_DSN",
        show_default=False,
    ),
]


def _folder(value: Path | None) -> Path | None:
    """Refuses a URL, which would be taken for the name of a folder here."""
    if value is not None and _URL.match(str(value)) and not value.exists():
        raise typer.BadParameter(
            f"{value} is no folder of this machine. Journals and archives are in folders: mount the storage, and name "
            "its folder"
        )
    return value


Journal = Annotated[
    Path | None,
    typer.Option(help="Folder with journals (docs/journal.md).", show_default=False, callback=_folder),
]
Master = Annotated[str, typer.Option(help="Spark master: local[*], spark://host:port, k8s://…")]
DriverMemory = Annotated[str, typer.Option(help="Memory for queries; of Spark, the heap of the driver.")]


def _number(value: float | None) -> float | None:
    """Refuses nan, which passes all limits."""
    if value is not None and isnan(value):
        raise typer.BadParameter("nan is not a number of seconds")
    return value


@audit.callback()
def judge(
    context: typer.Context,
    dsn: Dsn = None,
    journal: Journal = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Folder with an archive of the log (queen audit archive).", show_default=False, callback=_folder
        ),
    ] = None,
    interface: Annotated[
        Interface | None,
        typer.Option(help="Interface of the audited run.", show_default="that of the journals, if they have one"),
    ] = None,
    master: Master = "local[*]",
    guarantee: Annotated[
        list[str] | None,
        typer.Option(help="Run only the audits of this guarantee; may be repeated.", show_default="all"),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report to this file as HTML.", dir_okay=False)] = None,
    json: Json = False,
    max_evidence: Annotated[
        int, typer.Option(help="Violations to show per audit; all are counted.", min=0, max=100_000)
    ] = 20,
    driver_memory: DriverMemory = "4g",
    clock_bound: Annotated[
        float,
        typer.Option(
            help="Maximum difference between the clocks of agents that did not compare theirs, in seconds.",
            min=0,
            max=_DAY_S,
            callback=_number,
        ),
    ] = 0.0,
) -> None:
    """Audit a log and journals. Exit code 0: no violations, 1: violations, 2: the audit was not possible."""
    if context.invoked_subcommand:
        _refuse_options(context)
        return
    if dsn is None and journal is None and archive is None:
        raise UsageError(
            "nothing to audit: give --dsn, --journal, or both; --archive may be added to --dsn or replace it"
        )
    can_be_written(report=report)
    with explained(), interruptible():
        from spark_validation import command  # noqa: PLC0415 - `queen --help` does not wait for Spark
        from spark_validation.report import as_html, as_json  # noqa: PLC0415
        from spark_validation.run import choose  # noqa: PLC0415

        wanted = tuple(each.upper() for each in guarantee or ())
        where = command.Where(master, driver_memory)
        spoken = _spoken(interface, journal, archive)
        request = command.Request(dsn, journal, archive, where, wanted, max_evidence, clock_bound, spoken)
        with told("starting", len(choose(wanted, spoken))) as tell:
            made = command.make(request, lambda done, total, name: tell(done, total, name.replace("_", " ")))
    shown = partial(out.out, as_json(made), end="") if json else partial(show, made)
    conclude(made.exit_code, shown, (report, partial(as_html, made)))


def _spoken(interface: Interface | None, journal: Path | None, archive: Path | None) -> str:
    """The interface to audit: the one that is asked for, else that of the journals."""
    from spark_validation.journal.interface import interface_of  # noqa: PLC0415 - as above

    if archive and interface not in (None, Interface.queen):
        raise UsageError("an archive holds the log of Queen's interface: omit --archive or --interface")
    if interface is None and journal and not archive:
        return interface_of(journal, Interface.queen.value)
    return (interface or Interface.queen).value


def _refuse_options(context: typer.Context) -> None:
    """Ends the command if options stand before its subcommand; environment variables apply to that, too."""
    sources = [context.get_parameter_source(name) for name in context.params]
    if any(source and source.name == "COMMANDLINE" for source in sources):
        raise UsageError(f"give options after the subcommand: queen audit {context.invoked_subcommand} --dsn …")


@audit.command("archive")
def archive(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder of the archive; created if it does not exist.", show_default=False, callback=_folder
        ),
    ],
    dsn: Dsn = None,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "4g",
    json: Json = False,
) -> None:
    """Add the new messages of the log to an archive, as Parquet by queue and day, and check it against the log.

    Exit code 0: done, 1: done, but some messages had been removed before, or cannot be read, 2: failed.
    """
    if dsn is None:
        raise UsageError("nothing to archive: give --dsn, or set QUEEN_AUDIT_DSN")
    with explained(), interruptible(), told("starting Spark") as tell:
        from spark_validation import command  # noqa: PLC0415 - as above

        done = command.archive(dsn, folder, command.Where(master, driver_memory), tell)
    if done.too_late:
        err.print(f"{done.too_late} messages were removed from the log before they could be archived", style="yellow")
    for each in done.damaged:
        err.print(f"left out: {each.queue}/{each.partition}: {each.damage}", style="yellow", markup=False)
    text = f"archived {done.rows} messages of {done.parts} partitions in {done.files} files"
    late = done.too_late > 0 or bool(done.damaged)
    conclude(int(late), lambda: document(done) if json else out.print(text, markup=False))


@audit.command("restore")
def restore(
    folder: Annotated[Path, typer.Argument(help="Folder of the archive.", show_default=False, callback=_folder)],
    queue: OfQueue,
    partition: OfPartition = None,
    since: Annotated[
        str | None, typer.Option(help="Only messages of this time or later, as 2026-11-21T22:00:00Z or 2d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only messages of before this time.")] = None,
    into: Annotated[str | None, typer.Option(help="Push into this queue instead.")] = None,
    url: Url = None,
    token: Token = None,
    context: Context = None,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "4g",
    json: Json = False,
) -> None:
    """Push messages of an archive into their queue again, or into another one, in their order.

    They keep their transaction ids, so what the queue still has is not stored again. Exit code 0: done, 2: failed.
    """
    with explained(), interruptible(), told("starting Spark") as tell:
        from spark_validation import command  # noqa: PLC0415 - as above
        from spark_validation.archive.restore import Range, Target  # noqa: PLC0415 - as above

        wanted = Range(queue, partition, _micros(since), _micros(until), into)
        target = Target(*chosen(url, token, context))
        done = command.restore(folder, wanted, target, command.Where(master, driver_memory), tell)
    text = f"pushed {done.rows} messages of {done.parts} partitions; what the queue still has is not stored again"
    conclude(0, lambda: document(done) if json else out.print(text, markup=False))


def _micros(text: str | None) -> int | None:
    """Microseconds since 1970, of a time; UTC if it has no zone."""
    if text is None:
        return None
    time_ = datetime.fromisoformat(moment(text))
    return int((time_ if time_.tzinfo else time_.replace(tzinfo=UTC)).timestamp() * 1_000_000)


@audit.command("watch")
def watch(
    dsn: Dsn = None,
    journal: Journal = None,
    master: Master = "local[*]",
    driver_memory: DriverMemory = "4g",
    interval: Annotated[
        float, typer.Option(help="Seconds between two checks.", min=0.1, max=30, callback=_number)
    ] = 5.0,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long to watch, in seconds.", min=0, show_default="until interrupted", callback=_number),
    ] = None,
    clock_bound: Annotated[
        float,
        typer.Option(
            help="Maximum difference between the clocks of agents, in seconds.", min=0, max=_DAY_S, callback=_number
        ),
    ] = 1.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder that remembers how far it came: the next watch continues there.",
            show_default=False,
            callback=_folder,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Watch new segments of a log, and journals (*.jsonl) while agents write them, and report violations immediately.

    Checks losses, order, gaps and duplicates within the last messages of each partition, until Ctrl-C. Exit code 0: no
    violations, 1: violations.
    """
    if dsn is None and journal is None:
        raise UsageError("nothing to watch: give --dsn, --journal, or both")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    reporter = _Reporter(ended, json=json)
    with explained():
        from spark_validation import command  # noqa: PLC0415 - as above

        request = command.Watch(dsn, journal, command.Where(master, driver_memory), interval, clock_bound, checkpoint)
        command.watch(request, reporter, _Until(ended, seconds))
    conclude(
        int(reporter.count > 0),
        lambda: (err if json else out).print(
            f"{reporter.count} violations", style="red" if reporter.count else "green"
        ),
    )


class _Reporter:
    """Reports violations and counts them; ends the watch when standard output is closed."""

    def __init__(self, ended: threading.Event, *, json: bool) -> None:
        self.count = 0
        self._json, self._ended = json, ended

    def found(self, finding: "Finding") -> None:
        """Counts and prints it."""
        self.count += 1
        try:
            if self._json:
                document(finding)
            else:
                out.print(f"{_clock()} {finding.guarantee} {_location(finding)}: {finding.text}", markup=False)
        except ReaderLeft:
            self._ended.set()

    def noticed(self, text: str) -> None:
        """Prints a notice."""
        err.print(f"{_clock()} {text}", style="yellow", markup=False)


def _clock() -> str:
    return f"{datetime.now(UTC):%H:%M:%S}"


class _Until:
    """True until it is ended, or for a number of seconds after the first call."""

    def __init__(self, ended: threading.Event, seconds: float | None) -> None:
        self._ended, self._seconds = ended, seconds
        self._deadline: float | None = None

    def __call__(self) -> bool:
        if self._deadline is None:
            err.print("watching", style="dim")
            self._deadline = time.monotonic() + (inf if self._seconds is None else self._seconds)
        return not self._ended.is_set() and time.monotonic() < self._deadline


def _location(finding: "Finding") -> str:
    return f"{finding.queue}/{finding.partition}" + (f" group {finding.group}" if finding.group else "")


@contextmanager
def explained() -> Iterator[None]:
    """Errors of the block end the command with one line."""
    try:
        yield
    except KeyboardInterrupt:
        raise FailedError(_INTERRUPTED, ExitCode.INTERRUPTED) from None
    except ModuleNotFoundError as problem:
        raise UsageError(_INSTALL if (problem.name or "").partition(".")[0] in _SPARK else problem) from None
    except (AuditError, QueenError, ValueError, OSError) as problem:
        if _was_interrupted(problem):
            raise FailedError(_INTERRUPTED, ExitCode.INTERRUPTED) from None
        raise UsageError(problem) from None


def _was_interrupted(problem: BaseException | None) -> bool:
    """Whether an error is the consequence of a signal: a library that it ends as well may be the first to fail."""
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__cause__ or problem.__context__
    return problem is not None


def show(made: "Report") -> None:
    """Prints the report."""
    from spark_validation.report import sentence_of  # noqa: PLC0415 - as above

    guarantees = _table("guarantee", "result", "violations", "audits", "what it says")
    for each in made.guarantees:
        count = str(len(each.audits))
        guarantees.add_row(each.id, _result(each.result), str(each.violations or ""), count, Text(sentence_of(each.id)))
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
    """A table: plain on a terminal, otherwise Markdown of any width."""
    made = Table(box=None if out.is_terminal else box.MARKDOWN, pad_edge=not out.is_terminal)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def _result(result: str) -> Text:
    return Text(result, style=_STYLES[result])


def _show_evidence(verdict: "Verdict") -> None:
    from spark_validation.report import EVENT, history_of, line_of  # noqa: PLC0415 - as above

    if not verdict.evidence:
        return
    out.print(f"{verdict.audit}: {len(verdict.evidence)} of {verdict.violations} violations", style="bold")
    for number, each in enumerate(verdict.evidence):
        out.print(f"- {line_of(each)}", markup=False)
        if each.history and number < _HISTORIES:
            events = _table(*EVENT)
            for row in history_of(each):
                events.add_row(*map(Text, row))
            out.print(events)
    out.print()
