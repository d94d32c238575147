"""What ``queen serve`` refuses: an error in one line."""

import os
import socket
from pathlib import Path

import pytest

from queen.core.errors import DatabaseSetupError
from queen.embedded.server import EmbeddedPostgres
from queen.postgres.setup import check_version
from tests.support.processes import (
    free_port,
    run,
    serving,
)
from tests.support.serve import only_line, query, run_as_nobody


@pytest.mark.parametrize("address", ["0.0.0.0", "::", ""])
def test_address_that_others_reach_is_refused_without_tokens(data: Path, address: str) -> None:
    line = only_line(run("serve", "--port", "0", "--data-dir", str(data), HOST=address))
    assert "Other machines can reach" in line
    assert "JWT_ENABLED" in line
    assert "--insecure (QUEEN_INSECURE=true)" in line
    assert not data.exists()


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


@pytest.mark.nightly
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
