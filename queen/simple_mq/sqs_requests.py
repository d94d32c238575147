"""Queues and messages of SQS as the engine sees them, free of HTTP and SQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from queen.simple_mq.requests import PollOfQueue

RECEIVE_MESSAGES_MAX = 10
VISIBILITY_SECONDS_MAX = 43_200


class SqsQueue(Struct, frozen=True):
    """A queue of SQS; ``attributes`` are those that were set, as SQS names them."""

    queue_id: UUID
    name: str
    fifo: bool
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: datetime
    modified_at: datetime


class SqsFigures(Struct, frozen=True):
    """The messages of a queue."""

    visible: int
    in_flight: int
    delayed: int


class NewSqsMessage(Struct, frozen=True):
    """A message to store.

    Attributes:
        attributes: opaque to the storage.
        delay_s: ``None``: the queue's, as always in a FIFO queue.
        group: required in a FIFO queue; otherwise only stored and returned.
        deduplication_id: only in a FIFO queue; ``None``: no deduplication.
    """

    body: str
    attributes: bytes | None = None
    delay_s: int | None = None
    group: str | None = None
    deduplication_id: str | None = None


class SendMessages(Struct, frozen=True):
    """Messages for one queue.

    Attributes:
        size: their bytes in a call.
        encrypted: whether to store bodies and attributes encrypted.
        name: that of the queue, for people who look into the spool.
    """

    queue: UUID
    messages: Sequence[NewSqsMessage]
    size: int
    encrypted: bool = False
    name: str = ""


class Sent(Struct, frozen=True):
    """The id of a message and in a FIFO queue its sequence number; of a duplicate those of the first message.

    Spooled messages have no sequence number before they are stored.
    """

    message_id: UUID
    sequence: int | None


class SentAll(Struct, frozen=True):
    """The result of a send; not ``known``: there is no such queue."""

    known: bool
    messages: Sequence[Sent] = ()


class ReceiveMessages(PollOfQueue, frozen=True):
    """A receive from one queue.

    Attributes:
        in_flight_max: maximum of messages of the queue in flight.
        limit: maximum of messages.
        visibility_s: how long they stay hidden; ``None``: the queue's visibility timeout.
        wait_ms: how long to wait for a message; 0 answers at once.
        attempt_id: in a FIFO queue, repeats the messages of an earlier receive with the same id.
    """

    in_flight_max: int
    limit: int = 1
    visibility_s: int | None = None
    wait_ms: int = 0
    attempt_id: str | None = None

    @property
    def looks_first(self) -> bool:
        """Whether it may repeat an earlier receive: its messages are hidden from all others."""
        return self.attempt_id is not None


class SqsStatistics(Struct, frozen=True):
    """Statistics of a queue.

    Attributes:
        oldest_age_s: the age of its oldest message, in any state; 0 if it has none.
        counts: how often something has happened to its messages, by the operation of the counter.
    """

    name: str
    visible: int
    in_flight: int
    delayed: int
    oldest_age_s: float
    counts: Mapping[str, int]


class SqsOverview(Struct, frozen=True):
    """A queue in a list."""

    statistics: SqsStatistics
    dead_letter_queue: str | None


class ReceivedMessage(Struct, frozen=True):
    """A received message.

    Attributes:
        body: ``None``: it cannot be decrypted, and neither can ``attributes``; ``problem`` says why.
        first_received_at: ``None``: never yet.
        sequence: ``None`` in a standard queue.
        source: the queue of which it is a dead letter.
        sent_id: the id that the sender was told, if it is another.
    """

    message_id: UUID
    body: str | None
    attributes: bytes | None
    receive_count: int
    sent_at: datetime
    first_received_at: datetime | None
    group: str | None
    deduplication_id: str | None
    sequence: int | None
    source: UUID | None
    sent_id: UUID | None = None
    problem: str | None = None


class PeekedMessage(Struct, frozen=True):
    """A message that is only looked at.

    Attributes:
        place: ``visible``, ``in_flight``, ``delayed`` or ``behind`` another message of its group.
        visible_at: when it becomes visible, or has become so.
    """

    message: ReceivedMessage
    place: str
    visible_at: datetime


class SqsReceived(Struct, frozen=True):
    """The answer to a receive: ``ok``, ``over_limit`` (too many messages in flight) or ``unknown`` (no such queue)."""

    outcome: str = "ok"
    messages: Sequence[ReceivedMessage] = ()


class DeleteMessages(Struct, frozen=True):
    """Messages of one queue that are done, each with its receive count at the receive that the client means."""

    queue: UUID
    messages: Sequence[tuple[UUID, int]]


class ChangeVisibility(Struct, frozen=True):
    """Hides messages until so many seconds from now: each with id, receive count and seconds."""

    queue: UUID
    messages: Sequence[tuple[UUID, int, int]]


class SqsOutcomes(Struct, frozen=True):
    """The result for each message.

    Of a deletion ``deleted``, ``missing``, ``stale`` (received again since), ``expired`` (only FIFO) or ``unknown`` (no
    such queue); of a change ``changed``, ``not_in_flight`` (only FIFO), ``missing``, ``stale`` or ``unknown``.
    """

    outcomes: Sequence[str]


class SqsMove(Struct, frozen=True):
    """A message move task.

    Attributes:
        destination_id: ``None``: messages go back to the queues that they come from.
        status: ``RUNNING``, ``COMPLETED``, ``CANCELLED`` or ``FAILED``.
        to_move: visible messages of the source at the start.
    """

    move_id: UUID
    source_id: UUID
    destination_id: UUID | None
    per_s: int | None
    status: str
    failure: str | None
    started_at: datetime
    to_move: int
    moved: int


def sequence_of(message_id: UUID) -> int:
    """The sequence number of a message: its time in microseconds and its place in the call, as in its id."""
    number = message_id.int
    # See sql/internal/simple_mq/010_ids.sql: 48 bits milliseconds, 10 bits microseconds, 20 bits place.
    return (number >> 80) * 1000 + (number >> 66 & 0x3FF) << 20 | number >> 40 & 0xFFFFF
