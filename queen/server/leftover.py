"""A PostgreSQL that was left behind: its supervisor was killed, or it was killed itself and its sessions live on."""

import logging
import os
import signal
import time
from pathlib import Path

import psutil

from queen.server.errors import StartError

log = logging.getLogger(__name__)

_FAST_S, _IMMEDIATE_S, _LOOK_S = 60, 10, 0.05


def stop_leftover(cluster: Path) -> None:
    """Makes sure that no process of PostgreSQL works in the cluster, and that no stranger is taken for one.

    Raises:
        StartError: one works there and does not stop.
    """
    postmaster = _postmaster(cluster)
    if processes := _processes(cluster):
        log.warning("stopping a PostgreSQL that was left behind", extra={"cluster": cluster, "processes": processes})
        _stop(cluster, postmaster)
    # A crashed machine or container gives numbers out again, and PostgreSQL would not start beside a living one.
    # Otherwise the file must stay: by it PostgreSQL itself looks for sessions that live on.
    elif postmaster is not None and psutil.pid_exists(postmaster):
        (cluster / "postmaster.pid").unlink()


def _postmaster(cluster: Path) -> int | None:
    """The process that ``postmaster.pid`` names."""
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def _processes(cluster: Path) -> list[int]:
    """All processes of PostgreSQL make the cluster their working directory; dead ones that nobody reaps have none."""
    return [process.pid for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(cluster)]


def _stop(cluster: Path, postmaster: int | None) -> None:
    if postmaster is not None and postmaster in _processes(cluster):
        _signal(postmaster, signal.SIGINT)
        _wait(cluster, _FAST_S)
    for process in _processes(cluster):
        _signal(process, signal.SIGQUIT)
    _wait(cluster, _IMMEDIATE_S)
    if alive := _processes(cluster):
        raise StartError(f"A PostgreSQL (pid {alive[0]}) works in {cluster} and does not stop: end it, then try again")


def _signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        log.debug("process %d ended by itself", process)


def _wait(cluster: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _processes(cluster) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
