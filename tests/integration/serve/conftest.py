"""A folder for the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import (
    open_folder,
)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def data(place: Path) -> Path:
    return place / "data"
