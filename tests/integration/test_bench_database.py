"""The database of a benchmark: it goes when the benchmark ends, however that ends, and an ordinary user is enough."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from queen_bench import database
from tests.support.processes import run

NOWHERE = "postgresql://x@127.0.0.1:1/x"


async def test_it_is_dropped_also_when_the_connection_that_made_it_was_cut(postgres: str) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        async with database.scratch_database(postgres) as url:
            name = urlsplit(url).path.removeprefix("/")
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queen bench'"
            assert await connection.fetch(cut)
        assert not await connection.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", name)
    finally:
        await connection.close()


async def test_what_cannot_be_dropped_is_told_and_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    await database._drop(NOWHERE, "queen_bench_1")
    assert "The benchmark's database queen_bench_1 is left behind: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["depth", "growth", "listing", "procedures", "retention", "spool", "waiters"])
def test_a_server_that_is_not_there_is_an_error_in_a_line(name: str) -> None:
    ended = run("bench", name, "--smoke", "--dsn", NOWHERE)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: "), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.fixture
async def ordinary(postgres: str) -> AsyncIterator[str]:
    """The connection string of a user who may make databases, and nothing else."""
    name = f"ordinary_{uuid4().hex[:8]}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE ROLE {name} LOGIN CREATEDB PASSWORD 'x'")
    parts = urlsplit(postgres)
    place = parts.netloc.rpartition("@")[2]
    yield urlunsplit(parts._replace(netloc=f"{name}:x@{place}"))
    await connection.execute(f"DROP ROLE {name}")
    await connection.close()


@pytest.mark.parametrize("name", ["growth", "listing", "retention"])
def test_an_ordinary_user_is_enough(ordinary: str, name: str) -> None:
    done = run("bench", name, "--smoke", "--dsn", ordinary, patience=300)
    assert done.returncode == 0, done.stderr


def test_all_that_was_asked_for_is_filled_and_removed(postgres: str, tmp_path: Path) -> None:
    asked = ("--messages", "10123", "--runs", "1", "--json", str(tmp_path / "r.json"))
    done = run("bench", "retention", "--smoke", "--dsn", postgres, *asked, patience=300)
    assert done.returncode == 0, done.stderr
    [removed] = [each["removed"] for each in json.loads((tmp_path / "r.json").read_text())["runs"]]
    assert removed == 10_123


def test_a_queue_that_would_be_empty_before_the_end_is_refused(postgres: str) -> None:
    refused = run("bench", "depth", "--messages", "1000", "--dsn", postgres)
    assert refused.returncode == 1
    assert "5,100 polls take 5,100 messages, and the deep queue has 1,000" in " ".join(refused.stderr.split())
