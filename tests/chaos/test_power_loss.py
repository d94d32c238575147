"""Power lost under load: what was answered had been synced, in PostgreSQL's files and in the spool."""

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support import power_loss
from tests.support.nightly import mostly_at_night
from tests.support.outage import wait_until_drained
from tests.support.power_loss import LossyDisk, Mode, compiled, lossy_disk
from tests.support.processes import Server, open_folder, wait_until
from tests.support.servers import serving_database
from tests.support.standby import Pair
from tests.support.traffic import Traffic

pytestmark = pytest.mark.skipif(bool(power_loss.problem()), reason=power_loss.problem())
QUEUE = "power"


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    with open_folder() as folder:
        yield compiled(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def postgres(folder: Path) -> Iterator[Pair]:
    """A cluster of its own, which waits for its disk."""
    (folder / "postgres").mkdir()
    made = Pair(folder / "postgres", "max_wal_senders = 5\nwal_writer_delay = 10s\n")
    made.start(with_standby=False)
    try:
        yield made
    finally:
        made.stop()


@checks("G-DUR-1", "G-DUR-2", "G-ORD-2", "G-IDEM-1", "G-ACK-2", level=Level.FAULTS)
def test_postgresql_keeps_what_was_answered(program: Path, folder: Path, postgres: Pair) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    postgres.end(signal.SIGINT, "one")

    async def run(disk: LossyDisk, server: Server) -> None:
        traffic = Traffic(f"http://127.0.0.1:{server.port}", QUEUE, seed)

        def fail() -> None:
            disk.power_off()
            postgres.end(signal.SIGKILL, "one")
            disk.come_back()
            postgres.launch("one")

        async def disturb() -> None:
            await asyncio.to_thread(fail)

        await traffic.run(disturb)
        await asyncio.to_thread(wait_until_drained, server)
        await traffic.judge(postgres.dsn_of("one"))

    with lossy_disk(program, folder / "postgres" / "one", "journal") as disk:
        postgres.launch("one")
        with serving_database(postgres.dsn_of("one"), folder, "--workers", "2") as server:
            options = {"queue": QUEUE, "options": {"leaseTime": 1}}
            assert server.request("POST", "/api/v1/configure", options)[0] == 200
            asyncio.run(run(disk, server))


def test_the_disk_loses_a_commit_that_did_not_wait(program: Path, folder: Path, postgres: Pair) -> None:
    postgres.end(signal.SIGINT, "one")
    with lossy_disk(program, folder / "postgres" / "one", "journal") as disk:
        postgres.launch("one")
        wait_until(lambda: postgres.answers("one"), "PostgreSQL")
        postgres.sql("one", "CREATE TABLE kept (n int)")
        postgres.sql("one", "INSERT INTO kept VALUES (1)")
        postgres.sql("one", "SET synchronous_commit = off; INSERT INTO kept VALUES (2)")
        disk.power_off()
        postgres.end(signal.SIGKILL, "one")
        disk.come_back()
    postgres.launch("one")
    wait_until(lambda: postgres.answers("one"), "PostgreSQL")
    assert postgres.sql("one", "SELECT n FROM kept").split() == ["1"]


async def push_until_it_ends(port: int, partition: int, answered: list[int], enough: asyncio.Event) -> None:
    """Pushes numbers, and notes those that were answered, until the server is gone."""
    number = 0
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        while True:
            item = {"queue": QUEUE, "partition": str(partition), "payload": number}
            try:
                response = await http.post("/api/v1/push", json={"items": [item]})
            except httpx.TransportError:
                return
            if response.status_code != 201:
                return
            assert response.json()[0]["status"] == "buffered"
            answered.append(number)
            number += 1
            if number == 50:
                enough.set()


async def lose_power(server: Server, disk: LossyDisk) -> list[list[int]]:
    """Pushes into the spool, and the failure meanwhile; what was answered, by partition."""
    answered: list[list[int]] = [[] for _ in range(4)]
    enough = [asyncio.Event() for _ in answered]
    async with asyncio.TaskGroup() as group:
        for place, numbers in enumerate(answered):
            group.create_task(push_until_it_ends(server.port, place, numbers, enough[place]))
        for event in enough:
            await event.wait()
        await asyncio.to_thread(disk.power_off)
        await asyncio.to_thread(server.kill)
    return answered


async def stored(dsn: str) -> dict[int, list[int]]:
    """What PostgreSQL has, by partition, in order."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT partition::int AS partition, payload::text::int AS number FROM queen.messages WHERE queue = $1"
            " ORDER BY partition, off",
            QUEUE,
        )
    finally:
        await connection.close()
    return {place: [row["number"] for row in rows if row["partition"] == place] for place in range(4)}


@pytest.mark.nightly
@pytest.mark.parametrize("mode", mostly_at_night(["names", "journal", "nothing"], ["names"]))
@checks("G-SPOOL-1", "G-SPOOL-2", "G-SPOOL-3", level=Level.FAULTS)
def test_the_spool_keeps_what_was_answered(program: Path, folder: Path, postgres: Pair, mode: Mode) -> None:
    spool = folder / "spool"
    spool.mkdir()
    with lossy_disk(program, spool, mode) as disk:
        with serving_database(postgres.dsn_of("one"), folder, "--workers", "2", FILE_BUFFER_DIR=str(spool)) as server:
            wait_until_drained(server)
            # PostgreSQL has another machine; that of the server loses its power.
            postgres.end(signal.SIGINT, "one")
            answered = asyncio.run(lose_power(server, disk))
        disk.come_back()
    postgres.launch("one")
    with serving_database(postgres.dsn_of("one"), folder, "--workers", "2", FILE_BUFFER_DIR=str(spool)) as server:
        wait_until_drained(server)
        assert server.request("GET", "/api/v1/status/buffers")[1]["failed"] == 0
        found = asyncio.run(stored(postgres.dsn_of("one")))
    lost = sum(len(set(numbers) - set(found[place])) for place, numbers in enumerate(answered))
    print(f"{mode}: answered {sum(map(len, answered))}, lost {lost}")
    if mode == "nothing":
        assert lost, "a spool without fsync is noticed"
        return
    for place, numbers in enumerate(answered):
        # One more may have been stored before its answer was lost.
        assert found[place] == [*numbers, len(numbers)][: len(found[place])]
        assert len(found[place]) >= len(numbers)
