"""What a worker counts: per minute and queue, and about itself."""

import math
from datetime import datetime

from msgspec import Struct, field, structs


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
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lag_ms_max = max(self.lag_ms_max, other.lag_ms_max)
        self.parked = max(self.parked, other.parked)


_SUMS = tuple(name for name in QueueCounts.__struct_fields__ if name not in ("lag_ms_max", "parked"))


class Counted(Struct, frozen=True):
    """The counts of a queue in a minute; ``minute``: minutes since 1970."""

    minute: int
    queue: str
    counts: QueueCounts


class Worker(Struct, frozen=True):
    """A worker process; ``port``: of its server."""

    hostname: str
    pid: int
    port: int | None = None

    @property
    def name(self) -> str:
        """The name under which its metrics are stored."""
        return f"{self.hostname}:{self.pid}"


class Level(Struct):
    """What a worker measures once a second, since the last report."""

    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    last: float = 0.0

    def add(self, value: float) -> None:
        """Counts a measurement."""
        self.total += value
        self.low, self.high, self.last = min(self.low, value), max(self.high, value), value


class Levels(Struct):
    """All that a worker measures once a second, since the last report; the order is that of the database's arrays.

    CPU is in percent of a core.
    """

    seconds: int = 0
    cpu_user: Level = field(default_factory=Level)
    cpu_system: Level = field(default_factory=Level)
    rss_bytes: Level = field(default_factory=Level)
    virtual_bytes: Level = field(default_factory=Level)
    pool_size: Level = field(default_factory=Level)
    pool_idle: Level = field(default_factory=Level)
    pool_active: Level = field(default_factory=Level)
    queued: Level = field(default_factory=Level)
    waiting: Level = field(default_factory=Level)

    @property
    def each(self) -> tuple[Level, ...]:
        """The levels in their order."""
        return structs.astuple(self)[1:]

    def add(self, *values: float) -> None:
        """Counts a measurement of each."""
        self.seconds += 1
        for level, value in zip(self.each, values, strict=True):
            level.add(value)


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
    levels: Levels


class ClockState(Struct, frozen=True):
    """The steps of PostgreSQL's clock.

    Attributes:
        steps: number of steps in the last day, and of earlier ones that are still distrusted.
        last_step_s: size of the last step, negative for a step back; ``None``: there was none.
        last_step_at: when it happened, by the clock itself.
        distrusted_s: data stored before counts as younger than the clock says by this much, and is kept longer.
        repairing: whether times that are now in the future are being repaired.
    """

    steps: int = 0
    last_step_s: float | None = None
    last_step_at: datetime | None = None
    distrusted_s: float = 0.0
    repairing: bool = False


class QueueFigures(Struct, frozen=True):
    """Statistics of a queue, in messages; ``pending``: neither leased nor done by its slowest group."""

    queue: str
    partitions: int
    messages: int
    pending: int
    leased: int
    dead_letters: int


class GroupFigures(Struct, frozen=True):
    """Statistics of a consumer group.

    Attributes:
        lag: messages that are not done.
        lag_s: age of the oldest one; 0 if there is none.
        leases: leased partitions.
        leased: messages in flight.
    """

    queue: str
    group: str
    lag: int
    lag_s: float
    leases: int
    leased: int


class LogFigures(Struct, frozen=True):
    """Statistics of queues and groups from the database.

    Attributes:
        queues, groups: their numbers.
        oldest_s: age of the oldest message that some group has not done; 0 if there is none.
        statistics_age_s: age of the oldest statistics; ``None`` if there are none.
        of_queues, of_groups: those that were created first, up to the requested number.
    """

    queues: int
    groups: int
    oldest_s: float
    statistics_age_s: float | None
    of_queues: list[QueueFigures]
    of_groups: list[GroupFigures]
