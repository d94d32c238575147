"""The operations of clients, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

from .state import QUEUE_MODE, Lane, MessageId, Options, TransactionId


@dataclass(frozen=True, slots=True)
class Place:
    """What names a partition."""

    queue: str
    partition: str

    @property
    def lane(self) -> Lane:
        """The address of the partition."""
        return Lane(self.queue, self.partition)


@dataclass(frozen=True, slots=True)
class PushItem:
    """A message to store; an empty transaction id counts as none."""

    queue: str
    payload: object = None
    partition: str = "Default"
    transaction_id: TransactionId | None = None

    @property
    def lane(self) -> Lane:
        """Where the message goes."""
        return Lane(self.queue, self.partition)


@dataclass(frozen=True, slots=True)
class Push:
    """Store the messages of one request."""

    items: tuple[PushItem, ...]


@dataclass(frozen=True, slots=True)
class Pop:
    """Take messages of a queue, of one partition, or of the queues with a namespace and a task.

    `lease` is the id that the server chose for the answer: an input, because the model has no chance in it.
    `subscription_mode` and `subscription_from` matter at a group's first pop only. `partitions` below 1 is no limit.
    """

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str | None = None
    batch: int = 1
    partitions: int = 1
    auto_ack: bool = False
    lease: str = "lease"
    lease_seconds: float | None = None
    subscription_mode: str | None = None
    subscription_from: float | Literal["now"] | None = None

    @property
    def partitions_max(self) -> float:
        """The most partitions to take messages from."""
        return self.partitions if self.partitions >= 1 else float("inf")

    @property
    def group_name(self) -> str:
        """The group, by its stored name."""
        return self.group or QUEUE_MODE


@dataclass(frozen=True, slots=True)
class AckItem(Place):
    """What became of one message: `completed`, `failed`, `retry` or `dlq`."""

    transaction_id: TransactionId
    status: str = "completed"
    group: str | None = None
    lease: str | None = None
    error: str | None = None

    @property
    def group_name(self) -> str:
        """The group, by its stored name."""
        return self.group or QUEUE_MODE


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge messages."""

    items: tuple[AckItem, ...]


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Ask for more time."""

    lease: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Transaction:
    """Pushes and acks that all happen or none does."""

    operations: tuple[PushItem | AckItem, ...]
    required_leases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configure:
    """Make a queue, or replace its options, namespace and task."""

    queue: str
    options: Options = field(default_factory=Options)
    namespace: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Remove a queue and all that belongs to it."""

    queue: str


@dataclass(frozen=True, slots=True)
class Register:
    """Create a stream, or find it by name; `chain` represents its operators."""

    stream: str
    chain: str
    reset: bool = False


@dataclass(frozen=True, slots=True)
class StateChange:
    """A row of a stream's state to write; `None` deletes it."""

    key: str
    value: object | None
    window_end: float | None = None


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a worker of a stream made of its input: an ack under a lease, state and outputs, all or none.

    A `completed` ack speaks for everything up to its message; `dlq` for that alone.
    """

    stream: str
    queue: str
    partition: str
    group: str | None = None
    changes: tuple[StateChange, ...] = ()
    pushes: tuple[PushItem, ...] = ()
    ack: AckItem | None = None
    release: bool = True

    @property
    def lane(self) -> Lane:
        """The partition of the input."""
        return Lane(self.queue, self.partition)

    @property
    def group_name(self) -> str:
        """The group that reads the input, by its stored name."""
        return self.group or QUEUE_MODE

    @property
    def is_flush(self) -> bool:
        """Whether it is a window close: it pushes what it has read of the state and deletes that, without a lease."""
        return self.ack is None and bool(self.pushes) and any(change.value is None for change in self.changes)


@dataclass(frozen=True, slots=True)
class DeleteMessage(Place):
    """Remove one message, named by its transaction id or by the id that the server gave it."""

    transaction_id: TransactionId


@dataclass(frozen=True, slots=True)
class GiveUp(Place):
    """Move one message to the dead letters of a group, or of all groups that have not done it.

    On a queue without groups, queue mode gives it up.
    """

    transaction_id: TransactionId
    group: str | None = None
    error: str = "given up"


@dataclass(frozen=True, slots=True)
class Seek:
    """Put the cursors of a group, or the one in a partition, after the last message not younger than a time.

    `to_end` puts them after the newest message. By default they go before the oldest.
    """

    queue: str
    group: str
    partition: str | None = None
    to_end: bool = False
    since: float = float("-inf")


@dataclass(frozen=True, slots=True)
class UpdateSubscription:
    """Change the stored start of a group."""

    queue: str
    group: str
    since: float


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Forget a group; without `subscription` its start is kept, and it begins there again."""

    queue: str
    group: str
    subscription: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause a queue, or a group of it; or resume it."""

    queue: str
    group: str | None
    paused: bool


@dataclass(frozen=True, slots=True)
class RemoveExpired:
    """Retention: remove messages as the options of the queue allow."""

    queue: str


@dataclass(frozen=True, slots=True)
class EvictOverdue:
    """Eviction: groups give up messages that have waited longer than the queue allows."""

    queue: str


@dataclass(frozen=True, slots=True)
class RemoveIdle:
    """Clean-up: remove empty partitions without a push for this many seconds."""

    queue: str
    seconds: float


Operation: TypeAlias = (
    Push
    | Pop
    | Ack
    | RenewLease
    | Transaction
    | Configure
    | DeleteQueue
    | DeleteMessage
    | GiveUp
    | Seek
    | UpdateSubscription
    | DeleteGroup
    | Pause
    | Register
    | Cycle
    | RemoveExpired
    | EvictOverdue
    | RemoveIdle
)


@dataclass(frozen=True, slots=True)
class PushResult:
    """What became of an item: stored, already stored under this id, refused, or (in a transaction) without room."""

    status: Literal["queued", "duplicate", "refused", "full"]
    message: MessageId | None = None


@dataclass(frozen=True, slots=True)
class QueueFull:
    """Nothing of the request is stored, because a queue would become too large."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One result an item, in the order of the request."""

    results: tuple[PushResult, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in a pop's answer; an `attempt` of `None` was not observed."""

    message: MessageId
    transaction_id: TransactionId
    payload: object
    created_at: float
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Popped:
    """The messages taken; without a lease when there are none or when they are done at once."""

    lease: str | None = None
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class AckResult:
    """An item's verdict: refused with an error, or carried out."""

    error: str | None = None
    noop: bool = False
    dead_lettered: bool = False


@dataclass(frozen=True, slots=True)
class Acked:
    """One result an item, in the order of the request."""

    results: tuple[AckResult, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """How many cursors have more time, and the earliest end among them."""

    cursors: int
    until: float | None


@dataclass(frozen=True, slots=True)
class Committed:
    """Every operation happened: one result each, in order."""

    results: tuple[PushResult | AckResult, ...]


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Nothing happened, because of the operation at this index."""

    index: int
    error: str


@dataclass(frozen=True, slots=True)
class Configured:
    """The options are in force."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The queue is gone; `existed` says whether there was one."""

    existed: bool


@dataclass(frozen=True, slots=True)
class Registered:
    """Whether the stream is new, or has another chain, so that nothing was changed."""

    fresh: bool
    conflict: bool


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A cycle that happened, or an error and nothing; `completed` counts the messages that the ack has completed.

    With `noop` the error is why a window close did nothing, which is no failure.
    """

    error: str | None = None
    noop: bool = False
    results: tuple[PushResult, ...] = ()
    completed: int = 0
    released: bool = False
    dead_lettered: bool = False


@dataclass(frozen=True, slots=True)
class DeletedMessage:
    """The message is gone; `existed` says whether there was one."""

    existed: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Whether the message is known, and the groups for which it was given up."""

    known: bool
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SeekResult:
    """How many cursors were put."""

    cursors: int


@dataclass(frozen=True, slots=True)
class UpdatedSubscription:
    """The start is changed; `known` says whether the queue has the group."""

    known: bool


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """How many cursors the group had; none when the queue did not have the group."""

    cursors: int | None


@dataclass(frozen=True, slots=True)
class Paused:
    """Whether there is such a queue, or group."""

    known: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """The oldest offset that each partition of the queue has kept; its head if it kept none."""

    oldest: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Evicted:
    """How often a group gave up a message."""

    count: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The partitions that the queue has now."""

    partitions: frozenset[str]


Outcome: TypeAlias = (
    Pushed
    | QueueFull
    | Popped
    | Acked
    | Renewed
    | Committed
    | RolledBack
    | Configured
    | Deleted
    | DeletedMessage
    | GivenUp
    | SeekResult
    | UpdatedSubscription
    | DeletedGroup
    | Paused
    | Registered
    | CycleResult
    | Removed
    | Evicted
    | Cleaned
)
