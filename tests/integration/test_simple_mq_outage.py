"""simple-mq while PostgreSQL is down: everybody is told to come again, and then all is as it was."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.api import open_client
from tests.support.clock import eventually
from tests.support.outage import FragilePostgres, fragile_postgres
from tests.support.processes import Server, open_folder
from tests.support.servers import serving_database

_QUEUE = {"queueName": "orders", "queueSize": 10, "visibilityTimeout": 600, "maxDeliveries": 3}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[FragilePostgres]:
    with fragile_postgres(folder) as running:
        yield running


@pytest.fixture(scope="module")
def server(postgres: FragilePostgres, folder: Path) -> Iterator[Server]:
    with serving_database(postgres.dsn, folder, "--workers", "1") as running:
        yield running


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(server.port) as client:
        yield client


async def answered(http: httpx.AsyncClient, queue: str, message: str) -> list[httpx.Response]:
    """The answers to one request of each kind."""
    path = f"/api/queues/{queue}"
    return [
        await http.post("/api/queues", json=_QUEUE),
        await http.get(path),
        await http.post(f"{path}/messages", json={"data": "y"}),
        await http.get(f"{path}/messages"),
        await http.get(f"{path}/messages/peek?limit=1"),
        await http.delete(f"{path}/messages/{message}"),
        await http.post(f"{path}/messages/{message}/visibility", json={"visibilityTimeout": 1}),
        await http.post(f"{path}/messages/{message}/requeue"),
    ]


@pytest.mark.nightly
@checks("G-SMQ-7", level=Level.FAULTS)
async def test_an_outage_is_a_503_for_everything_and_loses_nothing(
    postgres: FragilePostgres, http: httpx.AsyncClient
) -> None:
    queue = (await http.post("/api/queues", json=_QUEUE)).json()["queue_id"]
    message = (await http.post(f"/api/queues/{queue}/messages", json={"data": "x"})).json()["message_id"]
    assert (await http.get("/actuator/health")).json()["status"] == "UP"
    postgres.kill()
    try:
        await eventually(lambda: _is(http, "DOWN", 503), "DOWN")
        for answer in await answered(http, queue, message):
            assert answer.status_code == 503, answer.text
            assert answer.headers["retry-after"]
            assert answer.json()["error"]
    finally:
        postgres.start()
    await eventually(lambda: _is(http, "UP", 200), "UP")
    message_now = (await http.get(f"/api/queues/{queue}/messages")).json()["message"]
    assert (message_now["message_id"], message_now["data"], message_now["delivery_count"]) == (message, "x", 1)


async def _is(http: httpx.AsyncClient, status: str, code: int) -> bool:
    answer = await http.get("/actuator/health")
    told: dict[str, Any] = answer.json()
    return (answer.status_code, told["status"]) == (code, status)
