"""A server over several databases."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asyncpg
import httpx

from tests.support.processes import Server, end
from tests.support.servers import create_database, drop_database, start_on_database

#: The usual names of several databases.
NAMES = ("a", "b", "c")


def urls(databases: Mapping[str, str]) -> str:
    """The value of DATABASE_URLS."""
    return " ".join(f"{name}={url}" for name, url in databases.items())


@contextmanager
def serving_shards(databases: Mapping[str, str], folder: Path, *options: str, **environment: str) -> Iterator[Server]:
    """A healthy server over the databases; ``folder`` takes its output and its data."""
    folder.mkdir(exist_ok=True)
    server = start_on_database("", folder, *options, **{"DATABASE_URLS": urls(databases), **environment})
    try:
        server.wait_until_healthy()
        yield server
    finally:
        end(server)


@contextmanager
def new_databases(dsn: str, names: Sequence[str] = NAMES) -> Iterator[dict[str, str]]:
    """Empty databases on one PostgreSQL, by name: their connection strings."""
    with ExitStack() as stack:
        databases = {}
        for name in names:
            databases[name] = asyncio.run(create_database(dsn))
            stack.callback(lambda url: asyncio.run(drop_database(dsn, url)), databases[name])
        yield databases


def rows(url: str, query: str) -> list[asyncpg.Record]:
    """The rows of a query to one database."""

    async def ask() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetch(query)
        finally:
            await connection.close()

    return asyncio.run(ask())


def slot(identifier: str) -> int:
    """The slot of the shard of an id."""
    return int(identifier[:2], 16)


def items(queue: str, *partitions: str, each: int = 1) -> list[dict[str, object]]:
    return [
        {"queue": queue, "partition": partition, "payload": {"n": number}, "transactionId": f"{partition}-{number}"}
        for partition in partitions
        for number in range(each)
    ]


async def push(api: httpx.AsyncClient, pushed: list[dict[str, object]]) -> list[dict[str, str]]:
    answer = await api.post("/api/v1/push", json={"items": pushed})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def drain(api: httpx.AsyncClient, queue: str, **query: object) -> list[dict[str, object]]:
    """All messages that pops without a wait get, acknowledged."""
    found: list[dict[str, object]] = []
    while (answer := await api.get(f"/api/v1/pop/queue/{queue}", params={"batch": 100, **query})).status_code == 200:
        messages = answer.json()["messages"]
        acks = [
            {"transactionId": m["transactionId"], "partitionId": m["partitionId"], "leaseId": m["leaseId"],
             "status": "completed"} for m in messages
        ]  # fmt: skip
        acked = await api.post("/api/v1/ack/batch", json={"acknowledgments": acks})
        assert all(result["success"] for result in acked.json()), acked.text
        found += messages
    assert answer.status_code == 204, answer.text
    return found
