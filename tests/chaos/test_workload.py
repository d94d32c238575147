"""The workload of `queen verify` while something is killed: whatever its clients see, every checker accepts it."""

import asyncio
import random
from collections import Counter

import pytest

from spec.checkers import all_checkers, judge
from spec.conformance.http import Server as Address
from spec.conformance.workload import Size, Workload
from spec.guarantees import Level, checks
from spec.history import History, to_line
from tests.chaos.test_kill import FAULTS, Fault
from tests.support.nightly import mostly_at_night
from tests.support.processes import PATIENCE_S, Server, open_folder, serving, wait_until

SIZE = Size(producers=4, consumers=8, pushes=60)
KILLS = 3
#: Calls between two kills.
PROGRESS = 200


async def disturb(workload: Workload, server: Server, fault: Fault, choice: random.Random) -> None:
    """Kills something now and then, while clients get on with their work."""
    for number in range(1, KILLS + 1):
        while len(workload.records) < number * PROGRESS:
            await asyncio.sleep(0.02)
        await fault(server, choice)


async def run(server: Server, fault: Fault, seed: int) -> History:
    """What clients saw. Nothing here has a time limit but the test: on a busy machine all of it takes minutes."""

    async def lasts() -> None:
        await disturb(workload, server, fault, random.Random(seed))

    async def settles() -> None:
        await asyncio.to_thread(wait_until, server.is_settled, "a healthy server with an empty spool", 2 * PATIENCE_S)

    address, queue = Address.at(f"http://127.0.0.1:{server.port}"), f"chaos-{seed}"
    workload = Workload(address, SIZE, seed, queue, f"{queue}-target", Counter(), lasts=lasts, settles=settles)
    await workload.run()
    return History(tuple(workload.records))


@checks(
    "G-ORD-1",
    "G-ORD-2",
    "G-ORD-3",
    "G-DUR-3",
    "G-DUR-4",
    "G-IDEM-1",
    "G-LEASE-1",
    "G-LEASE-2",
    "G-LEASE-3",
    "G-ACK-1",
    "G-ACK-2",
    "G-ACK-3",
    "G-DLQ-1",
    "G-TXN-1",
    "G-TXN-2",
    "G-TXN-3",
    "G-GRP-1",
    level=Level.FAULTS,
)
@pytest.mark.parametrize("what", mostly_at_night(FAULTS, ["a worker"]))
def test_histories_are_linearizable_while_processes_are_killed(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        history = asyncio.run(run(server, FAULTS[what], seed))
    print(f"outcomes: {Counter(getattr(record, 'outcome', '') for record in history.records)}")
    # The two queues are empty for both groups of the one, and for the one of the other.
    assert len(history.drained) == 3
    found = {
        check.name: violations for check, each in all_checkers() if (violations := judge(each, history).violations)
    }
    for subject in {violation.subject.rpartition("/")[2] for violations in found.values() for violation in violations}:
        print(f"records of {subject}, and those of unknown outcome:")
        named = (f'"{subject}"', '"unknown"')
        print("\n".join(line for line in map(to_line, history.records) if any(name in line for name in named)))
    assert found == {}
