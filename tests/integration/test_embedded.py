"""The embedded PostgreSQL by itself."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from queen.embedded import binaries
from queen.embedded.restarts import Keeper
from queen.embedded.server import EmbeddedPostgres
from queen.system.errors import StartError
from tests.support.processes import ROOT, is_gone, open_folder, wait_until


def query(dsn: str, sql: str) -> str:
    async def fetch() -> str:
        connection = await asyncpg.connect(dsn)
        try:
            return str(await connection.fetchval(sql))
        finally:
            await connection.close()

    return asyncio.run(fetch())


@pytest.fixture
def place() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def folder(place: Path) -> Path:
    return place / "data"


def test_start_makes_a_durable_cluster_in_utf8_without_network(folder: Path) -> None:
    with EmbeddedPostgres(folder, max_connections=33) as postgres:
        assert query(postgres.dsn, "SHOW server_version").startswith("18.")
        assert query(postgres.dsn, "SHOW server_encoding") == "UTF8"
        assert query(postgres.dsn, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'") == "C"
        assert query(postgres.dsn, "SHOW listen_addresses") == ""
        assert query(postgres.dsn, "SHOW fsync") == "on"
        assert query(postgres.dsn, "SHOW synchronous_commit") == "on"
        assert query(postgres.dsn, "SHOW max_connections") == "33"
        assert query(postgres.dsn, "SELECT count(*) FROM pg_file_settings WHERE error IS NOT NULL") == "0"


def test_stop_and_start_keep_data_and_own_settings(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        query(postgres.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        query(postgres.dsn, "ALTER SYSTEM SET work_mem = '9MB'")
    assert not postgres.is_alive
    with EmbeddedPostgres(folder) as postgres:
        assert query(postgres.dsn, "SELECT n FROM kept") == "7"
        assert query(postgres.dsn, "SHOW work_mem") == "9MB"


def test_psql_of_the_wheel_takes_the_dsn(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        command = [binaries.folder() / "psql", postgres.dsn, "-Atc", "SELECT current_user"]
        assert subprocess.check_output(command, text=True) == "postgres\n"


def test_path_too_long_for_a_socket_gets_a_temporary_folder(place: Path) -> None:
    folder = place / ("x" * 120)
    with EmbeddedPostgres(folder) as postgres:
        socket_dir = Path(query(postgres.dsn, "SHOW unix_socket_directories"))
        assert folder not in socket_dir.parents
        assert socket_dir.stat().st_mode & 0o077 == 0
    assert not socket_dir.exists()


def test_folder_in_use_names_the_process(folder: Path) -> None:
    with EmbeddedPostgres(folder), pytest.raises(StartError, match=rf"in use by another queen \(pid {os.getpid()}\)"):
        EmbeddedPostgres(folder).start()


def test_folder_in_use_is_left_alone(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        with pytest.raises(StartError):
            EmbeddedPostgres(folder).start()
        assert query(postgres.dsn, "SELECT 1") == "1"


def test_cluster_of_another_version_is_refused(folder: Path) -> None:
    marker = folder / "postgres" / "PG_VERSION"
    marker.parent.mkdir(parents=True)
    marker.write_text("16\n")
    with pytest.raises(StartError, match="created by PostgreSQL 16, but this is 18"):
        EmbeddedPostgres(folder).start()


def test_folder_that_is_no_cluster_is_refused_and_kept(folder: Path) -> None:
    precious = folder / "postgres" / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    with pytest.raises(StartError, match="is not a data folder of PostgreSQL"):
        EmbeddedPostgres(folder).start()
    assert precious.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_root_writes_only_where_postgres_may_not(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        assert psutil.Process(postgres.pid).uids().effective != 0
    theirs = {path.name for path in folder.iterdir() if path.stat().st_uid != 0}
    assert theirs == {"postgres", "log", "run"}
    written = [path for name in theirs for path in (folder / name).rglob("*") if path.stat().st_uid == 0]
    assert written == []


def test_cluster_cut_short_while_it_was_made_is_made_again(folder: Path) -> None:
    half = folder / "postgres.new" / "PG_VERSION"
    half.parent.mkdir(parents=True)
    half.write_text("18\n")
    with EmbeddedPostgres(folder) as postgres:
        assert query(postgres.dsn, "SELECT 1") == "1"
    assert not half.parent.exists()


def test_data_folder_that_is_a_file_is_refused(place: Path) -> None:
    file = place / "file"
    file.write_text("")
    with pytest.raises(StartError, match=r"Cannot use the data folder .*--data-dir"):
        EmbeddedPostgres(file).start()


def test_full_disk_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 3 << 20})
    monkeypatch.setattr("queen.embedded.data_folder.shutil.disk_usage", lambda path: usage)
    with pytest.raises(StartError, match=r"is full \(3 MB left\): free at least 64 MB"):
        EmbeddedPostgres(folder).start()


def test_setting_that_postgres_refuses_is_the_reason(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        query(postgres.dsn, "ALTER SYSTEM SET shared_preload_libraries = 'no_such'")
    with pytest.raises(StartError, match=r'does not start in .*: could not access file "no_such"'):
        EmbeddedPostgres(folder).start()


def test_start_that_is_interrupted_leaves_nothing(folder: Path) -> None:
    class InterruptionError(Exception):
        pass

    def interrupt(seconds: float) -> None:
        raise InterruptionError

    postgres = EmbeddedPostgres(folder)
    with pytest.raises(InterruptionError):
        postgres.start(interrupt)
    assert not postgres.is_alive
    with EmbeddedPostgres(folder) as again:
        assert query(again.dsn, "SELECT 1") == "1"


def test_postmaster_left_behind_is_stopped_first(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        account = postgres.folder.cluster.stat()
    arguments = binaries.child_arguments(None, signal.SIGTERM) | {"preexec_fn": None}
    if os.geteuid() == 0:
        arguments |= {"user": account.st_uid, "group": account.st_gid}
    options = ["-D", postgres.folder.cluster, f"--config-file={postgres.folder.configuration}"]
    with subprocess.Popen(
        [binaries.folder() / "postgres", *options], stderr=subprocess.DEVNULL, **arguments
    ) as leftover:
        status = postgres.folder.cluster / "postmaster.pid"
        wait_until(lambda: status.exists() and "ready" in status.read_text(), "the leftover runs")
        with EmbeddedPostgres(folder) as again:
            assert leftover.wait(0) == 0
            assert query(again.dsn, "SELECT 1") == "1"


def test_pid_file_that_names_a_stranger_does_not_matter(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        file = postgres.folder.cluster / "postmaster.pid"
        text = file.read_text()
    with subprocess.Popen(["sleep", "600"], user=file.parent.stat().st_uid if os.geteuid() == 0 else None) as stranger:
        file.write_text(text.replace(str(postgres.pid), str(stranger.pid), 1))
        try:
            with EmbeddedPostgres(folder) as again:
                assert query(again.dsn, "SELECT 1") == "1"
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_keeper_starts_a_killed_postmaster_again(folder: Path) -> None:
    with EmbeddedPostgres(folder) as postgres:
        query(postgres.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        keeper = Keeper(postgres)
        first = postgres.pid
        assert first is not None
        psutil.Process(first).kill()
        wait_until(lambda: not postgres.is_alive, "the postmaster is dead")
        assert postgres.failure == "it was killed by SIGKILL"
        wait_until(lambda: keeper.tend() or postgres.is_ready, "PostgreSQL is back")
        assert postgres.pid != first
        assert query(postgres.dsn, "SELECT n FROM kept") == "7"


def test_keeper_waits_longer_after_each_failure() -> None:
    class Dead:
        is_alive, failure, pid = False, "it has no luck", 1
        launched: list[float] = []  # noqa: RUF012

        def launch(self) -> None:
            self.launched.append(now)

    now = 0.0
    dead = Dead()
    keeper = Keeper(dead, lambda: now)  # type: ignore[arg-type]
    for step in range(3000):
        now = step / 100
        keeper.tend()
    waits = [round(b - a, 1) for a, b in zip(dead.launched, dead.launched[1:], strict=False)]
    assert waits[:7] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]


def test_postmaster_ends_with_its_parent(place: Path) -> None:
    code = (
        "import os, sys, pathlib, signal; from queen.embedded.server import EmbeddedPostgres;"
        "p = EmbeddedPostgres(pathlib.Path(sys.argv[1])); p.start(); print(p.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", code, place / "data"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        postmaster = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: is_gone(postmaster), "the postmaster has ended")
    assert parent.returncode == -signal.SIGKILL
