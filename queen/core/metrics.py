"""What a worker counts: per minute and queue, and about itself."""

from msgspec import Struct


class QueueCounts(Struct):
    """Counts of one queue in one minute; updated in place. Lag is the age of a message when it was popped."""

    push_requests: int = 0
    push_messages: int = 0
    pop_requests: int = 0
    pop_messages: int = 0
    pop_empty: int = 0
    ack_requests: int = 0
    ack_success: int = 0
    ack_failed: int = 0
    dead_letters: int = 0
    transactions: int = 0
    lag_ms_sum: float = 0.0
    lag_ms_max: float = 0.0
    parked: int = 0

    def add(self, other: "QueueCounts") -> None:
        """Adds counts of the same queue and minute."""
        for field in _SUMS:
            setattr(self, field, getattr(self, field) + getattr(other, field))
        self.lag_ms_max = max(self.lag_ms_max, other.lag_ms_max)
        self.parked = max(self.parked, other.parked)


_SUMS = tuple(field for field in QueueCounts.__struct_fields__ if field not in ("lag_ms_max", "parked"))


class Counted(Struct, frozen=True):
    """The counts of a queue in a minute; ``minute``: minutes since 1970."""

    minute: int
    queue: str
    counts: QueueCounts


class Worker(Struct, frozen=True):
    """A worker process."""

    hostname: str
    pid: int

    @property
    def name(self) -> str:
        """The name under which its metrics are stored."""
        return f"{self.hostname}:{self.pid}"


class WorkerState(Struct, frozen=True):
    """The current state of a worker: its connections, jobs that wait for a call, parked long polls by queue."""

    pool_size: int = 0
    pool_idle: int = 0
    queued: int = 0
    waiting: dict[str, int] = {}


class Sample(Struct, frozen=True):
    """The state of a worker, and its counts since the last sample; ``loop_lag_ms``: maximum event loop lag."""

    minute: int
    jobs: int
    db_errors: int
    loop_lag_ms: float
    cpu_user_ms: float
    cpu_system_ms: float
    rss_bytes: int
    virtual_bytes: int
    pool_size: int
    pool_idle: int
    queued: int
    waiting: int
