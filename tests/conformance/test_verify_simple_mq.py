"""``queen verify --interface simple-mq``: all is valid on the real server, what is broken is found, nothing is left."""

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from spec.guarantees import GUARANTEES, Level
from tests.conformance.test_verify import Closes, Garbage, Html, WrongShapes, broken
from tests.support.processes import Server, free_port, open_folder, serving
from tests.support.stubs import Stub
from tests.support.verifying import verify

#: What only a test with more than a URL sees.
ELSEWHERE = {"G-SMQ-16", "G-SMQ-17"}


@pytest.fixture(scope="module")
def server() -> Any:
    with open_folder() as place, serving(place / "data", "--workers", "2") as running:
        yield running


def execute(server: Server, sql: str) -> Any:
    async def work() -> Any:
        connection = await asyncpg.connect(server.dsn)
        try:
            return await (connection.execute(sql) if sql.startswith(("CREATE", "DROP")) else connection.fetchval(sql))
        finally:
            await connection.close()

    return asyncio.run(work())


def report_of(server: Server, *options: str) -> tuple[int, dict[str, Any]]:
    done = verify(f"http://127.0.0.1:{server.port}", "--interface", "simple-mq", "--json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_all_is_valid_on_the_real_server(server: Server, tmp_path: Path) -> None:
    code, report = report_of(server, "--profile", "quick", "--seed", "7")
    assert [row for row in report["rows"] if row["result"] != "valid"] == []
    assert code == 0
    live = {id_ for id_, each in GUARANTEES.items() if each.family == "SMQ" and Level.LIVE in each.levels}
    assert {row["id"] for row in report["rows"]} == live - ELSEWHERE
    assert execute(server, "SELECT count(*) FROM simple_mq.queues") == 0


def test_only_the_checks_of_some_guarantees_are_run(server: Server, tmp_path: Path) -> None:
    code, report = report_of(server, "--only=G-SMQ-11", "--only=G-SMQ-12")
    assert code == 0
    assert {row["id"] for row in report["rows"]} == {"G-SMQ-11", "G-SMQ-12"}
    done = verify(f"http://127.0.0.1:{server.port}", "--interface=simple-mq", "--only=G-ORD-1")
    assert done.returncode == 2
    assert "no check here is about G-ORD-1" in done.stderr


#: What a trigger does to rows that are updated, and the guarantees that it breaks.
MUTANTS = {
    "nothing is hidden": ("IF new.state = 't' THEN new.visible_at := queen.clock(); END IF", {"G-SMQ-1"}),
    "a delivery is not counted": ("new.delivery_count := old.delivery_count", {"G-SMQ-2", "G-SMQ-3"}),
    "data is touched": ("new.data := trim(new.data)", {"G-SMQ-6"}),
}
_FUNCTION = (
    "CREATE FUNCTION simple_mq.mutate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN new; END $$;"
    "CREATE TRIGGER mutate BEFORE UPDATE ON simple_mq.messages FOR EACH ROW EXECUTE FUNCTION simple_mq.mutate()"
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_server_is_found_out(server: Server, tmp_path: Path, name: str) -> None:
    fault, broken = MUTANTS[name]
    execute(server, _FUNCTION.format(fault))
    try:
        code, report = report_of(server, "--profile", "quick", "--seed", "7")
    finally:
        execute(server, "DROP FUNCTION simple_mq.mutate CASCADE")
    assert code == 1
    assert broken <= {row["id"] for row in report["rows"] if row["result"] == "invalid"}


@pytest.mark.parametrize("kind", [Garbage, Html, WrongShapes, Closes])
def test_what_does_not_speak_the_interface_gets_a_report(kind: type[Stub], tmp_path: Path) -> None:
    report, _ = broken(kind, tmp_path, "--interface=simple-mq")
    assert {row["result"] for row in report["rows"]} <= {"unknown", "invalid"}


def test_unreachable_server_is_an_error() -> None:
    done = verify(f"http://127.0.0.1:{free_port()}", "--interface", "simple-mq")
    assert done.returncode == 2
    assert "is unreachable" in done.stderr
