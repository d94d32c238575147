"""PostgreSQL's clock steps, forward and back, under a running server."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import libfaketime
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.clock import eventually
from tests.support.processes import clean_environment, open_folder, run, serving
from tests.support.servers import serving_database
from tests.support.sqs_clients import receive, refused, sqs_client
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

    async def sqs(self, action: str, **given: Any) -> Any:
        """The answer to an action of SQS."""
        headers = {"X-Amz-Target": f"AmazonSQS.{action}"}
        response = await self.api.http.post("/sqs", json=given, headers=headers)
        assert response.status_code == 200, response.text
        return response.json() if response.content else {}

    async def kept_for(self, queue: str, seconds: int) -> str:
        """A queue of SQS with this retention, and one message."""
        retention = {"MessageRetentionPeriod": f"{seconds}"}
        url: str = (await self.sqs("CreateQueue", QueueName=queue, Attributes=retention))["QueueUrl"]
        await self.sqs("SendMessage", QueueUrl=url, MessageBody="kept")
        return url

    async def received(self, url: str) -> list[str]:
        """The bodies that a receive gets, which are visible again at once."""
        answer = await self.sqs("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0)
        return [each["Body"] for each in answer.get("Messages", [])]

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


@checks("G-RET-1", "G-TIME-1", "G-SQS-9", level=Level.FAULTS)
async def test_a_clock_one_hour_ahead_removes_nothing(world: World) -> None:
    url = await world.kept_for("kept-sqs", 600)
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
    assert await world.received(url) == ["kept"]
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


@pytest.mark.nightly
@checks("G-SQS-9", level=Level.FAULTS)
async def test_after_the_clock_is_accepted_all_that_is_old_by_it_is_removed(world: World) -> None:
    api, dsn = world.api, world.dsn
    old, young = await world.kept_for("old", 600), await world.kept_for("young", 86_400)
    assert await world.received(old) == ["kept"]
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
    left = "SELECT count(*) = 1 FROM simple_mq.messages"
    await eventually(partial(world.database.fetchval, left), "the message of SQS that is old is removed")
    assert (await world.received(old), await world.received(young)) == ([], ["kept"])
    names = ["ApproximateNumberOfMessages"]
    found = (await world.sqs("GetQueueAttributes", QueueUrl=old, AttributeNames=names))["Attributes"]
    assert found == {names[0]: "0"}
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


@pytest.mark.nightly
@checks("G-TIME-2", "G-SQS-1", "G-SQS-3", "G-SQS-4", level=Level.FAULTS)
async def test_messages_of_sqs_are_not_hidden_for_the_hour_and_stay_in_order(world: World) -> None:
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "2"}
    url = (await world.sqs("CreateQueue", QueueName="orders.fifo", Attributes=attributes))["QueueUrl"]

    async def send(body: str) -> str:
        ids = {"MessageGroupId": "one", "MessageDeduplicationId": body.replace(" ", "-")}
        sent: str = (await world.sqs("SendMessage", QueueUrl=url, MessageBody=body, **ids))["MessageId"]
        return sent

    async def receive() -> Any:
        return (await world.sqs("ReceiveMessage", QueueUrl=url)).get("Messages")

    late = (await world.sqs("CreateQueue", QueueName="late"))["QueueUrl"]
    await send("before")
    world.clock.ahead(HOUR_S)
    await world.steps(1)
    [message] = await receive()
    assert message["Body"] == "before"
    await world.sqs("SendMessage", QueueUrl=late, MessageBody="late", DelaySeconds=2)
    ahead = await send("ahead")
    world.clock.ahead(0)
    assert await send("ahead") == ahead, "a duplicate, whatever the clock"
    for number in range(5):
        await send(f"after {number}")
    await world.steps(2)
    got = []
    while len(got) < 7:
        [message, *_] = await eventually(receive, "a message that is visible again", 60)
        got.append(message["Body"])
        await world.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert got == ["before", "ahead", *(f"after {number}" for number in range(5))]
    await eventually(partial(world.received, late), "the end of the delay", 60)


@pytest.mark.nightly
async def test_a_message_of_sqs_is_hidden_for_twelve_hours_at_most() -> None:
    """In all, however often a consumer asks for more; the next receive begins anew."""
    with open_folder() as folder:
        clock = SteppingClock(folder / "ahead")
        faked = {**libfaketime.get_reload_information()[1], "FAKETIME_TIMESTAMP_FILE": str(folder / "ahead")}
        with serving(folder / "data", "--workers", "1", env=clean_environment(**faked)) as server:
            sqs = sqs_client(server.port)
            url = sqs.create_queue(QueueName="slow")["QueueUrl"]
            sqs.send_message(QueueUrl=url, MessageBody="x")
            for turn in range(2):
                clock.ahead(turn * 12 * HOUR_S)
                [message] = await eventually(partial(asyncio.to_thread, receive, sqs, url), "the message", 60)
                change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
                sqs.change_message_visibility(VisibilityTimeout=43_200, **change)
                clock.ahead((turn * 12 + 11) * HOUR_S)
                refusal = refused(sqs.change_message_visibility, VisibilityTimeout=3601, **change)
                assert refusal == ("InvalidParameterValue", 400)
                entry = {"Id": "a", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 43_200}
                [failed] = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])["Failed"]
                assert "beyond the limit [43200 seconds]" in failed["Message"]
                sqs.change_message_visibility(VisibilityTimeout=60, **change)
