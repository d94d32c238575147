"""Stops a PostgreSQL of an earlier run: its supervisor was killed, or it was killed and its sessions still run."""

import logging
import os
import signal
import time
from pathlib import Path

import psutil

from queen.system.errors import StartError

log = logging.getLogger(__name__)

_FAST_S, _IMMEDIATE_S, _LOOK_S = 60, 10, 0.05


def stop_leftover(cluster: Path) -> None:
    """Makes sure that no PostgreSQL runs in the cluster, and that no other process is mistaken for one.

    Raises:
        StartError: one runs there and does not stop.
    """
    postmaster = _postmaster(cluster)
    if processes := _processes(cluster):
        log.warning("stopping a PostgreSQL left by an earlier run", extra={"cluster": cluster, "processes": processes})
        _stop(cluster, postmaster)
    # After a crash of the machine or container, another process may have the number; then PostgreSQL would not start.
    # Otherwise the file must stay: PostgreSQL uses it to find sessions that still run.
    elif postmaster is not None and psutil.pid_exists(postmaster):
        (cluster / "postmaster.pid").unlink(missing_ok=True)


def _postmaster(cluster: Path) -> int | None:
    """The process that ``postmaster.pid`` names."""
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def _processes(cluster: Path) -> list[int]:
    """Processes of PostgreSQL: their working directory is the cluster; zombies have none."""
    return [process.pid for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(cluster)]


def _stop(cluster: Path, postmaster: int | None) -> None:
    if postmaster is not None and postmaster in _processes(cluster):
        _signal(postmaster, signal.SIGINT)
        _wait(cluster, _FAST_S)
    for process in _processes(cluster):
        _signal(process, signal.SIGQUIT)
    _wait(cluster, _IMMEDIATE_S)
    if alive := _processes(cluster):
        raise StartError(f"A PostgreSQL (pid {alive[0]}) runs in {cluster} and does not stop: end it, then try again")


def _signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        log.debug("process %d ended by itself", process)


def _wait(cluster: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _processes(cluster) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
