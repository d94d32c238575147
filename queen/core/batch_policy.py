"""When a batch goes: the one question that stands between a queue of jobs and a procedure call."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Fire when idle, when ``preferred`` jobs wait, or when the oldest has waited ``hold_ms``.

    With no call in flight a job leaves at once: holding it would buy nothing, because batches form by themselves
    while a call is under way (measured: no figure of ``docs/performance.md`` needs a hold).

    Attributes:
        preferred: jobs at which waiting for more is pointless.
        hold_ms: the longest that a job waits for company while other calls are in flight.
        batch_max: most jobs in one call.
        in_flight_max: most calls at the same time.
        bytes_max: a batch takes no further job once it has so many bytes.
    """

    preferred: int
    hold_ms: int
    batch_max: int
    in_flight_max: int
    bytes_max: int = 16 << 20

    def due_in_ms(self, waiting: int, oldest_age_ms: float, in_flight: int) -> float | None:
        """Milliseconds until a batch should leave: 0 for now, ``None`` for not before something else happens."""
        if waiting == 0 or in_flight >= self.in_flight_max:
            return None
        if in_flight == 0 or waiting >= self.preferred:
            return 0
        return max(0.0, self.hold_ms - oldest_age_ms)
