"""A session of `queen bench load`: starts servers, runs scenarios, and writes every result at once."""

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

from bench import profile
from bench.load import target
from bench.load.auditing import audit, interface_of
from bench.load.results import Run, server_folder
from bench.load.runner import Plan, Progress, run
from bench.load.scenarios import Scenario, known_settings

if TYPE_CHECKING:
    from spark_validation.report import Report

RESULTS = "results.jsonl"
_WORKERS = 2


class Asked(Struct, frozen=True):
    """The options; see ``queen bench load --help``."""

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
        ValueError: a text has another form, or no script of the scenarios reads its name.
    """
    found = {"SMOKE": "1"} if smoke else {}
    known = known_settings(scenarios)
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise ValueError(f"--set {text}: expected is NAME=value, such as VUS=20")
        if name == "DURATION":
            raise ValueError(f"--set {text}: use --seconds for the duration of a run")
        if name not in known:
            listed = ", ".join(sorted(known))
            raise ValueError(f"--set {text}: no script of these scenarios reads {name}. They read {listed}")
        found[name] = value
    return found


def carry_out(asked: Asked, progress: Progress, found: list[Run]) -> "Report | None":
    """Runs everything, and audits the first server if requested.

    Each result is added to ``found``, and to the file in the folder, at once.

    Raises:
        QueenError: a server or k6 is missing, or the results cannot be written; earlier results are kept.
        ValueError: options contradict each other.
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
    if asked.dsn is not None and not asked.dsn.startswith("postgres"):
        raise ValueError(
            "--dsn is one database, as a URL. Omit it for a server over several, and audit its journals afterwards: "
            'queen audit --dsn "$DATABASE_URLS" --journal …'
        )
    if asked.against_dsn is not None and asked.against is None:
        raise ValueError("--against-dsn is for the server of --against: give --against, too")
    if asked.workers is not None and asked.url is not None:
        raise ValueError("--workers is for a server that is started, but --url names another one: omit one of both")
    if _is_broker(asked.against) and any(each.by_k6 for each in asked.scenarios):
        raise ValueError("--against RabbitMQ takes scenarios that speak AMQP too: socket-take-ack and socket-latency")


def _is_broker(url: str | None) -> bool:
    return url is not None and url.startswith("amqp://")


def _other(url: str, dsn: str | None) -> target.Target:
    return target.Broker(url) if _is_broker(url) else target.Target("other", url, dsn)


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
        # The failed write is repeated here, and its error was reported already.
        with suppress(OSError):
            file.close()


def _unwritten(folder: Path, problem: OSError) -> target.TargetError:
    return target.TargetError(f"Results cannot be written to {folder}: {problem.strerror}")


def _end_line(file: BinaryIO) -> None:
    """Ends an incomplete line, so that the next result is not part of it."""
    if file.tell():
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.write(b"\n")


@contextmanager
def _targets(asked: Asked) -> Iterator[list[target.Target]]:
    others = [_other(asked.against, asked.against_dsn)] if asked.against else []
    if asked.url is not None:
        yield [target.Target("queen", asked.url, asked.dsn), *others]
        return
    settings = {name: value for scenario in asked.scenarios for name, value in scenario.server.items()}
    with target.started(asked.dsn, asked.workers or _WORKERS, settings) as own:
        yield [own, *others]


def _check_restarts(asked: Asked, targets: Sequence[target.Target]) -> None:
    if any(scenario.restarts for scenario in asked.scenarios) and not all(each.embedded for each in targets):
        raise target.TargetError(
            "A scenario kills PostgreSQL, which is allowed for the embedded one only: omit --url, --dsn and --against"
        )
