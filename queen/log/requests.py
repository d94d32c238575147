"""Requests for messages of the log and their results: frozen values, independent of HTTP and SQL."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

#: The consumer group of consumers that name none (queue mode).
QUEUE_MODE = "__QUEUE_MODE__"


# ---------------------------------------------------------------- push


class PartitionBatch(Struct, frozen=True):
    """The messages of one request for one partition.

    Attributes:
        places: index of each in the items of the request.
        body: their objects, joined by commas (see ``queen.log.segment``).
        lengths: bytes of each in ``body``, comma included.
        ids: the transaction ids that the client chose, empty for messages without one; ``None`` if no message has one.
        sealed: whether the payloads are encrypted.
    """

    queue: str
    partition: str
    places: Sequence[int]
    body: bytes
    lengths: Sequence[int]
    ids: Sequence[str] | None
    sealed: bool = False


class Push(Struct, frozen=True):
    """Messages to append: one batch per partition."""

    batches: Sequence[PartitionBatch]
    items: int


class Stored(Struct, frozen=True):
    """The offsets of the messages of one batch.

    Attributes:
        first: offset of the first message if all were new; else ``None``.
        offsets: the offset of each, if some were duplicates.
        duplicates: indices in the batch of those that were stored before.
        refused: indices of those that were not stored, because only the server may assign their transaction id.
    """

    part_id: int
    first: int | None
    offsets: Sequence[int] = ()
    duplicates: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()

    def offset(self, number: int) -> int:
        """The offset of a message by its index in the batch."""
        return self.first + number if self.first is not None else self.offsets[number]


class Pushed(Struct, frozen=True):
    """The answer to a push: one element per batch."""

    stored: Sequence[Stored]


class Buffered(Struct, frozen=True):
    """The answer to a push that waits in the spool: it is durable, and its ids are not known yet."""


class PartlyBuffered(Struct, frozen=True):
    """The answer to a push to several databases, of which some are unavailable: one element per batch."""

    stored: Sequence[Stored | Buffered]


# ---------------------------------------------------------------- pop


class Pop(Struct, frozen=True):
    """A pop of a queue, of one of its partitions, or of all queues of a namespace and task.

    Attributes:
        queue: empty for a pop over namespace and task.
        mode: ``all``, ``new`` or ``timestamp``: where the group starts if this is its first contact.
        since: the time of mode ``timestamp``.
        wait_ms: how long to wait for a message; 0 answers at once.
    """

    queue: str
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str = QUEUE_MODE
    batch: int = 1
    partitions: int = 1
    auto_ack: bool = False
    lease_seconds: int | None = None
    mode: str = "all"
    since: datetime | None = None
    wait_ms: int = 0

    @property
    def wait_key(self) -> Hashable:
        """What it pops from: two pops with an equal value compete for the same messages."""
        return (self.queue, self.group, self.partition, self.namespace, self.task)

    @property
    def takes(self) -> int:
        """How many messages it takes of a push, in whose transaction it is served.

        0 for a pop of one partition, which may be leased to another consumer.
        """
        return self.batch if self.partition is None else 0

    @property
    def returnable(self) -> bool:
        """Whether its messages can be released if the client does not take them."""
        return not self.auto_ack

    @property
    def looks_first(self) -> bool:
        """Never: it need not look where a look has just found nothing."""
        return False


class Slice(Struct, frozen=True):
    """A part of a segment that a pop returns; columns as in ``queen.pop_unified_batch_v1``."""

    first: int
    created_at: datetime
    ends: bytes
    start: int
    data: bytes


class Claim(Struct, frozen=True):
    """The messages of a pop from one partition.

    Attributes:
        upto: the last offset of the run.
        skip: offsets in the run that are already done.
        seen: offsets up to this one were delivered before, ``attempt - 1`` times; later ones are delivered for the
            first time.
    """

    part_id: int
    queue: str
    partition: str
    upto: int
    skip: frozenset[int]
    seen: int
    attempt: int
    slices: Sequence[Slice]


class Popped(Struct, frozen=True):
    """The answer to a pop; no claims: no message was available in time."""

    lease: UUID | None = None
    claims: Sequence[Claim] = ()


# ---------------------------------------------------------------- ack


class AckItem(Struct, frozen=True):
    """The acknowledgement of one message: status ``completed``, ``failed``, ``retry`` or ``dlq``."""

    transaction_id: str
    partition_id: str
    group: str
    lease: str | None
    status: str
    error: str | None = None


class Ack(Struct, frozen=True):
    """Acks of one request; ``alone``: the next pop will be a separate request, for which messages are prefetched."""

    items: Sequence[AckItem]
    alone: bool = True


class AckResult(Struct, frozen=True):
    """The result of one ack; ``problem`` is ``None`` if it was applied."""

    problem: str | None
    queue: str | None = None
    partition: str | None = None
    released: bool = False
    dead: bool = False
    noop: bool = False


class Acked(Struct, frozen=True):
    """The answer to an ack: one result per item."""

    results: Sequence[AckResult]


# ---------------------------------------------------------------- lease, transaction


class RenewLease(Struct, frozen=True):
    """Extends a lease to ``seconds`` from now, if it is live and that is later."""

    lease: str
    seconds: int


class Renewed(Struct, frozen=True):
    """How many cursors the lease holds, and its earliest end; none if it is not live."""

    cursors: int
    expires_at: datetime | None


class Transaction(Struct, frozen=True):
    """Pushes, acks and timers that are set, all or none; ``required_leases`` apply to the acks that name no lease."""

    push: Push
    acks: Sequence[AckItem]
    required_leases: Sequence[str] | None
    timers: "Sequence[TimerChange]" = ()


class TransactionResult(Struct, frozen=True):
    """The answer to a transaction.

    Attributes:
        undone: an operation failed, and nothing was stored.
        full: the queue that had no room.
        due: when each timer is due; none if it was undone.
    """

    undone: bool
    pushed: Pushed
    acked: Sequence[AckResult]
    full: str | None = None
    due: Sequence[datetime | None] = ()


# ---------------------------------------------------------------- timers


class TimerChange(Struct, frozen=True):
    """A change of the timer of a queue with a key.

    Attributes:
        op: ``schedule`` sets or replaces it, ``cancel`` removes it, ``fire`` makes it due now.
        delay_s: of a schedule: seconds from now; ``None``: ``at`` is the time.
        message: of a schedule: the object of the message (see ``queen.log.segment``).
    """

    op: str
    queue: str
    key: str
    partition: str = ""
    transaction_id: str = ""
    delay_s: float | None = None
    at: datetime | None = None
    message: bytes = b""


class TimerVerdict(Struct, frozen=True):
    """What a change did: ``scheduled``, ``rescheduled``, ``cancelled``, ``absent`` or ``too_late``."""

    status: str
    transaction_id: str | None
    deliver_at: datetime | None


# ---------------------------------------------------------------- streams


class StateChange(Struct, frozen=True):
    """A change of a row of a stream's state.

    Attributes:
        value: JSON; ``None`` deletes the row.
        window_end: end of the window of the row in milliseconds since 1970, if it belongs to a window.
    """

    key: str
    value: bytes | None
    window_end: float | None = None


class StateRow(Struct, frozen=True):
    """A row of a stream's state; ``value`` is JSON."""

    key: str
    value: str
    updated_at: datetime


class StateRows(Struct, frozen=True):
    """Rows in the order of their keys; not all if they are too large together."""

    rows: Sequence[StateRow]
    complete: bool


class Cycle(Struct, frozen=True):
    """A cycle of a stream worker: ack, changes of state and outputs, all or none.

    Attributes:
        stream: the number of the stream.
        part_id: the partition of its source queue.
        changes: at most one per key.
        ack: ``completed`` applies to everything up to its message, ``failed`` and ``dlq`` to that message only.
        release: whether the lease ends although messages under it are not done.
    """

    stream: int
    part_id: int
    group: str
    changes: Sequence[StateChange]
    push: Push
    ack: AckItem | None
    release: bool


class CycleResult(Struct, frozen=True):
    """The answer to a cycle; with a ``problem``, nothing was changed.

    Attributes:
        queue: the queue of the partition; ``None`` if there is no such partition.
        noop: the problem is no failure: a window close that lost a race, and that its worker tries again.
        completed: number of messages that the ack has completed.
    """

    problem: str | None
    queue: str | None = None
    noop: bool = False
    pushed: Pushed = Pushed([])
    completed: int = 0
    released: bool = False
    dead: bool = False
