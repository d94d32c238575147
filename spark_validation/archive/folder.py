"""The files of an archive.

::

    log/queue=orders/day=2026-11-21/000001-00000.parquet    rows of ``inputs.WholeRow`` runs/000001.json what the first
    run added (``Run``) runs/000002.json runs/000002.state.json                                  the rest of the
    database at the last run (``inputs.State``)

Files belong to the archive if a run lists them, and a run is added atomically: the remains of a killed job are not
read, and the next job removes them.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import ArchiveError
from ..inputs import Head, Offsets, State

VERSION = 1
Kind = TypeVar("Kind", bound=Struct)
_LOG, _RUNS, _STAGING = "log", "runs", "staging"


class Part(Struct, frozen=True):
    """The messages of a partition that a run added; ``checksum`` is over these messages (``job.checksum``)."""

    part_id: int
    queue: str
    partition: str
    first: int
    last: int
    rows: int
    checksum: int


class Damaged(Struct, frozen=True):
    """A segment that could not be read: its offsets, and why."""

    part_id: int
    queue: str
    partition: str
    first: int
    last: int
    created_at: int
    damage: str


class File(Struct, frozen=True):
    """A file, by its path within the archive, and its bytes."""

    path: str
    size: int


class Run(Struct, frozen=True):
    """One run; ``taken_at`` is the time of its snapshot in microseconds since 1970."""

    number: int
    taken_at: int
    parts: list[Part]
    files: list[File]
    version: int = VERSION
    damaged: list[Damaged] = []


@dataclass(frozen=True)
class Archive:
    """The runs of a folder, in their order."""

    folder: Path
    runs: tuple[Run, ...]

    @property
    def upto(self) -> dict[int, int]:
        """By partition: the last archived offset."""
        return {part.part_id: part.last for run in self.runs for part in run.parts}

    @property
    def unbroken(self) -> dict[int, Offsets]:
        """By partition: the archived offsets up to the last one, without a gap."""
        found: dict[int, Offsets] = {}
        unread: dict[int, dict[int, int]] = {}
        for damaged in self.damaged:
            unread.setdefault(damaged.part_id, {})[damaged.first] = damaged.last
        for run in self.runs:
            for part in run.parts:
                before, of_part = found.get(part.part_id), unread.get(part.part_id, {})
                first = before.first if before and before.last + 1 == part.first else part.first
                last = part.last
                # What cannot be read is no gap.
                while last + 1 in of_part:
                    last = of_part[last + 1]
                found[part.part_id] = Offsets(first, last)
        return found

    @property
    def messages(self) -> int:
        """The number of archived messages."""
        return sum(part.rows for run in self.runs for part in run.parts)

    @property
    def files(self) -> list[Path]:
        """All files with messages."""
        return [self.folder / file.path for run in self.runs for file in run.files]

    @property
    def damaged(self) -> list[Damaged]:
        """All segments that could not be read."""
        return [each for run in self.runs for each in run.damaged]

    @property
    def next_number(self) -> int:
        """The number of the next run."""
        return self.runs[-1].number + 1 if self.runs else 1

    @property
    def staging(self) -> Path:
        """The folder that a job writes to."""
        return self.folder / _STAGING

    @property
    def readable(self) -> Path:
        """The part of it with what could be read."""
        return self.staging / "damaged=false"

    @property
    def unreadable(self) -> Path:
        """The part of it with what could not be read."""
        return self.staging / "damaged=true"

    def state(self) -> State:
        """The database at the last run, without its log."""
        return _read(_state_path(self.folder, self.runs[-1].number), State)

    def check_origin(self, now: State) -> None:
        """Checks that it belongs to the database with this state.

        Raises:
            ArchiveError: that is another installation, or a partition number belongs to another partition there, or
                ends before the archived messages.
        """
        if not self.runs:
            return
        then = self.state()
        if then.installation is not None and then.installation != now.installation:
            raise ArchiveError(
                f"{self.folder} is the archive of another database: it has installation {then.installation}, "
                f"the database has {now.installation}. Name the folder that belongs to --dsn, or a new one"
            )
        known = {head.part_id: head for head in then.heads}
        for head in now.heads:
            before = known.get(head.part_id, head)
            if _identity(before) != _identity(head) or before.next_offset > head.next_offset:
                raise ArchiveError(
                    f"{self.folder} is the archive of another database, or of this one before a restore: its "
                    f"partition {head.part_id} is {before.queue}/{before.partition} up to offset "
                    f"{before.next_offset - 1}, that of the database is {head.queue}/{head.partition} up to "
                    f"{head.next_offset - 1}. Name the folder that belongs to --dsn, or a new one"
                )

    def remembering(self, now: State) -> State:
        """The state with all deletions of earlier runs: retention removes their records in the database."""
        before = self.state().deleted if self.runs else []
        return replace(now, deleted=[*dict.fromkeys([*before, *now.deleted])])

    def place(self, staged: Path, number: int) -> Path:
        """Moves a written file to its folder, under a name of this archive."""
        parent = self.folder / _LOG / staged.parent.relative_to(self.readable)
        parent.mkdir(parents=True, exist_ok=True)
        target = parent / f"{self.next_number:06}-{number:05}.parquet"
        _sync(staged)
        staged.rename(target)
        _sync(parent)
        return target

    def add(self, run: Run, state: State) -> None:
        """Adds the run to the archive."""
        (self.folder / _RUNS).mkdir(exist_ok=True)
        _write(_state_path(self.folder, run.number), state)
        _write(_run_path(self.folder, run.number), run)
        for before in self.runs:
            _state_path(self.folder, before.number).unlink(missing_ok=True)
        shutil.rmtree(self.staging, ignore_errors=True)

    def clean(self) -> None:
        """Removes the remains of a killed job."""
        shutil.rmtree(self.staging, ignore_errors=True)
        known = set(self.files)
        for path in (self.folder / _LOG).rglob("*.parquet"):
            if path not in known:
                path.unlink()


def open_archive(folder: Path) -> Archive:
    """The archive of a folder; without runs if there is none yet.

    Raises:
        ArchiveError: a part of it is missing or cannot be read.
    """
    folder = folder.resolve()
    paths = sorted(path for path in (folder / _RUNS).glob("*.json") if path.suffixes == [".json"])
    archive = Archive(folder, tuple(_read(path, Run) for path in paths))
    for run in archive.runs:
        if run.version != VERSION:
            raise ArchiveError(
                f"{folder}: run {run.number} has format {run.version}, but this program reads {VERSION}. "
                "Read it with the release that wrote it"
            )
        for file in run.files:
            _look_at(folder / file.path, file.size)
    return archive


def open_filled(folder: Path) -> Archive:
    """The archive of a folder that must hold one.

    Raises:
        ArchiveError: there is none, or a part of it is missing or cannot be read.
    """
    archive = open_archive(folder)
    if not archive.runs:
        raise ArchiveError(f"{folder}: no archive here. `queen audit archive` creates one")
    return archive


@contextmanager
def locked(folder: Path, what: str = "archive job") -> Iterator[None]:
    """One job at a time; ``what`` it is.

    Raises:
        ArchiveError: another one is running, or the folder is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as problem:
        raise ArchiveError(f"{folder} is not writable: {problem}. Name a folder that you may write to") from problem
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise ArchiveError(f"{folder}: another {what} is running there. Wait until it ends") from problem
        yield


def _identity(head: Head) -> tuple[str, str, int]:
    return head.queue, head.partition, head.created_at


def _look_at(path: Path, size: int) -> None:
    found = path.stat().st_size if path.is_file() else None
    if found != size:
        raise ArchiveError(
            f"{path} {'is missing' if found is None else f'has {found} bytes'}, and {size} were written. "
            "Put it back from a copy; what the log still holds can be archived again into a new folder"
        )


def _run_path(folder: Path, number: int) -> Path:
    return folder / _RUNS / f"{number:06}.json"


def _state_path(folder: Path, number: int) -> Path:
    return folder / _RUNS / f"{number:06}.state.json"


def _read(path: Path, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as problem:
        raise ArchiveError(f"{path} cannot be read: {problem}. Restore it from a backup") from problem


def _write(path: Path, value: Struct) -> None:
    half = path.with_suffix(".half")
    half.write_bytes(msgspec.json.encode(value))
    _sync(half)
    half.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
