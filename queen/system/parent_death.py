"""Ends child processes when their parent is killed.

A supervisor killed by SIGKILL cannot stop its children: PostgreSQL and the workers would continue to run and keep the
data folder and the port. Linux can send a child a signal when the thread that started it dies.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, death_signal: signal.Signals) -> None:
    """Makes this process receive ``death_signal`` when ``parent`` dies. Linux only; does nothing elsewhere.

    A change of user resets it, so call this afterwards. Handlers that this process has inherited no longer hold: those
    of its parent would swallow the signal.
    """
    if not sys.platform.startswith("linux"):
        return
    signal.signal(death_signal, signal.SIG_DFL)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), death_signal)


def dying_with_me(death_signal: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn`` for children that receive ``death_signal`` when this process dies."""
    parent = os.getpid()
    return lambda: die_with(parent, death_signal)
