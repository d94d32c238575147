"""Log lines about refused requests, limited so that bad tokens cannot fill a disk."""

import logging
import time
from collections.abc import Callable

from queen.core.rate_limit import RateLimit

#: Maximum of lines per second and worker: about one address, and about all.
_OF_ONE, _OF_ALL = 1, 5


class FewLines(logging.Filter):
    """Omits lines; the next line has the number of omitted ones (``left_out``).

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._of_one, self._of_all = RateLimit(_OF_ONE), RateLimit(_OF_ALL)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a line, by its field ``client``."""
        now = self._clock()
        passes = self._of_one.admits(getattr(record, "client", None), now) and self._of_all.admits(None, now)
        if passes:
            record.left_out, self._left_out = self._left_out, 0
        else:
            self._left_out += 1
        return passes


log = logging.getLogger("queen.refused")
log.addFilter(FewLines())
