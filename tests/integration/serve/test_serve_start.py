"""``queen serve`` and ``queen init``: what a start says, takes and makes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queen.embedded.server import EmbeddedPostgres
from tests.support.processes import (
    ROOT,
    Server,
    clean_environment,
    end,
    free_port,
    json_lines,
    run,
    serving,
    start,
    wait_until,
)
from tests.support.serve import NOBODY, pop, push, python_for_nobody, query, serving_over


def test_start_says_where_everything_is(data: Path) -> None:
    with serving(data) as server:
        announced = f"listens on http://127.0.0.1:{server.port}"
        wait_until(lambda: announced in server.output.read_text(), "the announcement")
    text = server.output.read_text()
    assert "PostgreSQL  18." in text
    assert "embedded" in text
    assert str(data) in text
    assert f'psql "{server.dsn}"' in text
    assert "no authentication" in text
    assert "WARNING" not in text
    assert "Traceback" not in text


def test_log_lines_are_structured(data: Path) -> None:
    with serving(data) as server:
        pass
    lines = json_lines(server.output.read_text())
    assert {"time", "level", "logger", "message", "pid"} <= set(lines[0])
    assert {"gunicorn.error", "queen.server.supervisor"} <= {line["logger"] for line in lines}


def test_address_that_others_reach_is_warned_about_where_it_is_meant(data: Path) -> None:
    with serving(data, "--host", "0.0.0.0", "--insecure") as server:
        wait_until(
            lambda: "WARNING: no authentication; other machines may reach 0.0.0.0" in server.output.read_text(),
            "the warning",
        )
        assert server.is_healthy()


def test_port_zero_takes_a_free_one(data: Path) -> None:
    server = start(data, "--port", "0")
    try:
        wait_until(lambda: "listens on http://127.0.0.1:" in server.output.read_text(), "the announcement")
        server.port = int(server.output.read_text().split("listens on http://127.0.0.1:")[1].split()[0])
        assert server.is_healthy()
    finally:
        end(server)


def test_settings_come_from_the_environment(data: Path) -> None:
    port = free_port()
    environment = clean_environment(
        PORT=str(port), NUM_WORKERS="3", QUEEN_DATA_DIR=str(data), GRACEFUL_TIMEOUT="7", LOG_LEVEL="warning",
        POLL_WORKER_COUNT="2", QUEEN_DEQUEUE_MAX_HOLD_MS="soon", QUEEN_MAX_BODY_BYTE="1",
    )  # fmt: skip
    output = data.parent / "out"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "queen_command", "serve"], cwd=ROOT, env=environment, stdout=file, stderr=file
        )
    server = Server(process, port, data, output)
    try:
        server.wait_until_healthy()
        wait_until(lambda: len(server.workers()) == 3, "three workers")
        wait_until(lambda: "Workers     3" in output.read_text(), "the announcement")
    finally:
        end(server)
    lines = json_lines(output.read_text())
    assert {line["level"] for line in lines} <= {"warning", "error"}
    about = {line["message"].partition(" ")[0]: line["message"] for line in lines if " a setting" in line["message"]}
    assert "NUM_WORKERS" in about["POLL_WORKER_COUNT"]
    assert "no longer a setting" in about["QUEEN_DEQUEUE_MAX_HOLD_MS"]
    assert "QUEEN_MAX_BODY_BYTES" in about["QUEEN_MAX_BODY_BYTE"]


def test_options_win_over_the_environment(data: Path) -> None:
    with serving(data, "--workers", "1", env=clean_environment(NUM_WORKERS="3", PORT="1")) as server:
        assert len(server.workers()) == 1


# Other ways to run it


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_ordinary_user_can_run_it(place: Path) -> None:
    place.chmod(0o777)
    output = place / "out"
    output.touch()
    command = (python_for_nobody(), "-m", "queen_command")
    environment = clean_environment(PYTHONPATH=":".join(sys.path), HOME=str(place))
    options: dict[str, Any] = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    with serving(place / "data", output=output, command=command, env=environment, **options) as server:
        push(server, {"n": 1})
        assert pop(server) == [{"n": 1}]
        assert {process.uids().real for process in server.family()} == {NOBODY.pw_uid}


@pytest.mark.nightly
def test_own_database_is_used_and_left_running(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        with serving_over(postgres) as server:
            push(server, {"n": 1})
            assert server.children("postgres") == []
        assert query(postgres.dsn, "SELECT count(*) FROM queen.messages") == 1
        assert "Data folder" not in server.output.read_text()


@pytest.mark.nightly
def test_another_queen_in_the_current_folder_is_not_taken(place: Path) -> None:
    (place / "queen").mkdir()
    (place / "queen" / "__init__.py").write_text("raise SystemExit('the wrong queen')")
    environment = clean_environment(PYTHONSAFEPATH="1", PYTHONPATH=str(ROOT))
    with serving(place / "data", env=environment, cwd=place) as server:
        push(server, {"n": 1})
        assert pop(server) == [{"n": 1}]


def test_init_makes_the_schema_once_and_ends(data: Path) -> None:
    first = run("init", "--data-dir", str(data))
    assert first.returncode == 0, first.stderr
    assert "applied 0001" in first.stdout
    again = run("init", "--data-dir", str(data))
    assert "the schema was up to date" in again.stdout
    assert not (data / "postgres" / "postmaster.pid").exists()
