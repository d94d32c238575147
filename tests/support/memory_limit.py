"""A memory limit that the kernel enforces on a process and its children: a control group, as containers have."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.processes import wait_until

_ROOT = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group; ``name`` is its folder."""

    def __init__(self, folder: Path, files: tuple[str, str, str]) -> None:
        self.folder = folder
        self._limit, self._peak, self._events = (folder / name for name in files)

    def set(self, limit: int) -> None:
        self._limit.write_text(str(limit))

    def add(self, pid: int) -> None:
        """Adds a process; its later children are in the group, too."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def peak(self) -> int:
        """The most bytes that it had at a time."""
        return int(self._peak.read_text())

    @property
    def kills(self) -> int:
        """How many processes were killed because the limit was reached."""
        counts = dict(line.split() for line in self._events.read_text().splitlines())
        return int(counts.get("oom_kill", 0))


@contextmanager
def memory_limit(limit: int) -> Iterator[MemoryLimit]:
    """A new group with a limit in bytes; skips the test where none can be made."""
    second = (_ROOT / "cgroup.controllers").exists()
    folder = (_ROOT if second else _ROOT / "memory") / f"queen-test-{uuid4().hex[:8]}"
    files = ("memory.max", "memory.peak", "memory.events") if second else (
        "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control",
    )  # fmt: skip
    group = MemoryLimit(folder, files)
    try:
        folder.mkdir()
    except OSError as problem:
        pytest.skip(f"no control group can be made here: {problem}")
    try:
        try:
            group.set(limit)
        except OSError as problem:
            pytest.skip(f"control groups have no memory limit here: {problem}")
        yield group
    finally:
        wait_until(lambda: _removed(folder.rmdir), "the processes of the group have ended")


def _removed(remove: Callable[[], None]) -> bool:
    try:
        remove()
    except OSError:
        return False
    return True
