"""The size of a server: presets, connections, memory."""

import asyncio
import http.client
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from tests.support.memory_limit import memory_limit
from tests.support.processes import Server, end, json_lines, open_folder, wait_until
from tests.support.servers import create_database, drop_database, serving_database, start_on_database

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    dsn = await create_database(postgres)
    yield dsn
    await drop_database(postgres, dsn)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


async def allow(dsn: str, connections: int) -> None:
    """Limits the connections to the database, as ``max_connections`` limits those to all."""
    connection = await asyncpg.connect(dsn)
    try:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT {connections}")
    finally:
        await connection.close()


def announced(server: Server) -> str:
    return str(wait_until(lambda: "  Stop " in (text := server.output.read_text()) and text, "the announcement"))


async def test_the_start_warns_of_more_connections_than_postgresql_allows(database: str, folder: Path) -> None:
    await allow(database, 40)
    with serving_database(database, folder, "--workers", "1", SIDECAR_POOL_SIZE="600") as server:
        text = announced(server)
    assert "Connections up to 611: per worker 600 for messages, 4 for everything else, 7 in the background" in text
    assert "PostgreSQL allows 40" in text
    warnings = [line["message"] for line in json_lines(server.output.read_text()) if line["level"] == "warning"]
    assert [line for line in warnings if line.startswith("This server may open 611 connections to PostgreSQL")]


async def test_the_start_does_not_warn_of_connections_that_postgresql_allows(database: str, folder: Path) -> None:
    with serving_database(database, folder, "--workers", "1") as server:
        announced(server)
    assert not [line for line in json_lines(server.output.read_text()) if "may open" in line["message"]]


async def test_a_preset_is_told_and_a_given_option_wins_over_it(database: str, folder: Path) -> None:
    options = ("--preset", "low-latency", "--workers", "1")
    with serving_database(database, folder, *options, QUEEN_CONNECTIONS="20") as server:
        text = announced(server)
    assert "Preset      low-latency: NUM_WORKERS=10 SIDECAR_POOL_SIZE=142 DB_POOL_SIZE=8 POLL_DB_INTERVAL=50" in text
    assert "Workers     1, gunicorn class uvicorn" in text
    assert "Connections up to 20: per worker 14 for messages, 1 for everything else, 5 in the background" in text


def happy_path(port: int, rounds: int) -> list[int]:
    """Rounds of a client of simple-mq, each with a message: the statuses, of which 200 and 201 are good."""
    connection, statuses = http.client.HTTPConnection("127.0.0.1", port, timeout=120), []

    def call(method: str, path: str, body: object = None) -> dict[str, object]:
        connection.request(method, path, None if body is None else json.dumps(body), JSON)
        response = connection.getresponse()
        statuses.append(response.status)
        found: dict[str, object] = json.loads(response.read() or b"{}")
        return found

    name = f"fixed-{threading.get_ident()}"
    queue = call(
        "POST", "/api/queues", {"queueName": name, "queueSize": 100, "visibilityTimeout": 60, "maxDeliveries": 3}
    )
    path = f"/api/queues/{queue['queue_id']}/messages"
    for number in range(rounds):
        call("POST", path, {"data": f"{number:>1000}"})
        message = call("GET", path)["message"]
        assert isinstance(message, dict)
        call("DELETE", f"{path}/{message['message_id']}")
    connection.close()
    return statuses


async def most_connections(dsn: str, stop: asyncio.Event) -> int:
    """The most connections of others that the database had at a time."""
    connection, most = await asyncpg.connect(dsn), 0
    try:
        while not stop.is_set():
            most = max(most, await connection.fetchval(_OTHERS))
            await asyncio.sleep(0.005)
    finally:
        await connection.close()
    return most


_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)


@pytest.mark.nightly
async def test_six_connections_and_little_memory_are_enough_under_load(database: str, folder: Path) -> None:
    """Ten clients at a time, as simple-mq's load test has: nothing fails, and no worker is killed."""
    with memory_limit(256 << 20) as limit:
        server = start_on_database(database, folder, NUM_WORKERS="1", QUEEN_CONNECTIONS="6")
        try:
            limit.add(server.process.pid)
            server.wait_until_healthy()
            stop = asyncio.Event()
            watching = asyncio.create_task(most_connections(database, stop))
            with ThreadPoolExecutor(10) as clients:
                loop = asyncio.get_running_loop()
                calls = [loop.run_in_executor(clients, happy_path, server.port, 40) for _ in range(10)]
                statuses = [status for found in await asyncio.gather(*calls) for status in found]
            assert set(statuses) == {200, 201}
            assert await asyncio.to_thread(happy_path, server.port, 1) == [201, 201, 200, 200]
            stop.set()
            assert 4 <= await watching <= 6
            assert limit.kills == 0
            print(f"the most memory at a time: {limit.peak >> 20} MiB")
        finally:
            end(server)
