"""Ending a child process, politely first."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

#: Waits some seconds; a true answer means that somebody is in a hurry.
Pause = Callable[[float], Any]

_STEP_S = 0.05


def stop(child: subprocess.Popen[bytes], steps: Iterable[tuple[signal.Signals, float]], pause: Pause) -> signal.Signals:
    """Sends each signal in turn and waits its seconds; returns the one after which the child had ended.

    The last step should be ``SIGKILL``: after it the child is waited for without limit.
    """
    for number, seconds in steps:
        child.send_signal(number)
        if _ends_within(child, seconds, pause):
            return number
    child.wait()
    return number


def _ends_within(child: subprocess.Popen[bytes], seconds: float, pause: Pause) -> bool:
    deadline = time.monotonic() + seconds
    while child.poll() is None and time.monotonic() < deadline:
        if pause(_STEP_S):
            break
    return child.poll() is not None
