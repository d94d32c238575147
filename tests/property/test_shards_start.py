"""The start of a worker over several databases: what it knows of their list, and what may fail meanwhile."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from queen.core.errors import DatabaseUnavailableError
from queen.core.placement import ShardList, first_list
from queen.postgres import shard_list
from queen.postgres.dsn import Target, parse
from queen.postgres.shard_list import Stored
from queen.shards.setup import prepare, remember

NAMES = ["a", "b", "c"]
LIST = first_list(NAMES, [])


class Databases:
    """Three databases, some of which cannot be read or written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, has: ShardList | None) -> None:
        self.unread, self.unwritten = set[str](), set[str]()
        self.lists = dict.fromkeys(NAMES, has)
        self.targets = {name: parse(f"postgresql://{name}/queen", "test", 5000) for name in NAMES}
        self._names = {target: name for name, target in self.targets.items()}
        monkeypatch.setattr(shard_list, "read", self._read)
        monkeypatch.setattr(shard_list, "store", self._store)

    async def _read(self, target: Target) -> Stored:
        name = self._names[target]
        if name in self.unread:
            raise DatabaseUnavailableError(name)
        return Stored(self.lists[name], None, populated=False, partitions=0)

    async def _store(self, target: Target, shards: ShardList, own: str) -> None:
        assert self._names[target] == own
        if own in self.unwritten:
            raise DatabaseUnavailableError(own)
        self.lists[own] = shards


async def test_a_database_that_fails_after_it_was_read_does_not_end_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    databases = Databases(monkeypatch, LIST)
    databases.unwritten = {"a", "b", "c"}
    assert await prepare(databases.targets, tmp_path) == LIST
    databases.unread = {"a", "b", "c"}
    assert await prepare(databases.targets, tmp_path) == LIST, "this machine remembers it"


async def test_the_first_list_must_reach_every_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    databases = Databases(monkeypatch, None)
    databases.unwritten = {"b"}
    with pytest.raises(DatabaseUnavailableError):
        await prepare(databases.targets, tmp_path)
    databases = Databases(monkeypatch, None)
    databases.unread = {"b"}
    with pytest.raises(DatabaseUnavailableError):
        await prepare(databases.targets, tmp_path)
    databases.unread = set()
    assert await prepare(databases.targets, tmp_path) == LIST
    assert set(map(str, databases.lists.values())) == {str(LIST)}


async def test_what_this_machine_remembers_counts_where_only_a_database_without_the_list_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    databases = Databases(monkeypatch, LIST)
    await prepare(databases.targets, tmp_path)
    databases.unread, databases.lists["c"] = {"a", "b"}, None
    assert await prepare(databases.targets, tmp_path) == LIST
    assert databases.lists["c"] == LIST


def _remember_often(folder: Path) -> None:
    for version in range(1, 300):
        remember(folder, structs.replace(LIST, version=version, opened=version))


def test_workers_remember_the_list_at_the_same_time(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, get_context("fork")) as workers:
        list(workers.map(_remember_often, [tmp_path] * 4))
    [file] = tmp_path.iterdir()
    assert msgspec.json.decode(file.read_bytes(), type=ShardList).version > 0


def test_a_list_that_cannot_be_kept_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remember(tmp_path / "missing", LIST)
    assert "could not be kept on this machine" in caplog.text
