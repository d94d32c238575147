"""Failures to decrypt: all are counted, few are logged."""

import logging
import math
import time
from collections.abc import Callable

from queen.core.errors import DecryptionError
from queen.metrics.encryption import DECRYPTION_FAILURES

_PAUSE_S = 60.0
log = logging.getLogger(__name__)


class DecryptionAlarm:
    """Logs the first failure of this worker, then at most one per minute.

    Args:
        clock: a monotonic clock, in seconds.
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
                "one or more messages cannot be decrypted: %s",
                problem,
                extra={"queue": queue, "partition": partition},
            )
