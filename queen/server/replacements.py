"""What happens when a worker cannot start: the first ones end gunicorn, those that take the place of others do not.

gunicorn ends everything when any worker exits because it cannot start. For the first workers, and for those after a
reload, that is right: nobody would serve. Later others do, and what keeps a new one from starting, such as a full
disk, may pass: it is tried again.
"""

import sys
import time
from typing import Any

from gunicorn.arbiter import Arbiter

#: Between two attempts.
_PAUSE_S = 1.0
_CANNOT_START = frozenset({Arbiter.WORKER_BOOT_ERROR, Arbiter.APP_LOAD_ERROR})


class Replacements:
    """Tells workers that replace others from those that are started together. gunicorn counts them: that is their age.

    Args:
        workers: how many there are at a time.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._together_upto = workers

    def reloaded(self, last_age: int) -> None:
        """All are started anew; the youngest had that age."""
        self._together_upto = last_age + self._workers

    def spare_the_others(self, worker: Any) -> None:  # noqa: ANN401 - gunicorn's
        """To be called in the worker's process when it exits: one that could not start exits as if it had died.

        Raises:
            SystemExit: instead of the one that ends gunicorn.
        """
        code = getattr(sys.exception(), "code", None)
        if code in _CANNOT_START and worker.age > self._together_upto:
            time.sleep(_PAUSE_S)
            raise SystemExit(1)
