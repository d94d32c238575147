"""Retention, eviction and clean-up on a live server whose services run all the time."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of, open_client, worker_apis
from tests.support.clock import eventually
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.streams import Streams, upsert

BUSY = {
    "RETENTION_INTERVAL": "100",
    "EVICTION_INTERVAL": "100",
    "RETENTION_BATCH_SIZE": "3",
    "EVICTION_BATCH_SIZE": "3",
}


@pytest.fixture(scope="module")
def busy_server() -> Iterator[Server]:
    """Two workers; every interval is a tenth of a second."""
    environment = clean_environment(**BUSY)
    with open_folder() as folder, serving(folder / "data", "--workers", "2", env=environment) as running:
        yield running


@pytest.fixture
async def busy(busy_server: Server) -> AsyncIterator[Api]:
    async with open_client(busy_server.port) as http:
        yield Api(http)


@pytest.fixture
async def db(busy_server: Server) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(busy_server.dsn)
    yield connection
    await connection.close()


async def offsets(db: "asyncpg.Connection[Any]", queue: str) -> list[int]:
    """Offsets of the kept messages."""
    rows = await db.fetch("SELECT off FROM queen.messages WHERE queue = $1 ORDER BY partition, off", queue)
    return [row["off"] for row in rows]


async def age(db: "asyncpg.Connection[Any]", queue: str, seconds: float) -> None:
    """Makes what is stored in a queue so much older."""
    await db.execute(
        "UPDATE queen.segments SET created_at = created_at - make_interval(secs => $2) WHERE part_id IN"
        " (SELECT p.id FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1)",
        queue, seconds,
    )  # fmt: skip


async def until(db: "asyncpg.Connection[Any]", queue: str, kept: list[int]) -> None:
    async def look() -> bool:
        return await offsets(db, queue) == kept

    await eventually(look, f"offsets {kept} of {queue}")


async def a_sweep_later(busy: Api, db: "asyncpg.Connection[Any]", queue: str) -> None:
    """Returns when a sweep that began after this call has ended: it has removed something of another queue."""
    other = f"{queue}-tide"
    for _ in range(2):
        await busy.configure(other, ttl=3600, maxWaitTimeSeconds=0, retentionEnabled=True, retentionSeconds=3600,
                             completedRetentionSeconds=0)  # fmt: skip
        await busy.push(other, 1)
        await age(db, other, 7200)
        await until(db, other, [])


@checks("G-RET-1", "G-RET-4", level=Level.LIVE)
async def test_retention_removes_what_is_older_even_if_it_is_not_done_and_nothing_younger(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    await busy.push(queue, *range(7), ids=[f"t{n}" for n in range(7)])
    await busy.pop(queue, consumerGroup="g", batch=2)
    await busy.configure(queue, retentionEnabled=True, retentionSeconds=60)
    await age(db, queue, 120)
    await busy.push(queue, 7, 8, ids=["t7", "t8"])
    await until(db, queue, [7, 8])
    for _ in range(3):
        await a_sweep_later(busy, db, queue)
    assert await offsets(db, queue) == [7, 8]
    assert (await busy.pop(queue, batch=10)).data == [7, 8]
    assert (await busy.pop(queue, consumerGroup="new", batch=10)).data == [7, 8]


@pytest.mark.parametrize(
    "options",
    [
        {"retentionSeconds": 1},
        {"retentionSeconds": 1, "completedRetentionSeconds": 1, "retentionEnabled": False},
        {"retentionEnabled": True},
        {"retentionEnabled": True, "retentionSeconds": 3600, "ttl": 3600},
        {"completedRetentionSeconds": 1},
    ],
)
@checks("G-RET-1", "G-RET-2", level=Level.LIVE)
async def test_what_the_options_keep_stays(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str, options: dict[str, Any]
) -> None:
    """Also the last one, although no group has completed anything."""
    await busy.push(queue, 0, 1)
    await busy.pop(queue)
    await age(db, queue, 600)
    await busy.configure(queue, **options)
    await a_sweep_later(busy, db, queue)
    assert await offsets(db, queue) == [0, 1]
    assert (await busy.pop(queue, consumerGroup="g", batch=5)).data == [0, 1]


@checks("G-RET-2", level=Level.LIVE)
async def test_completed_retention_waits_for_the_slowest_group(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    await busy.configure(queue, retentionEnabled=True, completedRetentionSeconds=60)
    for n in range(4):
        await busy.push(queue, n, ids=[f"t{n}"])
    await age(db, queue, 120)
    await busy.ack((await busy.pop(queue, batch=4)).messages)
    await busy.ack((await busy.pop(queue, consumerGroup="slow", batch=2)).messages)
    await until(db, queue, [2, 3])
    await a_sweep_later(busy, db, queue)
    assert await offsets(db, queue) == [2, 3]
    assert (await busy.pop(queue, consumerGroup="slow", batch=5)).data == [2, 3]
    (again, kept) = await busy.push(queue, "again", "kept", ids=["t0", "t3"])
    assert (again["status"], kept["status"]) == ("queued", "duplicate"), "ids go with their messages"
    assert await offsets(db, queue) == [2, 3, 4], "offsets go on"


@checks("G-RET-1", "G-RET-2", "G-RET-4", "G-DUR-3", level=Level.LIVE)
async def test_completed_retention_needs_no_other_option_and_takes_a_part_of_what_was_pushed_together(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    payloads = [{"n": n, "text": "ä" * n} for n in range(5)]
    await busy.push(queue, *payloads, ids=["t0", None, "t2", "t3", None])
    taken = (await busy.pop(queue, batch=5)).messages
    await busy.ack(taken[:3])
    await age(db, queue, 120)
    await busy.configure(queue, completedRetentionSeconds=60, retentionEnabled=False)
    await until(db, queue, [3, 4])
    for gone in taken[:3]:
        path = f"/api/v1/messages/{gone['partitionId']}/{gone['transactionId']}"
        assert (await busy.http.get(path)).status_code == 404
    assert (await busy.pop(queue, consumerGroup="new", batch=9)).data == payloads[3:]
    shown = (await busy.http.get("/api/v1/messages", params={"queue": queue})).json()["messages"]
    assert [message["transactionId"] for message in shown] == [each["transactionId"] for each in taken[:2:-1]]
    (again, kept) = await busy.push(queue, "again", "kept", ids=["t2", "t3"])
    assert (again["status"], kept["status"]) == ("queued", "duplicate"), "ids go with their messages"
    assert [each["success"] for each in await busy.ack(taken[3:])] == [True, True], "the lease goes on"
    assert (await busy.pop(queue, batch=9)).data == ["again"]


async def test_acks_of_messages_that_are_gone(busy: Api, db: "asyncpg.Connection[Any]", queue: str) -> None:
    await busy.configure(queue, leaseTime=600)
    await busy.push(queue, 0, 1, 2)
    await busy.push(queue, "named", ids=["name"])
    leased = (await busy.pop(queue, batch=4)).messages
    await busy.configure(queue, ttl=60, leaseTime=600)
    await age(db, queue, 120)
    await until(db, queue, [])
    results = await busy.ack(leased)
    assert [result["success"] for result in results] == [True, True, True, False]
    assert results[3]["error"] == "Message not found"
    results = await busy.ack(leased, "failed")
    assert {result["success"] for result in results} == {False}
    assert (await busy.extend(leased[0]["leaseId"]))["success"] is False
    await busy.push(queue, "next")
    assert (await busy.pop(queue)).data == ["next"], "the lease ended with its messages"


async def test_a_lease_with_something_left_lives_on(busy: Api, db: "asyncpg.Connection[Any]", queue: str) -> None:
    await busy.push(queue, 0, 1)
    await busy.configure(queue, ttl=60, leaseTime=600)
    await age(db, queue, 120)
    await db.execute("SELECT 1")
    await busy.push(queue, 2, 3)
    popped = await busy.pop(queue, batch=10)
    await until(db, queue, [2, 3])
    assert (await busy.pop(queue)).messages == []
    kept = [message for message in popped.messages if message["offset"] >= 2]
    assert all(result["success"] for result in await busy.ack(kept))
    await busy.push(queue, 4)
    assert (await busy.pop(queue)).data == [4]


@checks("G-DLQ-5", level=Level.LIVE)
async def test_a_dead_letter_outlives_its_message_and_can_be_put_back(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    payload = {"order": 7, "text": "ä\\"}
    await busy.push(queue, payload, "beside", ids=["t0", "t1"])
    await busy.ack((await busy.pop(queue, consumerGroup="g")).messages, "dlq", error="no such customer")
    await busy.configure(queue, ttl=60)
    await age(db, queue, 120)
    await until(db, queue, [])
    await a_sweep_later(busy, db, queue)
    [letter] = (await busy.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    shown = (letter["data"], letter["errorMessage"], letter["transactionId"], letter["consumerGroup"])
    assert shown == (payload, "no such customer", "t0", "g")
    await busy.configure(queue)
    replayed = await busy.http.post(f"/api/v1/dlq/{letter['id']}/replay")
    assert replayed.json()["result"] == "moved", replayed.text
    assert (await busy.pop(queue, consumerGroup="g", batch=5)).data == [payload]


@checks("G-RET-6", level=Level.LIVE)
async def test_eviction_dead_letters_for_each_group_what_it_has_not_done(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    await busy.push(queue, *range(5))
    await busy.ack((await busy.pop(queue, batch=3)).messages)
    await busy.ack((await busy.pop(queue, consumerGroup="g", batch=5)).messages[1:2])
    await busy.extend((await busy.pop(queue, consumerGroup="busy", batch=2)).lease, 600)
    await db.execute("UPDATE queen.partition_consumers SET ready_at = now() WHERE lease IS NOT NULL AND acked = -1"
                     " AND grp_id = (SELECT id FROM queen.consumer_groups_metadata WHERE name = 'g' AND queue_id ="
                     " (SELECT id FROM queen.queues WHERE name = $1))", queue)  # fmt: skip
    await busy.configure(queue, maxWaitTimeSeconds=60)
    await age(db, queue, 120)
    await busy.push(queue, "young")

    async def look() -> bool:
        return await letters(db, queue) == {
            ("__QUEUE_MODE__", 3), ("__QUEUE_MODE__", 4), ("g", 0), ("g", 2), ("g", 3), ("g", 4),
            ("busy", 2), ("busy", 3), ("busy", 4),
        }  # fmt: skip

    await eventually(look, "dead letters of what waited too long")
    assert await offsets(db, queue) == list(range(6)), "the log keeps them: only the groups are through with them"
    assert (await busy.pop(queue, batch=9)).data == ["young"]
    assert (await busy.pop(queue, consumerGroup="g", batch=9)).data == ["young"]
    assert (await busy.pop(queue, consumerGroup="late", batch=9)).data == ["young"]
    assert (await busy.pop(queue, consumerGroup="busy", batch=9)).messages == [], "its lease lives"
    errors = await db.fetch(
        "SELECT DISTINCT error FROM queen.dead_letter_queue d JOIN queen.queues q ON q.id = d.queue_id"
        " WHERE q.name = $1", queue,
    )  # fmt: skip
    assert [row["error"] for row in errors] == ["Maximum wait time exceeded"]


async def letters(db: "asyncpg.Connection[Any]", queue: str) -> set[tuple[str, int]]:
    rows = await db.fetch(
        "SELECT consumer_group, off FROM queen.dead_letter_queue d JOIN queen.queues q ON q.id = d.queue_id"
        " WHERE q.name = $1", queue,
    )  # fmt: skip
    return {(row["consumer_group"], row["off"]) for row in rows}


@checks("G-RET-6", level=Level.LIVE)
@pytest.mark.parametrize("options", [{}, {"deadLetterQueue": False}])
async def test_eviction_of_a_queue_without_groups(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str, options: dict[str, bool]
) -> None:
    await busy.configure(queue, maxWaitTimeSeconds=60, **options)
    await busy.push(queue, 0, 1)
    await busy.push(queue, 2, partition="p")
    await age(db, queue, 120)

    async def look() -> bool:
        rows = await db.fetch(
            "SELECT c.acked FROM queen.partition_consumers c JOIN queen.partitions p ON p.id = c.part_id"
            " JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1", queue,
        )  # fmt: skip
        return sorted(row["acked"] for row in rows) == [0, 1]

    await eventually(look, "queue mode gave them up")
    assert len(await letters(db, queue)) == (0 if options else 2), "offsets 0 and 1, the former in two partitions"
    assert (await busy.pop(queue, batch=9, partitions=9)).messages == []
    assert (await busy.pop(queue, batch=9, partitions=9, consumerGroup="g")).messages == []


@checks("G-RET-7", level=Level.LIVE)
async def test_clean_up_and_producers_and_consumers_that_know_the_partition(
    busy_server: Server, busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    async with worker_apis(busy_server.port) as apis:
        for api in apis:
            await api.push(queue, 0, partition="p")
            await api.pop(queue, "p", autoAck=True)
        waiting = asyncio.create_task(apis[0].pop(queue, "p", wait=True, timeout=30_000))
        await busy.configure(queue, ttl=1)
        await busy.push(queue, "kept", partition="dead")
        await busy.ack((await busy.pop(queue, "dead")).messages, "dlq")
        await age(db, queue, 60)
        await until(db, queue, [])
        await db.execute("UPDATE queen.segments SET created_at = now() - interval '31 days' WHERE n = 0")
        await db.execute("UPDATE queen.partitions SET created_at = now() - interval '31 days'")

        async def look() -> bool:
            rows = await db.fetch("SELECT p.name FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id"
                                  " WHERE q.name = $1", queue)  # fmt: skip
            return {row["name"] for row in rows} == {"Default", "dead"}

        await eventually(look, "partition p is gone, and the one with a dead letter is not")
        await busy.configure(queue)
        (pushed,) = await apis[1].push(queue, "new", partition="p")
        assert pushed["status"] == "queued"
        async with asyncio.timeout(20):
            assert (await waiting).data == ["new"], "a worker that knew the partition by its old number finds it"
        await apis[0].push(queue, "newer", partition="p")
        assert (await apis[1].pop(queue, "p", consumerGroup="h", batch=5)).data == ["new", "newer"]


@checks("G-RET-1", "G-RET-2", "G-RET-7", "G-ORD-1", "G-ORD-2", level=Level.LIVE)
async def test_services_beside_producers_and_consumers_lose_nothing(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    """Completed messages go at once, and partitions with them; two groups read all the same, in order, exactly once."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    partitions, each = [f"p{n}" for n in range(4)], 60
    await busy.configure(queue, retentionEnabled=True, completedRetentionSeconds=1, leaseTime=30)
    for group in ("a", "b"):
        await busy.pop(queue, consumerGroup=group)
    seen: dict[tuple[str, str], list[int]] = {(group, p): [] for group in "ab" for p in partitions}
    done = asyncio.Event()

    async def produce(partition: str) -> None:
        for n in range(each):
            (result,) = await busy.push(queue, n, partition=partition, ids=[f"{partition}-{n}"] if n % 2 else None)
            assert result["status"] == "queued"

    async def consume(group: str) -> None:
        while any(len(seen[group, p]) < each for p in partitions):
            popped = await busy.pop(queue, consumerGroup=group, batch=rng.randint(1, 9), partitions=2, wait=True,
                                    timeout=1000)  # fmt: skip
            for message in popped.messages:
                seen[group, message["partition"]].append(message["data"])
            if popped.messages:
                results = await busy.ack_items([ack_of(message, "completed") for message in popped.messages], group)
                assert all(result["success"] for result in results), results

    async def age_everything() -> None:
        while not done.is_set():
            await age(db, queue, 5)
            await asyncio.sleep(0.02)

    ageing = asyncio.create_task(age_everything())
    async with asyncio.timeout(120):
        await asyncio.gather(*map(produce, partitions), consume("a"), consume("b"))
    done.set()
    await ageing
    assert all(data == list(range(each)) for data in seen.values())
    await age(db, queue, 5)
    await until(db, queue, [])
    left = await db.fetchval(
        "SELECT count(*) FROM queen.transaction_ids t JOIN queen.partitions p ON p.id = t.part_id"
        " JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1", queue,
    )  # fmt: skip
    assert left == 0


def test_the_services_log_no_errors(busy_server: Server) -> None:
    lines = busy_server.output.read_text().splitlines()
    assert [line for line in lines if '"level":"error"' in line.replace(" ", "").lower() or "Traceback" in line] == []


# ---------------------------------------------------------------- beside administration and streams


@checks("G-RET-5", "G-RET-1", level=Level.LIVE)
async def test_deleted_messages_are_forgotten_with_what_lies_around_them(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    for n in range(4):
        await busy.push(queue, n)
    messages = (await busy.pop(queue, batch=4, consumerGroup="g")).messages
    for n in (1, 3):
        place = f"/api/v1/messages/{messages[n]['partitionId']}/{messages[n]['transactionId']}"
        assert (await busy.http.delete(place)).status_code == 200
    await db.execute("UPDATE queen.segments SET created_at = created_at - interval '1 hour' WHERE last_off < 3"
                     " AND part_id = (SELECT part_id FROM queen.messages WHERE queue = $1 LIMIT 1)", queue)  # fmt: skip
    await busy.configure(queue, ttl=600)
    await until(db, queue, [])
    assert await db.fetchval("SELECT d.offsets::text FROM queen.deleted_messages d JOIN queen.partitions p"
                             " ON p.id = d.part_id JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1",
                             queue) == "{[3,4)}"  # fmt: skip
    await busy.push(queue, 4)
    assert (await busy.pop(queue, consumerGroup="late", batch=9)).data == [4]
    gone = await busy.http.get(f"/api/v1/messages/{messages[0]['partitionId']}/{messages[0]['transactionId']}")
    assert gone.status_code == 404


@checks("G-GRP-5", level=Level.LIVE)
async def test_a_group_that_is_put_back_to_the_beginning_begins_at_what_is_kept(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    for n in range(3):
        await busy.push(queue, n)
    await busy.pop(queue, consumerGroup="g", batch=3, autoAck=True)
    await db.execute("UPDATE queen.segments SET created_at = created_at - interval '1 hour' WHERE last_off < 2"
                     " AND part_id = (SELECT part_id FROM queen.messages WHERE queue = $1 LIMIT 1)", queue)  # fmt: skip
    await busy.configure(queue, ttl=600)
    await until(db, queue, [2])
    place = f"/api/v1/consumer-groups/g/queues/{queue}/seek"
    response = await busy.http.post(place, json={"timestamp": "2020-01-01T00:00:00Z"})
    assert response.status_code == 200, response.text
    assert (await busy.pop(queue, consumerGroup="g", batch=9)).data == [2]
    assert (await busy.pop(queue, consumerGroup="g", batch=9)).data == []


@checks("G-RET-7", level=Level.LIVE)
async def test_a_partition_of_which_a_stream_remembers_something_is_no_idle_one(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    streams = Streams(busy)
    for partition in ("remembered", "forgotten"):
        await busy.push(queue, 1, partition=partition)
    query = (await streams.register(queue, queue))["query_id"]
    messages = (await busy.pop(queue, "remembered", consumerGroup="g")).messages
    assert (await streams.commit(query, messages, [upsert("k", 1)]))["success"]
    await age(db, queue, 100 * 86400)
    await db.execute(
        "UPDATE queen.segments SET created_at = created_at - interval '100 days' WHERE part_id IN"
        " (SELECT p.id FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1)", queue,
    )  # fmt: skip
    await db.execute(
        "UPDATE queen.partitions SET created_at = created_at - interval '100 days' WHERE name <> 'Default'"
    )
    await busy.configure(queue, ttl=60)

    async def look() -> bool:
        rows = await db.fetch("SELECT p.name FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue_id"
                              " WHERE q.name = $1", queue)  # fmt: skip
        return "forgotten" not in {row["name"] for row in rows}

    await eventually(look, "the clean-up")
    assert await streams.state(query, messages[0]["partitionId"]) == {"k": 1}


async def test_a_removed_partition_leaves_nothing_behind(busy: Api, db: "asyncpg.Connection[Any]", queue: str) -> None:
    await busy.push(queue, 1, partition="p")
    messages = (await busy.pop(queue, "p", consumerGroup="g")).messages
    part_id = await db.fetchval("SELECT part_id FROM queen.messages WHERE queue = $1", queue)
    streams = Streams(busy)
    query = (await streams.register(queue, queue))["query_id"]
    trace = {"transactionId": messages[0]["transactionId"], "partitionId": messages[0]["partitionId"], "data": 1}
    assert (await busy.http.post("/api/v1/traces", json=trace)).status_code == 201
    assert (await streams.commit(query, messages, [upsert("k", 1)]))["success"]
    place = f"/api/v1/messages/{messages[0]['partitionId']}/{messages[0]['transactionId']}"
    assert (await busy.http.delete(place)).status_code == 200
    await busy.delete(queue)
    tables = await db.fetch("SELECT table_name FROM information_schema.columns JOIN information_schema.tables"
                            " USING (table_schema, table_name) WHERE table_schema = 'queen' AND column_name = 'part_id'"
                            " AND table_type = 'BASE TABLE'")  # fmt: skip
    assert len(tables) > 5
    for table in tables:
        left = await db.fetchval(f"SELECT count(*) FROM queen.{table['table_name']} WHERE part_id = $1", part_id)
        assert (table["table_name"], left) == (table["table_name"], 0)


async def test_what_was_taken_out_is_counted_by_its_reason(
    busy: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    before = (await busy.http.get("/api/v1/analytics/retention")).json()["totals"]["totalMsgs"]
    await busy.configure(queue, maxWaitTimeSeconds=600)
    await busy.push(queue, "evicted")
    await age(db, queue, 700)

    async def counted() -> list[tuple[int, int, int]]:
        rows = await db.fetch(
            "SELECT sum(retention_messages)::int, sum(completed_retention_messages)::int, sum(eviction_messages)::int"
            " FROM queen.retention_metrics WHERE queue = $1", queue,
        )  # fmt: skip
        return [tuple(row) for row in rows]

    async def reached(*figures: int) -> None:
        async def look() -> bool:
            return await counted() == [figures]

        await eventually(look, f"counts {figures}")

    await reached(0, 0, 1)
    await busy.configure(queue, retentionEnabled=True, completedRetentionSeconds=600)
    await reached(0, 1, 1)
    await busy.push(queue, "old")
    await age(db, queue, 3600)
    await busy.configure(queue, ttl=1800)
    await reached(1, 1, 1)
    after = (await busy.http.get("/api/v1/analytics/retention")).json()["totals"]["totalMsgs"]
    assert after >= before + 3
