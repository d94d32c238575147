"""A disk that loses at a power failure what was not synced: ``lossy.c``, a file system in user space."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.support.processes import wait_until

Mode = Literal["names", "journal", "nothing"]
_SOURCE = Path(__file__).with_name("lossy.c")


def problem() -> str:
    """Why there can be none here; empty if there can."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        return "needs root and /dev/fuse"
    if missing := [name for name in ("gcc", "pkg-config", "umount") if shutil.which(name) is None]:
        return f"needs {', '.join(missing)}"
    found = subprocess.run(["pkg-config", "--exists", "fuse3"], check=False)
    return "" if found.returncode == 0 else "needs Debian's libfuse3-dev"


def compiled(folder: Path) -> Path:
    """The program, in that folder."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True)
    program = folder / "lossy"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", _SOURCE, "-o", program, *flags.stdout.split()]
    subprocess.run(command, check=True)
    return program


class LossyDisk:
    """A folder on such a disk.

    Attributes:
        path: the folder, while there is power.
        disk: what is there after the failure.
    """

    def __init__(self, program: Path, path: Path, mode: Mode) -> None:
        self.path, self.disk, self._live = path, Path(f"{path}.disk"), Path(f"{path}.live")
        # What is there already is on the disk.
        path.rename(self._live)
        subprocess.run(["cp", "-a", self._live, self.disk], check=True)
        path.mkdir()
        options = ["-f", "-s", "-o", "allow_other,default_permissions"]
        self._process = subprocess.Popen([program, self._live, self.disk, mode, *options, path])
        wait_until(path.is_mount, "the lossy disk")

    def power_off(self) -> None:
        """Every operation fails from now on."""
        self._process.send_signal(signal.SIGUSR1)
        wait_until(lambda: not self._answers(), "the end of the disk")

    def come_back(self) -> None:
        """Puts what is on the disk where the folder was; no program may have it open."""
        self.close()
        self.path.rmdir()
        self.disk.rename(self.path)

    def close(self) -> None:
        """Ends the file system."""
        if self._process.poll() is None:
            subprocess.run(["umount", "-l", self.path], check=True)
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            os.statvfs(self.path)
        except OSError:
            return False
        return True


@contextmanager
def lossy_disk(program: Path, path: Path, mode: Mode) -> Iterator[LossyDisk]:
    """One for the length of the block, with what is in the folder."""
    made = LossyDisk(program, path, mode)
    try:
        yield made
    finally:
        made.close()
