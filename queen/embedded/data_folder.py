"""The data folder of the embedded PostgreSQL: one server at a time, the right version, free space on the disk."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from queen.system.errors import FolderInUseError, StartError

#: A new cluster takes 40 MB and a WAL segment 16 MB; with less, PostgreSQL cannot even log an error.
_FREE_BYTES_MIN = 64 << 20


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data folder of the embedded PostgreSQL.

    If root starts it, ``cluster``, ``logs`` and the socket's folder belong to another user, and root writes nothing
    into them: with a link there, that user could overwrite any file.
    """

    path: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's data directory."""
        return self.path / "postgres"

    @property
    def new_cluster(self) -> Path:
        """The folder of a new cluster before it is renamed, so that an incomplete one is never used."""
        return self.path / "postgres.new"

    @property
    def logs(self) -> Path:
        """PostgreSQL's log, one file per day of the week."""
        return self.path / "log"

    @property
    def start_log(self) -> Path:
        """PostgreSQL's output before its log is open."""
        return self.path / "start.log"

    @property
    def configuration(self) -> Path:
        """PostgreSQL's settings."""
        return self.path / "postgresql.conf"

    @contextmanager
    def problems_explained(self) -> Iterator[None]:
        """Turns errors of the file system into one line with advice.

        Raises:
            StartError: the block could not read or write the folder.
        """
        try:
            yield
        except OSError as problem:
            advice = {
                errno.ENOSPC: "free some space",
                errno.EROFS: "choose another with --data-dir",
            }.get(problem.errno or 0, "give this user write permission, or choose another with --data-dir")
            raise StartError(f"Cannot use the data folder {self.path} ({problem}): {advice}") from None

    def lock(self) -> TextIO:
        """Locks the folder until the returned file is closed or the process ends.

        Raises:
            StartError: another server has locked it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = (self.path / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                holder = file.read().strip() or "unknown"
            raise FolderInUseError(
                f"The data folder {self.path} is in use by another queen (pid {holder}): stop it, or choose "
                "another folder with --data-dir"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return file

    def check(self, version: int) -> None:
        """Checks that PostgreSQL of a major version can start here.

        Raises:
            StartError: the cluster is of another version or not a cluster, or the disk is full.
        """
        marker = self.cluster / "PG_VERSION"
        made_by = marker.read_text().strip() if marker.exists() else None
        if made_by is None and self.cluster.exists():
            raise StartError(
                f"The folder {self.cluster} is not a data folder of PostgreSQL: move it away, or choose "
                "another with --data-dir"
            )
        if made_by not in {None, str(version)}:
            raise StartError(
                f"The data folder {self.path} was created by PostgreSQL {made_by}, but this is {version}: "
                "transfer the data with pg_dumpall, or choose another folder with --data-dir"
            )
        if (free := shutil.disk_usage(self.path).free) < _FREE_BYTES_MIN:
            raise StartError(
                f"The disk of the data folder {self.path} is full ({free >> 20} MB left): "
                f"free at least {_FREE_BYTES_MIN >> 20} MB"
            )
