"""What can be asked of simple-mq, and what it answers: frozen values, nothing of HTTP and nothing of SQL."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

#: No consumer group of Queen can have this name, so notices for simple-mq's queues wake no waiter of Queen's.
CHANNEL = "\0simple-mq"

#: Stands for requests that name no queue that exists: their ids would be labels without number.
NO_QUEUE = UUID(int=0)

NAME_CHARS_MAX = 255
QUEUE_SIZE_MAX = 1_000_000
VISIBILITY_SECONDS_MAX = 43_200
DELIVERIES_MAX = 100
GROUP_CHARS_MAX = 255
BATCH_MESSAGES_MAX = 100
PEEK_MESSAGES_MAX = 100
WAIT_SECONDS_MAX = 3600


class NewQueue(Struct, frozen=True):
    """A queue to make.

    Attributes:
        size: most messages in it.
        visibility_timeout: seconds that a polled message stays hidden.
        max_deliveries: deliveries after which a message goes to the dead-letter queue.
        max_message_bytes: most bytes of one message in UTF-8; ``None``: the server's limit only.
    """

    queue_id: UUID
    name: str
    size: int
    visibility_timeout: int
    max_deliveries: int
    max_message_bytes: int | None = None


class QueueInfo(Struct, frozen=True):
    """A queue as it is; ``dlq_id`` is ``None`` until a message was dead-lettered."""

    name: str
    size: int
    visibility_timeout: int
    max_deliveries: int
    max_message_bytes: int | None
    dlq_id: UUID | None
    messages: int


class NewMessage(Struct, frozen=True):
    """A message to store; messages of one group are delivered in order, one at a time."""

    data: str
    group: str | None = None


class Message(Struct, frozen=True):
    """A message as it is; hidden until ``visible_at`` if that lies ahead. ``traceparent`` is for who polls it."""

    message_id: UUID
    data: str
    delivery_count: int
    visible_at: datetime
    created_at: datetime
    group: str | None
    traceparent: str | None = None


class Enqueue(Struct, frozen=True):
    """Messages for one queue, all or none.

    Attributes:
        size: bytes that they add to a call.
        traceparent: the W3C trace context that is kept with each, where the server keeps those.
    """

    queue: UUID
    messages: Sequence[NewMessage]
    size: int
    traceparent: str | None = None


class Enqueued(Struct, frozen=True):
    """What became of an enqueue: ``stored``, ``full``, ``too_large`` or ``unknown`` (the queue)."""

    outcome: str
    message_ids: Sequence[UUID]


class Dequeue(Struct, frozen=True):
    """A poll of one queue for at most ``limit`` messages; ``wait_ms``: how long to wait for one, 0 answers at once."""

    queue_id: UUID
    limit: int = 1
    wait_ms: int = 0

    @property
    def queue(self) -> str:
        """The name that notices use for the queue."""
        return str(self.queue_id)

    @property
    def group(self) -> str:
        """The name that notices use for all who poll."""
        return CHANNEL

    @property
    def place(self) -> Hashable:
        """What it looks at: two polls with the same place see the same messages."""
        return (self.queue, self.group)

    @property
    def rides(self) -> int:
        """How many messages it takes when it looks in the transaction of a push: those are of the other interface."""
        return 0

    @property
    def returnable(self) -> bool:
        """Whether what it gets can be given back when its sender does not take it."""
        return True


class Dequeued(Struct, frozen=True):
    """The answer to a poll; no messages: nothing was there in time. ``known``: whether the queue exists."""

    known: bool = True
    messages: Sequence[Message] = ()


class Acknowledge(Struct, frozen=True):
    """Messages of one queue that are done."""

    queue: UUID
    message_ids: Sequence[UUID]


class Acknowledged(Struct, frozen=True):
    """What became of each ack: ``deleted``, ``missing`` or ``unknown`` (the queue)."""

    outcomes: Sequence[str]


class ExtendVisibility(Struct, frozen=True):
    """Hides a message that is in flight until so many seconds from now; 0 shows it at once."""

    queue: UUID
    message_id: UUID
    seconds: int


class Extended(Struct, frozen=True):
    """What became of it: ``extended``, ``waiting`` (it is not in flight), ``missing`` or ``unknown`` (the queue)."""

    outcome: str
    visible_at: datetime | None


class Requeued(Struct, frozen=True):
    """What became of a requeue: ``requeued``, ``full``, ``missing``, or ``unknown`` (the destination)."""

    outcome: str
    destination: UUID | None
    size: int | None
    messages: int | None


class RequeuedAll(Struct, frozen=True):
    """What became of requeueing a whole queue: ``requeued``, ``plain`` (no dead-letter queue) or ``unknown``."""

    outcome: str
    destination: UUID | None
    requeued: int


class Routed(Struct, frozen=True):
    """Dead letters of a queue: how many were moved, and how many were exhausted now and did not fit."""

    queue: UUID
    dlq_id: UUID | None
    dead: int
    stuck: int


class Gauges(Struct, frozen=True):
    """A queue in figures; ``oldest_age_s`` is that of the oldest message that can be delivered, 0 if none can."""

    queue: UUID
    dead_letters: bool
    depth: int
    in_flight: int
    oldest_age_s: float


class Figures(Struct, frozen=True):
    """What the metrics need of the database.

    Attributes:
        queues: how many there are.
        gauges: of the oldest queues, as many as were asked for.
        outcomes: counters by queue, operation and outcome, of these queues and of none.
    """

    queues: int
    gauges: Sequence[Gauges]
    outcomes: Sequence[tuple[UUID, str, str, int]]


def uuid7(unix_ms: int, random_bits: int) -> UUID:
    """A UUID version 7 (RFC 9562, section 5.7) of a time and 74 random bits."""
    high = (random_bits >> 62) & 0xFFF
    low = random_bits & ((1 << 62) - 1)
    return UUID(int=(unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
