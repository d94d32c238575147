"""Fixtures that every kind of test may use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from queen.server.embedded import EmbeddedPostgres


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a real PostgreSQL: QUEEN_TEST_DSN, else an embedded one for this session."""
    given = os.environ.get("QUEEN_TEST_DSN")
    if given:
        yield given
        return
    folder: Path = tmp_path_factory.mktemp("data")
    with EmbeddedPostgres(folder) as server:
        yield server.dsn
