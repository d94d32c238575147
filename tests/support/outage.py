"""A PostgreSQL that the test stops and starts."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psutil

from queen.embedded.server import EmbeddedPostgres
from queen.spool.folder import DiskFolder
from queen.spool.place import installation_of
from queen.spool.spool import Limits, Spool
from tests.support.cut import Line
from tests.support.processes import Server, wait_until
from tests.support.servers import serving_database
from tests.support.standby import Pair

WORKERS = 2


class FragilePostgres:
    """A PostgreSQL that dies, falls silent and comes back on demand."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server

    @property
    def dsn(self) -> str:
        return self._server.dsn

    def kill(self) -> None:
        """Connections are reset, and new ones refused."""
        pid = self._server.pid
        assert pid is not None
        _, *children = self._processes()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self._server.is_alive, "the end of PostgreSQL")
        # A backend at work ends its statement first, and could still store a push.
        wait_until(lambda: not any(map(_is_at_work, children)), "the end of PostgreSQL's processes")

    def start(self) -> None:
        """It comes back; what was committed is there. It ends with the thread that calls this."""
        self._server.launch()
        wait_until(lambda: self._server.is_ready, "PostgreSQL")

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Connections just hang, old and new ones."""
        processes = self._processes()
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def _processes(self) -> list[psutil.Process]:
        postmaster = psutil.Process(self._server.pid)
        return [postmaster, *postmaster.children(recursive=True)]


def _is_at_work(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def fragile_postgres(folder: Path) -> Iterator[FragilePostgres]:
    """One for the length of the block."""
    with EmbeddedPostgres(folder / "postgres") as server:
        yield FragilePostgres(server)


@contextmanager
def spooling_server(
    postgres: FragilePostgres | Line | Pair, folder: Path, name: str = "spool", **environment: str
) -> Iterator[Server]:
    """A server with its workers and a spool in a folder of that name, which outlives it."""
    spool = folder / name
    spool.mkdir(exist_ok=True)
    with serving_database(
        postgres.dsn, folder, "--workers", str(WORKERS), FILE_BUFFER_DIR=str(spool), **environment
    ) as server:
        wait_until_drained(server)
        yield server


def spool_in(path: Path) -> Spool:
    """The spool in a folder, as one more worker would use it."""
    return Spool(DiskFolder(path), installation_of(path) or UUID(int=0), Limits())


def wait_until_drained(server: Server) -> None:
    """Returns when the spool is empty and pushes through any worker go to PostgreSQL again.

    Each worker finds out by itself that PostgreSQL is back, and until then spools.
    """
    server.wait_until_all_are_healthy(WORKERS)
    wait_until(lambda: not server.request("GET", "/health")[1]["spool"]["spooling"], "an empty spool")
