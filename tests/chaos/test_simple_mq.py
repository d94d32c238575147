"""simple-mq while consumers crash and PostgreSQL, back ends and workers are killed: histories, and the checkers."""

import asyncio
import random

import pytest

from spec.checkers.simple_mq import violations
from spec.conformance.http import Server as Endpoint
from spec.conformance.simple_mq.workload import Size, Workload
from spec.guarantees import Level, checks
from spec.simple_mq_history import SimpleMqHistory
from tests.chaos.test_kill import FAULTS, Fault
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, open_folder, serving


def endpoint(server: Server) -> Endpoint:
    return Endpoint.at(f"http://127.0.0.1:{server.port}")


def judge(history: SimpleMqHistory, seed: int) -> None:
    enqueued = [record for record in history.enqueued() if record.outcome == "ok"]
    deliveries = sum(len(polls) for polls in history.delivered().values())
    print(f"seed {seed}: {len(enqueued)} stored, {deliveries} deliveries, {len(history.dead)} dead letters")
    assert violations(history) == []


@checks("G-SMQ-1", "G-SMQ-4", "G-SMQ-7", "G-SMQ-8", level=Level.FAULTS)
@pytest.mark.parametrize("what", mostly_at_night(FAULTS, ["a worker"]))
def test_killing_processes_loses_nothing_and_keeps_the_count(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        history = asyncio.run(_under_faults(server, FAULTS[what], seed))
    judge(history, seed)


async def _under_faults(server: Server, fault: Fault, seed: int) -> SimpleMqHistory:
    size = Size(producers=4, consumers=8, messages=600, timeout_s=3, deliveries=20)
    workload = Workload(endpoint(server), size, seed, strict=False)

    async def faults() -> None:
        for share in (0.25, 0.6):
            async with asyncio.timeout(240):
                while workload.sent < size.messages * share:
                    await asyncio.sleep(0.02)
            await fault(server, random.Random(seed))

    async with asyncio.TaskGroup() as group:
        run = group.create_task(workload.run())
        group.create_task(faults())
    return run.result()


@checks("G-SMQ-1", "G-SMQ-3", "G-SMQ-4", "G-SMQ-7", "G-SMQ-8", level=Level.FAULTS)
def test_fifty_consumers_that_crash_at_random() -> None:
    """A crashed consumer acks nothing; nothing else fails, so every delivery is known and every count exact."""
    seed = random.SystemRandom().randrange(10**6)
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        size = Size(producers=5, consumers=50, messages=1500, timeout_s=2, deliveries=3, crash=0.25)
        history = asyncio.run(Workload(endpoint(server), size, seed).run())
    judge(history, seed)
