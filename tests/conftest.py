"""Fixtures that every kind of test may use."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from queen.server.embedded import EmbeddedPostgres
from tests.support.processes import open_folder

#: How many examples Hypothesis tries: `ci` takes minutes and `nightly` hours (--hypothesis-profile=nightly).
for name, examples in {"ci": 100, "nightly": 20_000}.items():
    chosen = int(os.environ.get("QUEEN_EXAMPLES", examples))
    settings.register_profile(name, max_examples=chosen, deadline=None, print_blob=True)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a real PostgreSQL: QUEEN_TEST_DSN, else an embedded one for this session."""
    given = os.environ.get("QUEEN_TEST_DSN")
    if given:
        yield given
        return
    with open_folder() as folder, EmbeddedPostgres(folder / "data") as server:
        yield server.dsn
