"""The speed of answers: on an overloaded machine, late answers do not refute a guarantee."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Pace:
    """The duration of answers, without the waiting time of long polls; in seconds."""

    _ended: list[tuple[float, float]] = field(default_factory=list)

    def note(self, began: float, wait_s: float) -> None:
        """A request has ended that began at that time of the monotonic clock."""
        now = time.monotonic()
        self._ended.append((now, now - began - wait_s))

    def slowest_since(self, began: float) -> float:
        """The longest time that an answer took which came after that time; negative if none came."""
        return max((took_s for ended, took_s in self._ended if ended >= began), default=-1.0)
