"""PostgreSQL's clock, as far as this machine's own bears it out, which does not step (ADR 44)."""

import time
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4


def seconds_since_boot() -> float:
    """Seconds of a clock that neither steps nor stops, and that all processes of this machine share."""
    # Not the monotonic clock, where there is a choice: that stands still while the machine sleeps.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot() -> str:
    """What stands for the start of those seconds: with the same text they can be compared."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A container may have a clock of its own.
        return f"{kernel}/{Path('/proc/self/ns/time').stat().st_ino}"
    except OSError:
        return str(uuid4())


class Bounded:
    """What PostgreSQL's clock shows at most, going on from the last look at the pace of this machine's."""

    def __init__(self) -> None:
        self._seen: tuple[datetime, float] | None = None

    def learn(self, seen: datetime, ended: float) -> None:
        """A look that ended then, by ``seconds_since_boot``."""
        self._seen = seen, ended

    def at(self, now: float) -> datetime | None:
        """What it shows now; ``None`` before the first look."""
        if self._seen is None:
            return None
        seen, ended = self._seen
        return seen + timedelta(seconds=now - ended)
