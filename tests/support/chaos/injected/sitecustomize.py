"""Faults below the server, which files in the folder ``QUEEN_CHAOS`` switch on.

Every Python of a server under chaos loads this at its start, by ``PYTHONPATH``: the server itself knows nothing of it.
"""

import errno
import os
import time
from pathlib import Path

from queen.spool.folder import DiskFolder

_FOLDER = Path(os.environ["QUEEN_CHAOS"])
_true_time = time.time
_append, _sync, _sync_names = DiskFolder.append, DiskFolder.sync, DiskFolder.sync_names


def _is_on(name: str) -> bool:
    return (_FOLDER / name).exists()


def _time() -> float:
    try:
        return _true_time() + float((_FOLDER / "clock").read_text())
    except (OSError, ValueError):
        return _true_time()


def _append_where_there_is_room(self: DiskFolder, name: str, data: bytes) -> None:
    if data and _is_on("disk-full"):
        _append(self, name, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    _append(self, name, data)


def _sync_if_it_works(self: DiskFolder, name: str) -> None:
    if _is_on("sync-fails"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), name)
    _sync(self, name)


def _sync_names_if_it_works(self: DiskFolder) -> None:
    if _is_on("sync-fails"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
    _sync_names(self)


time.time = _time
DiskFolder.append = _append_where_there_is_room
DiskFolder.sync = _sync_if_it_works
DiskFolder.sync_names = _sync_names_if_it_works
