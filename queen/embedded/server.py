"""The embedded PostgreSQL, a child of this process."""

import logging
import os
import signal
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO
from urllib.parse import quote

from queen.embedded import binaries, cluster, system_user
from queen.embedded.data_folder import DataFolder
from queen.embedded.log import failure_since
from queen.embedded.stale_postmaster import stop_leftover
from queen.system import subprocesses
from queen.system.errors import StartError
from queen.system.subprocesses import Pause

log = logging.getLogger(__name__)

#: A socket's address has at most 107 bytes, and PostgreSQL appends a name to the folder.
_SOCKET_DIR_BYTES_MAX = 107 - len("/.s.PGSQL.5432")

# Fast shutdown (ends sessions, writes a checkpoint), immediate shutdown (recovers at the next start).
_STOP_STEPS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0))

_LOOK_S = 0.02


def dsn_of_running(data_dir: Path) -> str:
    """The DSN of the embedded PostgreSQL that runs in a data folder; empty if none does."""
    try:
        lines = (DataFolder(data_dir.resolve()).cluster / "postmaster.pid").read_text().splitlines()
    except OSError:
        return ""
    return _dsn(Path(lines[4])) if len(lines) == 8 else ""


def _dsn(socket_dir: Path) -> str:
    return f"postgresql://postgres@/postgres?host={quote(str(socket_dir))}"


class EmbeddedPostgres:
    """An embedded PostgreSQL in a persistent data folder.

    On Linux it ends when the thread that started it ends, in any way. As a context manager it runs inside the block.
    """

    def __init__(self, data_dir: Path, max_connections: int = 100) -> None:
        self.folder = DataFolder(data_dir.resolve())
        self._max_connections = max_connections
        self._lock: TextIO | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._account: system_user.Account | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._launched = ""
        self._socket_dir = Path()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """The DSN, for asyncpg, psycopg and psql; known after the start."""
        return _dsn(self._socket_dir)

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster, None before the first start."""
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        """Whether the postmaster runs; it may still be starting."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        try:
            lines = (self.folder.cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return self.is_alive and len(lines) == 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    @property
    def failure(self) -> str:
        """The reason of an unexpected end."""
        code = self._process.poll() if self._process else None
        if code is not None and code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return failure_since(self.folder, self._launched)

    def start(self, pause: Pause = time.sleep) -> None:
        """Returns when it accepts connections; creates the cluster at the first start.

        Args:
            pause: waits between two checks; an exception of it ends the start.

        Raises:
            StartError: it cannot start; the text has the reason.
        """
        try:
            with self.folder.problems_explained():
                self._prepare()
            self.launch()
            self._wait_until_ready(pause)
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Starts the postmaster without waiting for it; also after it died.

        Raises:
            StartError: the folder cannot be used.
        """
        with self.folder.problems_explained():
            stop_leftover(self.folder.cluster)
            for stale in self._socket_dir.glob(".s.PGSQL.*"):
                stale.unlink()
            self._launched = datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")
            options = ["-D", str(self.folder.cluster), f"--config-file={self.folder.configuration}"]
            with self.folder.start_log.open("wb") as output:
                self._process = subprocess.Popen(  # noqa: S603 - a program of the wheel
                    [binaries.folder() / "postgres", *options],
                    stdout=output,
                    stderr=output,
                    **binaries.child_arguments(self._account, signal.SIGINT),
                )

    def stop(self, pause: Pause = time.sleep) -> None:
        """Stops it and unlocks the folder; committed data is safe however it ends.

        Args:
            pause: waits between two checks; true if the user wants to stop faster.
        """
        if self._process and self.is_alive:
            log.info("PostgreSQL stopped (%s)", subprocesses.stop(self._process, _STOP_STEPS, pause).name)
        if self._temporary:
            self._temporary.cleanup()
        if self._lock:
            self._lock.close()

    def _prepare(self) -> None:
        self._lock = self.folder.lock()
        self.folder.check(binaries.VERSION)
        self._account = system_user.account_for(self.folder.cluster)
        if self._account:
            system_user.let_use(self._account, binaries.folder())
            system_user.let_reach(self._account, self.folder.cluster)
        cluster.own_folder(self.folder.logs, self._account)
        if not self.folder.cluster.exists():
            cluster.make(self.folder, self._account)
        self._socket_dir = self._make_socket_dir()
        cluster.configure(self.folder, self._max_connections, self._socket_dir)

    def _make_socket_dir(self) -> Path:
        """A private folder for the socket: in the data folder if its path is short enough, else a temporary one."""
        path = self.folder.path / "run"
        # libpq treats a comma as the end of a host name.
        if len(os.fsencode(path)) > _SOCKET_DIR_BYTES_MAX or "," in str(path):
            self._temporary = tempfile.TemporaryDirectory(prefix="queen-")
            path = Path(self._temporary.name)
        cluster.own_folder(path, self._account)
        return path

    def _wait_until_ready(self, pause: Pause) -> None:
        while not self.is_ready:
            if not self.is_alive:
                raise StartError(f"PostgreSQL does not start in {self.folder.path}: {self.failure}")
            pause(_LOOK_S)
