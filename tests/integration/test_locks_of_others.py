"""Locked rows: requests that need them wait, and no other request waits with them, even in the same batch.

What is asserted is an order: the others are answered while the lock is held, those that need it when it is gone.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, Message, ack_of, open_client
from tests.support.clock import eventually
from tests.support.locks import Connection
from tests.support.processes import ROOT, Server, open_folder
from tests.support.servers import create_database, drop_database, serving_database
from tests.support.streams import Streams, cycle_of, upsert

#: One call of a kind at a time, so that requests share the next one, on few connections; and with a patience that no
#: test reaches, so that who waits is answered only when the lock is gone.
SETTINGS = {
    "DB_PATIENCE_MS": "120000",
    "DB_STATEMENT_TIMEOUT": "120000",
    "SIDECAR_POOL_SIZE": "4",
    **{f"QUEEN_{kind}_MAX_CONCURRENT": "1" for kind in ("PUSH", "POP", "ACK", "TRANSACTION", "RENEW_LEASE", "ENQUEUE")},
}
#: Far more than the others take, and far less than they would if they waited with who needs the lock.
SOON_S = 20.0
OTHERS = [f"p{number}" for number in range(50)]

PARTITION = "SELECT FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE"
CURSORS = "SELECT FROM queen.partition_consumers WHERE part_id = $1 FOR UPDATE"
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
QUEUE = "SELECT FROM queen.queues WHERE name = $1 FOR UPDATE"

Request = Coroutine[Any, Any, httpx.Response]


@pytest.fixture(scope="module")
def server(postgres: str) -> Iterator[Server]:
    url = asyncio.run(create_database(postgres))
    with open_folder() as folder, serving_database(url, folder, "--workers", "1", root=ROOT, **SETTINGS) as running:
        running.given_dsn = url
        yield running
    asyncio.run(drop_database(postgres, url))


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Api]:
    async with open_client(server.port) as http:
        yield Api(http)


@pytest.fixture
async def operator(server: Server) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(server.dsn)
    yield connection
    await connection.close()


@asynccontextmanager
async def held(operator: Connection, sql: str, *arguments: Any) -> AsyncIterator[None]:
    """Rows are locked for the length of the block."""
    async with operator.transaction():
        await operator.execute(sql, *arguments)
        yield


async def sent_beside(waiting: Sequence[Request], others: Sequence[Request]) -> "list[asyncio.Task[httpx.Response]]":
    """Sends all of them mixed; returns those that wait when the others are answered, well, and none of them is."""
    mixed = [request for pair in zip_longest(waiting, others) for request in pair if request is not None]
    tasks = {request: asyncio.create_task(request) for request in mixed}
    async with asyncio.timeout(SOON_S):
        answers = await asyncio.gather(*(tasks[request] for request in others))
    assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
    assert not any(tasks[request].done() for request in waiting), "a locked message was delivered"
    return [tasks[request] for request in waiting]


async def answered(*waiting: "asyncio.Task[httpx.Response]") -> list[httpx.Response]:
    """The answers of those that have waited, now that the lock is gone."""
    async with asyncio.timeout(SOON_S):
        answers = await asyncio.gather(*waiting)
    assert {answer.status_code for answer in answers} <= {200, 201}, [answer.text for answer in answers]
    return answers


def push(api: Api, queue: str, *partitions: str) -> Request:
    items = [{"queue": queue, "partition": partition, "payload": 1} for partition in partitions]
    return api.http.post("/api/v1/push", json={"items": items})


def transact(api: Api, queue: str, partition: str, *acks: Message) -> Request:
    push = {"type": "push", "items": [{"queue": queue, "partition": partition, "payload": 1}]}
    body = {"operations": [*({"type": "ack", **ack_of(message, "completed")} for message in acks), push]}
    return api.http.post("/api/v1/transaction", json=body)


def ack(api: Api, message: Message, **fields: Any) -> Request:
    return api.http.post("/api/v1/ack", json=ack_of(message, "completed", **fields))


def extend(api: Api, message: Message) -> Request:
    return api.http.post(f"/api/v1/lease/{message['leaseId']}/extend", json={"seconds": 100})


async def made(api: Api, operator: Connection, queue: str, *more: str) -> int:
    """Makes partitions, with a message each; the number of ``x``."""
    await api.push_items([{"queue": queue, "partition": name, "payload": 0} for name in ("x", *more, *OTHERS)])
    return await part_id_of(operator, queue, "x")


async def part_id_of(operator: Connection, queue: str, partition: str) -> int:
    [row] = await operator.fetch("SELECT part_id FROM queen.resolve_partitions_v1($1, $2, false)", [queue], [partition])
    return int(row["part_id"])


async def popped(api: Api, queue: str, **parameters: Any) -> dict[str, Message]:
    """A message of each partition, under leases of their own."""
    pops = [await api.pop(queue, name, **parameters) for name in ("x", *OTHERS)]
    return {pop.messages[0]["partition"]: pop.messages[0] | {"leaseId": pop.lease} for pop in pops}


async def stored(operator: Connection, queue: str) -> dict[str, int]:
    """The messages of each partition."""
    rows = await operator.fetch(
        "SELECT partition, count(*) AS n FROM queen.messages WHERE queue = $1 GROUP BY partition", queue
    )
    return {row["partition"]: row["n"] for row in rows}


@checks("G-ISO-1", level=Level.LIVE)
@pytest.mark.parametrize("send", [push, transact])
async def test_pushes_do_not_wait_for_other_locked_partitions(
    api: Api, operator: Connection, queue: str, send: Any
) -> None:
    part_id = await made(api, operator, queue)
    async with held(operator, PARTITION, part_id):
        first = await sent_beside(
            [send(api, queue, "x") for _ in range(4)], [send(api, queue, name) for name in OTHERS]
        )
        # It is known to be held by now.
        later = await sent_beside(
            [send(api, queue, "x") for _ in range(4)], [send(api, queue, name) for name in OTHERS]
        )
        assert await stored(operator, queue) == {"x": 1} | dict.fromkeys(OTHERS, 3)
    await answered(*first, *later)
    assert await stored(operator, queue) == {"x": 9} | dict.fromkeys(OTHERS, 3)


@checks("G-ISO-1", level=Level.LIVE)
@pytest.mark.parametrize("send", [push, transact])
async def test_pushes_do_not_wait_for_locked_parked_cursors_of_other_partitions(
    api: Api, operator: Connection, queue: str, send: Any
) -> None:
    part_id = await made(api, operator, queue)
    await api.pop(queue, batch=1000, partitions=1000, autoAck=True)
    async with held(operator, CURSORS, part_id):
        waiting = await sent_beside(
            [send(api, queue, "x"), send(api, queue, "x")], [send(api, queue, name) for name in OTHERS]
        )
    await answered(*waiting)
    assert await stored(operator, queue) == {"x": 3} | dict.fromkeys(OTHERS, 2)


@checks("G-ISO-1", level=Level.LIVE)
async def test_acks_do_not_wait_for_other_locked_cursors(api: Api, operator: Connection, queue: str) -> None:
    part_id = await made(api, operator, queue)
    messages = await popped(api, queue)
    async with held(operator, CURSORS, part_id):
        waiting = await sent_beside(
            [ack(api, messages["x"]), ack(api, messages["x"])], [ack(api, messages[name]) for name in OTHERS]
        )
    for answer in await answered(*waiting):
        assert answer.json()[0]["success"] is True


@checks("G-ISO-1", level=Level.LIVE)
async def test_acks_in_a_transaction_do_not_wait_for_other_locked_cursors(
    api: Api, operator: Connection, queue: str
) -> None:
    part_id = await made(api, operator, queue)
    first, second = await popped(api, queue), await popped(api, queue, consumerGroup="g")
    async with held(operator, CURSORS, part_id):
        # Of those that ack at one cursor each but the first has a call of its own.
        concerned = [transact(api, f"{queue}-out", "p", first["x"]) for _ in range(5)]
        others = [transact(api, f"{queue}-out", "p", first[name]) for name in OTHERS]
        waiting = await sent_beside(concerned, others)
    answers = await answered(*waiting)
    assert sorted(answer.json()["success"] for answer in answers) == [False] * 4 + [True]
    assert {(await ack(api, second[name], consumerGroup="g")).json()[0]["success"] for name in second} == {True}


@checks("G-ISO-1", level=Level.LIVE)
async def test_renewals_do_not_wait_for_other_locked_cursors(api: Api, operator: Connection, queue: str) -> None:
    part_id = await made(api, operator, queue)
    messages = await popped(api, queue)
    async with held(operator, CURSORS, part_id):
        waiting = await sent_beside(
            [extend(api, messages["x"]), extend(api, messages["x"])], [extend(api, messages[name]) for name in OTHERS]
        )
    await answered(*waiting)


@checks("G-ISO-1", level=Level.LIVE)
async def test_pushes_do_not_wait_for_other_locked_limited_queues(api: Api, operator: Connection, queue: str) -> None:
    await api.configure(queue, maxSize=100)
    await made(api, operator, f"{queue}-other")
    await api.push(queue, 0)
    async with held(operator, QUEUE, queue):
        others = [push(api, f"{queue}-other", name) for name in OTHERS]
        waiting = await sent_beside([push(api, queue, "Default"), push(api, queue, "Default")], others)
    await answered(*waiting)
    assert await stored(operator, queue) == {"Default": 3}


@checks("G-ISO-1", level=Level.LIVE)
@pytest.mark.parametrize("send", [push, transact])
async def test_new_partitions_do_not_wait_for_other_locked_queues(
    api: Api, operator: Connection, queue: str, send: Any
) -> None:
    await api.push(queue, 0)
    async with held(operator, QUEUE, queue):
        others = [send(api, f"{queue}-other", name) for name in OTHERS]
        waiting = await sent_beside([send(api, queue, "x"), send(api, queue, "y")], others)
    await answered(*waiting)
    assert await stored(operator, queue) == {"Default": 1, "x": 1, "y": 1}


@checks("G-ISO-1", level=Level.LIVE)
async def test_pops_do_not_wait_for_other_groups_that_cannot_be_created(
    api: Api, operator: Connection, queue: str
) -> None:
    await made(api, operator, queue)
    await made(api, operator, f"{queue}-other")

    def pop(queue: str, number: int) -> Request:
        return api.http.get(f"/api/v1/pop/queue/{queue}", params={"consumerGroup": f"g{number}"})

    async with held(operator, QUEUE, queue):
        waiting = await sent_beside(
            [pop(queue, number) for number in range(5)], [pop(f"{queue}-other", number) for number in range(20)]
        )
    await answered(*waiting)


@checks("G-ISO-1", level=Level.LIVE)
async def test_calls_grouped_with_a_push_do_not_wait_for_its_partition(
    api: Api, operator: Connection, queue: str
) -> None:
    part_id = await made(api, operator, queue)
    messages = await popped(api, queue)
    async with held(operator, PARTITION, part_id):
        others = [
            api.http.get(f"/api/v1/pop/queue/{queue}-other", params={"wait": "true", "timeout": "60000"}),
            *(ack(api, messages[name]) for name in OTHERS),
            *(push(api, queue, name) for name in OTHERS),
            push(api, f"{queue}-other", "p"),
        ]
        waiting = await sent_beside([push(api, queue, "x") for _ in OTHERS], others)
    await answered(*waiting)
    assert await stored(operator, queue) == {"x": 51} | dict.fromkeys(OTHERS, 2)


@checks("G-ISO-1", level=Level.LIVE)
async def test_cycles_that_wait_for_a_partition_do_not_hold_up_others(
    api: Api, operator: Connection, queue: str
) -> None:
    part_id = await made(api, operator, f"{queue}-out")
    streams = Streams(api)
    await api.push_items([{"queue": queue, "partition": f"{kind}{n}", "payload": n} for kind in "ab" for n in range(9)])
    query_id = (await streams.register(queue, queue))["query_id"]

    async def cycle(partition: str, output: str) -> httpx.Response:
        messages = (await api.pop(queue, partition, consumerGroup="streams.s")).messages
        item = {"queue": f"{queue}-out", "partition": output, "payload": 1}
        fields = cycle_of(messages, [upsert("k", 1)], [item])
        body = {"query_id": query_id, "partition_id": messages[0]["partitionId"], **fields}
        return await api.http.post("/streams/v1/cycle", json=body)

    async with held(operator, PARTITION, part_id):
        waiting = await sent_beside(
            [cycle(f"a{n}", "x") for n in range(9)], [cycle(f"b{n}", OTHERS[n]) for n in range(9)]
        )
    assert all(answer.json()["success"] for answer in await answered(*waiting))


@checks("G-ISO-1", level=Level.LIVE)
async def test_simple_mq_enqueues_do_not_wait_for_other_locked_queues(api: Api, operator: Connection) -> None:
    body = {"queueName": "q", "queueSize": 1000, "visibilityTimeout": 30, "maxDeliveries": 3}
    mine, other = [(await api.http.post("/api/queues", json=body)).json()["queue_id"] for _ in range(2)]

    def enqueue(queue: str) -> Request:
        return api.http.post(f"/api/queues/{queue}/messages", json={"data": "1"})

    async with held(operator, "SELECT FROM simple_mq.counts WHERE queue_id = $1::text::uuid FOR UPDATE", mine):
        waiting = await sent_beside([enqueue(mine) for _ in range(5)], [enqueue(other) for _ in OTHERS])
    await answered(*waiting)


@pytest.mark.nightly
@checks("G-ISO-1", level=Level.LIVE)
async def test_many_that_wait_hold_few_connections_and_however_many_partitions_are_held_the_others_go_on(
    api: Api, operator: Connection, server: Server, queue: str
) -> None:
    locked = [f"x{number}" for number in range(60)]
    await made(api, operator, queue, *locked)
    part_ids = [await part_id_of(operator, queue, name) for name in ("x", *locked)]
    observer = await asyncpg.connect(server.dsn)
    async with held(operator, "SELECT FROM queen.partition_locks WHERE part_id = ANY($1) FOR UPDATE", part_ids):
        waiting = await sent_beside([push(api, queue, "x") for _ in range(150)], [push(api, queue, "p0")])
        others = [push(api, queue, f"p{n % 40}", f"p{n % 40 + 1}") for n in range(100)]
        waiting += await sent_beside([push(api, queue, name, "p49") for name in locked], others)
        seen = set[int]()

        async def some_wait() -> bool:
            seen.add(await observer.fetchval(BLOCKED))
            return bool(max(seen))

        for _ in range(20):
            await eventually(some_wait, "pushes wait in PostgreSQL now and then", SOON_S)
            await sent_beside([], [push(api, queue, "p0")])
        assert max(seen) <= 2, "those that wait share two connections"
    await observer.close()
    await answered(*waiting)
    counts = await stored(operator, queue)
    assert {name: counts[name] for name in ("x", *locked, "p49")} == {"x": 151, "p49": 61} | dict.fromkeys(locked, 2)


@checks("G-ISO-1", level=Level.LIVE)
async def test_requests_that_need_a_locked_table_wait_and_lose_nothing(
    api: Api, operator: Connection, queue: str
) -> None:
    """The server cannot find out which rows are locked: that question would wait for the table, too."""
    await made(api, operator, queue)
    body = {"queueName": "q", "queueSize": 1000, "visibilityTimeout": 30, "maxDeliveries": 3}
    other = (await api.http.post("/api/queues", json=body)).json()["queue_id"]
    async with held(operator, "LOCK TABLE queen.partition_locks IN ACCESS EXCLUSIVE MODE"):
        others = [api.http.post(f"/api/queues/{other}/messages", json={"data": "1"})]
        waiting = await sent_beside([push(api, queue, name) for name in OTHERS], others)
    await answered(*waiting)
    assert await stored(operator, queue) == {"x": 1} | dict.fromkeys(OTHERS, 2)
