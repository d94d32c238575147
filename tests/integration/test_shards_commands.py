"""Commands that open databases directly, over several of them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from queen.postgres.dsn import parse
from queen.postgres.setup import prepare
from queen.shards.setup import prepare as prepare_list
from tests.support.processes import run
from tests.support.shards import NAMES, new_databases, serving_shards, urls

TIMEOUT_MS = 10_000
NOWHERE = "postgresql://nobody:hush@127.0.0.1:1/x"


@pytest.fixture(scope="module")
def databases(postgres: str) -> Iterator[dict[str, str]]:
    with new_databases(postgres) as made:
        yield made


async def execute(url: str, query: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(query)
    finally:
        await connection.close()


def queen(databases: dict[str, str], *arguments: str, **variables: str) -> tuple[int, str, str]:
    done = run(*arguments, DATABASE_URLS=urls(databases), **variables)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_init_prepares_each_and_names_what_it_cannot_reach(databases: dict[str, str]) -> None:
    code, said, error = queen({**databases, "d": NOWHERE}, "init")
    assert code == 1
    assert [line.split(":")[0] for line in said.splitlines()] == [f"database {name}" for name in NAMES]
    assert "0001" in said
    assert error.startswith("error: database d: ")
    assert "hush" not in error
    code, said, _ = queen(databases, "init", "--json")
    assert code == 0
    assert [(each["database"], each["applied"]) for each in json.loads(said)] == [(name, []) for name in NAMES]


def test_a_database_that_is_named_replaces_several(databases: dict[str, str]) -> None:
    code, said, _ = queen(databases, "init", "--json", "--dsn", databases["b"])
    assert code == 0
    assert json.loads(said)["applied"] == []


@pytest.mark.nightly
def test_procedures_are_listed_restored_and_reset_on_each(databases: dict[str, str]) -> None:
    for url in databases.values():
        asyncio.run(prepare(url, TIMEOUT_MS))
    for name in ("a", "b"):
        asyncio.run(
            execute(
                databases[name],
                "INSERT INTO queen.earlier_procedures (signature, definition)"
                " SELECT n.nspname || '.' || p.proname || '('"
                " || pg_get_function_identity_arguments(p.oid) || ') ' || pg_get_function_result(p.oid),"
                " pg_get_functiondef(p.oid) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace"
                " WHERE p.oid = 'queen.renew_lease_v1'::regproc",
            )
        )
    code, said, _ = queen(databases, "procedures", "list", "--json")
    assert code == 0
    kept = [each for each in json.loads(said) if "renew_lease_v1" in each["signature"]]
    assert [(each["database"], each["restored"]) for each in kept] == [("a", False), ("b", False)]
    code, said, error = queen(databases, "procedures", "restore", "renew_lease_v1")
    assert code == 1
    assert [line.split(" queen.")[0] for line in said.splitlines()] == ["database a:", "database b:"]
    assert error.startswith("error: database c: No earlier version of renew_lease_v1 is kept")
    code, said, error = queen(databases, "procedures", "reset")
    assert (code, len(said.splitlines())) == (0, len(NAMES)), error


def test_keys_are_rotated_in_each(databases: dict[str, str]) -> None:
    code, said, error = queen(databases, "encryption", "rotate", "--json", QUEEN_ENCRYPTION_KEY="ab" * 32)
    assert code == 0, error
    assert [(each["database"], each["changed"]) for each in json.loads(said)] == [(name, 0) for name in NAMES]


def findings(databases: dict[str, str], *options: str, **variables: str) -> list[dict[str, str]]:
    _, said, error = queen(databases, "doctor", "--json", *options, **variables)
    found: list[dict[str, str]] = json.loads(said)["findings"]
    assert found, error
    return found


def wrong(found: list[dict[str, str]], topic: str) -> list[tuple[str | None, str]]:
    return [(each.get("database"), each["text"]) for each in found if each["topic"] == topic and each["grade"] != "ok"]


@pytest.mark.nightly
def test_doctor_examines_each_and_their_list(databases: dict[str, str], tmp_path: Path) -> None:
    for url in databases.values():
        asyncio.run(prepare(url, TIMEOUT_MS))
    two = {name: databases[name] for name in ("a", "b")}
    found = findings(two)
    assert {each.get("database") for each in found if each["topic"] == "schema"} == {"a", "b"}
    assert [text for _, text in wrong(found, "shards")] == ["These databases are no shards yet"]
    asyncio.run(prepare_list({name: parse(url, "test", TIMEOUT_MS) for name, url in two.items()}, tmp_path))
    assert wrong(findings(two), "shards") == []
    [(name, text)] = wrong(findings(databases), "shards")
    assert (name, "takes no partitions" in text) == ("c", True)
    [(name, text)] = wrong(findings({"a": databases["a"]}), "shards")
    assert (name, "lacks b" in text) == (None, True)
    exchanged = findings({"a": databases["b"], "b": databases["a"]})
    assert wrong(exchanged, "shards") == [("a", "This database is the shard b"), ("b", "This database is the shard a")]
    down = findings({**two, "b": NOWHERE}, "--accept-clock")
    assert [name for name, _ in wrong(down, "database")] == ["b"]
    assert [each.get("database") for each in down if "is accepted" in each["text"]] == ["a"]
    asyncio.run(execute(databases["a"], "UPDATE queen.shard_list SET version = 2"))
    changed = [text for _, text in wrong(findings(two), "shards")]
    assert any("was interrupted" in text for text in changed)
    assert any("does not know version 2" in text for text in changed)


@pytest.mark.nightly
def test_spools_of_several_databases_are_found_by_their_names(postgres: str, tmp_path: Path) -> None:
    spools = tmp_path / "spools"
    spools.mkdir()
    with (
        new_databases(postgres) as databases,
        serving_shards(databases, tmp_path / "server", FILE_BUFFER_DIR=str(spools)) as server,
    ):
        server.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
        code, said, error = queen(databases, "spool", "list", "--json", FILE_BUFFER_DIR=str(spools))
        assert code == 0, error
        assert [Path(each["folder"]).name for each in json.loads(said)] == list(NAMES)
        found = findings(databases, FILE_BUFFER_DIR=str(spools))
        assert [each.get("database") for each in found if each["topic"] == "spool"] == list(NAMES)
        remote = run("doctor", "--json", "--url", f"http://127.0.0.1:{server.port}")
        assert remote.returncode in (0, 1), remote.stderr
