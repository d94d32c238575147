"""Workers that cannot start: the first ones end gunicorn, replacements of others do not.

gunicorn ends completely if any worker cannot start. For the first workers, and for those after a reload, that is right:
there would be no server. Later, other workers are running, and the problem, such as a full disk, may be temporary: the
start is tried again.
"""

import sys
import time
from typing import Any

from gunicorn.arbiter import Arbiter

#: Between two attempts.
_PAUSE_S = 1.0
_CANNOT_START = frozenset({Arbiter.WORKER_BOOT_ERROR, Arbiter.APP_LOAD_ERROR})


class Replacements:
    """Distinguishes replacements from workers that start together, by the age (serial number) that gunicorn gives.

    Args:
        workers: number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._together_upto = workers

    def reloaded(self, last_age: int) -> None:
        """Notes that all workers are replaced; the newest one had this age."""
        self._together_upto = last_age + self._workers

    def spare_the_others(self, worker: Any) -> None:  # noqa: ANN401 - gunicorn's
        """Called at the exit of a worker's process: a replacement that could not start exits as if it had died.

        Raises:
            SystemExit: with another status than the one that ends gunicorn.
        """
        code = getattr(sys.exception(), "code", None)
        if code in _CANNOT_START and worker.age > self._together_upto:
            time.sleep(_PAUSE_S)
            raise SystemExit(1)
