"""What the replay has stored since the spool's counts were updated. Pure; the time in seconds is an argument."""

from collections.abc import Sequence

from queen.engine.replay_lanes import Unit
from queen.spool.format import Record

#: The interval of updates, and the pause after which a rate would mean nothing.
_INTERVAL_S, _BREAK_S = 0.2, 10.0


class Progress:
    """Requests and messages that were stored since the last update."""

    def __init__(self) -> None:
        self._since = 0.0
        self._requests, self._messages, self._written_at = 0, 0, 0.0

    def add(self, units: Sequence[Unit]) -> None:
        """Counts stored requests."""
        self._requests += len(units)
        self._messages += sum(unit.messages for unit in units)
        record = units[-1].record
        self._written_at = record.written_at if isinstance(record, Record) else 0.0

    def is_due(self, now: float) -> bool:
        """Whether an update is due. Each takes the lock of all appends, so they are rare."""
        return now - self._since >= _INTERVAL_S

    def rate(self, now: float) -> float:
        """Messages per second; 0 after a pause."""
        elapsed = now - self._since
        return self._messages / elapsed if 0 < elapsed < _BREAK_S else 0.0

    def take(self, now: float) -> tuple[int, int, float]:
        """Requests, messages, and when the last of them was written; resets the counts."""
        taken = self._requests, self._messages, self._written_at
        self._since = now
        self._requests, self._messages = 0, 0
        return taken
