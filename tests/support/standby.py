"""A primary and a standby that takes nothing to be stored before it has it too, from the programs of the wheel."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queen.server import programs, system_user
from queen.server.cluster import own_folder
from tests.support.processes import wait_until


class Pair:
    """Two clusters in one folder, reachable by Unix sockets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._account = system_user.account_for(folder)
        if self._account:
            system_user.let_use(self._account, programs.folder())
            own_folder(folder, self._account)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def dsn(self) -> str:
        """Whichever of the two is the primary."""
        return f"postgresql://postgres@/postgres?host={self._sockets('one')},{self._sockets('two')}&port=5432,5432"

    def dsn_of(self, name: str) -> str:
        """One of them."""
        return f"postgresql://postgres@/postgres?host={self._sockets(name)}"

    def start(self) -> None:
        """Makes the primary, and the standby from it; from then on a commit waits for both."""
        self._run("initdb", "-D", str(self._data("one")), "-U", "postgres", "--auth-local=trust", "--no-sync")
        # From its first moment: the checkpointer passes a change on when it has time for it, and until then a commit
        # waits for nobody.
        self._launch("one", synchronous_standby_names="*")
        self._run(
            "pg_basebackup", "-D", str(self._data("two")), "-R", "-U", "postgres", "-h", str(self._sockets("one")),
            "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        self._launch("two")
        state = "SELECT sync_state FROM pg_stat_replication"
        wait_until(lambda: self._sql("one", state).strip() == "sync", "replication")

    def fail_over(self) -> None:
        """Kills the primary and makes the standby one."""
        self._running["one"].send_signal(signal.SIGKILL)
        self._running["one"].wait()
        self._sql("two", "SELECT pg_promote()")

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

    def _launch(self, name: str, **settings: str) -> None:
        own_folder(self._sockets(name), self._account)
        settings |= {"listen_addresses": "", "unix_socket_directories": str(self._sockets(name)), "port": "5432"}
        options = [part for setting, value in settings.items() for part in ("-c", f"{setting}={value}")]
        self._running[name] = subprocess.Popen(
            [programs.folder() / "postgres", "-D", str(self._data(name)), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **programs.child_arguments(self._account, signal.SIGINT),
        )
        wait_until(lambda: self._answers(name), f"PostgreSQL {name}")

    def _answers(self, name: str) -> bool:
        try:
            self._sql(name, "SELECT 1")
        except subprocess.CalledProcessError:
            time.sleep(0.1)
            return False
        return True

    def _sql(self, name: str, statement: str) -> str:
        return self._run("psql", "-X", "-At", "-d", self.dsn_of(name), "-c", statement)

    def _run(self, program: str, *arguments: str) -> str:
        result = subprocess.run(
            [programs.folder() / program, *arguments],
            check=True,
            capture_output=True,
            text=True,
            **programs.child_arguments(self._account, signal.SIGTERM),
        )
        return result.stdout


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Both running, for the length of the block."""
    both = Pair(folder)
    try:
        both.start()
        yield both
    finally:
        both.stop()
