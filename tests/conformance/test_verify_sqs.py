"""``queen verify --interface sqs``: all is valid on the real server, what is broken is found, nothing is left."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spec.guarantees import GUARANTEES, Level
from tests.conformance.test_verify import Closes, Garbage, Html, WrongShapes, broken
from tests.conformance.test_verify_simple_mq import execute
from tests.support.processes import Server, clean_environment, open_folder, serving
from tests.support.stubs import Stub
from tests.support.verifying import verify

KEY, SECRET = "key", "a-secret"
SIGNED = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with (
        open_folder() as place,
        serving(
            place / "data", "--workers", "2", env=clean_environment(QUEEN_SQS_KEYS=f"{KEY}:{SECRET}:admin")
        ) as running,
    ):
        yield running


def report_of(server: Server, *options: str, **variables: str) -> tuple[int, dict[str, Any]]:
    done = verify(f"http://127.0.0.1:{server.port}/sqs", "--interface", "sqs", "--json", *options, **variables)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_all_is_valid_on_the_real_server(server: Server) -> None:
    code, report = report_of(server, "--profile", "quick", **SIGNED)
    assert [row for row in report["rows"] if row["result"] != "valid"] == []
    assert code == 0
    live = {id_ for id_, each in GUARANTEES.items() if each.family == "SQS" and Level.LIVE in each.levels}
    assert {row["id"] for row in report["rows"]} == live
    assert execute(server, "SELECT count(*) FROM simple_mq.sqs_queues") == 0


def test_without_keys_nothing_is_carried_out_and_nothing_judged(server: Server) -> None:
    code, report = report_of(server, "--only=G-SQS-1", "--only=G-SQS-13")
    assert code == 3
    assert {row["id"]: row["result"] for row in report["rows"] if row["id"] != "G-SQS-3"} == {
        "G-SQS-1": "unknown", "G-SQS-13": "skipped",
    }  # fmt: skip


#: What a trigger does to rows that are updated, and the guarantees that it breaks.
MUTANTS = {
    "nothing is hidden": ("IF new.state = 't' THEN new.visible_at := queen.clock(); END IF", {"G-SQS-2"}),
    "a receive is not counted": ("new.delivery_count := old.delivery_count", {"G-SQS-7"}),
    "data is touched": ("new.data := new.data || '!'", {"G-SQS-1"}),
}
_FUNCTION = (
    "CREATE FUNCTION simple_mq.mutate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN new; END $$;"
    "CREATE TRIGGER mutate BEFORE UPDATE ON simple_mq.messages FOR EACH ROW EXECUTE FUNCTION simple_mq.mutate()"
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_server_is_found_out(server: Server, name: str) -> None:
    fault, violated = MUTANTS[name]
    execute(server, _FUNCTION.format(fault))
    try:
        code, report = report_of(server, "--profile", "quick", *[f"--only={id_}" for id_ in violated], **SIGNED)
    finally:
        execute(server, "DROP FUNCTION simple_mq.mutate CASCADE")
    assert code == 1
    assert violated <= {row["id"] for row in report["rows"] if row["result"] == "invalid"}


@pytest.mark.parametrize("kind", [Garbage, Html, WrongShapes, Closes])
def test_what_does_not_speak_the_interface_gets_a_report(kind: type[Stub], tmp_path: Any) -> None:
    report, _ = broken(kind, tmp_path, "--interface=sqs")
    assert {row["result"] for row in report["rows"]} <= {"unknown", "invalid", "skipped"}
