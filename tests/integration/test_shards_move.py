"""`queen shards move`: partitions go to another database, with all that belongs to them, while servers go on."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import Server, run
from tests.support.shards import drain, items, new_databases, push, serving_shards, urls

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
