"""Stops a child process: gracefully at first."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

#: Waits some seconds; true if the user wants to stop faster.
Pause = Callable[[float], Any]

_STEP_S = 0.05


def stop(child: subprocess.Popen[bytes], steps: Iterable[tuple[signal.Signals, float]], pause: Pause) -> signal.Signals:
    """Sends each signal and waits its seconds, then kills; returns the signal after which the child ended.

    The child must lead a process group, which is killed as a whole.
    """
    for number, seconds in steps:
        child.send_signal(number)
        if _ends_within(child, seconds, pause):
            return number
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return signal.SIGKILL


def _ends_within(child: subprocess.Popen[bytes], seconds: float, pause: Pause) -> bool:
    deadline = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < deadline:
        if pause(_STEP_S):
            break
    return child.poll() is not None
