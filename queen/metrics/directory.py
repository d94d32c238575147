"""The folder through which the workers of an instance share their metrics (prometheus_client's multiprocess mode).

The environment must name it before prometheus_client is imported, so this module does not import it.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "queen-metrics-"
_SPOKESMAN = "spokesman.lock"


def share() -> None:
    """Creates a folder for this process and its children, unless the environment names one."""
    if not os.environ.get(_VARIABLE):
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix=_PREFIX)


def shared() -> bool:
    """Whether this process shares its metrics with others."""
    return bool(os.environ.get(_VARIABLE))


def clear() -> None:
    """Removes files of an earlier run from the folder."""
    folder = Path(os.environ[_VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("*.db"), folder / _SPOKESMAN):
        file.unlink(missing_ok=True)


def forget(pid: int) -> None:
    """Removes the gauges of an ended worker from the sums; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - see above

    mark_process_dead(pid)  # type: ignore[no-untyped-call]


def remove() -> None:
    """Removes the folder after the instance has stopped, if ``share`` created it."""
    folder = Path(os.environ[_VARIABLE])
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


class Spokesman:
    """Selects one worker of an instance to send the metrics of all; when it ends, another one takes over.

    Attributes:
        began_ns: start of the first one, in nanoseconds since 1970.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self.began_ns = 0

    def speaks(self) -> bool:
        """Whether this process is the selected one; tries to become it."""
        if self._file is None and shared():
            self._file = self._take()
        return self._file is not None or not shared()

    def _take(self) -> int | None:
        file = os.open(Path(os.environ[_VARIABLE]) / _SPOKESMAN, os.O_RDONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system releases it when the process ends
        except BlockingIOError:
            os.close(file)
            return None
        self.began_ns = os.fstat(file).st_mtime_ns  # never written to
        return file
