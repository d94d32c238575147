"""The file system operations of the spool, so that a simulated file system can crash between any two of them."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Protocol

#: Errors of a full disk.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Releases it."""


class Folder(Protocol):
    """One folder of files. Contents are durable after ``sync``, names after ``sync_names``.

    Every method may raise ``OSError``.
    """

    def names(self) -> list[str]:
        """The files of the folder."""

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def append(self, name: str, data: bytes) -> None:
        """Writes behind the end of a file, which is made if missing."""

    def overwrite(self, name: str, data: bytes) -> None:
        """Replaces the start of a small file, which is made if missing."""

    def truncate(self, name: str, size: int) -> None:
        """Cuts a file off."""

    def sync(self, name: str) -> None:
        """Returns when the content of a file is on the disk."""

    def rename(self, name: str, new: str) -> None:
        """Gives a file another name, at once."""

    def remove(self, name: str) -> None:
        """Removes a file."""

    def sync_names(self) -> None:
        """Returns when new, changed and removed names are on the disk."""

    def lock(self, name: str, *, wait: bool) -> Lock | None:
        """Takes a lock that all processes share; ``None`` if another process has it and ``wait`` is false."""


class _FileLock:
    """A lock of the operating system (flock); it is released when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class DiskFolder:
    """A real folder. Each call opens its file: another process may have renamed or removed it."""

    def __init__(self, path: Path) -> None:
        self.path, self._prefix = path, f"{path}/"

    def names(self) -> list[str]:
        """The files of the folder."""
        return [path.name for path in self.path.iterdir()]

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.access(self._prefix + name, os.F_OK)  # before every append: Path.exists costs ten times as much

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return (self.path / name).stat().st_size

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return (self.path / name).read_bytes()

    def append(self, name: str, data: bytes) -> None:
        """Writes behind the end of a file, which is made if missing."""
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def overwrite(self, name: str, data: bytes) -> None:
        """Replaces the start of a small file, which is made if missing."""
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)

    def truncate(self, name: str, size: int) -> None:
        """Cuts a file off."""
        os.truncate(self.path / name, size)

    def sync(self, name: str) -> None:
        """Returns when the content of a file is on the disk."""
        _sync(self.path / name)

    def rename(self, name: str, new: str) -> None:
        """Gives a file another name, at once."""
        (self.path / name).rename(self.path / new)

    def remove(self, name: str) -> None:
        """Removes a file."""
        (self.path / name).unlink()

    def sync_names(self) -> None:
        """Returns when new, changed and removed names are on the disk."""
        _sync(self.path)

    def lock(self, name: str, *, wait: bool) -> Lock | None:
        """Takes a lock that all processes share; ``None`` if another process has it and ``wait`` is false."""
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return _FileLock(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the data in the disk's cache
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
