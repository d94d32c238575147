"""What several property tests need."""

from collections.abc import Iterator

import pytest

from tests.support.broker import Broker


@pytest.fixture(scope="module")
def broker(postgres: str) -> Iterator[Broker]:
    """The real engine on a real PostgreSQL, one operation at a time."""
    broker = Broker(postgres)
    yield broker
    broker.close()
