"""PostgreSQL down again and again under load, in every way: the spool loses, doubles and reorders nothing."""

import asyncio
import json
import os
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.outage import FragilePostgres, fragile_postgres, spooling_server, wait_until_drained
from tests.support.processes import ROOT, Server, open_folder
from tests.support.published_client import environment, find_python
from tests.support.traffic import Traffic

#: How long PostgreSQL is down for the published client, whose tries of an ack are over after 18 s.
CLIENT_OUTAGE_S = 45
SCENARIOS = ROOT / "tests" / "support" / "client_scenarios.py"
ROUNDS = 5


@pytest.fixture
def place() -> Iterator[tuple[Path, FragilePostgres]]:
    with open_folder() as folder, fragile_postgres(folder) as postgres:
        yield folder, postgres


class Faults:
    """What may go wrong, each until some pushes went to the spool."""

    def __init__(self, postgres: FragilePostgres, server: Server, traffic: Traffic, choice: random.Random) -> None:
        self._postgres, self._server, self._traffic, self._choice = postgres, server, traffic, choice

    async def one(self) -> str:
        fault: Callable[[], Awaitable[None]] = self._choice.choice([self._dies, self._is_silent, self._maintenance])
        await fault()
        return fault.__name__

    async def _some_are_spooled(self) -> None:
        journal = self._traffic.journal
        goal = journal.buffered + self._choice.choice([1, 20, 200])
        async with asyncio.timeout(240):
            while journal.buffered < goal:
                await asyncio.sleep(0.02)

    async def _dies(self) -> None:
        self._postgres.kill()
        await self._some_are_spooled()
        if self._choice.random() < 0.5:
            os.kill(self._choice.choice(sorted(self._server.workers())), signal.SIGKILL)
        self._postgres.start()

    async def _is_silent(self) -> None:
        with self._postgres.silent():
            await self._some_are_spooled()

    async def _maintenance(self) -> None:
        async with open_client(self._server.port) as http:
            for on in (True, False):
                await self._traffic.request(http, "POST", "/api/v1/system/maintenance", json={"enabled": on})
                if on:
                    await self._some_are_spooled()


@checks(
    "G-DUR-1", "G-ORD-1", "G-ORD-2", "G-IDEM-1", "G-SPOOL-1", "G-SPOOL-2", "G-SPOOL-6", "G-SPOOL-7", level=Level.FAULTS
)
def test_outages_under_load_no_loss_no_duplicates_in_order(place: tuple[Path, FragilePostgres]) -> None:
    seed = int(os.environ.get("QUEEN_SEED", random.SystemRandom().randrange(10**6)))
    print(f"QUEEN_SEED={seed}")
    folder, postgres = place
    with spooling_server(postgres, folder) as server:
        queue = {"queue": f"outage-{seed}", "options": {"leaseTime": 2}}
        assert server.request("POST", "/api/v1/configure", queue)[0] == 200
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"outage-{seed}", seed)
        faults, timeline = Faults(postgres, server, traffic, random.Random(seed)), []

        async def disturb() -> None:
            for _ in range(ROUNDS):
                timeline.append(await faults.one())
                await traffic.progress(50)

        asyncio.run(traffic.run(disturb))
        wait_until_drained(server)
        asyncio.run(traffic.judge(postgres.dsn))
        assert server.request("GET", "/api/v1/status/buffers")[1]["failed"] == 0
    print(f"{timeline}; {traffic.journal.buffered} spooled")


@checks("G-TIM-1", level=Level.FAULTS)
def test_a_timer_is_refused_in_an_outage_and_never_spooled(place: tuple[Path, FragilePostgres]) -> None:
    folder, postgres = place
    timer = {"op": "schedule", "queue": "q", "payload": "MQ==", "delayMs": 0}
    with spooling_server(postgres, folder, DB_PATIENCE_MS="2000") as server:
        assert server.request("POST", "/api/v1/timers", {"operations": [{**timer, "timerKey": "a"}]})[0] == 200
        postgres.kill()
        for path, body in (
            ("/api/v1/timers", {"operations": [{**timer, "timerKey": "b"}]}),
            ("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "delaySeconds": 1}]}),
        ):
            status, answer = server.request("POST", path, body)
            assert (status, answer["code"]) == (503, "database_unavailable")
        status, [item] = server.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 2}]})
        assert item["status"] == "buffered"
        postgres.start()
        wait_until_drained(server)
        messages: list[object] = []
        while len(messages) < 2:
            popped = server.request("GET", "/api/v1/pop/queue/q?batch=10&autoAck=true&wait=true&timeout=30000")[1]
            messages += [message["data"] for message in popped["messages"]]
        assert sorted(map(str, messages)) == ["1", "2"]


@pytest.mark.nightly
@checks("G-WAIT-1", "G-SPOOL-6", level=Level.FAULTS)
async def test_published_consumer_lives_through_an_outage_that_is_longer_than_it_repeats_an_ack(
    place: tuple[Path, FragilePostgres],
) -> None:
    folder, postgres = place
    python = await asyncio.to_thread(find_python)
    with spooling_server(postgres, folder) as server:
        process = await asyncio.create_subprocess_exec(
            python, "-I", SCENARIOS, "consume_through_an_outage", f"http://127.0.0.1:{server.port}", "q",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd="/",
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(CLIENT_OUTAGE_S + 400):
                assert await process.stdout.readline() == b"handling\n"
                postgres.kill()
                process.stdin.write(b"acknowledge now\n")
                async with open_client(server.port) as http:
                    [item] = await Api(http).push("q", "while it was down")
                assert item["status"] == "buffered"
                await asyncio.sleep(CLIENT_OUTAGE_S)  # the length of the fault
                postgres.start()
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        outcome = json.loads(output.splitlines()[-1])
        # What could not be acked comes again when its lease is over.
        assert outcome == {"seen": ["before", "before", "pushed by the client", "while it was down"], "left": 0}
        connection = await asyncpg.connect(postgres.dsn)
        assert await connection.fetchval("SELECT count(*) FROM queen.messages") == 3
        await connection.close()
