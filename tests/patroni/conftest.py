"""All tests of this folder have a network of their own, and are skipped where there can be no cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hosts, patroni
from tests.support.processes import open_folder


@pytest.fixture(scope="session", autouse=True)
def network() -> None:
    if why := patroni.problem():
        pytest.skip(why)
    hosts.enter_a_network()


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path
