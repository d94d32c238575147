"""That something cannot be decrypted: counted each time, and told in the log, but not for each of many messages."""

import logging
import math
import time
from collections.abc import Callable

from queen.core.errors import DecryptionError
from queen.metrics.encryption import DECRYPTION_FAILURES

_PAUSE_S = 60.0
log = logging.getLogger(__name__)


class DecryptionAlarm:
    """Tells the first failure of this worker, and then one a minute at most.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = -math.inf

    def ring(self, problem: DecryptionError, queue: str, partition: str) -> None:
        """A payload of this partition could not be decrypted."""
        DECRYPTION_FAILURES.inc()
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _PAUSE_S
            log.warning(
                "a message cannot be decrypted, and perhaps others: %s",
                problem,
                extra={"queue": queue, "partition": partition},
            )
