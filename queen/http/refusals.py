"""Log lines about senders that are refused, few enough that nobody can fill a disk with bad tokens."""

import logging
import time
from collections.abc import Callable

from queen.core.rate_limit import RateLimit

#: Lines that a worker writes in a second: about one address, and about all.
_OF_ONE, _OF_ALL = 1, 5


class FewLines(logging.Filter):
    """Leaves lines out, and has the next one say how many (``left_out``).

    Args:
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._of_one, self._of_all = RateLimit(_OF_ONE), RateLimit(_OF_ALL)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Judges a line by its field ``client``."""
        now = self._clock()
        passes = self._of_one.admits(getattr(record, "client", None), now) and self._of_all.admits(None, now)
        if passes:
            record.left_out, self._left_out = self._left_out, 0
        else:
            self._left_out += 1
        return passes


log = logging.getLogger("queen.refused")
log.addFilter(FewLines())
