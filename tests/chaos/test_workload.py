"""The workload of `queen verify` while something is killed: whatever its clients see, every checker accepts it."""

import asyncio
import random
from collections import Counter

import pytest

from queen_spec.checkers import all_checkers, judge
from queen_spec.conformance.http import Server as Address
from queen_spec.conformance.workload import Size, Workload
from queen_spec.guarantees import Level, checks
from queen_spec.history import History
from tests.chaos.test_kill import FAULTS, Fault
from tests.support.processes import Server, open_folder, serving

SIZE = Size(producers=4, consumers=8, pushes=60)
KILLS = 3
#: Calls between two kills.
PROGRESS = 200


async def disturb(workload: Workload, server: Server, fault: Fault, choice: random.Random) -> None:
    """Kills something now and then, while clients get on with their work."""
    for number in range(1, KILLS + 1):
        async with asyncio.timeout(240):
            while len(workload.records) < number * PROGRESS:
                await asyncio.sleep(0.02)
        await fault(server, choice)


async def run(server: Server, fault: Fault, seed: int) -> History:
    address = Address.at(f"http://127.0.0.1:{server.port}")
    workload = Workload(address, SIZE, seed, f"chaos-{seed}", f"chaos-{seed}-target", Counter())
    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        group.create_task(disturb(workload, server, fault, random.Random(seed)))
        group.create_task(workload.run())
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
@pytest.mark.parametrize("what", FAULTS)
def test_what_clients_see_while_something_is_killed_is_in_order(what: str) -> None:
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
    assert found == {}
