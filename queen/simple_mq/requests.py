"""Requests to simple-mq and their results: frozen values, independent of HTTP and SQL."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from queen.engine.ports import SIMPLE_MQ_GROUP

#: The label of requests for queues that do not exist: their ids would be an unlimited number of labels.
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
    """A queue to create.

    Attributes:
        size: maximum of its messages.
        visibility_timeout: seconds that a polled message stays hidden.
        max_deliveries: deliveries after which a message goes to the dead-letter queue.
        max_message_bytes: maximum bytes of one message in UTF-8; ``None``: only the server's limit applies.
    """

    queue_id: UUID
    name: str
    size: int
    visibility_timeout: int
    max_deliveries: int
    max_message_bytes: int | None = None


class QueueInfo(Struct, frozen=True):
    """A queue with its settings; ``dlq_id`` is ``None`` until a message was dead-lettered."""

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
    """A stored message; hidden until ``visible_at`` if that is in the future. ``traceparent`` is for its consumer."""

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
        size: their bytes in a call.
        traceparent: the W3C trace context to store with each, if telemetry is on.
    """

    queue: UUID
    messages: Sequence[NewMessage]
    size: int
    traceparent: str | None = None


class Enqueued(Struct, frozen=True):
    """The result of an enqueue: ``stored``, ``full``, ``too_large`` or ``unknown`` (no such queue)."""

    outcome: str
    message_ids: Sequence[UUID]


class PollOfQueue(Struct, frozen=True):
    """A request for messages of one queue, which may wait (``queen.engine.waiters.Poll``)."""

    queue_id: UUID

    @property
    def queue(self) -> str:
        """The name of the queue in notifications."""
        return str(self.queue_id)

    @property
    def group(self) -> str:
        """The consumer group of all polls, in notifications."""
        return SIMPLE_MQ_GROUP

    @property
    def wait_key(self) -> Hashable:
        """What it polls: two polls with an equal value compete for the same messages."""
        return (self.queue, self.group)

    @property
    def takes(self) -> int:
        """None: pushes belong to the other interface."""
        return 0

    @property
    def returnable(self) -> bool:
        """Whether its messages can be released if the client does not take them."""
        return True

    @property
    def looks_first(self) -> bool:
        """Never: it need not look where a look has just found nothing."""
        return False


class Dequeue(PollOfQueue, frozen=True):
    """A poll of one queue for at most ``limit`` messages; ``wait_ms``: how long to wait for one, 0 answers at once."""

    limit: int = 1
    wait_ms: int = 0


class Dequeued(Struct, frozen=True):
    """The answer to a poll; no messages: none was available in time. ``known``: whether the queue exists."""

    known: bool = True
    messages: Sequence[Message] = ()


class Acknowledge(Struct, frozen=True):
    """Messages of one queue that are done."""

    queue: UUID
    message_ids: Sequence[UUID]


class Acknowledged(Struct, frozen=True):
    """The result of each ack: ``deleted``, ``missing`` or ``unknown`` (no such queue)."""

    outcomes: Sequence[str]


class ListedQueue(Struct, frozen=True):
    """A queue in a list; ``parent_id``: the queue whose dead letters it holds."""

    queue_id: UUID
    parent_id: UUID | None
    info: QueueInfo


class ExtendVisibility(Struct, frozen=True):
    """Hides a message in flight until this many seconds from now; 0 makes it visible at once."""

    queue: UUID
    message_id: UUID
    seconds: int


class Extended(Struct, frozen=True):
    """The result: ``extended``, ``waiting`` (it is not in flight), ``missing`` or ``unknown`` (no such queue)."""

    outcome: str
    visible_at: datetime | None


class Requeued(Struct, frozen=True):
    """The result of a requeue.

    Attributes:
        outcome: ``requeued``, ``repeated`` (it had been before, nothing changed), ``full``, ``missing``, or ``unknown``
            (no such destination).
    """

    outcome: str
    destination: UUID | None
    size: int | None
    messages: int | None


class RequeuedAll(Struct, frozen=True):
    """The result of requeueing a whole queue: ``requeued``, ``plain`` (it is no dead-letter queue) or ``unknown``."""

    outcome: str
    destination: UUID | None
    requeued: int


class Routed(Struct, frozen=True):
    """Dead letters of a queue: how many were moved, and how many newly exhausted messages did not fit."""

    queue: UUID
    dlq_id: UUID | None
    dead: int
    stuck: int


class QueueStatistics(Struct, frozen=True):
    """Statistics of a queue; ``oldest_age_s`` is the age of the oldest message that can be delivered, 0 if none can."""

    queue: UUID
    dead_letters: bool
    depth: int
    in_flight: int
    oldest_age_s: float


class Statistics(Struct, frozen=True):
    """What the database counts.

    Attributes:
        queues: their number.
        of_queues: of the oldest queues, up to the requested number.
        outcomes: counts by queue, operation and outcome, of these queues and those without a queue.
    """

    queues: int
    of_queues: Sequence[QueueStatistics]
    outcomes: Sequence[tuple[UUID, str, str, int]]


def uuid7(unix_ms: int, random_bits: int) -> UUID:
    """A UUID version 7 (RFC 9562, section 5.7) from a time and 74 random bits."""
    high = (random_bits >> 62) & 0xFFF
    low = random_bits & ((1 << 62) - 1)
    return UUID(int=(unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
