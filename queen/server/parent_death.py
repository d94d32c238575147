"""Children that end when their parent is killed.

A supervisor that dies of SIGKILL cannot stop anything: without help PostgreSQL and the workers would live on
and hold the data folder and the port. Linux sends a child a signal of its choice when the thread that started it dies.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, death_signal: signal.Signals) -> None:
    """Makes this process get ``death_signal`` when ``parent`` dies. Linux only; does nothing elsewhere.

    A change of user takes the wish back, so call it after that.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), death_signal)


def dying_with_me(death_signal: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn`` for children that shall get ``death_signal`` when this process dies."""
    parent = os.getpid()
    return lambda: die_with(parent, death_signal)
