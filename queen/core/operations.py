"""What can be asked of the engine, and what it answers: frozen values, nothing of HTTP and nothing of SQL."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from enum import Enum
from uuid import UUID

from msgspec import Struct

#: The consumer group of consumers that name none.
QUEUE_MODE = "__QUEUE_MODE__"


class JobType(Enum):
    """Kinds of jobs; each has its own lane with a batch policy and a limit of calls in flight."""

    PUSH = "push"
    POP = "pop"
    ACK = "ack"
    TRANSACTION = "transaction"
    RENEW_LEASE = "renew_lease"
    CYCLE = "cycle"
    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    ACKNOWLEDGE = "acknowledge"
    EXTEND_VISIBILITY = "extend_visibility"
    CUSTOM = "custom"

    #: Members are looked up by identity many times a call, and Enum's own hash is Python code.
    __hash__ = object.__hash__


# ---------------------------------------------------------------- push


class Lot(Struct, frozen=True):
    """The messages of one request for one partition.

    Attributes:
        places: which items of the request they are.
        body: their objects, joined by commas (see ``queen.core.segment``).
        lengths: bytes of each in ``body``, comma included.
        ids: the transaction ids that the client chose, empty where it did not; ``None`` if it chose none at all.
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
    """Items to append: one lot a partition."""

    lots: Sequence[Lot]
    items: int


class Stored(Struct, frozen=True):
    """Where the messages of one lot stand now.

    Attributes:
        first: offset of the first message, when all of them were new; else ``None``.
        offsets: the offset of each, when some were duplicates.
        duplicates: which of them (places in the lot) were stored before.
        refused: which of them have a transaction id that only the server gives out, and were not stored.
    """

    part_id: int
    first: int | None
    offsets: Sequence[int] = ()
    duplicates: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()

    def offset(self, number: int) -> int:
        """The offset of a message by its place in the lot."""
        return self.first + number if self.first is not None else self.offsets[number]


class Pushed(Struct, frozen=True):
    """The answer to a push: one element a lot."""

    stored: Sequence[Stored]


class Buffered(Struct, frozen=True):
    """The answer to a push that waits in the spool: it is safe, and its ids are not known yet."""


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
    def place(self) -> Hashable:
        """What it looks at: two pops with the same place see the same messages."""
        return (self.queue, self.group, self.partition, self.namespace, self.task)

    @property
    def rides(self) -> int:
        """How many messages it takes when it looks in the transaction of a push.

        0: it must not look there. One that names a partition may wait for whoever works there.
        """
        return self.batch if self.partition is None else 0

    @property
    def returnable(self) -> bool:
        """Whether what it gets can be given back when its sender does not take it."""
        return not self.auto_ack


class Slice(Struct, frozen=True):
    """A part of a segment that a pop delivers from; columns as in ``queen.pop_unified_batch_v1``."""

    first: int
    created_at: datetime
    ends: bytes
    start: int
    data: bytes


class Claim(Struct, frozen=True):
    """What a pop got from one partition.

    Attributes:
        upto: the last offset of the run.
        skip: offsets in the run that are done already.
        seen: offsets up to it were delivered before, ``attempt - 1`` times; later ones come for the first time.
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
    """The answer to a pop; no claims: nothing was there in time."""

    lease: UUID | None = None
    claims: Sequence[Claim] = ()


# ---------------------------------------------------------------- ack


class AckItem(Struct, frozen=True):
    """What a consumer says of one message: status ``completed``, ``failed``, ``retry`` or ``dlq``."""

    transaction_id: str
    partition_id: str
    group: str
    lease: str | None
    status: str
    error: str | None = None


class Ack(Struct, frozen=True):
    """Acks of one request."""

    items: Sequence[AckItem]


class AckResult(Struct, frozen=True):
    """What became of one ack; ``problem`` is ``None`` when it was carried out."""

    problem: str | None
    queue: str | None = None
    partition: str | None = None
    released: bool = False
    dead: bool = False
    noop: bool = False


class Acked(Struct, frozen=True):
    """The answer to an ack: one result an item."""

    results: Sequence[AckResult]


# ---------------------------------------------------------------- lease, transaction


class RenewLease(Struct, frozen=True):
    """Puts off the end of a lease to ``seconds`` from now, if it is live and that is later."""

    lease: str
    seconds: int


class Renewed(Struct, frozen=True):
    """How many cursors the lease holds, and its earliest end; none when it is not live."""

    cursors: int
    expires_at: datetime | None


class Transaction(Struct, frozen=True):
    """Pushes and acks, all or none; ``required_leases`` serve the acks that name none."""

    push: Push
    acks: Sequence[AckItem]
    required_leases: Sequence[str] | None


class Executed(Struct, frozen=True):
    """The answer to a transaction.

    Attributes:
        undone: something failed and nothing was stored.
        full: the queue that had no room for it.
    """

    undone: bool
    pushed: Pushed
    acked: Sequence[AckResult]
    full: str | None = None


# ---------------------------------------------------------------- streams


class StateChange(Struct, frozen=True):
    """A row of a stream's state to write.

    Attributes:
        value: JSON; ``None`` deletes the row.
        window_end: milliseconds since 1970 at which the window of the row is over, if it is one of a window.
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
    """Rows in the order of their keys; not all of them if they would be too large together."""

    rows: Sequence[StateRow]
    complete: bool


class Cycle(Struct, frozen=True):
    """What a worker of a stream made of its input: ack, state and outputs, all or none.

    Attributes:
        stream: the number of the stream.
        part_id: the partition of its source queue.
        changes: at most one a key.
        ack: ``completed`` speaks for everything up to its message, ``failed`` and ``dlq`` for that alone.
        release: whether the lease ends although something under it is not done.
    """

    stream: int
    part_id: int
    group: str
    changes: Sequence[StateChange]
    push: Push
    ack: AckItem | None
    release: bool


class Cycled(Struct, frozen=True):
    """The answer to a cycle; a ``problem`` says why nothing of it happened.

    Attributes:
        queue: of the partition; ``None`` if that is unknown.
        completed: messages that the ack has completed.
    """

    problem: str | None
    queue: str | None = None
    pushed: Pushed = Pushed([])
    completed: int = 0
    released: bool = False
    dead: bool = False


class Registration(Struct, frozen=True):
    """A stream by its name; ``config_hash`` stands for its chain of operators, ``reset`` forgets the state."""

    name: str
    source_queue: str
    config_hash: str
    sink_queue: str | None = None
    reset: bool = False


class Registered(Struct, frozen=True):
    """The answer to a registration.

    Attributes:
        conflict: the chain of operators is another one, and nothing was changed.
        more: a reset has forgotten a page of the state, and is to be asked for again.
    """

    stream: int
    fresh: bool
    conflict: bool
    more: bool = False


# ---------------------------------------------------------------- configuration


class QueueConfiguration(Struct, frozen=True):
    """A queue's name, labels and options; ``None`` is an option that nobody has set.

    Attributes:
        lease_time: seconds; 0 means the default of 60.
        retry_limit: redeliveries of a failed message before it is dead-lettered.
        retry_delay: milliseconds before the redelivery of a failed message.
        delayed_processing: seconds that a message stays invisible.
        window_buffer: seconds that a partition must have been quiet to deliver anything.
        dead_letter_queue, dlq_after_max_retries: both false drops a message whose retries are used up.
        retention_enabled: switch of the next two.
        retention_seconds: seconds that a message is kept; 0 keeps it.
        completed_retention_seconds: seconds that a message is kept which all groups have completed; 0 keeps it.
        ttl: seconds that a message is kept, whatever the switch says; 0 keeps it.
        max_wait_time_seconds: seconds that a message may wait for a group before that gives it up; 0 is no limit.
        max_size: messages that may wait in the queue; 0 is no limit.
        encryption_enabled: whether payloads are stored encrypted.
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


class ConfiguredQueue(Struct, frozen=True):
    """A queue after ``configure``.

    Attributes:
        part_id: its partition ``Default``.
        more: its new options have still to come to some partitions.
    """

    queue_id: int
    part_id: int
    more: bool


class BegunWork(Struct, frozen=True):
    """Work in pages that was begun and is not done.

    Attributes:
        queue: its name; empty if it was deleted since.
        group: the one that is being deleted; ``None``: options of the queue have still to come to some partitions.
    """

    queue_id: int
    queue: str
    group: str | None
