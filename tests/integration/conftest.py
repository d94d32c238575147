"""A running server with two workers for all tests of HTTP operations, and clients of it."""

import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.support.api import Api, open_client, worker_apis
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.published_client import find_python


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """`queen serve` with two workers on the PostgreSQL of QUEEN_TEST_DSN, else on an embedded one."""
    with open_folder() as folder:
        # All tests make queues on this server: each of them has metrics, not only the oldest.
        environment = clean_environment(QUEEN_DATA_DIR=str(folder), QUEEN_METRICS_MAX_QUEUES="100000")
        given = os.environ.get("QUEEN_TEST_DSN")
        with serving(folder / "data", "--workers", "2", dsn=given, env=environment) as running:
            running.wait_until_all_are_healthy(2)
            yield running


@pytest.fixture(scope="session")
def client_python() -> Path:
    """An interpreter with the published client."""
    return find_python()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Api]:
    """The operations over as many connections as it takes: whichever worker answers."""
    async with open_client(server.port) as http:
        yield Api(http)


@pytest.fixture
async def workers(server: Server) -> AsyncIterator[list[Api]]:
    """The operations through each of the two workers."""
    async with worker_apis(server.port) as apis:
        yield apis


@pytest.fixture
async def database(server: Server) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """The server's database, as an operator sees it."""
    connection = await asyncpg.connect(server.dsn)
    yield connection
    await connection.close()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name that nobody else uses."""
    return f"{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())[:60]}-{uuid4().hex[:8]}"
