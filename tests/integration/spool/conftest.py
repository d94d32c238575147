"""A server with two workers and a spool, on a PostgreSQL that the test stops and starts; for each module its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queen.spool.spool import Spool
from tests.support.outage import FragilePostgres, fragile_postgres, spool_in, spooling_server
from tests.support.processes import Server, open_folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[FragilePostgres]:
    with fragile_postgres(folder) as server:
        yield server


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """Settings of the server; a module may have others."""
    return {}


@pytest.fixture(scope="module")
def server(postgres: FragilePostgres, folder: Path, settings: dict[str, str]) -> Iterator[Server]:
    with spooling_server(postgres, folder, **settings) as running:
        yield running


@pytest.fixture
def spool(server: Server, folder: Path) -> Spool:
    """The spool of the server, as one more worker would use it."""
    return spool_in(folder / "spool")
