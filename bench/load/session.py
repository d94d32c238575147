"""A session of `queen bench load`: the servers are there, the scenarios run, every result is written at once."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from queen_bench import profile
from queen_bench.load import target
from queen_bench.load.results import Run
from queen_bench.load.runner import Plan, Progress, run
from queen_bench.load.scenarios import Scenario

RESULTS = "results.jsonl"


class Asked(Struct, frozen=True):
    """What the user wants; see ``queen bench load --help``."""

    scenarios: Sequence[Scenario]
    url: str | None
    dsn: str | None
    against: str | None
    workers: int
    seconds: int | None
    runs: int
    settings: Mapping[str, str]
    folder: Path
    journal: bool
    profile: bool


def settings(texts: Sequence[str], *, smoke: bool) -> dict[str, str]:
    """Settings for the scripts from NAME=value.

    Raises:
        ValueError: a text has another form.
    """
    found = {"SMOKE": "1"} if smoke else {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--set {text}: expected is NAME=value, as VUS=20")
        found[name] = value
    return found


def carry_out(asked: Asked, progress: Progress) -> list[Run]:
    """Runs everything; the results are in the folder as they come.

    Raises:
        QueenError: a server or k6 is not there.
    """
    if asked.journal and find_spec("pyarrow") is None:
        raise target.TargetError("--journal writes Parquet: pip install 'queen-for-python[audit]'")
    if asked.profile:
        profile.check()
    asked.folder.mkdir(parents=True, exist_ok=True)
    session = datetime.now(UTC).isoformat(timespec="seconds")
    with _targets(asked) as targets:
        _check_restarts(asked, targets)
        plan = Plan(
            asked.scenarios, targets, asked.runs, asked.settings, asked.seconds, asked.journal, asked.profile, session
        )
        return asyncio.run(_write(plan, asked.folder, progress))


async def _write(plan: Plan, folder: Path, progress: Progress) -> list[Run]:
    runs = []
    with (folder / RESULTS).open("ab") as file:
        async for each in run(plan, folder, progress):
            file.write(msgspec.json.encode(each) + b"\n")
            file.flush()
            runs.append(each)
    return runs


@contextmanager
def _targets(asked: Asked) -> Iterator[list[target.Target]]:
    others = [target.Target("other", asked.against, None)] if asked.against else []
    if asked.url is not None:
        yield [target.Target("queen", asked.url, asked.dsn), *others]
        return
    with target.started(asked.dsn, asked.workers) as own:
        yield [own, *others]


def _check_restarts(asked: Asked, targets: Sequence[target.Target]) -> None:
    if any(scenario.restarts for scenario in asked.scenarios) and not all(each.embedded for each in targets):
        raise target.TargetError(
            "A scenario kills PostgreSQL, which is only done to the embedded one: leave out --url, --dsn and --against"
        )
