"""Notifications and long polls between the workers of one instance: datagrams on Unix sockets in a private folder.

All workers can share a UDP port, but each packet reaches only one of them. That worker forwards it through this folder,
and a push wakes the long polls of siblings without PostgreSQL. There is nothing to configure: the workers of one
gunicorn have the same parent, whose process id names the folder. Write permission on the folder is permission to send.
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

log = logging.getLogger("queen.notifications")

#: How often the folder is read for new siblings.
_SCAN_S = 1.0
_DATAGRAM_BYTES_MAX = 65_536


def folder_of(parent: int) -> Path:
    """The folder that the workers of one gunicorn share."""
    return Path(tempfile.gettempdir()) / f"queen-{os.geteuid()}-{parent}"


class SiblingsTransport:
    """Implements ``queen.engine.ports.Transport``, and ``queen.engine.lending.Siblings``.

    Args:
        folder: the shared folder.
        origin: the id of this worker, which names its socket.

    Attributes:
        receive_datagram: called with a datagram that is not JSON, and the origin of the sibling that posted it.
    """

    name = "siblings"
    interval_s = 0.0

    def __init__(self, folder: Path, origin: str) -> None:
        self._folder = folder
        self._own = folder / f"{origin}.sock"
        self.receive_datagram: Callable[[str, bytes], None] = lambda _origin, _datagram: None
        self._socket: socket.socket | None = None
        self._others: list[str] = []
        self._scanned_at = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, packets: Sequence[bytes]) -> None:
        """Sends each packet to each sibling, except to those that are too busy to read."""
        if self._socket is None or self._loop is None:
            return
        if self._loop.time() - self._scanned_at > _SCAN_S:
            self._find_siblings()
        for path in self._others:
            try:
                for packet in packets:
                    self._socket.sendto(packet, path)
            except BlockingIOError:
                continue
            except OSError:
                # It has ended: an unread socket refuses datagrams.
                self._scanned_at = float("-inf")
                with contextlib.suppress(OSError):
                    Path(path).unlink()

    def post(self, origin: str, datagram: bytes) -> bool:
        """Sends a datagram to one sibling; false if there is none with that origin, or it is too busy to read."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto(datagram, str(self._folder / f"{origin}.sock"))
        except OSError:
            return False
        return True

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:  # noqa: ARG002 - losses are not noticed
        """Opens a socket in the folder; without one, notifications still come through PostgreSQL."""
        self._loop = asyncio.get_running_loop()
        try:
            self._open()
        except OSError as problem:
            log.warning("Direct notifications from sibling workers are off: %s", problem)
            return

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                while self._socket is not None:
                    datagram, path = self._socket.recvfrom(_DATAGRAM_BYTES_MAX)
                    if datagram[:1] == b"{":
                        receive(datagram)
                    elif path:
                        self.receive_datagram(Path(path).stem, datagram)

        self._loop.add_reader(self._socket, read)  # type: ignore[arg-type]

    async def stop(self) -> None:
        """Closes the socket; the last worker removes the folder."""
        if self._socket is None or self._loop is None:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        with contextlib.suppress(OSError):
            self._own.unlink()
            self._folder.rmdir()

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{self._folder} is not a folder that only this user can access")
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mine.setblocking(False)
            mine.bind(str(self._own))
        except OSError:
            mine.close()
            raise
        self._socket = mine

    def _find_siblings(self) -> None:
        self._scanned_at = self._loop.time() if self._loop is not None else 0.0
        with contextlib.suppress(OSError):
            self._others = [str(path) for path in self._folder.iterdir() if path != self._own]
