"""Clusters of PostgreSQL, by default from the programs of the wheel: one, or a primary and its synchronous standby."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from queen.embedded import binaries, system_user
from queen.embedded.cluster import own_folder
from queen.embedded.stale_postmaster import stop_leftover
from tests.support.processes import wait_until


class Pair:
    """Up to two clusters in one folder, reachable by Unix sockets; the second is the standby of the first.

    ``configuration`` is what a guide tells both to use, which standby to wait for included; ``programs`` are those of
    another PostgreSQL.
    """

    def __init__(self, folder: Path, configuration: str = "", programs: Path | None = None) -> None:
        self._folder, self._configuration = folder, configuration
        self._programs = programs or binaries.folder()
        self._account = system_user.account_for(folder)
        if self._account:
            system_user.let_use(self._account, binaries.folder())
            own_folder(folder, self._account)
        self._with_standby = False
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def dsn(self) -> str:
        """Whichever of the two is the primary."""
        return f"postgresql://postgres@/postgres?host={self._sockets('one')},{self._sockets('two')}&port=5432,5432"

    def dsn_of(self, name: str) -> str:
        """One of them."""
        return f"postgresql://postgres@/postgres?host={self._sockets(name)}"

    def start(self, *, with_standby: bool = True) -> None:
        """Makes the primary, and the standby from it if there shall be one: then every commit waits for both."""
        self._with_standby = with_standby
        self._make_primary()
        if with_standby:
            self._make_standby()

    def _make_primary(self) -> None:
        self._run("initdb", "-D", str(self._data("one")), "-U", "postgres", "--auth-local=trust", "--no-sync")
        with (self._data("one") / "postgresql.conf").open("a") as file:
            file.write(self._configuration)
        self._launch("one")

    def _make_standby(self) -> None:
        self._run(
            "pg_basebackup", "-D", str(self._data("two")), "-R", "-d", self._standby_of("one", "two"),
            "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        self._launch("two")
        self.wait_for_standby_of("one")

    def _standby_of(self, primary: str, name: str) -> str:
        return f"{self.dsn_of(primary)}&application_name={name}"

    def wait_for_standby_of(self, primary: str) -> None:
        """Returns when commits of the primary wait for the other one."""
        state = "SELECT sync_state FROM pg_stat_replication"
        wait_until(lambda: self.sql(primary, state).strip() in ("sync", "quorum"), "replication")

    def fail_over(self) -> None:
        """Kills the primary and makes the standby one."""
        self.end(signal.SIGKILL, "one")
        self.sql("two", "SELECT pg_promote()")

    def rejoin(self, primary: str, name: str) -> None:
        """Makes a primary that was killed the standby of the one that took its place."""
        stop_leftover(self._data(name))
        self._run(
            "pg_rewind", "-D", str(self._data(name)), "-R", "--source-server", self._standby_of(primary, name),
            "--no-sync",
        )  # fmt: skip
        self._launch(name)
        state = "SELECT state FROM pg_stat_replication"
        wait_until(lambda: self.sql(primary, state).strip() == "streaming", "the standby that has come back")

    def end(self, number: signal.Signals, name: str) -> None:
        """Sends a signal that ends a cluster, and returns when its first process has ended."""
        self._running[name].send_signal(number)
        self._running[name].wait()

    def is_alive(self, name: str) -> bool:
        """Whether the first process of a cluster runs."""
        return self._running[name].poll() is None

    def launch(self, name: str) -> None:
        """Starts a cluster again without waiting for it; cleans up what a killed one left."""
        stop_leftover(self._data(name))
        self._spawn(name)

    def processes(self, name: str) -> list[psutil.Process]:
        """The first process of a cluster, then the others."""
        postmaster = psutil.Process(self._running[name].pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def log_of(self, name: str) -> Path:
        """What a cluster says."""
        return self._folder / f"{name}.log"

    def socket_of(self, name: str) -> Path:
        """Where a cluster listens."""
        return self._sockets(name) / ".s.PGSQL.5432"

    def stop(self) -> None:
        """Ends both."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGQUIT)
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _data(self, name: str) -> Path:
        return self._folder / name

    def _sockets(self, name: str) -> Path:
        return self._folder / f"{name}.run"

    def _launch(self, name: str) -> None:
        own_folder(self._sockets(name), self._account)
        self._spawn(name)
        wait_until(lambda: self.answers(name), f"PostgreSQL {name}")

    def _spawn(self, name: str) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._sockets(name)),
            "port": "5432",
            "max_wal_size": "64MB",
            "min_wal_size": "32MB",
            # A standby looks for its primary so often, and every commit waits for that.
            "wal_retrieve_retry_interval": "200ms",
        }
        if not self._configuration:
            # From its start: the checkpointer passes a change on when it has time for it, and until then a commit
            # waits for no standby.
            settings["synchronous_standby_names"] = "*" if self._with_standby and name == "one" else ""
        options = [part for setting, value in settings.items() for part in ("-c", f"{setting}={value}")]
        with self.log_of(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [self._programs / "postgres", "-D", str(self._data(name)), *options],
                stdout=log,
                stderr=log,
                **binaries.child_arguments(self._account, signal.SIGINT),
            )

    def answers(self, name: str) -> bool:
        """Whether a cluster can be asked something; takes a while when it cannot."""
        try:
            self.sql(name, "SELECT 1")
        except subprocess.CalledProcessError:
            time.sleep(0.1)
            return False
        return True

    def sql(self, name: str, statement: str) -> str:
        """What psql prints."""
        return self._run("psql", "-X", "-At", "-d", self.dsn_of(name), "-c", statement)

    def _run(self, program: str, *arguments: str) -> str:
        result = subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            capture_output=True,
            text=True,
            **binaries.child_arguments(self._account, signal.SIGTERM),
        )
        return result.stdout


@contextmanager
def pair(folder: Path, configuration: str = "") -> Iterator[Pair]:
    """Both running, for the length of the block."""
    both = Pair(folder, configuration)
    try:
        both.start()
        yield both
    finally:
        both.stop()
