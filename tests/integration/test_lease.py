"""Leases over HTTP: exclusive, expiring, renewable."""

import asyncio
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message
from tests.support.clock import eventually

NO_LEASE = "00000000-0000-4000-8000-000000000000"


async def holds(database: "asyncpg.Connection[Any]", condition: str) -> bool:
    """Whether PostgreSQL finds it so."""
    return bool(await database.fetchval(f"SELECT {condition}"))


async def seconds_left(database: "asyncpg.Connection[Any]", lease: str) -> float:
    """Until the lease ends, by the database's clock."""
    sql = (
        "SELECT extract(epoch FROM min(ready_at) - clock_timestamp())::float8 "
        "FROM queen.partition_consumers WHERE lease = $1"
    )
    return float(await database.fetchval(sql, lease))


async def messages_of(api: Api, queue: str, **parameters: Any) -> list[Message]:
    return (await api.pop(queue, batch=100, **parameters)).messages


@checks("G-LEASE-1", level=Level.LIVE)
async def test_lease_keeps_the_partition_from_its_group_on_both_workers(workers: list[Api], queue: str) -> None:
    await workers[0].push(queue, 1, 2)
    assert (await workers[0].pop(queue)).data == [1]
    for api in workers:
        assert await messages_of(api, queue) == []
        assert (await api.pop(queue, "Default", batch=10)).messages == []
        assert (await api.pop(queue, autoAck=True)).messages == []


@checks("G-LEASE-2", "G-LEASE-3", "G-LEASE-5", level=Level.LIVE)
async def test_lease_that_runs_out_gives_the_messages_to_the_next_and_binds_its_holder_no_more(
    workers: list[Api], queue: str
) -> None:
    first, second = workers
    await first.push(queue, 1, 2)
    before = time.monotonic()
    old = await messages_of(first, queue, leaseSeconds=1)
    new = await eventually(lambda: messages_of(second, queue), "delivered again")
    assert time.monotonic() - before >= 1
    assert [message["data"] for message in new] == [1, 2]
    assert [message["deliveryAttempt"] for message in new] == [2, 2]
    assert new[0]["leaseId"] != old[0]["leaseId"]
    for status in ("completed", "failed", "retry", "dlq"):
        results = await first.ack(old, status)
        assert [(result["success"], result["error"]) for result in results] == [(False, "Invalid or expired lease")] * 2
    assert (await first.extend(old[0]["leaseId"]))["success"] is False
    assert all(result["success"] for result in await second.ack(new))


@checks("G-LEASE-5", level=Level.LIVE)
@pytest.mark.parametrize("is_over", [False, True])
async def test_a_lease_that_reached_no_consumer_counts_no_delivery(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, is_over: bool
) -> None:
    """Its long poll had ended when the database answered; on a busy machine the lease may be over by then, too."""
    await api.push(queue, 1)
    (unseen,) = await messages_of(api, queue)
    if is_over:
        sql = "UPDATE queen.partition_consumers SET ready_at = clock_timestamp() WHERE lease = $1"
        await database.execute(sql, unseen["leaseId"])
    await database.execute("SELECT queen.release_leases_v1(ARRAY[$1::uuid])", unseen["leaseId"])
    (message,) = await messages_of(api, queue)
    assert message["deliveryAttempt"] == 1


@checks("G-DLQ-2", level=Level.LIVE)
async def test_lease_that_runs_out_counts_no_failure(api: Api, database: "asyncpg.Connection[Any]", queue: str) -> None:
    await api.configure(queue, retryLimit=0, leaseTime=1)
    await api.push(queue, 1)
    await messages_of(api, queue)
    (message,) = await eventually(lambda: messages_of(api, queue, leaseSeconds=60), "delivered again")
    assert message["deliveryAttempt"] == 2
    (result,) = await api.ack([message], "failed")
    assert result["dlq"] is True
    count = (
        "SELECT retry_count FROM queen.dead_letter_queue WHERE queue_id = (SELECT id FROM queen.queues WHERE name = $1)"
    )
    assert await database.fetchval(count, queue) == 0


@pytest.mark.parametrize(
    ("options", "parameters", "seconds"),
    [
        ({}, {}, 60),
        ({"leaseTime": 300}, {}, 300),
        ({"leaseTime": 300}, {"leaseSeconds": 900}, 900),
        ({"leaseTime": 0}, {}, 60),
    ],
)
async def test_lease_lasts_as_the_pop_says_or_else_the_queue(
    api: Api,
    database: "asyncpg.Connection[Any]",
    queue: str,
    options: dict[str, int],
    parameters: dict[str, int],
    seconds: int,
) -> None:
    await api.configure(queue, **options)
    await api.push(queue, 1)
    lease = (await api.pop(queue, **parameters)).lease
    assert seconds - 40 < await seconds_left(database, lease) <= seconds


@checks("G-LEASE-4", level=Level.LIVE)
@pytest.mark.parametrize("content", [b"", b"{}", b'{"seconds":60}'])
async def test_lease_renewal_moves_the_end_of_every_partition(
    workers: list[Api], database: "asyncpg.Connection[Any]", queue: str, content: bytes
) -> None:
    api, other = workers
    await api.push_items([{"queue": queue, "partition": p, "payload": 1} for p in "abc"])
    lease = (await api.pop(queue, batch=3, partitions=3, leaseSeconds=5)).lease
    response = await other.http.post(f"/api/v1/lease/{lease}/extend", content=content)
    assert response.status_code == 200, response.text
    body = response.json()
    assert (body["leaseId"], body["success"], body["renewed"]) == (lease, True, 3)
    assert body["expiresAt"] == body["newExpiresAt"] == body["lease_expires_at"]
    assert 20 < await seconds_left(database, lease) <= 60
    end = datetime.fromisoformat(body["expiresAt"])
    assert 20 < (end - datetime.now(UTC)).total_seconds() <= 61


@checks("G-LEASE-1", "G-LEASE-4", level=Level.LIVE)
async def test_lease_renewal_that_waits_until_its_end_renews_no_partition(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    """Another pop takes one of its partitions meanwhile; a renewal of the other one would be told as one of both."""
    await api.push_items([{"queue": queue, "partition": p, "payload": 1} for p in "ab"])
    lease = (await api.pop(queue, batch=2, partitions=2, leaseSeconds=1)).lease
    async with database.transaction():
        part_id, end = await database.fetchrow(
            "SELECT part_id, ready_at FROM queen.partition_consumers WHERE lease = $1 LIMIT 1 FOR UPDATE", lease
        )
        renewing = asyncio.create_task(api.extend(lease, 60))
        for condition in ("EXISTS (SELECT FROM pg_locks WHERE NOT granted)", f"clock_timestamp() > '{end}'"):
            await eventually(partial(holds, database, condition), condition)
        await database.execute(
            "UPDATE queen.partition_consumers SET lease = gen_random_uuid(), ready_at = clock_timestamp() + '1 minute'"
            " WHERE lease = $1 AND part_id = $2",
            lease, part_id,
        )  # fmt: skip
    answer = await renewing
    assert (answer["success"], answer.get("renewed", 0)) == (False, 0)
    assert await database.fetchval(
        "SELECT array_agg(ready_at) FROM queen.partition_consumers WHERE lease = $1", lease
    ) == [end]


@checks("G-LEASE-4", level=Level.LIVE)
@pytest.mark.parametrize("seconds", [0, 1, -100])
async def test_lease_renewal_never_shortens(
    api: Api, database: "asyncpg.Connection[Any]", queue: str, seconds: int
) -> None:
    await api.push(queue, 1)
    lease = (await api.pop(queue, leaseSeconds=100)).lease
    assert (await api.extend(lease, seconds))["success"] is True
    assert 60 < await seconds_left(database, lease) <= 100


@checks("G-LEASE-4", level=Level.LIVE)
async def test_lease_renewed_in_time_outlives_its_first_end(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    begin = time.monotonic()
    popped = await api.pop(queue, leaseSeconds=4)
    assert (await api.extend(popped.lease, 300))["success"] is True
    while time.monotonic() < begin + 4.3:
        assert await messages_of(api, queue) == []
    (result,) = await api.ack(popped.messages)
    assert result["success"] is True


@checks("G-LEASE-4", "G-ISO-4", level=Level.LIVE)
@pytest.mark.parametrize("lease", [NO_LEASE, "abc", "x" * 5000, "a b", "%00", "é😀"])
async def test_lease_that_is_unknown_is_not_renewed_and_no_error(api: Api, lease: str) -> None:
    body = await api.extend(lease)
    assert (body["success"], body["renewed"], body["expiresAt"]) == (False, 0, None)
    assert body["error"]
    assert body["leaseId"] == lease


@checks("G-LEASE-4", "G-LEASE-3", level=Level.LIVE)
async def test_lease_that_an_ack_has_ended_is_not_revived(workers: list[Api], queue: str) -> None:
    api, other = workers
    await api.push(queue, 1, 2)
    first = await api.pop(queue, batch=2)
    await api.ack(first.messages[:1], "retry")
    assert (await other.extend(first.lease))["success"] is False
    (result,) = await other.ack(first.messages[1:])
    assert (result["success"], result["error"]) == (False, "Invalid or expired lease")
    second = await other.pop(queue, batch=2)
    assert second.data == [1, 2]
    await other.ack(second.messages)
    assert (await api.extend(second.lease))["success"] is False


@checks("G-ISO-3", level=Level.LIVE)
async def test_a_path_without_a_lease_is_a_lease_that_does_not_exist(api: Api) -> None:
    response = await api.http.post("/api/v1/lease//extend", json={"seconds": 5})
    assert (response.status_code, response.json()["success"]) == (200, False)
