"""Back ends that end and a primary that fails over are latency for clients, not errors, and cost no message."""

import asyncio
import random

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import open_folder, serving
from tests.support.servers import serving_database
from tests.support.standby import pair
from tests.support.traffic import Traffic

#: Longer than a fail-over takes on a busy machine.
PATIENCE = {"DB_PATIENCE_MS": "200000"}


@pytest.fixture
def seed() -> int:
    number = random.SystemRandom().randrange(10**6)
    print(f"seed {number}")
    return number


def configure(server: object, queue: str) -> None:
    answer = server.request("POST", "/api/v1/configure", {"queue": queue, "options": {"leaseTime": 3}})  # type: ignore[attr-defined]
    assert answer[0] == 200


@pytest.mark.nightly
@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", level=Level.FAULTS)
def test_back_ends_ended_again_and_again_are_seen_as_latency(seed: int) -> None:
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"ended-{seed}", seed)
        configure(server, traffic.queue)

        async def disturb() -> None:
            connection = await asyncpg.connect(server.dsn)
            for _ in range(6):
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queen'"
                )
                await traffic.progress(20)
            await connection.close()

        asyncio.run(traffic.run(disturb))
        asyncio.run(traffic.judge(server.dsn))
    assert not traffic.journal.statuses


@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", level=Level.FAULTS)
def test_a_fail_over_to_the_standby_is_seen_as_latency(seed: int) -> None:
    with (
        open_folder() as folder,
        pair(folder / "pair") as both,
        serving_database(both.dsn, folder, "--workers", "2", **PATIENCE) as server,
    ):
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"standby-{seed}", seed)
        configure(server, traffic.queue)

        async def disturb() -> None:
            await asyncio.to_thread(both.fail_over)

        asyncio.run(traffic.run(disturb))
        asyncio.run(traffic.judge(both.dsn_of("two")))
    assert not traffic.journal.statuses
