"""``queen doctor`` on real databases, sound and not."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.clock import eventually
from tests.support.processes import Server, run
from tests.support.servers import create_database, drop_database


def report(*options: str, **variables: str) -> tuple[int, dict[str, Any]]:
    result = run("doctor", "--json", *options, **variables)
    assert "Traceback" not in result.stderr, result.stderr
    return result.returncode, json.loads(result.stdout)


def graded(found: dict[str, Any], *grades: str) -> list[str]:
    return [finding["topic"] for finding in found["findings"] if finding["grade"] in grades]


@pytest.mark.skipif("QUEEN_TEST_DSN" in os.environ, reason="looks for the embedded PostgreSQL")
def test_a_sound_installation(server: Server) -> None:
    code, found = report("--data-dir", str(server.data_dir))
    assert graded(found, "problem") == [], found
    assert code in (0, 1), "other tests may have left dead letters"
    topics = set(graded(found, "ok"))
    assert topics >= {"queen", "version", "role", "schema", "durability", "connections", "clock", "locks", "spool"}
    result = run("doctor", "--data-dir", str(server.data_dir))
    assert "All migrations are applied" in result.stdout
    assert result.returncode == code


async def test_a_session_that_waits_for_a_lock_is_named_with_the_session_that_holds_it(server: Server) -> None:
    holder, waiter = await asyncpg.connect(server.dsn), await asyncpg.connect(server.dsn)
    try:
        await holder.execute("CREATE TABLE IF NOT EXISTS public.doctor (id int)")
        await holder.execute("BEGIN; LOCK TABLE public.doctor")
        waiting = asyncio.create_task(waiter.execute("SELECT * FROM public.doctor"))

        async def named() -> dict[str, Any] | None:
            _, found = await asyncio.to_thread(report, "--dsn", server.dsn)
            return next((each for each in found["findings"] if each["topic"] == "locks" and each["advice"]), None)

        finding = await eventually(named, "a lock that is waited for", 60)
        assert str(waiter.get_server_pid()) in finding["text"]
        assert f"pg_terminate_backend({holder.get_server_pid()})" in finding["advice"]
        await holder.execute("ROLLBACK; DROP TABLE public.doctor")
        await asyncio.gather(waiting, return_exceptions=True)
    finally:
        await holder.close()
        await waiter.close()


@pytest.mark.nightly
async def test_a_database_without_schema_and_one_that_is_newer(server: Server) -> None:
    url = await create_database(server.dsn)
    try:
        code, found = report("--dsn", url)
        assert (code, graded(found, "problem")) == (2, ["schema"])
        assert run("init", "--dsn", url).returncode == 0
        assert graded(report("--dsn", url)[1], "problem") == []
        connection = await asyncpg.connect(url)
        await connection.execute("INSERT INTO queen.migrations (name) VALUES ('9999_future.sql')")
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        await connection.close()
        code, found = report("--dsn", url)
        assert (code, graded(found, "problem")) == (2, ["schema", "settings"])
        assert "9999_future.sql" in json.dumps(found)
        assert f'ALTER DATABASE \\"{name}\\" RESET synchronous_commit' in json.dumps(found)
    finally:
        await drop_database(server.dsn, url)


def test_an_unavailable_database_is_a_finding_and_not_a_traceback(tmp_path: Path) -> None:
    code, found = report("--dsn", "postgresql://nobody:hush@127.0.0.1:1/x")
    assert code == 2
    assert graded(found, "problem") == ["database"]
    assert "hush" not in json.dumps(found)
    result = run("doctor", "--data-dir", str(tmp_path))
    assert result.returncode == 2
    assert "is not running" in result.stderr


@pytest.mark.parametrize("option", ["--dsn=x=y=z", "--dsn=postgresql://h/d?no_such=1"])
def test_a_dsn_that_cannot_be_read_is_said(option: str) -> None:
    result = run("doctor", option)
    assert result.returncode == 2
    assert "DSN" in result.stderr
