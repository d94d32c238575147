"""Restarts PostgreSQL after it died."""

import logging
import time
from collections.abc import Callable

from queen.core.backoff import doubled
from queen.embedded.server import EmbeddedPostgres
from queen.system.errors import StartError

log = logging.getLogger(__name__)

_FIRST_MS, _LIMIT_MS = 100.0, 10_000.0

#: After this time without a failure, the next one counts as the first.
_STABLE_S = 60.0


class Keeper:
    """Restarts PostgreSQL whenever it died, with growing pauses; the workers reconnect by themselves."""

    def __init__(self, postgres: EmbeddedPostgres, clock: Callable[[], float] = time.monotonic) -> None:
        self._postgres = postgres
        self._clock = clock
        self._started = clock()
        self._delay_ms = 0.0
        self._due: float | None = None

    def tend(self) -> None:
        """Checks PostgreSQL; to be called often."""
        if self._due is None and not self._postgres.is_alive:
            self._plan(self._postgres.failure)
        if self._due is not None and self._clock() >= self._due:
            self._restart()

    def _plan(self, reason: str) -> None:
        stable = self._clock() - self._started > _STABLE_S
        self._delay_ms = doubled(0 if stable else self._delay_ms, _FIRST_MS, _LIMIT_MS)
        self._due = self._clock() + self._delay_ms / 1000
        log.error("PostgreSQL ended: %s; restarting it in %d ms", reason, self._delay_ms)

    def _restart(self) -> None:
        try:
            self._postgres.launch()
        except StartError as problem:
            self._plan(str(problem))
            return
        self._due, self._started = None, self._clock()
        log.warning("PostgreSQL is running again", extra={"postmaster": self._postgres.pid})
