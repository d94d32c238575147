"""`queen shards move`: partitions go to another database, with all that belongs to them, while servers go on."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.processes import Server, run
from tests.support.shards import drain, items, new_databases, push, serving_shards, slot, urls
from tests.support.streams import Streams, cycle_of

NAMES = ("a", "b")


def command(databases: dict[str, str], *arguments: str) -> Any:
    done = run("shards", *arguments, "--json", DATABASE_URLS=urls(databases))
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def databases(postgres: str) -> Iterator[dict[str, str]]:
    with new_databases(postgres, NAMES) as made:
        yield made


@pytest.fixture
def server(databases: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers over two databases; the second has no partitions at first."""
    with serving_shards(databases, tmp_path_factory.mktemp("move")) as server:
        yield server


@pytest.fixture
async def api(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=40) as client:
        yield client


async def fetch(url: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(query)
    finally:
        await connection.close()


@pytest.mark.nightly
@checks("G-SHARD-8", level=Level.LIVE)
async def test_a_drained_database_is_empty_after_a_move(databases: dict[str, str], api: httpx.AsyncClient) -> None:
    partitions = [f"p{number}" for number in range(20)]
    before = {answer["message_id"] for answer in await push(api, items("moving", *partitions, each=3))}
    popped = (await api.get("/api/v1/pop/queue/moving", params={"batch": 1, "partitions": 1})).json()
    await asyncio.to_thread(command, databases, "drain", "b")
    moved = await asyncio.to_thread(command, databases, "move", "--from", "b")
    assert moved["left"] == []
    assert 0 < moved["partitions"] < 20
    assert await fetch(databases["b"], "SELECT 1 FROM queen.partitions") == []
    [message] = popped["messages"]
    acked = await api.post("/api/v1/ack", json={**message, "status": "completed"})
    assert acked.json()[0]["success"], acked.text
    again = await push(api, items("moving", *partitions, each=3))
    assert {answer["status"] for answer in again} == {"duplicate"}
    assert {answer["message_id"] for answer in again} == before
    await push(api, items("moving", *partitions, each=4))
    found = await drain(api, "moving")
    for partition in partitions:
        taken = [m["data"]["n"] for m in found if m["partition"] == partition]
        assert taken == ([1, 2, 3] if partition == message["partition"] else [0, 1, 2, 3])
    await asyncio.to_thread(command, databases, "retire", "b")


@checks("G-SHARD-8", level=Level.LIVE)
async def test_a_long_poll_gets_what_becomes_visible_after_a_move(
    databases: dict[str, str], api: httpx.AsyncClient
) -> None:
    """The poll has looked at both databases, and waits; the message comes to the other one."""
    await api.post("/api/v1/configure", json={"queue": "late", "options": {"delayedProcessing": 30}})
    partitions = [f"p{number}" for number in range(6)]
    answers = await push(api, items("late", *partitions))
    assert {slot(answer["message_id"]) for answer in answers} == {0, 1}
    query = {"wait": "true", "timeout": 60_000, "batch": 10, "partitions": 10}
    waiting = [asyncio.create_task(api.get("/api/v1/pop/queue/late", params=query, timeout=90)) for _ in range(2)]
    await asyncio.to_thread(command, databases, "drain", "b")
    moved = await asyncio.to_thread(command, databases, "move", "late", "--from", "b")
    assert moved["partitions"] > 0
    found = [message["partition"] for answer in await asyncio.gather(*waiting) for message in answer.json()["messages"]]
    found += [message["partition"] for message in await drain(api, "late", wait="true", timeout=5000)]
    assert sorted(found) == partitions


@checks("G-SHARD-8", "G-STR-1", level=Level.LIVE)
async def test_a_stream_goes_on_while_its_partitions_move(databases: dict[str, str], api: httpx.AsyncClient) -> None:
    """Each message is counted once: its ack and the new state are stored together, on either side of the move."""
    await api.post("/api/v1/configure", json={"queue": "orders", "options": {"leaseTime": 3, "retryLimit": 100}})
    partitions = [f"p{number}" for number in range(8)]
    await push(api, items("orders", *partitions, each=40))
    streams, sums, places = Streams(Api(api)), dict[str, int](), dict[str, str]()
    query_id = (await streams.register("sums", "orders"))["query_id"]

    async def count() -> None:
        query = {"consumerGroup": "streams.sums", "batch": 3, "wait": "true", "timeout": 1000}
        while sums != dict.fromkeys(partitions, sum(range(40))):
            answer = await api.get("/api/v1/pop/queue/orders", params=query)
            if answer.status_code != 200:
                continue
            messages = answer.json()["messages"]
            part, partition = messages[0]["partitionId"], messages[0]["partition"]
            places[partition] = part
            known = (await streams.state(query_id, part)).get("sum", 0)
            new = known + sum(message["data"]["n"] for message in messages)
            upsert = {"type": "upsert", "key": "sum", "value": new}
            _, done = await streams.post(
                "cycle", {"query_id": query_id, "partition_id": part, **cycle_of(messages, [upsert])}
            )
            if done.get("success"):
                sums[partition] = new

    counting = [asyncio.create_task(count()) for _ in range(3)]
    await asyncio.to_thread(command, databases, "drain", "b")
    moved = await asyncio.to_thread(command, databases, "move", "--from", "b")
    assert moved["partitions"] > 0
    async with asyncio.timeout(240):
        await asyncio.gather(*counting)
    for partition, part in places.items():
        assert await streams.state(query_id, part) == {"sum": sums[partition]}


@pytest.mark.nightly
async def test_only_what_is_wanted_moves(databases: dict[str, str], api: httpx.AsyncClient) -> None:
    await push(api, items("one", "in@b", *[f"p{number}" for number in range(12)]))
    await push(api, items("two", "in@b", "in@a"))
    await asyncio.to_thread(command, databases, "drain", "b")
    assert (await asyncio.to_thread(command, databases, "move", "two"))["partitions"] == 0  # they are pinned
    on_b = [row[0] for row in await fetch(databases["b"], "SELECT name FROM queen.partitions WHERE name LIKE 'p%'")]
    moved = await asyncio.to_thread(command, databases, "move", "one", on_b[0])
    assert (moved["partitions"], moved["messages"], moved["left"]) == (1, 1, [])
    done = await asyncio.to_thread(run, "shards", "move", "--from", "b", "--json", DATABASE_URLS=urls(databases))
    moved = json.loads(done.stdout)
    assert (done.returncode, moved["partitions"]) == (1, len(on_b) - 1)
    assert sorted((left["queue"], left["partition"]) for left in moved["left"]) == [("one", "in@b"), ("two", "in@b")]
    assert "its name ends with that of this database" in done.stderr
    for wanted in (["three"], ["one", "p99"], ["two", "in@a", "--from", "b"]):
        done = await asyncio.to_thread(run, "shards", "move", *wanted, DATABASE_URLS=urls(databases))
        assert done.returncode == 1
        assert f"of queue '{wanted[0]}'" in done.stderr
    assert (await fetch(databases["b"], "SELECT count(*) FROM queen.partitions"))[0][0] == 2


def test_a_move_needs_a_list(databases: dict[str, str]) -> None:
    done = run("shards", "move", DATABASE_URLS=urls(databases))
    assert done.returncode != 0
    assert "These databases are no shards yet" in done.stderr
