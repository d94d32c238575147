"""What the engine needs from outside, as protocols. ``queen.postgres`` and ``queen.peers`` implement them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from queen.log.append import AppendBatch, Appended
from queen.log.requests import Slice, StateRows, TimerChange, TimerVerdict
from queen.spool.format import SpooledBatch

#: The group in notifications for queues of simple-mq. No consumer group of Queen can have this name, so they wake no
#: long poll of Queen's.
SIMPLE_MQ_GROUP = "\0simple-mq"


class LimitedQueue(Struct, frozen=True):
    """A queue that holds at most ``max_size`` messages."""

    queue_id: int
    max_size: int


class PushOptions(Struct, frozen=True):
    """What a push has to know of queues, by name: which are encrypted, have a maximum size, or follow another queue."""

    version: int
    encrypted: frozenset[str]
    limited: Mapping[str, LimitedQueue]
    colocated: Mapping[str, str] = {}

    def limits_of(self, partitions: Iterable[tuple[str, str]]) -> list[int] | None:
        """The numbers of the queues of these partitions that have a maximum size; ``None``: there is none."""
        queues = {queue for queue, _ in partitions}
        return [limit.queue_id for queue, limit in self.limited.items() if queue in queues] or None


class PopColumns(Struct):
    """The arguments of one pop call: see ``sql/procedures/pop_unified_batch.sql``."""

    batch: list[int] = []
    parts: list[int] = []
    lease: list[UUID | None] = []
    seconds: list[int | None] = []
    pop: list[int] = []
    grp: list[int] = []
    part: list[int | None] = []


class WaitingColumns(Struct):
    """Waiting pops that a push may serve: see ``sql/procedures/push_to_waiters.sql``."""

    grp: list[int] = []
    lease: list[UUID | None] = []
    batch: list[int] = []
    parts: list[int] = []
    seconds: list[int | None] = []


class Given(Struct, frozen=True):
    """What a waiting pop (counted from 1) gets from a push to one partition: offsets ``first`` to ``upto``."""

    pop: int
    part_id: int
    first: int
    upto: int
    seen: int
    attempt: int


class Delivered(Struct, frozen=True):
    """A slice that a pop gets; ``pop`` counts from 1, ``skip`` has the offsets of the slice that are done already."""

    pop: int
    grp_id: int
    part_id: int
    upto: int
    skip: Sequence[int] | None
    seen: int
    attempt: int
    slice: Slice


class Unserved(Struct, frozen=True):
    """A group, or one partition of it, that had fewer messages than its pops asked for.

    ``ready_in``: seconds until a cursor becomes ready by itself; ``inf``: not before a push; ``-inf``: the call reached
    one of its limits; ``None``: the group or the partition does not exist. ``prefetched``: whether a worker may be
    about to release messages that it has prefetched.
    """

    grp_id: int
    part_id: int | None
    ready_in: float | None
    prefetched: bool = False


class AckColumns(Struct):
    """The arguments of one ack call: see ``sql/procedures/ack_messages.sql``."""

    part: list[int] = []
    grp: list[int] = []
    lease: list[UUID | None] = []
    kind: list[str] = []
    first: list[int | None] = []
    last: list[int | None] = []
    hash: list[bytes | None] = []
    error: list[str | None] = []


class AckRow(Struct, frozen=True):
    """The outcome of one element of an ack call.

    Attributes:
        ord: the number of the element, from 1.
        first: its first offset.
        done_upto, also_done: offsets that were done before the call: all up to this, and these.
        within: offsets above it were refused; ``None``: none was.
        exists_upto: no message above it exists; ``None``: all of the element exist.
        released: the lease ended.
        dead: a dead letter was written.
        ready: the lease ended, and more is to be delivered.
    """

    ord: int
    problem: str | None
    first: int | None
    done_upto: int | None
    also_done: Sequence[int] | None
    within: int | None
    exists_upto: int | None
    released: bool
    dead: bool
    ready: bool


class CompleteColumns(Struct):
    """The arguments of one call that completes messages: see ``sql/procedures/complete_messages.sql``."""

    part: list[int] = []
    grp: list[int] = []
    lease: list[UUID] = []
    first: list[int] = []
    last: list[int] = []
    next_lease: list[UUID | None] = []
    next_batch: list[int | None] = []
    next_seconds: list[int | None] = []


class CompletedRow(Struct, frozen=True):
    """The outcome of one element of such a call, if it was executed.

    Attributes:
        ord: the number of the element, from 1.
        done_upto: offsets up to it were done before.
        released: the lease ended.
        ready: the lease ended, and more is to be delivered.
        upto, seen, attempt, slice: the prefetched messages, as in ``Delivered``; ``None`` if there are none.
    """

    ord: int
    done_upto: int
    released: bool
    ready: bool
    upto: int | None
    seen: int
    attempt: int
    slice: Slice | None


class TransactionRows(Struct, frozen=True):
    """The outcome of a transaction.

    Attributes:
        made: the number of each new partition, ``None`` if its queue was deleted.
        due: when each timer is due, by its number from 1.
        stale: nothing was done: the options of queues have changed, or one was deleted.
    """

    undone: bool
    made: dict[int, int | None]
    appended: list[Appended]
    acks: list[AckRow]
    due: dict[int, datetime] = {}
    stale: bool = False


class StateColumns(Struct):
    """The rows of a stream's state that a cycle writes: see ``sql/procedures/cycle_stream.sql``."""

    key: list[str] = []
    value: list[str | None] = []
    window_end: list[float | None] = []


class CycleRows(Struct, frozen=True):
    """The outcome of a cycle.

    Attributes:
        undone: nothing was done, because of ``problem`` or because a partition of the push is unknown.
        noop: the problem is no failure: a window close that lost a race.
        completed: messages that the ack has completed; ``None`` if only an earlier attempt knew that.
    """

    undone: bool
    problem: str | None
    noop: bool
    appended: list[Appended]
    completed: int | None
    released: bool
    dead: bool
    ready: bool


class Subscription(Struct, frozen=True):
    """A consumer group on a queue; ``grp_id`` is ``None`` if it does not exist and was not to be created.

    Attributes:
        complete: false while it lacks cursors.
        starts_in: seconds to its start, while that lies in the future.
        ready: while it is not complete, the number of partitions that have been ready since it began, up to the number
            that was asked for.
    """

    queue_id: int | None
    grp_id: int | None
    complete: bool | None
    starts_in: float | None
    ready: int | None = None

    @property
    def unfinished(self) -> bool:
        """Whether more calls are needed to create all its cursors."""
        return self.complete is False


class PartitionName(Struct, frozen=True):
    """A partition by number and name."""

    part_id: int
    queue_id: int
    queue: str
    partition: str


class LockKind(Enum):
    """The kinds of locks for which calls wait: see ``sql/procedures/find_locked.sql``."""

    LIMITED = "limited"
    MAKING = "making"
    SUBSCRIBING = "subscribing"
    PARTITION = "partition"
    CURSOR = "cursor"
    LEASE = "lease"
    ENQUEUING = "enqueuing"

    __hash__ = object.__hash__


class Lock(NamedTuple):
    """A lock that a call needs, by numbers or names."""

    kind: LockKind
    id: int | None = None
    grp_id: int | None = None
    name: str | None = None
    group: str | None = None


class Database(Protocol):
    """The stored procedures that messages need, one method each.

    Methods raise ``DatabaseUnavailableError`` if there is no connection, ``OutcomeUnknownError`` if it broke during the
    call, ``TooSlowError`` if PostgreSQL cancelled the call at its time limit (``call_limit_s`` of
    ``queen.engine.failures``), and ``DataRejectedError`` if PostgreSQL refused the data.
    """

    async def push(self, batch: AppendBatch, *, again: bool) -> list[Appended]: ...
    async def read_push_options(self) -> PushOptions: ...
    async def push_to_waiters(
        self, batch: AppendBatch, waiting: WaitingColumns
    ) -> tuple[list[Appended], list[Given]]: ...
    async def pop(self, columns: PopColumns) -> tuple[list[Delivered], list[Unserved]]: ...
    async def complete(self, columns: CompleteColumns) -> list[CompletedRow]: ...
    async def ack(self, columns: AckColumns) -> list[AckRow]: ...
    async def prefetched_for(self, queue: str | None, group: str | None, part_id: int | None) -> float: ...
    async def cursors_prefetched_for(self, cursors: Sequence[tuple[int, int]]) -> float: ...
    async def renew_leases(self, leases: list[UUID], seconds: list[int]) -> list[tuple[int, datetime | None]]: ...
    async def release_leases(self, leases: list[UUID]) -> None: ...
    async def execute(
        self, push: AppendBatch, ack: AckColumns, required: Sequence[UUID] | None, timers: Sequence[TimerChange] = (),
        *, again: bool,
    ) -> TransactionRows: ...  # fmt: skip
    async def cycle(
        self, stream: int, source: tuple[int, int | None], push: AppendBatch, state: StateColumns,
        ack: AckColumns | None, *, release: bool, again: bool,
    ) -> CycleRows: ...  # fmt: skip
    async def change_timers(self, changes: Sequence[TimerChange], version: int) -> list[TimerVerdict]: ...
    async def stream_state(
        self, stream: int, part_id: int, keys: Sequence[str] | None, prefix: str | None, ripe: float | None
    ) -> StateRows | None: ...
    async def resolve_partitions(
        self, names: Sequence[tuple[str, str]], *, create: bool
    ) -> list[tuple[int | None, int | None]]: ...
    async def describe_partitions(self, part_ids: Sequence[int]) -> list[PartitionName]: ...
    async def subscribe(
        self, queue: str, group: str, mode: str, since: datetime | None, *, create_queue: bool, create_group: bool,
        part: int | None = None, wanted: int | None = None,
    ) -> Subscription: ...  # fmt: skip
    async def find_queues(self, namespace: str | None, task: str | None) -> list[tuple[str, int]]: ...
    async def now(self) -> datetime: ...
    async def find_server_made(self, part_ids: Sequence[int], offsets: Sequence[int]) -> list[bool]: ...
    async def find_locked(self, locks: Collection[Lock]) -> frozenset[Lock]: ...


class Replayed(Struct, frozen=True):
    """The outcome of a replay call for a lane of a spool file.

    Attributes:
        upto: how many requests of the lane are stored now; the one's complement of that if the lane is fenced.
        unknown: partitions that do not exist; then nothing was stored.
        stale: nothing was stored because the push options have changed.
    """

    upto: int
    unknown: Sequence[int] = ()
    stale: bool = False


class OutboxPartition(Struct, frozen=True):
    """Messages that SQL has pushed to a partition, in order.

    Attributes:
        queue: ``None`` if it was deleted.
        fields: what stands first in the objects of the messages, each field with a comma behind it.
        held: the partition is held back.
    """

    queue_id: int
    queue: str | None
    partition: str
    transaction_ids: list[str | None]
    fields: list[str | None]
    payloads: list[bytes]
    held: bool = False


class OutboxRead(Struct, frozen=True):
    """The next messages of the outbox, and what their move has to name (``sql/procedures/outbox/move_outbox.sql``).

    Attributes:
        rows: the number of rows, one per call of ``queen.push``.
    """

    moves: int
    target: str
    done: bool
    last_xid: str
    last_seq: int
    rows: int
    partitions: Sequence[OutboxPartition]


class HeldRead(Struct, frozen=True):
    """The next messages of one partition that is held back, and what their move has to name.

    Attributes:
        tries: how often they could not be moved since the last success.
        done: no more wait in the partition.
    """

    messages: OutboxPartition
    tries: int
    moved_seq: int
    last_seq: int
    done: bool


class Moved(Struct, frozen=True):
    """Whether messages were moved; if not, partitions that are unknown, and whether the push options have changed.

    Attributes:
        appended: of partitions whose messages waiting pops have got; they all were stored.
        given: what these pops have got.
    """

    moved: bool
    unknown: Sequence[int]
    stale: bool
    appended: Sequence[Appended] = ()
    given: Sequence[Given] = ()


class OutboxDatabase(Protocol):
    """The procedures that move the outbox into the log; they raise what those of ``Database`` raise."""

    async def restart(self) -> None: ...
    async def read(self, messages: int, size: int, pause_ms: int = 0, looks: int = 1) -> OutboxRead | None: ...
    async def move(
        self,
        read: OutboxRead,
        batch: AppendBatch,
        waiting: WaitingColumns | None,
        hold: Collection[tuple[int, str]],
        reason: str,
    ) -> Moved: ...
    async def read_held(self, messages: int, size: int) -> HeldRead | None: ...
    async def move_held(self, read: HeldRead, batch: AppendBatch, limit_s: float | None) -> Moved: ...
    async def postpone_held(self, read: HeldRead, reason: str) -> None: ...
    async def let_go(self) -> int: ...


class TimerMessage(Struct, frozen=True):
    """A timer that is due, and its message; ``queue`` is ``None`` if its queue was deleted."""

    deliver_at: datetime
    seq: int
    queue_id: int
    queue: str | None
    partition: str
    transaction_id: str
    entry: bytes


class TimersRead(Struct, frozen=True):
    """The next timers that are due, and seconds until another one is, if it is known."""

    messages: Sequence[TimerMessage]
    due_in_s: float | None


class TimersDatabase(Protocol):
    """The procedures that move timers into the log; they raise what those of ``Database`` raise."""

    async def read(
        self,
        since: datetime | None,
        messages: int,
        size: int,
        ahead_s: float,
        held: Sequence[tuple[int, str]],
        limit_s: float | None,
    ) -> TimersRead: ...
    async def move(self, timers: Sequence[TimerMessage], batch: AppendBatch, limit_s: float | None) -> Moved: ...


class SpoolDatabase(Protocol):
    """The procedures for the replay of the spool, on connections of its own."""

    async def replay(
        self,
        lane: UUID,
        first: int,
        upto: int,
        sent_at: datetime | None,
        batch: AppendBatch,
        limit_s: float | None = None,
    ) -> Replayed: ...
    async def forget(self, lanes: Sequence[UUID]) -> None: ...
    async def commit_something(self) -> None: ...


class SpooledKind(Protocol):
    """Stores requests of another interface that went through the spool."""

    async def replay(
        self,
        lane: UUID,
        first: int,
        upto: int,
        sent_at: datetime,
        requests: Sequence[Sequence[SpooledBatch]],
        limit_s: float | None,
    ) -> int:
        """Stores requests of a lane, and its position; returns the position, as of ``SpoolDatabase.replay``."""


class NotificationKind(Enum):
    """What a notification says of a queue.

    MESSAGE_AVAILABLE: messages were stored. PARTITION_FREE: a lease of one group ended, and there are more messages.
    CONFIGURATION_CHANGED: the queue was configured or deleted, and caches may be wrong; with an empty queue name: the
    whole server was configured.
    """

    MESSAGE_AVAILABLE = "MESSAGE_AVAILABLE"
    PARTITION_FREE = "PARTITION_FREE"
    CONFIGURATION_CHANGED = "CONFIGURATION_CHANGED"


class Notify(Protocol):
    """Takes notifications."""

    def __call__(self, notification: "Notification", /) -> None: ...


class Notification(Struct, frozen=True, omit_defaults=True):
    """A short message to other workers: messages of a queue were stored or released, or it was configured.

    Attributes:
        messages: how many waiting pops may find messages.
        group: only pops of this group may, because a lease of it ended; ``None``: pops of all groups.
        changed: the queue was configured or deleted.
        served: groups that have got these messages.
    """

    queue: str
    messages: int
    group: str | None = None
    changed: bool = False
    served: tuple[str, ...] = ()

    @property
    def kind(self) -> NotificationKind:
        """The kind of the notification."""
        if self.changed:
            return NotificationKind.CONFIGURATION_CHANGED
        return NotificationKind.MESSAGE_AVAILABLE if self.group is None else NotificationKind.PARTITION_FREE


def configuration_changed(queue: str) -> Notification:
    """The notification that a queue, or with an empty name the server, was configured."""
    return Notification(queue, 1, changed=True)


class Transport(Protocol):
    """Sends packets of notifications to other workers, and receives theirs.

    ``receive`` is called with each packet that arrives; ``missed`` after a time in which packets may have been lost.
    """

    name: str
    #: Seconds between two packets; 0 for a transport that sends each at once.
    interval_s: float
    #: Whether each packet reaches every worker; else one worker of an instance gets it, and passes it on.
    reaches_all: bool

    def send(self, packets: Sequence[bytes], *, waiting_only: bool = False) -> None:
        """Sends packets. ``waiting_only``: workers without long polls do not need them, and may be left out."""
        ...

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None: ...
    async def stop(self) -> None: ...
