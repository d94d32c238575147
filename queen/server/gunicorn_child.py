"""gunicorn as a child process."""

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from queen.system import subprocesses
from queen.system.parent_death import dying_with_me
from queen.system.subprocesses import Pause

# The workers must run the same code as this process: from the current folder only if it does, too.
_FROM_HERE = Path(__file__).parents[2] == Path.cwd()
_PYTHON = (sys.executable,) if _FROM_HERE else (sys.executable, "-P")
_COMMAND = (*_PYTHON, "-m", "queen.server.gunicorn_application", "-c", "python:queen.server.config")

#: Time for gunicorn to kill its workers after the graceful timeout.
_MARGIN_S = 5.0


class Gunicorn:
    """gunicorn and its workers, on a socket that is already listening."""

    def __init__(self, listener: socket.socket, environment: Mapping[str, str], graceful_timeout_s: int) -> None:
        self._graceful_timeout_s = graceful_timeout_s
        # A process group of its own: Ctrl-C in a terminal goes to a whole group, and would interrupt the shutdown.
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
        """Replaces the workers by new ones without interruption."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self, pause: Pause) -> None:
        """Lets the workers finish requests in flight, within the graceful timeout.

        Args:
            pause: waits between two checks; true if the user wants to stop faster.
        """
        if self.exit_code is None:
            subprocesses.stop(self._process, [(signal.SIGTERM, self._graceful_timeout_s + _MARGIN_S)], pause)
