"""When a batch goes: the one question that stands between a queue of jobs and a procedure call."""

from dataclasses import dataclass

#: A rest of a hold that no clock can measure.
_SOON_MS = 0.001


def _rest(whole_ms: float, gone_ms: float) -> float:
    rest_ms = whole_ms - gone_ms
    return rest_ms if rest_ms > _SOON_MS else 0


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
        linger_ms: how long a call waits for clients that the one before has answered and that may come again at once.
        items_max: a batch takes no further job once it has so many items (messages, acks).
        bytes_max: a batch takes no further job once it has so many bytes.
        queued_max: most jobs that may wait; further ones are refused.
        queued_bytes_max: a further job is refused once those that wait have so many bytes.
    """

    preferred: int
    hold_ms: int
    batch_max: int
    in_flight_max: int
    linger_ms: int = 0
    items_max: int = 50_000
    bytes_max: int = 16 << 20
    queued_max: int = 50_000
    queued_bytes_max: int = 256 << 20

    def due_in_ms(self, waiting: int, oldest_age_ms: float, in_flight: int, limit: int | None = None) -> float | None:
        """Milliseconds until a batch should leave: 0 for now, ``None`` for not before something else happens.

        Args:
            waiting: jobs that may leave.
            oldest_age_ms: how long the oldest of them has waited.
            in_flight: calls under way.
            limit: how many there may be, if that is less than ``in_flight_max``.
        """
        if waiting == 0 or in_flight >= min(self.in_flight_max, limit or self.in_flight_max):
            return None
        if in_flight == 0 or waiting >= self.preferred:
            return 0
        return _rest(self.hold_ms, oldest_age_ms)

    def lingers_for_ms(self, waited_ms: float) -> float:
        """Milliseconds for which a call that has waited so long still waits for clients that the last one answered."""
        return _rest(self.linger_ms, waited_ms)

    def is_full(self, jobs: int, items: int, size: int) -> bool:
        """Whether a batch takes no further job."""
        return jobs >= self.batch_max or items >= self.items_max or size >= self.bytes_max

    def refuses(self, jobs: int, size: int) -> bool:
        """Whether a further job may not wait, beside so many jobs with so many bytes."""
        return jobs >= self.queued_max or size >= self.queued_bytes_max
