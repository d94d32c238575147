"""``queen serve`` and ``queen init``: real processes, started, stopped and killed."""

import asyncio
import http.client
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from queen.core.errors import DatabaseSetupError
from queen.embedded.server import EmbeddedPostgres
from queen.postgres.setup import check_version
from tests.support.processes import (
    PATIENCE_S,
    ROOT,
    Server,
    clean_environment,
    end,
    free_port,
    is_gone,
    json_lines,
    open_folder,
    run,
    serving,
    start,
    wait_until,
)

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def place() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def data(place: Path) -> Path:
    return place / "data"


def query(dsn: str, sql: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def push(server: Server, payload: Any) -> None:
    status, _ = server.request("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": payload}]})
    assert status == 201


def pop(server: Server) -> list[Any]:
    """The payloads that one pop takes."""
    status, answer = server.request("GET", "/api/v1/pop/queue/q?batch=100&autoAck=true")
    return [message["data"] for message in answer["messages"]] if status == 200 else []


def pop_spooled(server: Server, number: int) -> list[Any]:
    """So many payloads; some may have waited in the spool, for a worker that found out late that PostgreSQL is back."""
    got: list[Any] = []

    def all_are_here() -> bool:
        got.extend(pop(server))
        return len(got) >= number

    wait_until(all_are_here, f"{number} messages")
    return got


def park(server: Server, count: int = 3) -> list[http.client.HTTPConnection]:
    """Long polls on a queue that has nothing; each has been looked at once."""
    connections = [server.connection() for _ in range(count)]
    for number, connection in enumerate(connections):
        connection.request("GET", f"/api/v1/pop/queue/empty?wait=true&timeout=3000000&consumerGroup=g{number}")
    known = "SELECT count(*) FROM queen.consumer_groups_metadata WHERE name ~ '^g[0-9]$'"
    wait_until(lambda: query(server.dsn, known) == count, "the long polls have made their groups")
    return connections


def statuses(connections: list[http.client.HTTPConnection]) -> list[int]:
    try:
        return [connection.getresponse().status for connection in connections]
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def half_a_request(server: Server) -> Iterator[None]:
    """A client that never sends the rest of its body; the worker has begun with it."""
    connection = server.connection()
    connection.putrequest("POST", "/api/v1/push")
    connection.putheader("Content-Length", "1000")
    connection.putheader("Expect", "100-continue")
    connection.endheaders()
    with connection.sock.makefile("rb") as answer:
        assert b"100 Continue" in answer.readline()
    try:
        yield
    finally:
        connection.close()


@contextmanager
def serving_over(postgres: EmbeddedPostgres) -> Iterator[Server]:
    """A healthy server that is given a database."""
    output = postgres.folder.path.parent / "out"
    port = free_port()
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "queen_command", "serve", "--port", str(port), "--dsn", postgres.dsn],
            cwd=ROOT,
            env=clean_environment(),
            stdout=file,
            stderr=file,
        )
    server = Server(process, port, postgres.folder.path, output)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        end(server)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that failed."""
    assert result.returncode not in {0, None}
    assert "Traceback" not in result.stderr + result.stdout
    plain = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert len(plain) == 1, result.stderr
    assert plain[0].startswith("error: ")
    return plain[0]


# Start and stop


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


@pytest.mark.parametrize("address", ["0.0.0.0", "::", ""])
def test_address_that_others_reach_is_refused_without_tokens(data: Path, address: str) -> None:
    line = only_line(run("serve", "--port", "0", "--data-dir", str(data), HOST=address))
    assert "Other machines can reach" in line
    assert "JWT_ENABLED" in line
    assert "--insecure (QUEEN_INSECURE=true)" in line
    assert not data.exists()


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_ends_everything(data: Path, number: signal.Signals) -> None:
    with serving(data) as server:
        family = server.family()
        assert len(family) > 5
        assert server.stop(number) == 0
    assert [process for process in family if not is_gone(process)] == []


def test_restart_keeps_messages(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
    with serving(data) as server:
        assert pop(server) == [{"n": 1}]


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


# Signals


def test_sigterm_answers_parked_polls_and_ends_in_time(data: Path) -> None:
    with serving(data, "--graceful-timeout", "20") as server:
        connections = park(server)
        server.process.send_signal(signal.SIGTERM)
        assert statuses(connections) == [204, 204, 204]
        assert server.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in server.output.read_text()


def test_request_that_never_ends_does_not_outlive_the_graceful_timeout(data: Path) -> None:
    with serving(data, "--graceful-timeout", "2") as server, half_a_request(server):
        assert server.stop() == 0


def test_second_interrupt_does_not_wait(data: Path) -> None:
    with serving(data, "--graceful-timeout", "600") as server, half_a_request(server):
        family = server.family()
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again" in server.output.read_text(), "the stop has begun")
        assert server.stop(signal.SIGINT) == 0
        assert [process for process in family if not is_gone(process)] == []


def test_sighup_replaces_the_workers_without_a_gap(data: Path) -> None:
    with serving(data) as server:
        wait_until(lambda: len(server.workers()) == 2, "two workers")
        old, connections = server.workers(), park(server)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.is_healthy() and not server.workers() & old, "new workers")
        assert statuses(connections) == [204, 204, 204]
        wait_until(lambda: len(server.workers()) == 2, "two new workers")
        push(server, 1)
        assert pop(server) == [1]


# Deaths


def test_postmaster_killed_comes_back_and_loses_nothing(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
        old = server.postmaster()
        old.kill()
        wait_until(lambda: any(new.pid != old.pid for new in server.children("postgres")), "a new postmaster")
        wait_until(server.is_healthy, "healthy again")
        push(server, {"n": 2})
        assert pop_spooled(server, 2) == [{"n": 1}, {"n": 2}]
        assert server.process.poll() is None
        lines = json_lines(server.output.read_text())
        assert any("PostgreSQL ended: it was killed by SIGKILL" in line["message"] for line in lines)


def test_worker_killed_is_replaced(data: Path) -> None:
    with serving(data) as server:
        server.wait_until_all_are_healthy(2)
        old = server.workers()
        psutil.Process(min(old)).kill()
        wait_until(lambda: server.workers() - old, "a new worker")
        server.wait_until_all_are_healthy(2)


def test_worker_that_boots_during_an_outage_waits_for_the_database(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres, serving_over(postgres) as server:
        wait_until(lambda: len(server.workers()) == 2, "two workers")
        postgres.stop()
        old = server.workers()
        for worker in old:
            psutil.Process(worker).kill()
        wait_until(lambda: len(server.workers()) == 2 and not server.workers() & old, "two new workers")
        wait_until(lambda: server.request("GET", "/health")[0] == 503, "the new workers say that it is down")
        postgres.start()
        wait_until(server.is_healthy, "healthy again")
        push(server, {"n": 1})
        assert pop_spooled(server, 1) == [{"n": 1}]


def test_worker_that_cannot_replace_another_is_tried_again(data: Path) -> None:
    spool, elsewhere = data.parent / "spool", data.parent / "elsewhere"
    spool.mkdir()
    with serving(data, env=clean_environment(FILE_BUFFER_DIR=str(spool))) as server:
        server.wait_until_all_are_healthy(2)
        spool.rename(elsewhere)
        psutil.Process(min(server.workers())).kill()
        wait_until(lambda: server.output.read_text().count("exited with code 1.") == 2, "two attempts")
        push(server, {"n": 1})
        elsewhere.rename(spool)
        server.wait_until_all_are_healthy(2)
        assert pop(server) == [{"n": 1}]


def test_reload_with_which_no_worker_can_start_ends_the_server(data: Path) -> None:
    spool = data.parent / "spool"
    spool.mkdir()
    with serving(data, env=clean_environment(FILE_BUFFER_DIR=str(spool))) as server:
        server.wait_until_all_are_healthy(2)
        spool.rename(data.parent / "elsewhere")
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(PATIENCE_S) not in {0, None}
    assert f"The spool folder {spool} does not exist" in server.output.read_text()


def test_supervisor_killed_leaves_nothing_and_the_next_works(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
        family = server.family()
        server.process.kill()
        wait_until(lambda: all(is_gone(process) for process in family), "all have ended")
    with serving(data) as server:
        assert pop(server) == [{"n": 1}]


def test_next_server_may_start_while_the_killed_one_ends(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
        server.process.kill()
        with serving(data) as after:
            assert pop(after) == [{"n": 1}]


def test_gunicorn_killed_ends_the_server_with_an_error(data: Path) -> None:
    with serving(data) as server:
        family = server.family()
        server.gunicorn().kill()
        assert server.process.wait(PATIENCE_S) not in {0, None}
        wait_until(lambda: all(is_gone(process) for process in family), "all have ended")
    assert any("gunicorn ended unexpectedly" in line["message"] for line in json_lines(server.output.read_text()))


# What keeps it from starting: one line each


def test_port_in_use_is_named_before_anything_is_made(data: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        line = only_line(run("serve", "--port", port, "--data-dir", str(data)))
    assert f"Port {port} on 127.0.0.1 is in use" in line
    assert "--port" in line
    assert not data.exists()


def test_address_of_another_machine_is_refused(data: Path) -> None:
    line = only_line(run("serve", "--host", "192.0.2.1", "--insecure", "--data-dir", str(data)))
    assert "192.0.2.1 does not belong to this machine" in line


def test_second_server_on_a_data_folder_names_the_first(data: Path) -> None:
    with serving(data) as server:
        line = only_line(run("serve", "--port", str(free_port()), "--data-dir", str(data)))
        assert f"in use by another queen (pid {server.process.pid})" in line
        assert server.is_healthy()


def test_unreachable_database_is_named() -> None:
    port = free_port()
    line = only_line(run("serve", "--port", str(free_port()), "--dsn", f"postgresql://u:secret@127.0.0.1:{port}/d"))
    assert "is unreachable" in line
    assert str(port) in line
    assert "secret" not in line


@pytest.mark.parametrize("command", ["serve", "init"])
def test_wrong_password_is_named_and_never_shown(data: Path, command: str) -> None:
    with EmbeddedPostgres(data) as postgres:
        query(postgres.dsn, "SET password_encryption = 'scram-sha-256'")
        query(postgres.dsn, "CREATE USER alice PASSWORD 'right'")
        rules = postgres.folder.cluster / "pg_hba.conf"
        rules.write_text("local all alice scram-sha-256\n" + rules.read_text())
        query(postgres.dsn, "SELECT pg_reload_conf()")
        dsn = postgres.dsn.replace("postgres@", "alice:terribly-wrong@")
        line = only_line(run(command, DATABASE_URL=dsn, PORT=str(free_port())))
    assert "refused the login" in line
    assert "alice" in line
    assert "terribly-wrong" not in line


def test_schema_from_the_future_is_refused(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        assert run("init", "--dsn", postgres.dsn).returncode == 0
        query(postgres.dsn, "INSERT INTO queen.migrations (name) VALUES ('9999_from_the_future.sql')")
        line = only_line(run("serve", "--port", str(free_port()), "--dsn", postgres.dsn))
    assert "newer than this version" in line
    assert "9999_from_the_future.sql" in line


def test_old_postgres_is_refused() -> None:
    with pytest.raises(DatabaseSetupError, match=r"PostgreSQL 13\.21 is too old: .* 14"):
        check_version(130021, "13.21")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PORT": "http"}, "PORT='http' is not a whole number"),
        ({"NUM_WORKERS": "0"}, "NUM_WORKERS='0' is not a whole number from 1"),
        ({"DATABASE_URL": "mysql://x"}, "postgresql://"),
        ({"PG_HOST": "a,b", "PG_PORT": "1,2,3"}, "PG_PORT names 3 ports"),
    ],
)
def test_bad_setting_is_named(data: Path, variables: dict[str, str], words: str) -> None:
    line = only_line(run("serve", **{"PORT": str(free_port()), "QUEEN_DATA_DIR": str(data)} | variables))
    assert words in line


def test_data_folder_beside_a_dsn_is_refused(data: Path) -> None:
    line = only_line(run("serve", "--data-dir", str(data), "--dsn", "postgresql://localhost/x"))
    assert "give only one of them" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_data_folder_of_another_user_is_refused(data: Path) -> None:
    data.mkdir(mode=0o755)
    result = run_as_nobody("serve", "--port", str(free_port()), "--data-dir", str(data))
    line = only_line(result)
    assert "Permission denied" in line
    assert "--data-dir" in line


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


def test_own_database_is_used_and_left_running(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres:
        with serving_over(postgres) as server:
            push(server, {"n": 1})
            assert server.children("postgres") == []
        assert query(postgres.dsn, "SELECT count(*) FROM queen.messages") == 1
        assert "Data folder" not in server.output.read_text()


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


def python_for_nobody() -> str:
    """An interpreter that the user nobody may run, with our packages; skips the test if there is none."""
    candidates = [sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")]
    for python in filter(None, candidates):
        try:
            subprocess.run(
                [python, "-c", "import queen.server.supervisor, uvloop, falcon"],
                cwd=ROOT,
                env=clean_environment(PYTHONPATH=":".join(sys.path)),
                user=NOBODY.pw_uid,
                group=NOBODY.pw_gid,
                extra_groups=[],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return str(python)
    pytest.skip("no interpreter with our packages is open to the user nobody")


def run_as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python_for_nobody(), "-m", "queen_command", *arguments],
        cwd=ROOT,
        env=clean_environment(PYTHONPATH=":".join(sys.path)),
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
