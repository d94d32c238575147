"""What a worker counts: per minute and queue, and about itself."""

import math
from collections.abc import Callable
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


class Connected(Struct, frozen=True):
    """A connected consumer: a long poll that waits, or a WebSocket with a subscription.

    Attributes:
        queue: empty for one of a namespace or task.
        kind: ``longPoll`` or ``webSocket``.
        address: of its client, as the HTTP server knows it.
        in_flight: messages that are not acknowledged; ``None``: a long poll has no such number.
    """

    queue: str
    namespace: str | None
    task: str | None
    group: str
    kind: str
    address: str
    since: datetime
    in_flight: int | None = None


class WorkerState(Struct, frozen=True):
    """The current state of a worker: its connections, jobs that wait for a call, parked long polls.

    Attributes:
        by_queue: counts the parked long polls by queue, which takes longer with many queues.
        connected: its consumers, up to a number.
    """

    pool_size: int = 0
    pool_idle: int = 0
    queued: int = 0
    waiting: int = 0
    by_queue: Callable[[], dict[str, int]] = dict
    connected: Callable[[], list[Connected]] = list


class Level(Struct):
    """What a worker measures once a second, since it last wrote."""

    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    last: float = 0.0

    def add(self, value: float) -> None:
        """Counts a measurement."""
        self.total += value
        self.low, self.high, self.last = min(self.low, value), max(self.high, value), value


class Levels(Struct):
    """All that a worker measures once a second, since it last wrote; the order is that of the database's arrays.

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
