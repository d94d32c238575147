"""docs/high-availability.md, step by step: a fail-over, and the way back of the old primary."""

import asyncio
import random

import pytest

from spec.guarantees import Level, checks
from tests.support.processes import ROOT, open_folder
from tests.support.servers import serving_database
from tests.support.standby import Pair, pair
from tests.support.traffic import Traffic

CONFIGURATION = (ROOT / "deploy" / "postgresql" / "high-availability.conf").read_text()
GUIDE = (ROOT / "docs" / "high-availability.md").read_text()
#: Longer than a fail-over takes on a busy machine.
PATIENCE = {"DB_PATIENCE_MS": "200000"}

ALONE = "ALTER SYSTEM SET synchronous_standby_names = ''"
TOGETHER = "ALTER SYSTEM RESET synchronous_standby_names"
RELOAD = "SELECT pg_reload_conf()"


@pytest.fixture
def seed() -> int:
    number = random.SystemRandom().randrange(10**6)
    print(f"seed {number}")
    return number


def fail_over(both: Pair) -> None:
    """All steps of the guide for two nodes."""
    both.fail_over()
    both.sql("two", ALONE)
    both.sql("two", RELOAD)
    both.rejoin("two", "one")
    for name in ("two", "one"):
        both.sql(name, TOGETHER)
        both.sql(name, RELOAD)
    both.wait_for_standby_of("two")


@pytest.mark.nightly
@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", level=Level.FAULTS)
def test_a_fail_over_as_the_guide_says_costs_no_message(seed: int) -> None:
    with (
        open_folder() as folder,
        pair(folder / "pair", CONFIGURATION) as both,
        serving_database(both.dsn, folder, "--workers", "2", **PATIENCE) as server,
    ):
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"guide-{seed}", seed)

        # Some of the consumers vanish with their messages.
        options = {"queue": traffic.queue, "options": {"leaseTime": 3}}
        assert server.request("POST", "/api/v1/configure", options)[0] == 200

        async def disturb() -> None:
            await asyncio.to_thread(fail_over, both)

        async def run() -> None:
            # In one loop: what a thread of it has started ends with that thread.
            await traffic.run(disturb)
            await traffic.judge(both.dsn_of("two"))

        asyncio.run(run())


def test_the_guide_names_the_steps_that_are_tested() -> None:
    for step in (ALONE, TOGETHER, RELOAD, "SELECT pg_promote()", "pg_rewind", "pg_basebackup"):
        assert step in GUIDE
