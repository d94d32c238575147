"""What a worker counts: by minute and queue, and of itself."""

from datetime import datetime

from msgspec import Struct


class QueueCounts(Struct):
    """What was done for one queue in one minute; grows in place. Lag is a message's age when it was popped."""

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
        """Takes in what was counted elsewhere for the same queue and minute."""
        for field in _SUMS:
            setattr(self, field, getattr(self, field) + getattr(other, field))
        self.lag_ms_max = max(self.lag_ms_max, other.lag_ms_max)
        self.parked = max(self.parked, other.parked)


_SUMS = tuple(field for field in QueueCounts.__struct_fields__ if field not in ("lag_ms_max", "parked"))


class Counted(Struct, frozen=True):
    """The counts of a queue in a minute, which is given in minutes since 1970."""

    minute: int
    queue: str
    counts: QueueCounts


class Worker(Struct, frozen=True):
    """A worker process."""

    hostname: str
    pid: int

    @property
    def name(self) -> str:
        """Under which its figures are stored."""
        return f"{self.hostname}:{self.pid}"


class Sample(Struct, frozen=True):
    """How a worker is, and what it did since the last sample; ``loop_lag_ms``: the longest that its loop was late."""

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


class ClockState(Struct, frozen=True):
    """What there is to say of PostgreSQL's clock.

    Attributes:
        steps: how often it has stepped in the last day, or longer ago if that is distrusted still.
        last_step_s: by how much it stepped the last time, negative: back; ``None``: it has not.
        last_step_at: when that was, by the clock itself.
        distrusted_s: what was stored before is taken to be so much younger than the clock says, and kept longer.
        repairing: whether times that it has left in the future are being repaired.
    """

    steps: int = 0
    last_step_s: float | None = None
    last_step_at: datetime | None = None
    distrusted_s: float = 0.0
    repairing: bool = False


class QueueFigures(Struct, frozen=True):
    """A queue as the statistics have it, in messages; ``pending``: neither leased nor done by its slowest group."""

    queue: str
    partitions: int
    messages: int
    pending: int
    leased: int
    dead_letters: int


class GroupFigures(Struct, frozen=True):
    """A consumer group as the statistics have it.

    Attributes:
        lag: messages that it has not done.
        lag_s: age of the oldest of them; 0 when there is none.
        leases: partitions that it has leased.
        leased: messages under those leases.
    """

    queue: str
    group: str
    lag: int
    lag_s: float
    leases: int
    leased: int


class LogFigures(Struct, frozen=True):
    """What the database knows of queues and groups.

    Attributes:
        queues, groups: how many there are.
        oldest_s: age of the oldest message that some group has not done; 0 when there is none.
        statistics_age_s: age of the oldest figures; ``None`` when there are none.
        of_queues, of_groups: those that were made first, as many as were asked for.
    """

    queues: int
    groups: int
    oldest_s: float
    statistics_age_s: float | None
    of_queues: list[QueueFigures]
    of_groups: list[GroupFigures]
