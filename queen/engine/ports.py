"""What the engine needs of the world around it, as protocols. ``queen.db`` implements them."""

from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from queen.core.operations import Slice, StateRows
from queen.core.simple_mq import (
    Dequeued,
    Enqueued,
    Extended,
    Figures,
    Message,
    NewQueue,
    QueueInfo,
    Requeued,
    RequeuedAll,
    Routed,
)


class PushColumns(Struct):
    """The arguments of one push call, column by column: see ``sql/procedures/push_messages.sql``.

    ``version`` and ``limited`` come from the ``PushOptions`` under which it was laid out; no version is not checked.
    """

    flush: UUID
    part: list[int] = []
    n: list[int] = []
    data: list[bytes] = []
    ends: list[bytes] = []
    ids: list[bytes | None] = []
    hash_part: list[int] = []
    hash_pos: list[int] = []
    hash: list[bytes] = []
    version: int | None = None
    limited: list[int] | None = None


class LimitedQueue(Struct, frozen=True):
    """A queue that holds at most ``max_size`` messages."""

    queue_id: int
    max_size: int


class PushOptions(Struct, frozen=True):
    """What a push has to know of queues, by name: which are encrypted, and which have a maximum size."""

    version: int
    encrypted: frozenset[str]
    limited: Mapping[str, LimitedQueue]


class NewPartitions(Struct):
    """Partitions that a transaction makes if they are missing: negative numbers that stand for them, and names."""

    part: list[int] = []
    queue: list[str] = []
    name: list[str] = []


class Appended(Struct, frozen=True):
    """One segment after a push.

    ``first`` is ``None`` when nothing was stored, because the partition is unknown or its queue has only ``room`` for
    so many messages.
    """

    part_id: int
    first: int | None
    created_at: datetime | None
    dup_pos: Sequence[int] | None
    dup_off: Sequence[int] | None
    room: int | None = None


class PopColumns(Struct):
    """The arguments of one pop call: see ``sql/procedures/pop_unified_batch.sql``."""

    batch: list[int] = []
    parts: list[int] = []
    lease: list[UUID | None] = []
    seconds: list[int | None] = []
    pop: list[int] = []
    grp: list[int] = []
    part: list[int | None] = []


class Delivered(Struct, frozen=True):
    """A slice that a pop gets; ``pop`` counts from 1, ``skip`` are the offsets of the slice that are done already."""

    pop: int
    grp_id: int
    part_id: int
    upto: int
    skip: Sequence[int] | None
    seen: int
    attempt: int
    slice: Slice


class Unserved(Struct, frozen=True):
    """A place that had too little.

    ``ready_in``: seconds until a cursor there becomes ready by itself; ``inf`` for not before a push, ``-inf`` when the
    call stopped at one of its limits, ``None`` when the group or the partition does not exist.
    """

    grp_id: int
    part_id: int | None
    ready_in: float | None


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
    """What became of one element of an ack call.

    Attributes:
        ord: which element, from 1.
        first: its first offset.
        done_upto, also_done: what was done before the call: offsets up to this, and these.
        within: offsets above it were refused; ``None`` for no bound.
        exists_upto: there is no message above it; ``None``: all of the element exist.
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


class TransactionRows(Struct, frozen=True):
    """What became of a transaction; ``made``: what number each new partition got, ``None``: its queue was deleted."""

    undone: bool
    made: dict[int, int | None]
    appended: list[Appended]
    acks: list[AckRow]


class StateColumns(Struct):
    """The rows of a stream's state that a cycle writes: see ``sql/procedures/cycle_stream.sql``."""

    key: list[str] = []
    value: list[str | None] = []
    window_end: list[float | None] = []


class CycleRows(Struct, frozen=True):
    """What became of a cycle.

    Attributes:
        undone: nothing happened, because of ``problem`` or because a partition of the push is unknown.
        completed: messages that the ack has completed; ``None`` when only an earlier sending knew.
    """

    undone: bool
    problem: str | None
    appended: list[Appended]
    completed: int | None
    released: bool
    dead: bool
    ready: bool


class Subscription(Struct, frozen=True):
    """A consumer group on a queue; ``grp_id`` is ``None`` when it does not exist and was not to be made.

    Attributes:
        complete: false while it has not all its cursors.
        starts_in: seconds to its start, while that lies in the future.
        ready: while it is not complete, partitions that have been ready since it began, so far as they were asked for.
    """

    queue_id: int | None
    grp_id: int | None
    complete: bool | None
    starts_in: float | None
    ready: int | None = None

    @property
    def unfinished(self) -> bool:
        """Whether another call is needed to make all its cursors."""
        return self.complete is False


class PartitionName(Struct, frozen=True):
    """A partition by number and name."""

    part_id: int
    queue_id: int
    queue: str
    partition: str


class LockKind(Enum):
    """What calls wait for: see ``sql/procedures/find_locked.sql``."""

    LIMITED = "limited"
    MAKING = "making"
    SUBSCRIBING = "subscribing"
    PARTITION = "partition"
    CURSOR = "cursor"
    LEASE = "lease"
    ENQUEUING = "enqueuing"

    __hash__ = object.__hash__


class Lock(NamedTuple):
    """Something that a call locks, by numbers or names."""

    kind: LockKind
    id: int | None = None
    grp_id: int | None = None
    name: str | None = None
    group: str | None = None


class Database(Protocol):
    """The stored procedures that messages need, one method each.

    Every method raises ``DatabaseUnavailableError`` when there is no connection, ``OutcomeUnknownError`` when it broke
    during the call, ``TooSlowError`` when PostgreSQL cancelled the call at its time limit (``call_limit_s`` of
    ``queen.engine.failures``), and ``DataRejectedError`` when it refused the data.
    """

    async def push(self, columns: PushColumns, *, again: bool) -> list[Appended]: ...
    async def read_push_options(self) -> PushOptions: ...
    async def pop(self, columns: PopColumns) -> tuple[list[Delivered], list[Unserved], bool]: ...
    async def ack(self, columns: AckColumns) -> list[AckRow]: ...
    async def renew_leases(self, leases: list[UUID], seconds: list[int]) -> list[tuple[int, datetime | None]]: ...
    async def release_leases(self, leases: list[UUID]) -> None: ...
    async def execute(
        self, push: PushColumns, ack: AckColumns, required: list[UUID] | None, new: NewPartitions, *, again: bool
    ) -> TransactionRows: ...
    async def cycle(
        self, stream: int, source: tuple[int, int | None], push: PushColumns, state: StateColumns,
        ack: AckColumns | None, *, release: bool, again: bool,
    ) -> CycleRows: ...  # fmt: skip
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
    """What became of requests of a lane of a spool file.

    Attributes:
        upto: how many requests of the lane are stored now; the one's complement of that where the lane is fenced.
        unknown: partitions that do not exist; then nothing was stored.
        stale: nothing was stored because the push options have changed.
    """

    upto: int
    unknown: Sequence[int] = ()
    stale: bool = False


class SpoolDatabase(Protocol):
    """The procedures that the replay of the spool needs, on connections of its own."""

    async def replay(
        self,
        lane: UUID,
        first: int,
        upto: int,
        sent_at: datetime | None,
        columns: PushColumns,
        limit_s: float | None = None,
    ) -> Replayed: ...
    async def forget(self, lanes: Sequence[UUID]) -> None: ...
    async def commit_something(self) -> None: ...


class EnqueueColumns(Struct):
    """The arguments of one enqueue call: see ``sql/procedures/simple_mq/110_enqueue.sql``."""

    flush: UUID
    queue: list[UUID] = []
    request: list[int] = []
    group: list[str | None] = []
    data: list[str] = []
    traceparent: list[str | None] | None = None


class Polled(Struct, frozen=True):
    """What polls got.

    Attributes:
        answers: one a poll.
        ready_in: by poll that got less than it asked for, seconds until a message becomes visible by itself; ``None``
            for not before an enqueue, 0 or less: one is, but somebody else holds it.
        routed: what went to dead-letter queues first.
    """

    answers: list[Dequeued]
    ready_in: list[float | None]
    routed: list[Routed]


class SimpleMqDatabase(Protocol):
    """The stored procedures for messages of simple-mq; they raise what those of ``Database`` raise."""

    async def enqueue(self, columns: EnqueueColumns) -> list[Enqueued]: ...
    async def dequeue(self, queues: Sequence[UUID], limits: Sequence[int]) -> Polled: ...
    async def give_back(self, queue: UUID, messages: Sequence[Message]) -> None: ...
    async def acknowledge(self, queues: Sequence[UUID], messages: Sequence[UUID]) -> list[tuple[str, bool]]: ...
    async def extend_visibility(
        self, queues: Sequence[UUID], messages: Sequence[UUID], seconds: Sequence[int]
    ) -> list[Extended]: ...


class SimpleMqAdministration(Protocol):
    """The procedures of simple-mq that are not on the hot path, on connections of their own."""

    async def create_queue(self, queue: NewQueue, queues_max: int) -> bool: ...
    async def describe_queue(self, queue: UUID) -> QueueInfo | None: ...
    async def delete_queue(self, queue: UUID) -> str: ...
    async def purge(self) -> bool: ...
    async def requeue(self, queue: UUID, message: UUID) -> Requeued: ...
    async def requeue_all(self, queue: UUID) -> RequeuedAll: ...
    async def peek(
        self, queue: UUID, after: datetime | None, after_id: UUID | None, limit: int
    ) -> Sequence[Message] | None: ...
    async def sweep(self) -> list[Routed]: ...
    async def tidy(self, not_after: datetime | None = None) -> None: ...
    async def figures(self, queues_max: int) -> Figures: ...
    async def count_outcomes(self, numbers: Mapping[tuple[UUID, str, str], int]) -> None: ...


class NoticeKind(Enum):
    """What a notice says of a queue.

    MESSAGE_AVAILABLE: messages came. PARTITION_FREE: a lease of one group ended, and more is to be delivered.
    CONFIGURATION_CHANGED: it was configured or deleted, and what is remembered of it may be wrong; with an empty queue:
    something that concerns the whole server.
    """

    MESSAGE_AVAILABLE = "MESSAGE_AVAILABLE"
    PARTITION_FREE = "PARTITION_FREE"
    CONFIGURATION_CHANGED = "CONFIGURATION_CHANGED"


class Heard(Protocol):
    """Is told of notices, and of places that know already."""

    def __call__(self, notice: "Notice", besides: Container[Hashable] = ..., /) -> None: ...


class Notice(Struct, frozen=True, omit_defaults=True):
    """Something happened in a queue.

    Attributes:
        messages: so many waiters may find something.
        group: only waiters of this group may: a lease of it ended.
        changed: it is about the configuration.
    """

    queue: str
    messages: int
    group: str | None = None
    changed: bool = False

    @property
    def kind(self) -> NoticeKind:
        """What it says."""
        if self.changed:
            return NoticeKind.CONFIGURATION_CHANGED
        return NoticeKind.MESSAGE_AVAILABLE if self.group is None else NoticeKind.PARTITION_FREE


def configuration_changed(queue: str) -> Notice:
    """The notice that a queue, or with an empty name the server, was configured: waiters may find something now."""
    return Notice(queue, 1, changed=True)


class Transport(Protocol):
    """One way on which sheets of notices go to others and come from them.

    ``receive`` is called with each sheet that comes in; ``missed`` when some may have been lost for a while.
    """

    name: str
    #: Seconds between two sheets; 0 for a way on which every one may go at once.
    interval_s: float

    def send(self, sheets: Sequence[bytes]) -> None: ...
    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None: ...
    async def stop(self) -> None: ...
