"""CPU and memory of processes."""

import contextlib
from collections.abc import Sequence

import psutil


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """User and system time so far, of processes and of those of their children that have ended."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def family(root: psutil.Process) -> list[psutil.Process]:
    """A process and all its descendants, now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []


def memory_bytes(processes: Sequence[psutil.Process]) -> int:
    """Proportional set size: what several share counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_full_info().pss
    return total
