"""The state of the broker: immutable values, and updates that several operations share.

A state is never changed; an update answers a new one. A message is known by queue, partition and offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

QUEUE_MODE = "__QUEUE_MODE__"


class Lane(NamedTuple):
    """The address of a partition."""

    queue: str
    partition: str


class MessageId(NamedTuple):
    """The name that the server gives a message."""

    queue: str
    partition: str
    offset: int

    @property
    def lane(self) -> Lane:
        """The partition that holds the message."""
        return Lane(self.queue, self.partition)


TransactionId: TypeAlias = str | MessageId
"""A client's choice, or the message's own id when the client made none."""


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a partition's log; a deleted one has lost its payload, and the id that its producer chose."""

    offset: int
    transaction_id: TransactionId | None
    payload: object
    created_at: float
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one pop to the undone messages up to `upto`; it ends when its cursor is ready."""

    id: str
    upto: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one group is in one partition.

    `ready` is the time from which the cursor may be claimed: while a lease lives, the lease's end.
    `failures` counts for each message that is not done. `delivered` are the undone messages that the group has seen,
    `tries` its deliveries since there was last none of them.
    """

    ready: float
    acked: int = -1
    ahead: frozenset[int] = frozenset()
    lease: Lease | None = None
    failures: Mapping[int, int] = field(default_factory=dict)
    delivered: frozenset[int] = frozenset()
    tries: int = 0

    def is_done(self, offset: int) -> bool:
        """Whether the group has finished with the message."""
        return offset <= self.acked or offset in self.ahead

    def live_lease(self, now: float) -> Lease | None:
        """The lease, unless its time is over."""
        return self.lease if now < self.ready else None

    def complete(self, offsets: Iterable[int]) -> Cursor:
        """Finish messages; move over the contiguous ones and never back (G-ACK-1)."""
        acked, ahead = self.acked, {offset for offset in {*self.ahead, *offsets} if offset > self.acked}
        while acked + 1 in ahead:
            acked += 1
            ahead.remove(acked)
        moved = replace(self, acked=acked, ahead=frozenset(ahead))
        return replace(
            moved,
            failures={offset: n for offset, n in self.failures.items() if not moved.is_done(offset)},
            delivered=frozenset(offset for offset in self.delivered if not moved.is_done(offset)),
        )


class Remembered(NamedTuple):
    """A row of a stream's state; `window_end` is when the window of the row is over, if it is one of a window."""

    value: object
    window_end: float | None
    changed_at: float


@dataclass(frozen=True, slots=True)
class Partition:
    """A log, one cursor for each group of the queue, and what streams remember, by stream and key.

    The model keeps every message; those below offset `removed` no longer exist for clients.
    """

    made_at: float
    messages: tuple[Message, ...] = ()
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    remembered: Mapping[tuple[str, str], Remembered] = field(default_factory=dict)
    removed: int = 0

    @property
    def head(self) -> int:
        """The next offset."""
        return len(self.messages)

    @property
    def youngest(self) -> float:
        """When the last message came; before all time in an empty partition."""
        return self.messages[-1].created_at if self.messages else float("-inf")

    @property
    def kept(self) -> tuple[Message, ...]:
        """The messages that are still there."""
        return self.messages[self.removed :]

    def has(self, message: Message) -> bool:
        """Whether a message still exists: neither removed by retention, nor deleted."""
        return message.offset >= self.removed and not message.deleted

    def last_until(self, since: float) -> int:
        """The offset of the last message not younger than a time, or else of the last that is gone; -1 for none."""
        return max([self.removed - 1, *[message.offset for message in self.messages if message.created_at <= since]])

    def cursor_after(self, acked: int, now: float) -> Cursor:
        """The cursor of a group that has done everything up to an offset, and has no need of what was deleted."""
        deleted = [message.offset for message in self.messages if message.deleted]
        return Cursor(ready=now, acked=acked).complete(deleted)

    def find(self, transaction_id: TransactionId) -> Message | None:
        """The message kept under a transaction id."""
        return next((message for message in self.kept if message.transaction_id == transaction_id), None)

    @property
    def backlog(self) -> int:
        """Messages that some group has still to complete; without a group, all that are kept."""
        return self.head - 1 - min((cursor.acked for cursor in self.cursors.values()), default=self.removed - 1)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group.

    `after` is the time of `subscriptionFrom`: only younger messages are delivered. `start` is where the group began,
    and begins again when it is put back.
    """

    after: float | None = None
    start: float = float("-inf")
    paused: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group gave up; `failures` are those before the one that ended it."""

    message: MessageId
    group: str
    transaction_id: TransactionId
    payload: object
    error: str
    failures: int


@dataclass(frozen=True, slots=True)
class Options:
    """A queue's options: seconds, except `retry_delay` in milliseconds."""

    lease_time: float = 60
    retry_limit: int = 3
    retry_delay: float = 0
    delayed_processing: float = 0
    window_buffer: float = 0
    dead_letter_queue: bool | None = None
    dlq_after_max_retries: bool | None = None
    priority: int = 0
    retention_enabled: bool = False
    retention_seconds: float = 0
    completed_retention_seconds: float = 0
    ttl: float = 0
    max_wait_time_seconds: float = 0
    max_size: int = 0

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether messages that a group gives up become dead letters: unless an option says no, and none yes."""
        said = (self.dead_letter_queue, self.dlq_after_max_retries)
        return True in said or False not in said


@dataclass(frozen=True, slots=True)
class Queue:
    """A name with options; `configured_at` is when the options came into force."""

    configured_at: float
    namespace: str
    task: str
    options: Options = Options()
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    dead_letters: tuple[DeadLetter, ...] = ()
    paused: bool = False

    def pauses(self, group: str) -> bool:
        """Whether a group gets no messages (G-PAUSE-1)."""
        return self.paused or self.groups[group].paused


@dataclass(frozen=True, slots=True)
class State:
    """All queues of a broker, and the chain of operators of each stream."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)

    def queue(self, name: str) -> Queue | None:
        """The queue, if it exists."""
        return self.queues.get(name)

    def partition(self, lane: Lane) -> Partition | None:
        """The partition, if it exists."""
        queue = self.queues.get(lane.queue)
        return queue.partitions.get(lane.partition) if queue else None

    def cursors(self) -> Iterator[tuple[Lane, str, Cursor]]:
        """Every cursor with its partition and group."""
        for name, queue in self.queues.items():
            for lane, partition in queue.partitions.items():
                for group, cursor in partition.cursors.items():
                    yield Lane(name, lane), group, cursor


def with_queue(state: State, name: str, now: float) -> State:
    """Make the queue when it is missing; namespace and task come from its name."""
    if name in state.queues:
        return state
    namespace, task, *_ = [*name.split("."), ""]
    return put_queue(state, name, Queue(now, namespace, task))


def with_partition(state: State, lane: Lane, now: float) -> State:
    """Make queue and partition when they are missing; every group there is reads it from its start (G-GRP-3)."""
    state = with_queue(state, lane.queue, now)
    queue = state.queues[lane.queue]
    if lane.partition in queue.partitions:
        return state
    return put_partition(state, lane, Partition(now, cursors={group: Cursor(ready=now) for group in queue.groups}))


def put_queue(state: State, name: str, queue: Queue) -> State:
    """The state with this queue under the name."""
    return replace(state, queues={**state.queues, name: queue})


def put_partition(state: State, lane: Lane, partition: Partition) -> State:
    """The state with this partition at the address, in a queue that exists."""
    queue = state.queues[lane.queue]
    return put_queue(state, lane.queue, replace(queue, partitions={**queue.partitions, lane.partition: partition}))


def put_cursor(state: State, lane: Lane, group: str, cursor: Cursor) -> State:
    """The state with this cursor, in a partition that exists."""
    partition = state.queues[lane.queue].partitions[lane.partition]
    return put_partition(state, lane, replace(partition, cursors={**partition.cursors, group: cursor}))
