"""``queen audit``: judges the whole log and the journals of a load test, one verdict a guarantee."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from queen.cli.interface import Interface
from queen.cli.output import err, fail, out

if TYPE_CHECKING:
    from queen_audit.report import Report

_CANNOT = 2
_STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow"}
_INSTALL = "pyspark is missing. Install it with: python3 -m pip install 'queen-for-python[audit]'"


def audit(
    dsn: Annotated[
        str | None,
        typer.Option(
            help="PostgreSQL with the log; else QUEEN_AUDIT_DSN.", envvar="QUEEN_AUDIT_DSN", show_default=False
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="Folder of journals (docs/journal.md).", exists=True, file_okay=False, show_default=False),
    ] = None,
    interface: Annotated[
        Interface, typer.Option(help="Whose run it was: Queen's interface, or simple-mq's.")
    ] = Interface.queen,
    master: Annotated[str, typer.Option(help="Where Spark runs: local[*], spark://host:port, k8s://…")] = "local[*]",
    guarantee: Annotated[
        list[str] | None, typer.Option(help="Only audits of this guarantee; may be repeated.", show_default="all")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="File for the report as HTML.", dir_okay=False)] = None,
    json: Annotated[Path | None, typer.Option(help="File for the report as JSON.", dir_okay=False)] = None,
    max_evidence: Annotated[int, typer.Option(help="Violations to show of each audit; all are counted.", min=0)] = 20,
    driver_memory: Annotated[
        str, typer.Option(help="Heap of Spark's driver, which does the work in local mode.")
    ] = "2g",
    clock_bound: Annotated[
        float, typer.Option(help="Seconds by which clocks of agents may differ that did not compare theirs.", min=0)
    ] = 0.0,
) -> None:
    """Audit a log and journals: 0 no violation, 1 violations, 2 it cannot be judged."""
    if dsn is None and journal is None:
        fail("nothing to audit: give --dsn, --journal, or both", _CANNOT)
    try:
        from queen_audit import command  # noqa: PLC0415 - `queen --help` does not wait for Spark
        from queen_audit.errors import AuditError  # noqa: PLC0415
        from queen_audit.report import as_html, as_json  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        fail(_INSTALL if problem.name in ("pyspark", "pyarrow", "numpy") else problem, _CANNOT)
    request = command.Request(
        dsn, journal, master, tuple(guarantee or ()), max_evidence, driver_memory, clock_bound, interface.value
    )
    try:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        ) as bar:
            task = bar.add_task("starting Spark", total=None)

            def progress(done: int, total: int, name: str) -> None:
                bar.update(task, completed=done, total=total, description=name.replace("_", " "))

            made = command.make(request, progress)
    except (AuditError, ValueError) as problem:
        fail(problem, _CANNOT)
    _print(made)
    for path, render in ((json, as_json), (report, as_html)):
        if path:
            try:
                path.write_text(render(made), encoding="utf-8")
            except OSError as problem:
                fail(problem, _CANNOT)
    raise typer.Exit(made.exit_code)


def _print(made: "Report") -> None:
    rows = Table("guarantee", "result", "violations", "audit", "", box=None, pad_edge=False)
    for verdict in made.verdicts:
        result = Text(verdict.result, style=_STYLES[verdict.result])
        rows.add_row(" ".join(verdict.ids), result, str(verdict.violations or ""), verdict.audit, verdict.text)
    out.print(rows)
    for verdict in made.verdicts:
        for each in verdict.evidence:
            out.print(f"{os.linesep if each is verdict.evidence[0] else ''}{verdict.audit}: {each}", markup=False)
    for note in made.notes:
        out.print(note, style="yellow", markup=False)
    out.print(made.summary, style="red" if made.exit_code else "green")
