"""PostgreSQL's clock, bounded by a clock of this machine that does not step (ADR 44)."""

import time
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4


def seconds_since_boot() -> float:
    """Seconds of a clock that neither steps nor stops, the same for all processes of this machine."""
    # Not the monotonic clock, if possible: it stops while the machine sleeps.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot() -> str:
    """Identifies the start of these seconds: values with the same id can be compared."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A container may have its own clock.
        return f"{kernel}/{Path('/proc/self/ns/time').stat().st_ino}"
    except OSError:
        return str(uuid4())


class Bounded:
    """An upper bound of PostgreSQL's clock: its last value, advanced by the clock of this machine."""

    def __init__(self) -> None:
        self._seen: tuple[datetime, float] | None = None

    def learn(self, seen: datetime, ended: float) -> None:
        """Stores a value of the clock, read at a time of ``seconds_since_boot``."""
        self._seen = seen, ended

    def at(self, now: float) -> datetime | None:
        """The current bound; ``None`` before the first value."""
        if self._seen is None:
            return None
        seen, ended = self._seen
        return seen + timedelta(seconds=now - ended)
