"""Random schedules of faults: producers, consumers and pipelines at work throughout, every checker over what they saw.

``--schedules 100`` runs so many, ``--seed 17`` the one of that seed, ``--faults 0,3`` only these of its faults, and
``--databases 3`` runs them over three databases.
"""

import asyncio
import random
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from spec.conformance.http import Server as Address
from spec.conformance.workload import Size, Workload
from spec.guarantees import Level, checks
from spec.history import Drained, Push, Record, to_line
from tests.support.chaos.faults import Injector
from tests.support.chaos.schedule import BlackHole, Event, Schedule, schedule_of
from tests.support.chaos.verdict import Verdict, judge_all, read_log, whole_history
from tests.support.chaos.world import world_of
from tests.support.processes import PATIENCE_S, open_folder

SIZE = Size(producers=4, consumers=6, pushes=0, server_made=0.3, auto_consumers=1, pause_s=0.05)
#: In tox's default run, always the same ones: what they meet differs enough from run to run. By number of databases.
SCHEDULES = {1: range(1, 3), 3: (106,)}
#: A quiet time before the first fault, and between two checks that pushes succeed again.
QUIET_S = 0.5
#: Where the list of databases may change, producers go on to new partitions all the time.
_MOVES = 30


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a seed."""
    if "seed" not in metafunc.fixturenames:
        return
    given, number, databases = map(metafunc.config.getoption, ("--seed", "--schedules", "--databases"))
    first = random.SystemRandom().randrange(10**6) if given == "random" else int(given or 1)
    chosen = range(first, first + (number or 1)) if given or number else None
    places = {databases or 1: chosen or SCHEDULES.get(databases)} if given or number or databases else SCHEDULES
    metafunc.parametrize(
        ("databases", "seed"), [(database, seed) for database, seeds in places.items() for seed in seeds]
    )


@checks(
    "G-DUR-1", "G-DUR-2", "G-DUR-3", "G-DUR-4", "G-ORD-1", "G-ORD-2", "G-ORD-3", "G-ORD-4", "G-IDEM-1", "G-LEASE-1",
    "G-LEASE-2", "G-LEASE-3", "G-ACK-1", "G-ACK-2", "G-ACK-3", "G-DLQ-1", "G-TXN-1", "G-TXN-2", "G-TXN-3", "G-GRP-1",
    "G-SPOOL-1", "G-SPOOL-2", "G-SPOOL-3", "G-SPOOL-4", "G-SPOOL-6", "G-SPOOL-7", "G-SHARD-1", "G-SHARD-2",
    "G-SHARD-5", level=Level.FAULTS,
)  # fmt: skip
def test_schedule_no_loss_no_duplicates_in_order(
    databases: int, seed: int, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    schedule = schedule_of(seed, databases)
    if chosen := request.config.getoption("--faults"):
        schedule = schedule.only(frozenset(map(int, chosen.split(","))))
    print(f"again: pytest tests/chaos/test_schedules.py --seed {seed} --databases {databases}")
    assert carry_out(schedule, tmp_path, capsys).faults == {}


@pytest.mark.nightly
@checks("G-ACK-7", "G-LEASE-1", "G-DLQ-1", "G-TXN-1", level=Level.FAULTS)
def test_calls_whose_answers_are_lost_are_not_told_as_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Again and again what PostgreSQL answers is lost, whatever the call; in random schedules that is seldom an ack."""
    lost = BlackHole("database", "back", seconds=0.3, then="reset")
    schedule = Schedule(0, tuple(Event(0.5 + 0.9 * number, lost) for number in range(14)))
    assert carry_out(schedule, tmp_path, capsys).faults == {}


def carry_out(schedule: Schedule, evidence: Path, capsys: pytest.CaptureFixture[str]) -> Verdict:
    """Runs a schedule, and shows what it was and what came of it."""
    print(schedule.text)
    print(f"what clients saw and the server said: {evidence}")
    verdict, done = asyncio.run(run(schedule, evidence / "history.jsonl"))
    with capsys.disabled():
        print(f"\nseed {schedule.seed}: {verdict.figures}, faults {dict(done)}")
    return verdict


def is_stored(record: Record) -> bool:
    """Whether a push went to PostgreSQL."""
    return isinstance(record, Push) and any(item.outcome == "ok" and not item.spooled for item in record.items)


async def run(schedule: Schedule, evidence: Path) -> tuple[Verdict, Counter[str]]:
    """The verdict, and how often each kind of fault was injected; ``evidence`` takes the history."""
    with open_folder() as folder:
        async with world_of(folder, schedule) as world:
            injector = Injector(world)

            async def lasts() -> None:
                await asyncio.sleep(QUIET_S)
                await injector.run()
                await world.heal()
                healed = len(workload.records)
                async with asyncio.timeout(PATIENCE_S):
                    while not any(is_stored(record) for record in workload.records[healed:]):
                        await asyncio.sleep(QUIET_S)

            several = schedule.databases > 1
            queue, target = f"chaos-{schedule.seed}", f"chaos-{schedule.seed}-target"
            workload = Workload(
                Address.at(world.url), replace(SIZE, moves=_MOVES if several else 0), schedule.seed, queue, target,
                Counter(), lasts=lasts, settles=world.heal, over_several=several,
            )  # fmt: skip
            try:
                await workload.run()
            finally:
                print("\n".join([*injector.log, *world.notes, f"{world.starts} starts of the server"]))
                shutil.copy(world.server.output, evidence.parent)
                world.server.last_lines()  # pytest shows them when the folder is gone
                for database in world.databases:
                    shutil.copy(database.postgres.log_of("one"), evidence.parent / f"postgres-{database.name}.log")
                evidence.write_text("".join(f"{to_line(record)}\n" for record in workload.records))  # noqa: ASYNC240
            world.check_server()
            log = await read_log([database.dsn for database in world.databases], [queue, target])
            assert list(world.spool.rglob("*.failed")) == []
    assert sum(isinstance(record, Drained) for record in workload.records) == 4, "a queue could not be emptied"
    return judge_all(whole_history(workload.records, log, time.monotonic_ns()), log), injector.done
