"""The maximum size of queues: back-pressure over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from queen.core.administration import QueueConfiguration
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.statement import call
from queen.postgres.store import Store, push_arguments
from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.clock import eventually
from tests.support.flushes import flush_of
from tests.support.streams import Streams, upsert


async def status_of(api: Api, queue: str, count: int = 1, **fields: str) -> int:
    items = [{"queue": queue, "payload": n, **fields} for n in range(count)]
    response = await api.http.post("/api/v1/push", json={"items": items})
    return response.status_code


@checks("G-RET-8", level=Level.LIVE)
async def test_a_full_queue_answers_429_until_consumers_have_caught_up(workers: list[Api], queue: str) -> None:
    first, second = workers
    await first.configure(queue, maxSize=3)
    assert [await status_of(workers[n % 2], queue) for n in range(3)] == [201] * 3
    for api in workers:
        response = await api.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]})
        assert response.status_code == 429
        assert response.headers["content-type"] == "application/problem+json"
        assert int(response.headers["retry-after"]) >= 1
        body = response.json()
        assert (body["status"], body["code"], body["title"]) == (429, "queue_full", "Limit reached")
        assert queue in body["error"]
        assert "room for 0 of 1" in body["detail"]
    popped = await second.pop(queue, batch=2)
    assert await status_of(first, queue) == 429, "delivered is not completed"
    await second.ack(popped.messages)
    assert [await status_of(first, queue) for _ in range(3)] == [201, 201, 429]


async def test_the_slowest_group_decides_what_is_full(api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=2)
    await api.pop(queue, consumerGroup="slow")
    await api.push(queue, 0, 1)
    await api.pop(queue, consumerGroup="fast", batch=2, autoAck=True)
    assert await status_of(api, queue) == 429
    await api.pop(queue, consumerGroup="slow", autoAck=True)
    assert [await status_of(api, queue), await status_of(api, queue)] == [201, 429]


GROUPS = "/api/v1/consumer-groups"


async def seek_back(api: Api, queue: str) -> None:
    response = await api.http.post(f"{GROUPS}/g/queues/{queue}/seek", json={"toBeginning": True})
    assert response.json()["partitionsUpdated"] == 1


async def begin_anew(api: Api, queue: str) -> None:
    response = await api.http.delete(f"{GROUPS}/g/queues/{queue}", params={"deleteMetadata": "false"})
    assert response.json()["deletedPartitions"] == 1


async def delete_the_only_group(api: Api, queue: str) -> None:
    response = await api.http.delete(f"{GROUPS}/g/queues/{queue}")
    assert response.json()["metadataDeleted"] is True


async def make_another_group(api: Api, queue: str) -> None:
    assert len((await api.pop(queue, consumerGroup="h")).messages) == 1


async def push_without_a_limit(api: Api, queue: str) -> None:
    await api.configure(queue)
    await api.push(queue, 1, 2)
    await api.configure(queue, maxSize=3)


@checks("G-RET-8", level=Level.LIVE)
@pytest.mark.parametrize(
    "enlarge", [seek_back, begin_anew, delete_the_only_group, make_another_group, push_without_a_limit]
)
async def test_what_is_known_of_a_queue_is_forgotten_when_something_else_than_a_push_fills_it(
    api: Api, queue: str, enlarge: Callable[[Api, str], Awaitable[None]]
) -> None:
    """One message is to be completed, of three that are allowed; then four are, or three."""
    await api.configure(queue, maxSize=3)
    await api.pop(queue, consumerGroup="g")
    await api.push(queue, 0, 1, 2)
    await api.pop(queue, consumerGroup="g", batch=3, autoAck=True)
    assert await status_of(api, queue) == 201
    await enlarge(api, queue)
    assert await status_of(api, queue) == 429


async def test_a_request_is_stored_whole_or_not_at_all(api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=3)
    await api.push(queue, 0)
    items = [{"queue": name, "payload": 1} for name in (queue, queue, queue, f"{queue}-other")]
    response = await api.http.post("/api/v1/push", json={"items": items})
    assert response.status_code == 429
    assert "room for 2 of 3" in response.json()["detail"]
    assert (await api.pop(f"{queue}-other")).messages == []
    assert await status_of(api, queue, 2) == 201


async def test_a_request_that_can_never_fit_is_a_bad_one(api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=3)
    response = await api.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}] * 4})
    assert response.status_code == 400
    assert "whose maxSize is 3" in response.json()["error"]


@checks("G-RET-8", "G-ISO-1", level=Level.LIVE)
async def test_many_producers_of_both_workers_fill_it_exactly_and_others_do_not_notice(
    workers: list[Api], api: Api, queue: str
) -> None:
    size = 40
    await api.configure(queue, maxSize=size)
    full = await asyncio.gather(
        *[status_of(workers[n % 2] if n % 3 else api, queue, partition=f"p{n % 7}") for n in range(120)]
    )
    others = await asyncio.gather(
        *[status_of(api, queue, partition=f"p{n % 7}") for n in range(60)],
        *[status_of(api, f"{queue}-other") for _ in range(60)],
    )
    assert sorted(set(full)) == [201, 429]
    assert full.count(201) == size
    assert others[:60] == [429] * 60
    assert others[60:] == [201] * 60
    assert len((await api.pop(queue, batch=200, partitions=10)).messages) == size


@checks("G-RET-8", level=Level.LIVE)
async def test_producers_and_consumers_at_once_never_exceed_it(api: Api, queue: str) -> None:
    size, wanted = 10, 150
    await api.configure(queue, maxSize=size)
    await api.pop(queue)
    stored = taken = 0

    async def produce() -> None:
        nonlocal stored
        while stored < wanted:
            if await status_of(api, queue) == 201:
                stored += 1
            assert stored - taken <= size + 2 * 20, "what a consumer has just completed is not counted here yet"

    async def consume() -> None:
        nonlocal taken
        while taken < wanted:
            popped = await api.pop(queue, batch=20, wait=True, timeout=500)
            assert len(popped.messages) <= size
            if popped.messages:
                await api.ack(popped.messages)
                taken += len(popped.messages)

    async with asyncio.timeout(100):
        await asyncio.gather(produce(), produce(), produce(), consume(), consume())


async def test_a_transaction_into_a_full_queue_fails_and_says_so(api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=1)
    push = {"type": "push", "items": [{"queue": queue, "payload": 1}]}
    assert (await api.transact([push]))["success"] is True
    body = await api.transact([push])
    assert (body["success"], body["reason"], body["results"]) == (False, "queue_full", [])
    assert queue in body["error"]


async def test_a_limit_that_is_raised_or_lifted_holds_at_once_on_every_worker(workers: list[Api], queue: str) -> None:
    first, second = workers
    await first.configure(queue, maxSize=1)
    assert [await status_of(second, queue), await status_of(second, queue)] == [201, 429]
    await first.configure(queue, maxSize=2)
    assert [await status_of(second, queue), await status_of(first, queue)] == [201, 429]
    await first.configure(queue)
    assert [await status_of(api, queue) for api in workers] == [201, 201]
    await second.configure(queue, maxSize=3)
    assert [await status_of(api, queue) for api in workers] == [429, 429]
    await second.delete(queue)
    assert [await status_of(api, queue) for api in workers] == [201, 201]


async def test_a_repeated_message_of_a_full_queue_is_told_to_come_later(api: Api, queue: str) -> None:
    """It is not stored twice, and that it is stored already is known when there is room."""
    await api.configure(queue, maxSize=1)
    assert await status_of(api, queue, transactionId="t") == 201
    assert await status_of(api, queue, transactionId="t") == 429
    await api.pop(queue, autoAck=True)
    (again,) = await api.push(queue, 0, ids=["t"])
    assert again["status"] == "duplicate"


@pytest.mark.parametrize("value", [-1, 2**31, "many", 1.5, True])
async def test_a_bad_maximum_is_refused(api: Api, queue: str, value: object) -> None:
    response = await api.http.post("/api/v1/configure", json={"queue": queue, "options": {"maxSize": value}})
    assert response.status_code == 400
    assert "maxSize" in response.json()["error"]


@checks("G-RET-8", level=Level.LIVE)
async def test_a_cycle_whose_outputs_do_not_fit_changes_nothing_and_may_come_again(api: Api, queue: str) -> None:
    sink, streams = f"{queue}-sink", Streams(api)
    await api.configure(sink, maxSize=1)
    await api.push(queue, 0)
    await api.push(sink, "there")
    query = (await streams.register(queue, queue, sink_queue=sink))["query_id"]
    messages = (await api.pop(queue, consumerGroup="g")).messages
    output = [{"queue": sink, "payload": 1}]
    refused = await streams.commit(query, messages, [upsert("k", 1)], output)
    assert (refused["success"], "full" in refused["error"]) == (False, True)
    assert await streams.state(query, messages[0]["partitionId"]) == {}
    await api.pop(sink, autoAck=True)
    assert (await streams.commit(query, messages, [upsert("k", 1)], output))["success"]
    assert (await api.pop(sink)).data == [1]


async def test_a_dead_letter_for_a_full_queue_stays_where_it_is(api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=1)
    await api.push(queue, "dead")
    await api.ack((await api.pop(queue)).messages, "dlq")
    await api.push(queue, "there")
    [letter] = (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    replay = f"/api/v1/dlq/{letter['id']}/replay"
    refused = await api.http.post(replay)
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    await api.pop(queue, autoAck=True)
    assert (await api.http.post(replay)).json()["result"] == "moved"
    assert (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"] == []


async def test_status_shows_the_configured_options(api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=7, ttl=3600)
    shown = (await api.http.get(f"/api/v1/status/queues/{queue}")).json()["queue"]["config"]
    assert (shown["maxQueueSize"], shown["ttl"]) == (7, 3600)


@checks("G-RET-8", "G-SEC-3", level=Level.LIVE)
async def test_options_change_after_the_pushes_that_do_not_know_them(postgres: str, queue: str) -> None:
    """A push that is under way is stored before the queue is configured, and one that waits for its turn is refused."""
    await prepare(postgres, 5000)
    pool = Pool(parse(postgres, "queen test", 5000), 2, 30)
    connection = await asyncpg.connect(postgres)
    watcher = await asyncpg.connect(postgres)
    try:
        store, administration = Store(pool), AdministrationStore(pool)

        async def push(columns: Any) -> list[asyncpg.Record]:
            statement = call("push_messages_v1", 12)
            arguments = columns.flush, False, *push_arguments(columns), columns.version, columns.limited
            return await connection.fetch(statement, *arguments)

        async def waits() -> bool:
            waiting = "application_name = 'queen test' AND wait_event_type = 'Lock'"
            return bool(await watcher.fetchval(f"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE {waiting})"))

        async with connection.transaction():
            under_way = await flush_of(store, queue, [b"1"])
            under_way.version = (await store.read_push_options()).version
            assert len(await push(under_way)) == 1
            configured = asyncio.create_task(
                administration.configure_queue(QueueConfiguration(queue, max_size=1, encryption_enabled=False))
            )
            await eventually(waits, "the configuration waits for the push")
            assert not configured.done()
        await configured
        options = await store.read_push_options()
        assert options.version > under_way.version
        late = await flush_of(store, queue, [b"2"])
        late.version = under_way.version
        assert await push(late) == []
        late.version, late.limited = options.version, [options.limited[queue].queue_id]
        assert [row["room"] for row in await push(late)] == [0]
    finally:
        await watcher.close()
        await connection.close()
        await pool.close()
