"""A running server with two workers for the tests of the contract."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.api import Api, open_client
from tests.support.processes import Server, clean_environment, open_folder, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """`queen serve` with two workers, whose long polls end at once if they do not say when."""
    impatient = clean_environment(DEFAULT_TIMEOUT="20")
    with open_folder() as folder, serving(folder / "data", "--workers", "2", env=impatient) as running:
        yield running


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Api]:
    """The operations over as many connections as it takes."""
    async with open_client(server.port) as http:
        yield Api(http)
