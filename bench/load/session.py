"""A session of `queen bench load`: the servers are there, the scenarios run, every result is written at once."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec import Struct

from queen_bench import profile
from queen_bench.load import target
from queen_bench.load.auditing import audit, interface_of
from queen_bench.load.results import Run, server_folder
from queen_bench.load.runner import Plan, Progress, run
from queen_bench.load.scenarios import Scenario, known_settings

if TYPE_CHECKING:
    from queen_audit.report import Report

RESULTS = "results.jsonl"
_WORKERS = 2


class Asked(Struct, frozen=True):
    """What the user wants; see ``queen bench load --help``."""

    scenarios: Sequence[Scenario]
    url: str | None
    dsn: str | None
    against: str | None
    against_dsn: str | None
    workers: int | None
    seconds: int | None
    runs: int
    settings: Mapping[str, str]
    folder: Path
    journal: bool
    audit: bool
    profile: bool


def settings(texts: Sequence[str], scenarios: Sequence[Scenario], *, smoke: bool) -> dict[str, str]:
    """Settings for the scripts from NAME=value.

    Raises:
        ValueError: a text has another form, or no script of the scenarios knows its name.
    """
    found = {"SMOKE": "1"} if smoke else {}
    known = known_settings(scenarios)
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise ValueError(f"--set {text}: expected is NAME=value, as VUS=20")
        if name == "DURATION":
            raise ValueError(f"--set {text}: --seconds says how long a run lasts")
        if name not in known:
            listed = ", ".join(sorted(known))
            raise ValueError(f"--set {text}: no script of these scenarios knows {name}. They know {listed}")
        found[name] = value
    return found


def carry_out(asked: Asked, progress: Progress, found: list[Run]) -> "Report | None":
    """Runs everything, and audits the first server if that was asked for.

    Results are added to ``found``, and to the file in the folder, as they come.

    Raises:
        QueenError: a server or k6 is not there, or the results cannot be written; what was found before is there.
        ValueError: options do not go together.
    """
    _check_options(asked)
    interface = interface_of(asked.scenarios) if asked.audit else ""
    if asked.journal and find_spec("pyspark" if asked.audit else "pyarrow") is None:
        option = "--audit needs Spark" if asked.audit else "--journal writes Parquet"
        raise target.TargetError(f"{option}: pip install 'queen-for-python[audit]'")
    if asked.profile:
        profile.check()
    session = datetime.now(UTC).isoformat(timespec="seconds")
    with _results(asked.folder) as file, _targets(asked) as targets:
        _check_restarts(asked, targets)
        plan = Plan(
            asked.scenarios, targets, asked.runs, asked.settings, asked.seconds, session, asked.journal, asked.profile
        )
        asyncio.run(_gather(plan, asked.folder, file, progress, found))
        if not asked.audit:
            return None
        return audit(targets[0], asked.folder / server_folder(session, targets[0].name), interface, progress)


def _check_options(asked: Asked) -> None:
    if asked.against_dsn is not None and asked.against is None:
        raise ValueError("--against-dsn is of the server that --against names: give --against, too")
    if asked.workers is not None and asked.url is not None:
        raise ValueError("--workers is of the server that is started, and --url names another: leave out one of both")


async def _gather(plan: Plan, folder: Path, file: BinaryIO, progress: Progress, found: list[Run]) -> None:
    async for each in run(plan, folder, progress):
        found.append(each)
        try:
            file.write(msgspec.json.encode(each) + b"\n")
            file.flush()
        except OSError as problem:
            raise _unwritten(folder, problem) from problem


@contextmanager
def _results(folder: Path) -> Iterator[BinaryIO]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / RESULTS).open("a+b")
        _end_line(file)
    except OSError as problem:
        raise _unwritten(folder, problem) from problem
    try:
        yield file
    finally:
        # What could not be written is tried once more here, and that was told.
        with suppress(OSError):
            file.close()


def _unwritten(folder: Path, problem: OSError) -> target.TargetError:
    return target.TargetError(f"Results cannot be written to {folder}: {problem.strerror}")


def _end_line(file: BinaryIO) -> None:
    """What comes next is not part of a line that was cut off."""
    if file.tell():
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.write(b"\n")


@contextmanager
def _targets(asked: Asked) -> Iterator[list[target.Target]]:
    others = [target.Target("other", asked.against, asked.against_dsn)] if asked.against else []
    if asked.url is not None:
        yield [target.Target("queen", asked.url, asked.dsn), *others]
        return
    settings = {name: value for scenario in asked.scenarios for name, value in scenario.server.items()}
    with target.started(asked.dsn, asked.workers or _WORKERS, settings) as own:
        yield [own, *others]


def _check_restarts(asked: Asked, targets: Sequence[target.Target]) -> None:
    if any(scenario.restarts for scenario in asked.scenarios) and not all(each.embedded for each in targets):
        raise target.TargetError(
            "A scenario kills PostgreSQL, which is only done to the embedded one: leave out --url, --dsn and --against"
        )
