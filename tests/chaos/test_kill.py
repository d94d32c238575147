"""PostgreSQL and workers killed under load: nothing answered is lost, doubled or reordered."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from queen_spec.guarantees import Level, checks
from tests.support.processes import Server, open_folder, serving
from tests.support.traffic import Journal, Traffic

PRODUCERS, CONSUMERS = 4, 3
Fault = Callable[[Server, random.Random], Awaitable[None]]


async def kill_postmaster(server: Server, _choice: random.Random) -> None:
    server.postmaster().send_signal(signal.SIGKILL)


async def kill_a_back_end(server: Server, _choice: random.Random) -> None:
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'queen' ORDER BY random() LIMIT 2"
    )
    await connection.close()


async def kill_a_worker(server: Server, choice: random.Random) -> None:
    os.kill(choice.choice(sorted(server.workers())), signal.SIGKILL)


FAULTS: dict[str, Fault] = {
    "the postmaster": kill_postmaster,
    "back ends": kill_a_back_end,
    "a worker": kill_a_worker,
}


async def progress(journal: Journal, more: int) -> None:
    """Returns when so many more messages were completed."""
    goal = len(journal.completed) + more
    async with asyncio.timeout(60):
        while len(journal.completed) < goal:
            await asyncio.sleep(0.02)


async def run(server: Server, fault: Fault, seed: int) -> tuple[Journal, list[Any]]:
    traffic = Traffic(f"http://127.0.0.1:{server.port}", f"chaos-{seed}", seed)
    async with asyncio.TaskGroup() as group:
        producers = [group.create_task(traffic.produce(f"p{number}")) for number in range(PRODUCERS)]
        consumers = [group.create_task(traffic.consume()) for _ in range(CONSUMERS)]
        for _ in range(2):
            await progress(traffic.journal, 150)
            await fault(server, random.Random(seed))
        await progress(traffic.journal, 150)
        traffic.stop_producing.set()
        await asyncio.gather(*producers)
        async with asyncio.timeout(90):
            everything = {text for texts in traffic.journal.answered.values() for text in texts}
            while not everything <= traffic.journal.completed:
                await asyncio.sleep(0.05)
        traffic.stop_consuming.set()
        await asyncio.gather(*consumers)
    return traffic.journal, await log_of(server.dsn, traffic.queue)


async def log_of(dsn: str, queue: str) -> list[Any]:
    """What is stored of a queue."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(  # type: ignore[no-any-return]
            "SELECT partition, off, transaction_id, payload::text::int AS number FROM queen.messages WHERE queue = $1"
            " ORDER BY partition, off",
            queue,
        )
    finally:
        await connection.close()


@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", level=Level.FAULTS)
@pytest.mark.parametrize("what", FAULTS)
def test_killing_something_under_load_loses_doubles_and_reorders_nothing(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        # A short lease, so that what a dead worker had leased comes again soon.
        queue = {"queue": f"chaos-{seed}", "options": {"leaseTime": 2}}
        assert server.request("POST", "/api/v1/configure", queue)[0] == 200
        journal, rows = asyncio.run(run(server, FAULTS[what], seed))
    print(f"{len(rows)} messages, answers beside the usual: {dict(journal.statuses)}")
    stored: dict[str, list[Any]] = {}
    for row in rows:
        stored.setdefault(row["partition"], []).append(row)
    for partition, answered in journal.answered.items():
        log = stored[partition]
        assert [row["off"] for row in log] == list(range(len(log))), "a gap"
        assert [row["number"] for row in log] == list(range(len(log))), "lost, doubled or reordered"
        texts = [row["transaction_id"] for row in log]
        assert texts[: len(answered)] == answered, "what was answered is not what is stored"
    assert journal.redelivered == [], "completed messages came again"
