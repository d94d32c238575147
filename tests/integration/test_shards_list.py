"""The list of the databases of an installation, and its changes."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from msgspec import structs

from queen.core.errors import DataRejectedError
from queen.core.placement import ShardList, first_list, with_added
from queen.postgres import shard_list
from queen.postgres.dsn import Target, parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from queen.shards.setup import change
from spec.guarantees import Level, checks
from tests.support.shards import NAMES, drain, new_databases, push, serving_shards, slot, urls


@pytest.fixture
def fresh(postgres: str) -> Iterator[dict[str, str]]:
    """Empty databases that no server has used."""
    with new_databases(postgres) as databases:
        yield databases


@checks("G-SHARD-5", level=Level.LIVE)
async def test_spooled_pushes_follow_a_changed_list(fresh: dict[str, str], tmp_path: Path) -> None:
    """What was spooled for one database is stored on another one, in order and once, if that became its home."""
    with serving_shards({name: fresh[name] for name in ("a", "b")}, tmp_path / "first"):
        pass  # the list has two databases
    with serving_shards(fresh, tmp_path / "second", "--workers", "2") as server:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as api:
            await api.post("/api/v1/configure", json={"queue": "moved"})
            await api.post("/api/v1/system/maintenance", json={"enabled": True})
            partitions = [f"p{number}" for number in range(24)]
            for number in range(3):
                each = [{"queue": "moved", "partition": p, "payload": {"n": number}} for p in partitions]
                assert {answer["status"] for answer in await push(api, each)} == {"buffered"}
            targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
            await change(targets, lambda known: with_added(known, "c"))
            each = [{"queue": "moved", "partition": p, "payload": {"n": 3}} for p in partitions]
            assert {answer["status"] for answer in await push(api, each)} == {"buffered"}
            await api.post("/api/v1/system/maintenance", json={"enabled": False})
            async with asyncio.timeout(60):
                found: list[dict[str, Any]] = []
                while len(found) < 4 * len(partitions):
                    found += await drain(api, "moved", wait="true", timeout=100)
            for partition in partitions:
                assert [m["data"]["n"] for m in found if m["partition"] == partition] == [0, 1, 2, 3]
            assert {slot(str(m["partitionId"])) for m in found} == {0, 1, 2}
            assert [await _lanes(url) for url in fresh.values()] == [0, 0, 0]


async def test_an_added_database_has_the_definitions_of_the_others(fresh: dict[str, str]) -> None:
    """Every option of a queue, also if a group that began has made the queue there before."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    for name in targets:
        await prepare(fresh[name], 5000)
    await _store(first_list(["a", "b"], []), targets)
    source, added = await asyncpg.connect(fresh["a"]), await asyncpg.connect(fresh["c"])
    await source.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    for column, kind in await source.fetch(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'queen' AND table_name = 'queues' AND column_name NOT IN ('id', 'name')"
    ):
        other = {"integer": "7", "text": "'x'", "boolean": f"{column} IS NOT true"}.get(kind, "'2026-01-01'")
        await source.execute(f"UPDATE queen.queues SET {column} = {other}")

    async def pause(_seconds: float) -> None:
        await added.execute("INSERT INTO queen.queues (name) VALUES ('q')")

    await change(targets, lambda known: with_added(known, "c"), pause)
    options = "SELECT to_jsonb(q) - 'id' FROM queen.queues AS q"
    assert await added.fetchval(options) == await source.fetchval(options)
    await source.close()
    await added.close()


@checks("G-SHARD-1", level=Level.LIVE)
async def test_a_database_with_an_old_list_gets_the_current_one(fresh: dict[str, str], tmp_path: Path) -> None:
    """It was restored from a backup, say."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    with serving_shards({name: fresh[name] for name in ("a", "b")}, tmp_path / "first"):
        old = (await shard_list.read(targets["b"])).shards
    with serving_shards(fresh, tmp_path / "second"):
        current = await change(targets, lambda known: with_added(known, "c"))
        connection = await asyncpg.connect(fresh["b"])
        await connection.execute("DELETE FROM queen.shard_list; DELETE FROM queen.shards")
        await connection.close()
        assert old is not None
        await shard_list.store(targets["b"], old, "b")
        async with asyncio.timeout(30):
            while (await shard_list.read(targets["b"])).shards != current:
                await asyncio.sleep(0.1)


async def _lanes(url: str) -> int:
    """How many positions of spool files a database still has; they go when the files do."""
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(10):
            while number := await connection.fetchval("SELECT count(*) FROM queen.spool_lanes"):
                await asyncio.sleep(0.1)
    finally:
        await connection.close()
    return number


@checks("G-SHARD-1", level=Level.LIVE)
async def test_while_the_list_changes_nothing_is_made_that_moves(fresh: dict[str, str]) -> None:
    """In the first step, both databases refuse what the two lists place differently; what stays is made at home."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    for name in targets:
        await prepare(fresh[name], 5000)
    first = first_list(["a", "b"], [])
    await _store(first, targets)
    changing = with_added(first, "c")
    await _store(changing, targets)
    partitions = [f"p{number}" for number in range(24)]
    made = {name: await _made(targets[name], partitions) for name in NAMES}
    stay = {name: {p for p in partitions if first.home("q", p) == changing.home("q", p) == name} for name in NAMES}
    assert made == stay
    assert sum(map(len, stay.values())) < len(partitions)
    await _store(structs.replace(changing, opened=2), targets)
    made = {name: await _made(targets[name], partitions) for name in NAMES}
    assert made == {name: {p for p in partitions if changing.home("q", p) == name} for name in NAMES}


async def _store(shards: ShardList, targets: Mapping[str, Target]) -> None:
    for name, target in targets.items():
        if shards.find(name):
            await shard_list.store(target, shards, name)


async def _made(target: Target, partitions: list[str]) -> set[str]:
    """The partitions that a database makes, or has; it refuses the others."""
    made, pool = set(), Pool(target, 1, 30)
    for partition in partitions:
        with suppress(DataRejectedError):
            await Store(pool).resolve_partitions([("q", partition)], create=True)
            made.add(partition)
    await pool.close()
    return made


def test_names_stay_with_their_databases(fresh: dict[str, str], tmp_path: Path) -> None:
    first = {name: fresh[name] for name in ("a", "b")}
    with serving_shards(first, tmp_path / "first"):
        pass
    swapped = urls({"a": fresh["b"], "b": fresh["a"]})
    with (
        pytest.raises(AssertionError, match="give each database the name that it had before"),
        serving_shards({}, tmp_path / "second", DATABASE_URLS=swapped),
    ):
        pass
