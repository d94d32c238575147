"""Notices among the workers of one instance: datagrams on Unix sockets, in a folder that only their user may enter.

A port can be shared by all workers, but each packet reaches one of them. Through this folder that one tells the others,
and a push is heard by the waiters of a sibling without a way through PostgreSQL. Nothing has to be set: the workers of
one gunicorn have the same parent, whose number names the folder. Who may write into the folder is who may send.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger("queen.notices")

#: A sibling that has just begun is seen after this time.
_LOOK_S = 1.0
_DATAGRAM_BYTES_MAX = 65_536


def folder_of(parent: int) -> Path:
    """Where the workers of one gunicorn meet."""
    return Path(tempfile.gettempdir()) / f"queen-{os.geteuid()}-{parent}"


class SiblingsTransport:
    """Implements ``queen.engine.ports.Transport``."""

    name = "siblings"
    interval_s = 0.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}-{id(self):x}.sock"
        self._socket: socket.socket | None = None
        self._others: list[str] = []
        self._looked_at = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, sheets: Sequence[bytes]) -> None:
        """Sends each sheet to each sibling; to one that is too busy to read, nothing."""
        if self._socket is None or self._loop is None:
            return
        if self._loop.time() - self._looked_at > _LOOK_S:
            self._look()
        for path in self._others:
            try:
                for sheet in sheets:
                    self._socket.sendto(sheet, path)
            except BlockingIOError:
                continue
            except OSError:
                # It has ended: a socket that nobody reads refuses.
                self._looked_at = float("-inf")
                with contextlib.suppress(OSError):
                    Path(path).unlink()

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:  # noqa: ARG002 - nobody can know
        """Takes a place in the folder; without one, notices still come by PostgreSQL."""
        self._loop = asyncio.get_running_loop()
        try:
            self._take_place()
        except OSError as problem:
            log.warning("No notices straight from sibling workers: %s", problem)
            return

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                while self._socket is not None:
                    receive(self._socket.recv(_DATAGRAM_BYTES_MAX))

        self._loop.add_reader(self._socket, read)  # type: ignore[arg-type]

    async def stop(self) -> None:
        """Leaves the folder; the last one takes it away."""
        if self._socket is None or self._loop is None:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        with contextlib.suppress(OSError):
            self._own.unlink()
            self._folder.rmdir()

    def _take_place(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        facts = self._folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise PermissionError(f"{self._folder} is not a folder of this user alone")
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mine.setblocking(False)
            mine.bind(str(self._own))
        except OSError:
            mine.close()
            raise
        self._socket = mine

    def _look(self) -> None:
        self._looked_at = self._loop.time() if self._loop is not None else 0.0
        with contextlib.suppress(OSError):
            self._others = [str(path) for path in self._folder.iterdir() if path != self._own]
