"""Calls that are too slow or wait for locks, and acks while PostgreSQL is down: which requests are told so."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of, open_client
from tests.support.clock import eventually
from tests.support.locks import Connection
from tests.support.outage import fragile_postgres
from tests.support.processes import ROOT, Server, open_folder
from tests.support.servers import create_database, drop_database, serving_database
from tests.support.slowness import refused_segments, slow_segments

#: Short, so that the tests are; a call at a time, so that requests share the next one.
SETTINGS = {
    "DB_STATEMENT_TIMEOUT": "1000",
    "DB_PATIENCE_MS": "2000",
    "QUEEN_PUSH_MAX_CONCURRENT": "1",
    "QUEEN_ACK_MAX_CONCURRENT": "1",
    "QUEEN_TRANSACTION_MAX_CONCURRENT": "1",
}
OTHERS = [f"p{number}" for number in range(12)]


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


async def made(api: Api, queue: str) -> None:
    """Makes the partitions, with a message each."""
    await api.push_items([{"queue": queue, "partition": name, "payload": 0} for name in ("slow", *OTHERS)])


async def part_id_of(operator: Connection, queue: str, partition: str = "slow") -> int:
    """The number of a partition."""
    [row] = await operator.fetch("SELECT part_id FROM queen.resolve_partitions_v1($1, $2, false)", [queue], [partition])
    return int(row["part_id"])


async def push(api: Api, queue: str, partition: str, payload: Any = 1) -> httpx.Response:
    item = {"queue": queue, "partition": partition, "payload": payload}
    return await api.http.post("/api/v1/push", json={"items": [item]})


async def transact(api: Api, queue: str, partition: str) -> httpx.Response:
    return await api.http.post("/api/v1/transaction", json=transaction(queue, partition))


def transaction(queue: str, partition: str, *acks: Mapping[str, Any]) -> dict[str, Any]:
    """One that pushes a message to a partition, and acks."""
    push = {"type": "push", "items": [{"queue": queue, "partition": partition, "payload": 1}]}
    return {"operations": [*({"type": "ack", **ack} for ack in acks), push]}


async def is_spooling(api: Api) -> bool:
    """Whether anything is in the spool, of a server that says that it is healthy."""
    health = await api.http.get("/health")
    assert health.status_code == 200, health.text
    buffers = (await api.http.get("/api/v1/status/buffers")).json()
    return bool(buffers["spooling"] or buffers["pending"] or buffers["failed"])


async def stored(operator: Connection, queue: str) -> dict[str, int]:
    """The messages of each partition."""
    rows = await operator.fetch(
        "SELECT partition, count(*) AS n FROM queen.messages WHERE queue = $1 GROUP BY partition", queue
    )
    return {row["partition"]: row["n"] for row in rows}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    return answer.status_code, body.get("code", "") if isinstance(body, dict) else ""


@checks("G-ISO-1", level=Level.LIVE)
@pytest.mark.parametrize("send", [push, transact])
async def test_a_request_that_is_too_slow_fails_alone_and_nothing_is_spooled(
    api: Api, operator: Connection, queue: str, send: Any
) -> None:
    await made(api, queue)
    async with slow_segments(operator, await part_id_of(operator, queue)):
        first = asyncio.create_task(send(api, queue, "slow"))
        # While the first one is under way the others gather, and share a call.
        while not await operator.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            assert not first.done()
        answers = await asyncio.gather(*(send(api, queue, partition) for partition in ("slow", *OTHERS)))
        assert code_of(await first) == code_of(answers[0]) == (504, "too_slow")
        assert "within 1 s" in answers[0].json()["detail"]
        assert {answer.status_code for answer in answers[1:]} <= {200, 201}
        assert not await is_spooling(api)
    assert await stored(operator, queue) == {"slow": 1} | dict.fromkeys(OTHERS, 2)
    assert (await send(api, queue, "slow")).status_code in {200, 201}
    assert (await stored(operator, queue))["slow"] == 2


@checks("G-ISO-1", level=Level.LIVE)
async def test_a_lock_fails_only_requests_that_need_it_and_only_until_it_is_released(
    api: Api, operator: Connection, queue: str
) -> None:
    await made(api, queue)
    part_id = await part_id_of(operator, queue)
    async with operator.transaction():
        await operator.execute("SELECT FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE", part_id)
        answers = await asyncio.gather(*(push(api, queue, partition) for partition in ("slow", *OTHERS)))
        assert code_of(answers[0]) == (503, "locked")
        assert answers[0].headers["retry-after"]
        assert {answer.status_code for answer in answers[1:]} == {201}
        assert not await is_spooling(api)
    assert (await push(api, queue, "slow")).status_code == 201
    assert await stored(operator, queue) == dict.fromkeys(("slow", *OTHERS), 2)


@checks("G-ISO-1", level=Level.LIVE)
async def test_an_ack_of_a_cursor_that_is_locked_fails_alone(api: Api, operator: Connection, queue: str) -> None:
    await made(api, queue)
    popped = await api.pop(queue, batch=100, partitions=100)
    part_id = await part_id_of(operator, queue)
    async with operator.transaction():
        await operator.execute("SELECT FROM queen.partition_consumers WHERE part_id = $1 FOR UPDATE", part_id)
        bodies = [ack_of(message, "completed") for message in popped.messages]
        answers = await asyncio.gather(*(api.http.post("/api/v1/ack", json=body) for body in bodies))
        outcomes = {
            message["partition"]: code_of(answer)
            for message, answer in zip(popped.messages, answers, strict=True)
        }  # fmt: skip
        assert outcomes.pop("slow") == (503, "locked")
        assert set(outcomes.values()) == {(200, "")}
    again = await api.http.post("/api/v1/ack", json=next(b for b, a in zip(bodies, answers, strict=True) if a.is_error))
    assert again.json()[0]["success"] is True


@checks("G-ISO-1", level=Level.LIVE)
async def test_a_dead_letter_whose_replay_is_too_slow_is_kept(api: Api, operator: Connection, queue: str) -> None:
    await made(api, queue)
    popped = await api.pop(queue, "slow")
    await api.ack(popped.messages, "dlq")
    [letter] = (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    async with slow_segments(operator, await part_id_of(operator, queue)):
        assert code_of(await api.http.post(f"/api/v1/dlq/{letter['id']}/replay")) == (504, "too_slow")
    assert (await api.http.post(f"/api/v1/dlq/{letter['id']}/replay")).json()["result"] == "moved"


@checks("G-TXN-1", "G-ISO-1", level=Level.LIVE)
async def test_a_transaction_is_carried_out_once_whatever_becomes_of_others_of_its_batch(
    api: Api, operator: Connection, queue: str
) -> None:
    await api.push(queue, 0, 1, partition="p0", ids=["first", "second"])
    await made(api, queue)
    first, second, *_ = (await api.pop(queue, "p0", batch=10)).messages
    part_id = await part_id_of(operator, queue)
    # Of two that ack by ids of their own at one cursor the second has its own call, behind that of the first.
    one = transaction(queue, "p1", ack_of(first, "completed"))
    other = transaction(queue, "p2", ack_of(second, "completed"))
    async with slow_segments(operator, part_id), refused_segments(operator, await part_id_of(operator, queue, "p2")):
        occupant = asyncio.create_task(transact(api, queue, "slow"))
        while not await operator.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            assert not occupant.done()
        answers = await asyncio.gather(*(api.http.post("/api/v1/transaction", json=body) for body in (one, other)))
        assert code_of(await occupant) == (504, "too_slow")
    assert answers[0].json()["success"] is True, answers[0].text
    assert code_of(answers[1]) == (422, "data_rejected")
    assert (await stored(operator, queue))["p1"] == 2


@checks("G-ISO-1", level=Level.LIVE)
async def test_if_postgresql_is_slow_for_all_no_request_is_blamed(api: Api, operator: Connection, queue: str) -> None:
    await made(api, queue)
    async with slow_segments(operator):
        first = asyncio.create_task(push(api, queue, "slow"))
        while not await operator.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            assert not first.done()
        answers = await asyncio.gather(*(push(api, queue, partition) for partition in OTHERS))
        await first
        assert {code_of(answer) for answer in answers} == {(503, "database_slow")}
        assert all(answer.headers["retry-after"] for answer in answers)
        assert not await is_spooling(api)
    assert (await push(api, queue, "slow")).status_code == 201
    assert await stored(operator, queue) == dict.fromkeys(OTHERS, 1) | {"slow": 2}


async def test_an_ack_waits_for_postgresql_as_long_as_is_set(queue: str) -> None:
    with (
        open_folder() as folder,
        fragile_postgres(folder) as postgres,
        serving_database(postgres.dsn, folder, "--workers", "1", DB_PATIENCE_MS="500") as server,
    ):
        async with open_client(server.port) as http:
            api = Api(http)
            await api.push(queue, 1)
            [message] = (await api.pop(queue)).messages
            postgres.kill()
            begin = time.monotonic()
            answer = await http.post("/api/v1/ack", json=ack_of(message, "completed"))
            assert time.monotonic() - begin < 10, "twenty times what is set"
            assert code_of(answer) in {(503, "database_unavailable"), (503, "outcome_unknown")}
            assert "connection" in answer.json()["error"], "or consumers of the published client end at a pop"
            postgres.start()

            async def acked() -> bool:
                again = await http.post("/api/v1/ack", json=ack_of(message, "completed"))
                return again.status_code == 200 and again.json()[0]["success"] is True

            await eventually(acked, "the ack")
