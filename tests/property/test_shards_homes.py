"""Where pushes to a partition go while the spool of an earlier home still has some of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from queen.core.placement import first_list, with_added
from queen.shards.homes import Homes
from spec.guarantees import Level, checks

#: A partition that the first list places on the first database, and the next one on the one that was added.
FIRST, ADDED = 0, 2
LIST = with_added(first_list(["a", "b"], []), "c")
KEY = next(
    ("q", name) for name in (f"p{n}" for n in range(100)) if LIST.candidates("q", name) == ["c", "a"]
)  # fmt: skip


class Database:
    """What `Homes` asks a database."""

    def __init__(self) -> None:
        self.unavailable = False
        self.made: set[tuple[str, str]] = set()
        self.failover = SimpleNamespace(spooling=False, held_back=set())
        self.cache = SimpleNamespace(push_options=self._options, known_partition=lambda *_key: 1)
        self.database = self

    @staticmethod
    async def _options() -> Any:
        return SimpleNamespace(colocated={})

    @staticmethod
    async def idempotently(call: Callable[[], Awaitable[Any]], *, retries_during_outage: bool) -> Any:
        assert not retries_during_outage
        return await call()

    async def resolve_partitions(
        self, keys: Sequence[tuple[str, str]], *, create: bool
    ) -> list[tuple[int, int | None]]:
        assert not create
        return [(1, 1 if key in self.made else None) for key in keys]


@pytest.fixture
def databases() -> dict[int, Database]:
    return {slot: Database() for slot in range(3)}


def home_of(homes: Homes, *, pushing: bool) -> int:
    return asyncio.run(homes.find([KEY], behind_spools=pushing))[KEY]


@checks("G-SHARD-5", level=Level.MODEL)
def test_pushes_stay_behind_what_an_earlier_home_holds_back(databases: dict[int, Database]) -> None:
    """Also when the first of them was stored where the partition belongs now."""
    homes = Homes(LIST, databases, 10)  # type: ignore[arg-type]
    databases[FIRST].failover.held_back = {KEY}
    databases[ADDED].made = {KEY}
    assert home_of(homes, pushing=False) == ADDED  # the replay, and pops
    assert homes.known(KEY) is None
    assert home_of(homes, pushing=True) == FIRST
    databases[FIRST].failover.held_back = set()
    assert home_of(homes, pushing=True) == ADDED
    assert homes.known(KEY) == ADDED


@checks("G-SHARD-5", level=Level.MODEL)
def test_pushes_stay_behind_a_spool_that_is_being_replayed(databases: dict[int, Database]) -> None:
    homes = Homes(LIST, databases, 10)  # type: ignore[arg-type]
    databases[ADDED].made = {KEY}
    databases[FIRST].failover.spooling = True
    assert home_of(homes, pushing=True) == FIRST
    databases[FIRST].unavailable = True  # nothing of it was replayed: the partition was made by others
    assert home_of(homes, pushing=True) == ADDED


def test_pushes_never_go_behind_the_spool_of_the_newest_home(databases: dict[int, Database]) -> None:
    """It would make the partition a second time."""
    homes = Homes(LIST, databases, 10)  # type: ignore[arg-type]
    databases[FIRST].made = {KEY}
    databases[ADDED].failover.spooling = True
    assert home_of(homes, pushing=True) == FIRST
