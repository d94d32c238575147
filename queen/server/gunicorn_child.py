"""gunicorn as a child process."""

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from queen.server import children
from queen.server.children import Pause
from queen.server.parent_death import dying_with_me

# The workers must run the same code as we: from the current folder only if we come from there.
_FROM_HERE = Path(__file__).parents[2] == Path.cwd()
_PYTHON = (sys.executable,) if _FROM_HERE else (sys.executable, "-P")
_COMMAND = (*_PYTHON, "-m", "queen.server.gunicorn_application", "-c", "python:queen.server.config")

#: gunicorn kills its workers when the graceful timeout is over; that long it may take for it.
_MARGIN_S = 5.0


class Gunicorn:
    """gunicorn and its workers, on a socket that listens already."""

    def __init__(self, listener: socket.socket, environment: Mapping[str, str], graceful_timeout_s: int) -> None:
        self._graceful_timeout_s = graceful_timeout_s
        # A process group of its own: Ctrl-C in a terminal goes to all of a group, and would cut the stop short.
        self._process = subprocess.Popen(  # noqa: S603 - our own configuration
            [*_COMMAND, "--bind", f"fd://{listener.fileno()}", "queen.app:app"],
            env=environment,
            pass_fds=[listener.fileno()],
            process_group=0,
            preexec_fn=dying_with_me(signal.SIGTERM),  # noqa: PLW1509 - this process has no threads
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def reload(self) -> None:
        """Replaces the workers by new ones, which take over without a gap."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self, pause: Pause) -> None:
        """Lets the workers answer what is in flight, within the graceful timeout.

        Args:
            pause: waits between two looks; it answers true when somebody is in a hurry.
        """
        if self.exit_code is None:
            children.stop(self._process, [(signal.SIGTERM, self._graceful_timeout_s + _MARGIN_S)], pause)
