"""The folder through which the workers of an instance share their metrics (prometheus_client's multiprocess mode).

It has to be named in the environment before anything imports prometheus_client, so nothing here does.
"""

import os
import shutil
import tempfile
from pathlib import Path

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "queen-metrics-"


def share() -> None:
    """Makes a folder for this process and its children, unless the environment names one."""
    if not os.environ.get(_VARIABLE):
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix=_PREFIX)


def shared() -> bool:
    """Whether this process shares its metrics with others."""
    return bool(os.environ.get(_VARIABLE))


def clear() -> None:
    """Removes what an earlier run has left in the folder."""
    folder = Path(os.environ[_VARIABLE])
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink(missing_ok=True)


def forget(pid: int) -> None:
    """Takes the gauges of a worker that has ended out of the sums; what it has counted stays."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - see above

    mark_process_dead(pid)  # type: ignore[no-untyped-call]


def remove() -> None:
    """Removes the folder, if it was made here: the instance has stopped."""
    folder = Path(os.environ[_VARIABLE])
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
