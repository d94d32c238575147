"""PostgreSQL's clock steps, forward and back, under a running server."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.clock import eventually
from tests.support.processes import open_folder, run
from tests.support.servers import serving_database
from tests.support.stepping import SteppingClock, stepping_postgres

HOUR_S = 3600.0
#: What must not be removed is looked for after so many sweeps.
SWEEPS = 5
BUSY = {"RETENTION_INTERVAL": "100", "EVICTION_INTERVAL": "100", "STATS_INTERVAL_MS": "1000"}


@dataclass
class World:
    """A server whose PostgreSQL's clock can be stepped."""

    dsn: str
    clock: SteppingClock
    database: "asyncpg.Connection[Any]"
    api: Api

    async def steps(self, number: int) -> None:
        """Returns when so many steps were noticed, and what they left is repaired."""
        noticed = "SELECT (SELECT count(*) FROM queen.clock_steps) = $1 AND (SELECT set_back = 0 FROM queen.clock)"
        await eventually(lambda: self.database.fetchval(noticed, number), f"{number} steps are noticed")

    async def sweeps(self) -> None:
        """Returns when the services have swept several times: each time they remove something of another queue."""
        for number in range(SWEEPS):
            queue = f"tide-{number}"
            await self.api.configure(queue, retentionEnabled=True, retentionSeconds=1)
            await self.api.push(queue, 1)
            gone = "SELECT count(*) = 0 FROM queen.messages WHERE queue = $1"
            await eventually(partial(self.database.fetchval, gone, queue), "a sweep")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with (
        open_folder() as folder,
        stepping_postgres(folder) as (postgres, clock),
        serving_database(postgres.dsn, folder, "--workers", "2", **BUSY) as server,
    ):
        database = await asyncpg.connect(postgres.dsn)
        try:
            looked = "SELECT count(*) = 1 FROM queen.clock"
            await eventually(lambda: database.fetchval(looked), "a first look at the clock")
            async with open_client(server.port) as http:
                yield World(postgres.dsn, clock, database, Api(http))
        finally:
            await database.close()


@checks("G-TIME-2", "G-LEASE-2", "G-WAIT-2", "G-WAIT-3", "G-ORD-5", level=Level.FAULTS)
async def test_messages_hidden_by_a_clock_one_hour_ahead_are_visible_again(world: World) -> None:
    api = world.api
    await api.configure("leased", leaseTime=2)
    await api.configure("delayed", delayedProcessing=2)
    await api.configure("windowed", windowBuffer=2)
    await api.push("leased", 1)
    await api.push("delayed", "before")
    await api.push("windowed", "before")
    world.clock.ahead(HOUR_S)
    await world.steps(1)
    held = await api.pop("leased", leaseSeconds=2)
    await api.push("delayed", "ahead")
    await api.push("windowed", "ahead")
    world.clock.ahead(0)
    await api.push("delayed", "after")
    await api.push("windowed", "after")
    await world.steps(2)

    async def again() -> list[Any]:
        return (await api.pop("leased", wait=True, timeout=1000)).data

    assert held.data == [1]
    assert await eventually(again, "the lease of 2 s ends", 60) == [1]
    for queue in ("delayed", "windowed"):
        got: list[Any] = []

        async def all_three(queue: str = queue, got: list[Any] = got) -> bool:
            popped = await api.pop(queue, batch=10, wait=True, timeout=1000)
            if popped.messages:
                got.extend(popped.data)
                await api.ack(popped.messages)
            return len(got) == 3

        await eventually(all_three, f"{queue} is not hidden", 60)
        assert got == ["before", "ahead", "after"]
    assert await world.database.fetchval(
        "SELECT bool_and(created_at <= clock_timestamp() AND created_at >= before) FROM ("
        " SELECT created_at, lag(created_at, 1, created_at) OVER (PARTITION BY part_id ORDER BY last_off) AS before"
        " FROM queen.segments) AS s"
    ), "created_at never falls, and is not to come"


@checks("G-RET-1", "G-TIME-1", level=Level.FAULTS)
async def test_a_clock_one_hour_ahead_removes_nothing(world: World) -> None:
    api = world.api
    await api.configure("kept", retentionEnabled=True, retentionSeconds=600)
    await api.configure("waits", maxWaitTimeSeconds=600)
    await api.configure("expires", ttl=600)
    for queue in ("kept", "waits", "expires"):
        await api.push(queue, "ten minutes")
    world.clock.ahead(HOUR_S)
    await world.steps(1)
    await world.sweeps()
    kept = "SELECT queue FROM queen.messages WHERE queue IN ('kept', 'waits', 'expires') ORDER BY queue"
    assert [row["queue"] for row in await world.database.fetch(kept)] == ["expires", "kept", "waits"]
    assert await world.database.fetchval("SELECT count(*) FROM queen.dead_letter_queue") == 0
    await told(world, "degraded", 1)
    world.clock.ahead(0)
    await world.steps(2)
    await world.sweeps()
    assert [row["queue"] for row in await world.database.fetch(kept)] == ["expires", "kept", "waits"]
    assert await world.database.fetchval("SELECT sum(distrusted) FROM queen.clock_steps") < 1


async def told(world: World, status: str, steps: int) -> None:
    """Returns when health says so; what the doctor and the metrics say is the database's."""

    async def says() -> bool:
        health = (await world.api.http.get("/health")).json()
        return bool(health["status"] == status and health["clock"]["steps"] == steps)

    await eventually(says, f"health says {status}")
    metrics = (await world.api.http.get("/metrics/prometheus")).text
    assert re.search(rf"^queen_clock_steps {steps}\.0$", metrics, re.MULTILINE)


async def test_after_the_clock_is_accepted_all_that_is_old_by_it_is_removed(world: World) -> None:
    api, dsn = world.api, world.dsn
    await api.configure("kept", retentionEnabled=True, retentionSeconds=600)
    await api.push("kept", 1)
    world.clock.ahead(HOUR_S)
    await world.steps(1)
    told_by_doctor = await asyncio.to_thread(run, "doctor", "--dsn", dsn)
    assert told_by_doctor.returncode == 1
    assert "--accept-clock" in told_by_doctor.stdout
    accepted = await asyncio.to_thread(run, "doctor", "--dsn", dsn, "--accept-clock")
    assert "data was kept 3600 s longer" in accepted.stdout
    gone = "SELECT count(*) = 0 FROM queen.messages WHERE queue = 'kept'"
    await eventually(partial(world.database.fetchval, gone), "what is old by the clock is removed")
    await told(world, "healthy", 0)


@checks("G-TIME-2", level=Level.FAULTS)
async def test_a_message_of_simple_mq_is_not_hidden_for_the_hour(world: World) -> None:
    http = world.api.http
    body = {"queueName": "orders", "queueSize": 100, "visibilityTimeout": 2, "maxDeliveries": 9}
    queue = (await http.post("/api/queues", json=body)).json()["queue_id"]
    messages = f"/api/queues/{queue}/messages"

    async def enqueue(data: str) -> None:
        response = await http.post(messages, json={"data": data, "message_group": "one"})
        assert response.status_code == 201, response.text

    async def poll() -> Any:
        return (await http.get(messages)).json()["message"]

    await enqueue("before")
    world.clock.ahead(HOUR_S)
    await world.steps(1)
    assert (await poll())["data"] == "before"
    await enqueue("ahead")
    world.clock.ahead(0)
    for number in range(5):
        await enqueue(f"after {number}")
    await world.steps(2)
    got = []
    while len(got) < 7:
        message = await eventually(poll, "a message that is visible again", 60)
        got.append(message["data"])
        assert (await http.delete(f"{messages}/{message['message_id']}")).status_code < 300
    assert got == ["before", "ahead", *(f"after {number}" for number in range(5))], "in the order of their enqueues"
