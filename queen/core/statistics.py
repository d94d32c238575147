"""What the database counts: statistics of queues and groups, and the steps of its clock."""

from datetime import datetime

from msgspec import Struct


class OutboxState(Struct, frozen=True):
    """What waits in the outbox.

    Attributes:
        messages: that wait, with those that are held back; counted up to a limit.
        oldest_s: age of the oldest of them; 0: none waits.
        held_partitions: partitions that are held back.
        held_s: for how long the first of them has been.
    """

    messages: int = 0
    oldest_s: float = 0.0
    held_partitions: int = 0
    held_s: float = 0.0


class TimersState(Struct, frozen=True):
    """Timers that are due and not in the log yet: their number, up to a limit, and since when the first one is due."""

    overdue: int = 0
    oldest_s: float = 0.0


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

    @property
    def is_in_doubt(self) -> bool:
        """Whether a step is being repaired, or makes data stay longer and was not accepted."""
        return self.repairing or (self.steps > 0 and self.distrusted_s > 0)


class QueueStatistics(Struct, frozen=True):
    """Statistics of a queue, in messages; ``pending``: neither leased nor done by its slowest group."""

    queue: str
    partitions: int
    messages: int
    pending: int
    leased: int
    dead_letters: int
    paused: bool = False


class GroupStatistics(Struct, frozen=True):
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
    paused: bool = False


class LogStatistics(Struct, frozen=True):
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
    of_queues: list[QueueStatistics]
    of_groups: list[GroupStatistics]
