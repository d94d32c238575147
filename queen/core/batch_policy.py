"""When a batch leaves: how many waiting jobs go into one procedure call, and when."""

from collections.abc import Mapping
from dataclasses import dataclass

from queen.core.job_type import JobType
from queen.core.limits import ITEMS_MAX

#: A remaining hold that is too short to measure.
_SOON_MS = 0.001


def _rest(whole_ms: float, gone_ms: float) -> float:
    rest_ms = whole_ms - gone_ms
    return rest_ms if rest_ms > _SOON_MS else 0


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """A batch leaves if no call is in flight, if ``preferred`` jobs wait, or if the oldest has waited ``hold_ms``.

    With no call in flight a job leaves at once: a hold would gain nothing, because batches form by themselves while a
    call is in flight (measured: no result of ``docs/performance.md`` needs a hold).

    Attributes:
        preferred: number of jobs for which a call does not wait for more.
        hold_ms: maximum time that a job waits for others while calls are in flight.
        batch_max: maximum of jobs per call.
        in_flight_max: maximum of calls in flight.
        linger_ms: how long a call waits for clients that the previous call has answered and that may send again at
            once.
        items_max: maximum of items (messages, acks) of the jobs of a batch; a job with more has a batch of its own.
        bytes_max: a batch with this many bytes takes no further job.
        queued_max: maximum of waiting jobs; further ones are refused.
        queued_bytes_max: further jobs are refused if the waiting ones have this many bytes.
    """

    preferred: int
    hold_ms: int
    batch_max: int
    in_flight_max: int
    linger_ms: int = 0
    items_max: int = ITEMS_MAX
    bytes_max: int = 16 << 20
    queued_max: int = 50_000
    queued_bytes_max: int = 256 << 20

    def due_in_ms(self, waiting: int, oldest_age_ms: float, in_flight: int, limit: int | None = None) -> float | None:
        """Milliseconds until a batch should leave: 0 means now, ``None`` not before the next job or the end of a call.

        Args:
            waiting: number of jobs that may leave.
            oldest_age_ms: how long the oldest one has waited.
            in_flight: number of calls in flight.
            limit: maximum of calls in flight, if less than ``in_flight_max``.
        """
        if waiting == 0 or in_flight >= min(self.in_flight_max, limit or self.in_flight_max):
            return None
        if in_flight == 0 or waiting >= self.preferred:
            return 0
        return _rest(self.hold_ms, oldest_age_ms)

    def lingers_for_ms(self, waited_ms: float) -> float:
        """Milliseconds that a call still waits for clients that the previous call answered, after ``waited_ms``."""
        return _rest(self.linger_ms, waited_ms)

    def is_full(self, jobs: int, items: int, size: int) -> bool:
        """Whether a batch takes no further job."""
        return jobs >= self.batch_max or items >= self.items_max or size >= self.bytes_max

    def takes(self, jobs: int, items: int, size: int, more: int) -> bool:
        """Whether a batch takes another job, which has ``more`` items."""
        return not self.is_full(jobs, items, size) and (not jobs or items + more <= self.items_max)

    def refuses(self, jobs: int, size: int) -> bool:
        """Whether a further job is refused if so many jobs with so many bytes wait."""
        return jobs >= self.queued_max or size >= self.queued_bytes_max


#: The policy of each job type.
POLICIES: Mapping[JobType, BatchPolicy] = {
    JobType.PUSH: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    JobType.POP: BatchPolicy(preferred=20, hold_ms=5, batch_max=500, in_flight_max=4, linger_ms=2),
    JobType.ACK: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4, linger_ms=2),
    JobType.TRANSACTION: BatchPolicy(preferred=50, hold_ms=20, batch_max=50, in_flight_max=4, linger_ms=2),
    JobType.RENEW_LEASE: BatchPolicy(preferred=10, hold_ms=100, batch_max=100, in_flight_max=2),
    JobType.CYCLE: BatchPolicy(preferred=1, hold_ms=0, batch_max=1, in_flight_max=4),
    JobType.TIMER: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=2),
    JobType.ENQUEUE: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    # A message of simple-mq has up to 256 KiB, and a call returns what all of its polls want.
    JobType.DEQUEUE: BatchPolicy(preferred=20, hold_ms=5, batch_max=500, in_flight_max=4, items_max=100),
    JobType.ACKNOWLEDGE: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    JobType.EXTEND_VISIBILITY: BatchPolicy(preferred=10, hold_ms=100, batch_max=100, in_flight_max=2),
    JobType.SQS_SEND: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    # Ten messages of an answer have up to 1 MiB each.
    JobType.SQS_RECEIVE: BatchPolicy(preferred=20, hold_ms=5, batch_max=500, in_flight_max=4, items_max=100),
    JobType.SQS_DELETE: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    JobType.SQS_CHANGE_VISIBILITY: BatchPolicy(preferred=10, hold_ms=20, batch_max=100, in_flight_max=2),
    JobType.CUSTOM: BatchPolicy(preferred=1, hold_ms=0, batch_max=1, in_flight_max=4),
}
