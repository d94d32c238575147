"""PostgreSQL and workers killed under load: nothing answered is lost, doubled or reordered."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.clock import eventually
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, open_folder, serving
from tests.support.traffic import Traffic

Fault = Callable[[Server, random.Random], Awaitable[None]]


async def kill_postmaster(server: Server, _choice: random.Random) -> None:
    server.postmaster().send_signal(signal.SIGKILL)


async def kill_a_back_end(server: Server, _choice: random.Random) -> None:
    """As soon as PostgreSQL runs: back ends outlive the postmaster that an earlier fault has killed, and answer."""

    async def connect() -> "asyncpg.Connection[Any] | None":
        try:
            return await asyncpg.connect(server.dsn)
        except (OSError, asyncpg.CannotConnectNowError):
            return None

    connection = await eventually(connect, "PostgreSQL")
    assert connection is not None
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'queen' ORDER BY random() LIMIT 2"
    )
    await connection.close()


async def kill_a_worker(server: Server, choice: random.Random) -> None:
    os.kill(choice.choice(sorted(server.workers())), signal.SIGKILL)


async def keep_killing(
    fault: Fault, server: Server, choice: random.Random, *, done: Callable[[], int], step: int, kills: int
) -> None:
    """Kills something each time when clients have done a number of things more."""
    for _ in range(kills):
        goal = done() + step
        while done() < goal:
            await asyncio.sleep(0.02)
        await fault(server, choice)


FAULTS: dict[str, Fault] = {
    "the postmaster": kill_postmaster,
    "back ends": kill_a_back_end,
    "a worker": kill_a_worker,
}


@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", "G-ACK-8", level=Level.FAULTS)
@pytest.mark.parametrize("what", mostly_at_night(FAULTS, ["the postmaster"]))
def test_killing_processes_under_load_no_loss_no_duplicates_in_order(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        # A short lease, so that what a dead worker had leased comes again soon.
        queue = {"queue": f"chaos-{seed}", "options": {"leaseTime": 2}}
        assert server.request("POST", "/api/v1/configure", queue)[0] == 200
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"chaos-{seed}", seed)

        async def disturb() -> None:
            await FAULTS[what](server, random.Random(seed))
            await traffic.progress(150)
            await FAULTS[what](server, random.Random(seed))

        asyncio.run(traffic.run(disturb))
        asyncio.run(traffic.judge(server.dsn))
