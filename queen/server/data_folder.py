"""The folder of the embedded PostgreSQL: one server at a time, of the right version, with room on the disk."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from queen.server.errors import FolderInUseError, StartError

#: A new cluster takes 40 MB and a segment of the log 16 MB; with less, PostgreSQL cannot even say what is wrong.
_FREE_BYTES_MIN = 64 << 20


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where everything of the embedded PostgreSQL lies.

    When root starts it, ``cluster``, ``logs`` and the socket's folder belong to another user, and root writes nothing
    into them: a link put there would let that user overwrite any file.
    """

    path: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own folder."""
        return self.path / "postgres"

    @property
    def new_cluster(self) -> Path:
        """Where a cluster is made before it gets its name, so that one cut short is never taken for a whole one."""
        return self.path / "postgres.new"

    @property
    def logs(self) -> Path:
        """PostgreSQL's log, one file a day of the week."""
        return self.path / "log"

    @property
    def start_log(self) -> Path:
        """What PostgreSQL says before its log is open."""
        return self.path / "start.log"

    @property
    def configuration(self) -> Path:
        """PostgreSQL's settings."""
        return self.path / "postgresql.conf"

    @contextmanager
    def problems_explained(self) -> Iterator[None]:
        """Turns errors of the file system into a line that says what to do.

        Raises:
            StartError: the block could not read or write the folder.
        """
        try:
            yield
        except OSError as problem:
            advice = {
                errno.ENOSPC: "free some space",
                errno.EROFS: "choose another with --data-dir",
            }.get(problem.errno or 0, "let this user write there, or choose another with --data-dir")
            raise StartError(f"Cannot use the data folder {self.path} ({problem}): {advice}") from None

    def lock(self) -> TextIO:
        """Makes the folder this process's own until the returned file is closed; a process that dies loses it too.

        Raises:
            StartError: another server has it.
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
                f"The data folder {self.path} is in use by another queen (pid {holder}): "
                "stop that one, or choose another with --data-dir"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return file

    def check(self, version: int) -> None:
        """Makes sure that PostgreSQL of a major version can start here.

        Raises:
            StartError: the cluster is of another version or not a cluster, or the disk is full.
        """
        marker = self.cluster / "PG_VERSION"
        made_by = marker.read_text().strip() if marker.exists() else None
        if made_by is None and self.cluster.exists():
            raise StartError(
                f"The folder {self.cluster} is no data folder of PostgreSQL: "
                "move it away, or choose another with --data-dir"
            )
        if made_by not in {None, str(version)}:
            raise StartError(
                f"The data folder {self.path} was made by PostgreSQL {made_by}, and this is {version}: "
                "move the data over with pg_dumpall, or choose another with --data-dir"
            )
        if (free := shutil.disk_usage(self.path).free) < _FREE_BYTES_MIN:
            raise StartError(
                f"The disk of the data folder {self.path} is full ({free >> 20} MB left): "
                f"free at least {_FREE_BYTES_MIN >> 20} MB"
            )
