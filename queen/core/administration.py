"""Arguments and results of the administrative procedures: frozen values, one field per column of the procedure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

OrderT = TypeVar("OrderT", bound=Enum)

#: Maximum bytes of payloads and traces per page of a list; the next page begins after the last row.
PAGE_BYTES = 16 * 2**20
#: Dead letters with the same first characters of their error are counted together.
ERROR_CHARS = 1000


class Registration(Struct, frozen=True):
    """A stream by its name; ``config_hash`` identifies its chain of operators, ``reset`` deletes the state."""

    name: str
    source_queue: str
    config_hash: str
    sink_queue: str | None = None
    reset: bool = False


class Registered(Struct, frozen=True):
    """The answer to a registration.

    Attributes:
        conflict: the chain of operators differs, and nothing was changed.
        more: a reset has deleted a page of the state, and has to be requested again.
    """

    stream: int
    fresh: bool
    conflict: bool
    more: bool = False


def keeps_dead_letters(dead_letter_queue: bool | None, dlq_after_max_retries: bool | None) -> bool:
    """Whether a queue with these two options keeps dead letters: unless one is false, and the other not true."""
    said = (dead_letter_queue, dlq_after_max_retries)
    return True in said or False not in said


class QueueConfiguration(Struct, frozen=True):
    """A queue's name, labels and options; ``None`` is an option that was never set.

    Attributes:
        lease_time: seconds; 0 means the default of 60.
        retry_limit: redeliveries of a failed message before it is dead-lettered.
        retry_delay: milliseconds before the redelivery of a failed message.
        delayed_processing: seconds that a message stays invisible.
        window_buffer: seconds that a partition must have been quiet to deliver anything.
        dead_letter_queue, dlq_after_max_retries: see `keeps_dead_letters`.
        retention_enabled: switches the next one on.
        retention_seconds: seconds that a message is kept; 0 is no limit.
        completed_retention_seconds: seconds that a message that all groups have completed is kept, regardless of the
            switch; 0 is no limit.
        ttl: seconds that a message is kept, regardless of the switch; 0 is no limit.
        max_wait_time_seconds: seconds after which a message that a group has not consumed is given up; 0 is no limit.
        max_size: maximum backlog of the queue, in messages; 0 is no limit.
        encryption_enabled: whether payloads are stored encrypted.
        sql_push: whether ``queen.push`` may push to it.
        colocate_with: the queue whose partitions are in the same databases as those of the same names of this one.
    """

    queue: str
    namespace: str = ""
    task: str = ""
    priority: int = 0
    lease_time: int = 60
    retry_limit: int = 3
    retry_delay: int | None = None
    delayed_processing: int = 0
    window_buffer: int = 0
    dead_letter_queue: bool | None = None
    dlq_after_max_retries: bool | None = None
    retention_enabled: bool = False
    retention_seconds: int = 0
    completed_retention_seconds: int = 0
    ttl: int = 0
    max_wait_time_seconds: int = 0
    max_size: int = 0
    encryption_enabled: bool = False
    sql_push: bool = True
    colocate_with: str | None = None


class ConfiguredQueue(Struct, frozen=True):
    """The result of ``configure``.

    Attributes:
        part_id: its partition ``Default``; 0: that is in another database.
        more: its new options are not yet applied to some partitions.
    """

    queue_id: int
    part_id: int
    more: bool


class BegunWork(Struct, frozen=True):
    """Work in pages that was started and is not finished.

    Attributes:
        queue: its name; empty if it was deleted meanwhile.
        group: the group that is being deleted; ``None``: options of the queue are not yet applied to some partitions.
    """

    queue_id: int
    queue: str
    group: str | None


class MessageKey(Struct, frozen=True):
    """How a client names a message: the number of its partition, and its transaction id or message id."""

    part_id: int
    transaction_id: str


class Period(Struct, frozen=True):
    """A period; both ends are included."""

    begin: datetime
    end: datetime

    @property
    def bucket_minutes(self) -> int:
        """Minutes per point of a series over this period: 60 to 168 points for every common length."""
        length = self.end - self.begin
        for minutes, longest in ((1, 1), (5, 6), (15, 24), (60, 168)):
            if length <= timedelta(hours=longest):
                return minutes
        return 360

    @property
    def points(self) -> int:
        """Maximum number of points of a series over this period."""
        return (self.end - self.begin) // timedelta(minutes=self.bucket_minutes) + 2


# ---------------------------------------------------------------- catalogue


class QueueFilter(Struct, frozen=True):
    """A filter of queues; ``None`` matches any. ``search``: a text that name, namespace or task contains."""

    namespace: str | None = None
    task: str | None = None
    names: Sequence[str] | None = None
    search: str | None = None


class QueueOrder(Enum):
    """The order of a list of queues."""

    NEWEST = "newest"
    NAME = "name"
    PARTITIONS = "partitions"
    TOTAL = "total"
    PENDING = "pending"
    PROCESSING = "processing"


class PartitionOrder(Enum):
    """The order of a list of partitions."""

    NAME = "name"
    TOTAL = "total"
    PENDING = "pending"
    PROCESSING = "processing"
    DEAD_LETTER = "dead_letter"
    NEWEST = "newest"


class PartitionFilter(Struct, frozen=True):
    """A filter of partitions; ``None`` matches any. ``search``: a text that the name contains."""

    queue: str | None = None
    partition: str | None = None
    search: str | None = None


class Page(Struct, Generic[OrderT], frozen=True):
    """A page of a sorted list; ``reverse`` turns the order round."""

    order: OrderT
    limit: int
    offset: int = 0
    reverse: bool = False


class QueueRow(Struct, frozen=True):
    """A queue with its statistics; those are ``None`` until the queue was counted (see ``queen.queue_stats``)."""

    queue_id: int
    name: str
    namespace: str
    task: str
    created_at: datetime
    partitions: int | None
    total: int | None
    pending: int | None
    processing: int | None
    completed: int | None
    failed: int | None
    dead_letter: int | None
    offset_lag: int | None
    oldest_at: datetime | None
    computed_at: datetime | None
    paused: bool = False


class QueuesSummary(Struct, frozen=True):
    """Statistics of queues, added up.

    ``computed_at``: of the oldest ones; ``None`` if some queues were never counted. ``age_*``: seconds for which the
    oldest message that is not done has waited; ``lag_*``: the highest consumer lag of a queue, in messages.
    """

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int
    computed_at: datetime | None
    age_mean: float
    age_median: float
    age_min: float
    age_max: float
    lag_mean: float
    lag_median: float
    lag_min: float
    lag_max: float


class UsedQueueRow(Struct, frozen=True):
    """A queue that holds or held messages; ``consumed``: messages that its most advanced group has done."""

    queue_id: int
    name: str
    namespace: str
    task: str
    partitions: int
    consumed: int


class QueueOptions(Struct, frozen=True):
    """Labels and options of a queue, as stored; ``None`` is an option that was never set."""

    queue_id: int
    name: str
    namespace: str
    task: str
    priority: int
    lease_time: int
    retry_limit: int
    retry_delay: int | None
    dead_letter_queue: bool | None
    dlq_after_max_retries: bool | None
    created_at: datetime
    ttl: int
    max_size: int
    paused: bool = False


class Configured(Struct, frozen=True):
    """A queue with its configuration."""

    queue_id: int
    configuration: QueueConfiguration


class PartitionRow(Struct, frozen=True):
    """A partition with its current statistics; where groups differ, those of its slowest group.

    ``matches``: partitions that match the filter; ``None``: all of the queue.
    """

    part_id: int
    queue: str
    name: str
    created_at: datetime
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int
    consumed: int
    oldest_at: datetime | None
    newest_at: datetime | None
    matches: int | None = None


class LabelRow(Struct, frozen=True):
    """A namespace or a task with the statistics of its queues."""

    label: str
    queues: int
    partitions: int
    total: int
    pending: int


class Depth(Struct, frozen=True):
    """The backlog of a group: messages, those in flight, and partitions that hold some; what pops would deliver now."""

    pending: int
    processing: int
    partitions_pending: int
    ready: int
    partitions_ready: int
    computed_at: datetime | None


# ---------------------------------------------------------------- messages, dead letters


class MessageFilter(Struct, frozen=True):
    """A filter of messages; ``None`` matches any."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    status: str | None = None


class MessageRow(Struct, frozen=True):
    """A message in a list; ``payload`` is JSON, encrypted if there is a ``key_id``.

    ``done`` of ``groups`` named groups have completed it.
    """

    part_id: int
    off: int
    queue: str
    partition: str
    namespace: str
    task: str
    priority: int
    created_at: datetime
    transaction_id: str
    trace_id: str | None
    producer_sub: str | None
    payload: str
    status: str
    queue_mode: str
    done: int
    groups: int
    lease_ends: datetime | None
    key_id: str | None
    headers: str | None = None


class MessageDetail(Struct, frozen=True):
    """One message with all that is known of it; ``group_*`` are columns, with one element per group."""

    off: int
    queue: str
    partition: str
    namespace: str
    task: str
    created_at: datetime
    transaction_id: str
    trace_id: str | None
    producer_sub: str | None
    payload: str
    status: str
    lease_ends: datetime | None
    lease_time: int
    retry_limit: int
    retry_delay: int | None
    priority: int
    group_name: Sequence[str] | None
    group_done: Sequence[bool] | None
    group_lease_ends: Sequence[datetime | None] | None
    group_failed_at: Sequence[datetime | None] | None
    group_error: Sequence[str | None] | None
    error: str | None
    retry_count: int | None
    ttl: int
    key_id: str | None
    headers: str | None = None


class DeadLetterFilter(Struct, frozen=True):
    """A filter of dead letters; ``None`` matches any. The time is that of the failure.

    ``error``: its first ``ERROR_CHARS`` characters.
    """

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    error: str | None = None
    begin: datetime | None = None
    end: datetime | None = None


class TimerRow(Struct, frozen=True):
    """A timer; ``message`` is the object of its message in a segment."""

    key: str
    partition: str
    transaction_id: str
    deliver_at: datetime
    message: str


class CronSchedule(Struct, frozen=True):
    """A cron schedule of a queue; ``catch_up``: how many of the times that were missed are made up for."""

    queue: str
    name: str
    cron: str
    time_zone: str
    catch_up: int
    partition: str


class ScheduleRow(CronSchedule, frozen=True):
    """A cron schedule in a list; ``message`` is the object of each of its messages."""

    message: str
    next_at: datetime


class DeadLetterRow(Struct, frozen=True):
    """A dead letter in a list."""

    id: int
    part_id: int
    off: int
    queue: str
    partition: str
    consumer_group: str
    transaction_id: str
    trace_id: str | None
    producer_sub: str | None
    payload: str
    error: str
    retry_count: int
    created_at: datetime
    failed_at: datetime
    key_id: str | None
    headers: str | None = None


class DeadLetter(Struct, frozen=True):
    """A dead letter to replay."""

    id: int
    part_id: int
    queue: str
    partition: str
    consumer_group: str
    transaction_id: str
    trace_id: str | None
    producer_sub: str | None
    payload: str
    key_id: str | None
    headers: str | None = None


class ErrorRow(Struct, frozen=True):
    """The dead letters with one error text; ``counts``: by spans of equal length from ``begun_at`` to ``ends_at``."""

    error: str
    number: int
    first_failed_at: datetime
    last_failed_at: datetime
    counts: Sequence[int]
    begun_at: datetime
    ends_at: datetime


class Failure(Struct, frozen=True):
    """A position in the list of dead letters; without values: before the newest."""

    failed_at: datetime | None
    id: int | None


class Replayed(Struct, frozen=True):
    """The result of a replay.

    ``moved`` or ``duplicate``, with the offset; ``missing``; ``unknown`` partition; ``stale`` push options; ``full``.
    """

    outcome: str
    off: int | None


class GivenUp(Struct, frozen=True):
    """Whether a message exists, and the groups for which it was dead-lettered."""

    known: bool
    groups: Sequence[str] | None


# ---------------------------------------------------------------- consumer groups


class GroupRow(Struct, frozen=True):
    """A consumer group of a queue with its statistics; those are ``None`` until the group was counted."""

    grp_id: int
    name: str
    queue: str
    subscription_mode: str
    since: datetime
    created_at: datetime
    members: int | None
    partitions_with_lag: int | None
    total_lag: int | None
    leases: int | None
    leased_messages: int | None
    consumed: int | None
    untouched: bool | None
    oldest_at: datetime | None
    computed_at: datetime | None
    paused: bool = False


class GroupOrder(Enum):
    """The order of a list of groups, or of the queues of one."""

    NAME = "name"
    LAG = "lag"
    AGE = "age"


class QueuesOfGroup(Struct, frozen=True):
    """A filter of the queues of a group; ``search``: a text that the name of the queue contains; others as below."""

    group: str
    queue: str | None = None
    search: str | None = None
    behind: bool = False


class GroupFilter(Struct, frozen=True):
    """A filter of groups; ``None`` matches any. ``search``: a text that the name of group or queue contains.

    ``behind``: only groups with undone messages.
    """

    queues: Sequence[str] | None = None
    search: str | None = None
    behind: bool = False


class CursorOrder(Enum):
    """The order of a list of cursors."""

    NAME = "name"
    LAG = "lag"
    AGE = "age"
    ACKNOWLEDGED = "acknowledged"


class CursorFilter(Struct, frozen=True):
    """A filter of the cursors of a group; ``None`` matches any. ``search``: a text that the partition's name contains.

    ``behind``: only cursors with undone messages.
    """

    group: str
    queue: str | None = None
    search: str | None = None
    behind: bool = False


class GroupsSummary(Struct, frozen=True):
    """Statistics of groups, added up: live leases, messages in flight, messages that were done."""

    groups: int
    leases: int
    leased_messages: int
    consumed: int


class Consumers(Struct, frozen=True):
    """The consumers of some queues: whether some name no group, and the number of groups."""

    queue_mode: bool
    groups: int


class CursorRow(Struct, frozen=True):
    """The cursor of a group in a partition; ``lease``: a live one; ``consumed_at``: push of its last done message.

    ``total``: cursors of its queue that match; ``None``: not known yet.
    """

    queue: str
    partition: str
    undone: int
    consumed: int
    lease: UUID | None
    oldest_at: datetime | None
    consumed_at: datetime | None
    total: int | None


class ConnectedRow(Struct, frozen=True):
    """A connected consumer: see ``queen.core.metrics.Connected``; ``total``: how many there are."""

    kind: str
    address: str
    since: datetime
    in_flight: int | None
    namespace: str | None
    task: str | None
    worker: str
    total: int


class GroupLagRow(Struct, frozen=True):
    """The largest lag of a group in a bucket, in messages, and its longest wait in seconds."""

    bucket: datetime
    lag: int
    oldest_s: float


class LaggingRow(Struct, frozen=True):
    """A partition in which a group has a backlog."""

    consumer_group: str
    queue: str
    partition: str
    part_id: int
    undone: int
    lease: UUID | None
    oldest_at: datetime
    consumed_at: datetime | None


class Seek(Struct, frozen=True):
    """The target of a seek: the log end, a time, or (neither) the oldest message.

    ``partition``: only that one; ``None`` means all of the queue.
    """

    group: str
    queue: str
    partition: str | None = None
    to_end: bool = False
    since: datetime | None = None


class SeekPreview(Struct, frozen=True):
    """What a seek would do: cursors that it moves, messages that it skips, and done ones that it delivers again."""

    partitions: int
    skipped: int
    repeated: int


class SeekResult(Struct, frozen=True):
    """The number of moved cursors, and when the message before the last one was pushed."""

    updated: int
    moved_to: datetime | None


# ---------------------------------------------------------------- traces


class Trace(Struct, frozen=True):
    """A record of a consumer about a message; ``data`` is JSON."""

    key: MessageKey
    group: str
    event: str
    data: str
    worker: str
    names: Sequence[str]


class TraceRow(Struct, frozen=True):
    """A recorded trace with its message; ``payload`` is ``None`` if the message was removed."""

    id: int
    event: str
    data: str
    group: str
    worker: str
    created_at: datetime
    names: Sequence[str] | None
    part_id: int
    off: int
    queue: str
    partition: str
    transaction_id: str
    payload: str | None
    key_id: str | None


class TraceNameRow(Struct, frozen=True):
    """A trace name with its numbers of traces and messages."""

    name: str
    traces: int
    messages: int
    last_seen: datetime


# ---------------------------------------------------------------- statistics, metrics


class Refreshed(Struct, frozen=True):
    """The result of one page of a refresh of the statistics; ``skipped``: another server does it.

    ``last``: where the next page begins; ``None``: this was the last one.
    """

    queues: int | None
    groups: int | None
    removed: int | None
    skipped: bool
    last: int | None


class GroupBy(Struct, frozen=True):
    """The key of a series."""

    bucket: bool = True
    queue: bool = False
    worker: bool = False


class QueueMetricsRow(Struct, frozen=True):
    """The counts of queues; a key is ``None`` if the series are not split by it."""

    bucket: datetime | None
    queue: str | None
    worker: str | None
    push_requests: int
    push_messages: int
    pop_requests: int
    pop_messages: int
    pop_empty: int
    ack_requests: int
    ack_success: int
    ack_failed: int
    dead_letters: int
    transactions: int
    lag_ms_sum: float
    lag_ms_max: float
    parked: int

    @property
    def lag_ms(self) -> float:
        """Average age of the messages when they were popped."""
        return self.lag_ms_sum / self.pop_messages if self.pop_messages else 0.0


class WorkerFilter(Struct, frozen=True):
    """A filter of workers; ``None`` matches any. ``names`` are ``host:process id``."""

    hostname: str | None = None
    pid: int | None = None
    names: Sequence[str] | None = None


class WorkerMetricsRow(Struct, frozen=True):
    """The state of workers; a key is ``None`` if the series are not split by it. CPU is percent of one core."""

    bucket: datetime | None
    hostname: str | None
    worker_id: int | None
    samples: int
    jobs: int
    db_errors: int
    loop_lag_ms: float
    loop_lag_ms_max: float
    cpu_user: float
    cpu_user_max: float
    cpu_system: float
    cpu_system_max: float
    rss_bytes: int
    rss_bytes_max: int
    virtual_bytes: int
    pool_size: int
    pool_idle: int
    queued: int
    waiting: int
    last_seen: datetime
    pool_idle_avg: float
    queued_avg: float


class WorkerLevelsRow(Struct, frozen=True):
    """What a worker measured once a second in a bucket; the order of each list is that of ``core.metrics.Levels``."""

    bucket: datetime
    hostname: str
    worker_id: int
    port: int | None
    seconds: int
    averages: list[float]
    lows: list[float]
    highs: list[float]
    lasts: list[float]


class Found(Struct, frozen=True):
    """A page of names, and their total number."""

    total: int
    names: Sequence[str]


class ParkedRow(Struct, frozen=True):
    """Maximum number of long polls of a queue that waited at once in a worker."""

    bucket: datetime
    queue: str
    worker: str
    parked: int


class RetentionRow(Struct, frozen=True):
    """Messages that retention and eviction removed."""

    bucket: datetime
    retention_messages: int
    completed_retention_messages: int
    eviction_messages: int
    events: int
