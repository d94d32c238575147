"""gunicorn with the documented line, without ``queen serve``."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from queen.embedded.server import EmbeddedPostgres
from tests.support.processes import (
    PATIENCE_S,
    Server,
    clean_environment,
    free_port,
    json_lines,
    wait_until,
)
from tests.support.serve import push


def gunicorn(place: Path, application: str = "queen.app:app", *options: str, **variables: str) -> subprocess.Popen[str]:
    """The documented form for production; gunicorn looks for modules in its folder first, so in none of ours."""
    return subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-c", "python:queen.server.config", *options, application],
        cwd=place,
        env=clean_environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_gunicorn_serves_with_the_documented_line(data: Path) -> None:
    port = free_port()
    with EmbeddedPostgres(data) as postgres:
        process = gunicorn(data.parent, DATABASE_URL=postgres.dsn, PORT=str(port))
        server = Server(process, port, data, data.parent / "out")  # type: ignore[arg-type]
        wait_until(server.is_healthy, "healthy")
        push(server, {"n": 1})
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert len(json_lines(output)) == len(output.splitlines())


def test_gunicorn_without_a_database_says_so(place: Path) -> None:
    output, _ = gunicorn(place, PORT=str(free_port())).communicate(timeout=PATIENCE_S)
    errors = [line for line in json_lines(output) if line["level"] == "error"]
    assert [error["message"] for error in errors] == [
        "No database: set DATABASE_URL or PG_HOST, or run `queen serve`, which includes PostgreSQL"
    ]
    assert "Traceback" not in output


def test_gunicorn_with_a_bad_setting_says_so(place: Path) -> None:
    process = gunicorn(place, PORT="http")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode not in {0, None}
    assert "PORT='http' is not a whole number" in output
    assert "Traceback" not in output


OPEN = "Other machines can reach"


NO_DATABASE = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}


@pytest.mark.parametrize(
    ("options", "host"), [((), "0.0.0.0"), (("--bind", "0.0.0.0:0"), "127.0.0.1"), (("--bind", "[::]:0"), "127.0.0.1")]
)
def test_gunicorn_refuses_an_address_that_others_reach_in_settings_and_options(
    place: Path, options: tuple[str, ...], host: str
) -> None:
    process = gunicorn(place, "queen.app:app", *options, HOST=host, PORT=str(free_port()), **NO_DATABASE)
    output, _ = process.communicate(timeout=PATIENCE_S)
    errors = [line["message"] for line in json_lines(output) if line["level"] == "error"]
    assert process.returncode == 1
    assert len(errors) == 1
    assert OPEN in errors[0]
    assert "Traceback" not in output


def test_gunicorn_refuses_a_socket_that_systemd_has_opened_for_others(place: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        program = (
            f"import os, sys; os.dup2({listener.fileno()}, 3); os.environ['LISTEN_PID'] = str(os.getpid());"
            "os.execv(sys.executable, [sys.executable, '-m', 'gunicorn', *sys.argv[1:]])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "-c", "python:queen.server.config", "queen.app:app"],
            env=clean_environment(LISTEN_FDS="1", **NO_DATABASE),
            cwd=place, pass_fds=[listener.fileno()], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert OPEN in done.stderr


@pytest.mark.parametrize("variables", [{"QUEEN_INSECURE": "1"}, {"JWT_ENABLED": "1", "JWT_SECRET": "s" * 32}])
def test_gunicorn_takes_it_where_that_is_meant_or_tokens_are_asked_for(data: Path, variables: dict[str, str]) -> None:
    port = free_port()
    with EmbeddedPostgres(data) as postgres:
        process = gunicorn(data.parent, HOST="0.0.0.0", DATABASE_URL=postgres.dsn, PORT=str(port), **variables)
        server = Server(process, port, data, data.parent / "out")  # type: ignore[arg-type]
        wait_until(server.is_healthy, "healthy")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert ("QUEEN_INSECURE is set: anybody" in output) is ("QUEEN_INSECURE" in variables)


def test_worker_that_cannot_boot_halts_gunicorn(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        process = gunicorn(data.parent, "queen.app:nothing", DATABASE_URL=postgres.dsn, PORT=str(free_port()))
        output, _ = process.communicate(timeout=PATIENCE_S)
    # 4; or 1, where gunicorn hears of the end of a second worker while it halts because of the first.
    assert process.returncode not in {0, None}
    assert "nothing" in output
