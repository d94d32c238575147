"""A folder on a disk that crashes where the test says, and keeps what a real one may keep.

Two kinds of crashes. When a *process* dies, what it wrote is there, the last write maybe in part. When the *machine*
dies, only what was synchronised is sure: of the rest any part may be there, also with zeros or garbage in it, and each
change of a name may have happened or not.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field


class Crash(BaseException):
    """The process, or the machine, is gone. No `except Exception` may catch it."""


@dataclass
class Inode:
    """What a file holds, and what of it is sure to be on the disk."""

    content: bytes = b""
    synced: bytes = b""


@dataclass
class _Held:
    folder: SimulatedFolder
    name: str

    def release(self) -> None:
        self.folder.held.discard(self.name)


@dataclass
class SimulatedFolder:
    """Implements `queen.spool.folder.Folder`.

    `crash_at` counts the changes and synchronisations, and what else calls `tick`; 0 never crashes. Those in `broken`
    fail, with nothing done or a part of it.
    """

    rng: random.Random
    crash_at: int = 0
    files: dict[str, Inode] = field(default_factory=dict)
    synced_names: dict[str, Inode] = field(default_factory=dict)
    name_changes: list[tuple[str, str, str, Inode | None]] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    ticks: int = 0
    dead: bool = False
    failing: int = 0  # errno of the next append or sync
    broken: range = range(0)
    path: str = "simulated"

    def tick(self) -> None:
        """A boundary at which the crash may come."""
        if self.dead:
            raise Crash
        self.ticks += 1
        if self.ticks == self.crash_at:
            self.dead = True
            raise Crash
        if self.ticks in self.broken:
            raise OSError(errno.EIO, "simulated")

    def _fail(self) -> None:
        if self.failing:
            number, self.failing = self.failing, 0
            raise OSError(number, "simulated")

    # ------------------------------------------------------------ Folder

    def names(self) -> list[str]:
        return sorted(self.files)

    def exists(self, name: str) -> bool:
        return name in self.files

    def _file(self, name: str) -> Inode:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def size(self, name: str) -> int:
        return len(self._file(name).content)

    def read(self, name: str) -> bytes:
        return self._file(name).content

    def _open(self, name: str) -> Inode:
        if name not in self.files:
            self.files[name] = Inode()
            self.name_changes.append(("make", name, "", self.files[name]))
        return self.files[name]

    def append(self, name: str, data: bytes) -> None:
        inode = self._open(name)
        try:
            self.tick()
            self._fail()
        except (Crash, OSError):
            inode.content += data[: self.rng.randint(0, len(data))]
            raise
        inode.content += data

    def overwrite(self, name: str, data: bytes) -> None:
        self.tick()
        inode = self._open(name)
        inode.content = data + inode.content[len(data) :]

    def truncate(self, name: str, size: int) -> None:
        self.tick()
        inode = self._file(name)
        inode.content = inode.content[:size]

    def sync(self, name: str) -> None:
        self.tick()
        self._fail()
        inode = self._file(name)
        inode.synced = inode.content

    def rename(self, name: str, new: str) -> None:
        self.tick()
        self.files[new] = self._file(name)
        del self.files[name]
        self.name_changes.append(("rename", name, new, None))

    def remove(self, name: str) -> None:
        self.tick()
        self._file(name)
        del self.files[name]
        self.name_changes.append(("remove", name, "", None))

    def sync_names(self) -> None:
        self.tick()
        self.synced_names, self.name_changes = dict(self.files), []

    def lock(self, name: str, *, wait: bool) -> _Held | None:
        if name in self.held:
            assert not wait, f"{name} is held: a deadlock"
            return None
        self.held.add(name)
        return _Held(self, name)

    # ------------------------------------------------------------ after the crash

    def after_process_death(self) -> SimulatedFolder:
        """What the next process finds; locks are free."""
        return SimulatedFolder(self.rng, 0, self.files, self.synced_names, self.name_changes)

    def after_power_failure(self) -> SimulatedFolder:
        """What the machine finds when it is back."""
        names = dict(self.synced_names)
        for kind, name, new, inode in self.name_changes:
            if self.rng.random() < 0.5:
                continue
            if kind == "make" and inode is not None:
                names[name] = inode
            elif name in names and kind == "rename":
                names[new] = names.pop(name)
            elif kind == "remove":
                names.pop(name, None)
        files = {name: Inode(kept := self._survived(inode), kept) for name, inode in names.items()}
        return SimulatedFolder(self.rng, 0, files, dict(files))

    def _survived(self, inode: Inode) -> bytes:
        content, synced = inode.content, inode.synced
        if content == synced:
            return synced
        pairs = enumerate(zip(content, synced, strict=False))
        common = next((place for place, (new, old) in pairs if new != old), min(len(content), len(synced)))
        unsure = bytearray(content[common:])
        unsure = unsure[: self.rng.randint(0, len(unsure))]
        for place in range(0, len(unsure), 7):
            if self.rng.random() < 0.2:
                unsure[place : place + 7] = self.rng.choice([bytes(7), self.rng.randbytes(7)])
        return self.rng.choice([synced, content, content[:common] + bytes(unsure)])
