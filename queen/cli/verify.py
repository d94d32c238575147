"""``queen verify``: checks the guarantees of a server, as a client."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from queen.cli.client.options import Context, Token
from queen.cli.client.reach import chosen
from queen.cli.ending import interruptible
from queen.cli.errors import ExitCode, FailedError, UsageError
from queen.cli.interface import Interface
from queen.cli.output import Json, can_be_written, conclude, out
from queen.cli.progress import bar as progress_bar
from spec.conformance import Report, UnreachableError, as_html, as_json, as_junit, as_table, file_name, run
from spec.conformance.simple_mq import run as run_simple_mq
from spec.conformance.sqs import run as run_sqs

_STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow", "skipped": "dim"}


_RUNS = {Interface.queen: run, Interface.simple_mq: run_simple_mq, Interface.sqs: run_sqs}


class ProfileName(StrEnum):
    """How thorough a run is."""

    quick = "quick"
    default = "default"


def verify(
    url: Annotated[
        str | None,
        typer.Argument(
            help="URL of the server, such as http://127.0.0.1:6632; of SQS the endpoint.",
            show_default="that of the context",
        ),
    ] = None,
    interface: Annotated[Interface, typer.Option(help="Interface to check.")] = Interface.queen,
    token: Token = None,
    context: Context = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random choices, to repeat a run.", show_default="a new one")
    ] = None,
    profile: Annotated[ProfileName, typer.Option(help="quick: a small workload.")] = ProfileName.default,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only the checks of this guarantee, such as G-LEASE-1; may be repeated.", show_default="all"
        ),
    ] = None,
    json: Json = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write the report to this file as JUnit XML.", dir_okay=False)
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file as HTML.", dir_okay=False)] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            help="Write what shows each violation into this folder: a script with curl, or the calls of the workload.",
            exists=True,
            file_okay=False,
            writable=True,
        ),
    ] = None,
) -> None:
    """Check the guarantees of a server over HTTP. Exit code 0: all hold, 1: one is violated.

    2: the server is unreachable, or a report cannot be written. 3: none is violated, but some have no result.
    """
    can_be_written(junit=junit, html=html)
    place, secret = chosen(url, token, context)
    try:
        # However it ends, its queues are deleted.
        with interruptible():
            report = _run(place, interface, secret, seed, profile, only or [])
    except UnreachableError as problem:
        raise FailedError(f"{place} is unreachable: {problem}", ExitCode.IMPOSSIBLE) from None
    except ValueError as problem:
        raise UsageError(f"--only: {problem}") from None
    files = ((junit, as_junit), (html, as_html))
    shown = _shown(report, evidence) if evidence else ()
    conclude(
        ExitCode.OK if report.passed else ExitCode.FAILED if report.is_violated else ExitCode.NO_RESULT,
        partial(out.out, as_json(report), end="") if json else partial(_print, report),
        *((path, partial(render, report)) for path, render in files),
        *shown,
    )


def _shown(report: Report, folder: Path) -> Iterator[tuple[Path, Callable[[], str]]]:
    """What shows each violation, and the file for it."""
    for row in report.rows:
        if row.evidence:
            yield folder / file_name(row.id, row.check, row.evidence), partial(str, row.evidence)


def _run(
    url: str, interface: Interface, token: str | None, seed: int | None, profile: ProfileName, only: list[str]
) -> Report:
    with progress_bar() as bar:
        task = bar.add_task(f"Checking {url}", visible=False)

        def progress(done: int, total: int, _last: str) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return _RUNS[interface](url, token=token, seed=seed, profile=profile.value, only=only, progress=progress)


def _print(report: Report) -> None:
    if not out.is_terminal:
        out.print(as_table(report), markup=False, end="")
        return
    rows = Table("id", "level", "result", "check", "", box=None, pad_edge=False)
    for row in report.rows:
        result = Text(row.result, style=_STYLES[row.result])
        rows.add_row(row.id, row.level, result, Text(row.check), Text(row.text))
    statuses = Table("answer", "statuses seen", "recommended", box=None, pad_edge=False)
    for each in report.statuses:
        statuses.add_row(each.situation, each.shown, each.recommended)
    out.print(rows)
    out.print()
    out.print(statuses)
    out.print()
    out.print(report.summary, style="green" if report.passed else "red")
