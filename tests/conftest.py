"""Fixtures that every kind of test may use."""

import os
from collections.abc import Iterator

import pytest

from queen.server.embedded import EmbeddedPostgres
from tests.support.processes import open_folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a real PostgreSQL: QUEEN_TEST_DSN, else an embedded one for this session."""
    given = os.environ.get("QUEEN_TEST_DSN")
    if given:
        yield given
        return
    with open_folder() as folder, EmbeddedPostgres(folder / "data") as server:
        yield server.dsn
