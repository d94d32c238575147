"""Notifications and long polls between the workers of one instance: datagrams on Unix sockets in a private folder.

All workers can share a UDP port, but each packet reaches only one of them. That worker forwards it through this folder,
and a push wakes the long polls of siblings without PostgreSQL. There is nothing to configure: the workers of one
gunicorn have the same parent, whose process id names the folder. Write permission on the folder is permission to send.

A datagram wakes its receiver, which costs as much as a small push. So a worker tells its siblings in shared memory
whether it has long polls, and gets no notifications of messages while it has none.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Sequence
from mmap import mmap
from pathlib import Path

log = logging.getLogger("queen.notifications")

#: How often the folder is read for new siblings.
_SCAN_S = 1.0
_DATAGRAM_BYTES_MAX = 65_536
#: Beside the socket of each worker: a file of one byte, which is not 0 while the worker has long polls.
_WAITS = ".waits"


def folder_of(parent: int, shard: str = "") -> Path:
    """The folder that the workers of one gunicorn share, for each of several databases another one."""
    return Path(tempfile.gettempdir()) / "-".join(["queen", str(os.geteuid()), str(parent), *filter(None, [shard])])


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
    reaches_all = True

    def __init__(self, folder: Path, origin: str) -> None:
        self._folder = folder
        self._own = folder / f"{origin}.sock"
        self._waits: mmap | None = None
        self.receive_datagram: Callable[[str, bytes], None] = lambda _origin, _datagram: None
        self._socket: socket.socket | None = None
        #: Sibling sockets, and for each the byte that says whether it has long polls; ``None``: unknown.
        self._others: dict[str, mmap | None] = {}
        self._scanned_at = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None

    def set_waiting(self, waiting: bool) -> None:
        """Tells siblings whether this worker has long polls. It must say so before these look for messages."""
        if self._waits is not None:
            self._waits[0] = waiting

    def send(self, packets: Sequence[bytes], *, waiting_only: bool = False) -> None:
        """Sends each packet to each sibling, except to those that are too busy to read, or do not need it."""
        if self._socket is None or self._loop is None:
            return
        if self._loop.time() - self._scanned_at > _SCAN_S:
            self._find_siblings()
        for path, waits in self._others.items():
            if waiting_only and waits is not None and not waits[0]:
                continue
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
                    Path(path).with_suffix(_WAITS).unlink()

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
            self._own.with_suffix(_WAITS).unlink(missing_ok=True)
            self._folder.rmdir()

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionError(f"{self._folder} is not a folder that only this user can access")
        mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mine.setblocking(False)
            self._waits = _shared_byte(self._own.with_suffix(_WAITS), os.O_CREAT)
            mine.bind(str(self._own))
        except OSError:
            mine.close()
            raise
        self._socket = mine

    def _find_siblings(self) -> None:
        self._scanned_at = self._loop.time() if self._loop is not None else 0.0
        with contextlib.suppress(OSError):
            found = {str(path): path for path in self._folder.glob("*.sock") if path != self._own}
            self._others = {
                text: self._others.get(text) or _shared_byte(path.with_suffix(_WAITS)) for text, path in found.items()
            }


def _shared_byte(path: Path, flags: int = 0) -> mmap | None:
    """The first byte of a file, shared by all who map it; ``None`` if there is no such file."""
    try:
        file = os.open(path, os.O_RDWR | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        os.ftruncate(file, 1)
        return mmap(file, 1)
    finally:
        os.close(file)
