"""Histories of calls and their answers: the input of the checkers.

A record is one call: when it was invoked, when its answer was there, and how it ended. `ok` and `fail` are answers;
`unknown` is a call without one (a timeout, a broken connection, a crash), which may take effect at any time from its
invocation on, or never. Times are nanoseconds of one clock that does not jump. A history is kept as JSON lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from .model.state import QUEUE_MODE, Lane

__all__ = [
    "NEVER",
    "QUEUE_MODE",
    "Ack",
    "AckItem",
    "Call",
    "Configured",
    "Delivery",
    "Drained",
    "History",
    "Lane",
    "Message",
    "Outcome",
    "Pop",
    "Push",
    "PushItem",
    "Reading",
    "Record",
    "Renewal",
    "Track",
    "Transaction",
    "from_lines",
    "to_line",
]

Outcome: TypeAlias = Literal["ok", "fail", "unknown"]
View = TypeVar("View")

NEVER = 1 << 62
"""A time after every other."""


@dataclass(frozen=True, slots=True)
class PushItem:
    """A message to store.

    `outcome` is `ok` when it is stored, also as a duplicate of an earlier one. A `spooled` one was accepted and is
    stored later, so whether it is a duplicate is not known yet.
    """

    queue: str
    partition: str
    transaction_id: str
    payload: object = None
    outcome: Outcome = "unknown"
    duplicate: bool = False
    message_id: str | None = None
    spooled: bool = False

    @property
    def lane(self) -> Lane:
        """Where the message goes."""
        return Lane(self.queue, self.partition)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in the answer to a pop. Not every server reports `offset` and `attempt`."""

    queue: str
    partition: str
    partition_id: str
    message_id: str
    transaction_id: str
    payload: object = None
    lease: str = ""
    offset: int | None = None
    attempt: int | None = None
    created_at: str = ""

    @property
    def lane(self) -> Lane:
        """Where the message lies."""
        return Lane(self.queue, self.partition)


@dataclass(frozen=True, slots=True)
class AckItem:
    """One acknowledgement, and whether it was accepted."""

    queue: str
    partition: str
    transaction_id: str
    group: str = QUEUE_MODE
    status: str = "completed"
    lease: str | None = None
    outcome: Outcome = "unknown"
    dead: bool = False
    noop: bool = False
    error: str | None = None

    @property
    def lane(self) -> Lane:
        """Where the message lies."""
        return Lane(self.queue, self.partition)

    @property
    def may_finish(self) -> bool:
        """Whether the group may be done with the message by this ack."""
        if self.outcome == "fail":
            return False
        if self.status == "failed":
            return self.dead or self.outcome == "unknown"
        return self.status != "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call; one whose outcome is unknown has no `completed`."""

    invoked: int
    completed: int | None = None
    client: str = ""
    outcome: Outcome = "ok"

    @property
    def end(self) -> int:
        """When the answer was there."""
        return NEVER if self.completed is None else self.completed


@dataclass(frozen=True, slots=True, kw_only=True)
class Push(Call):
    """Messages of one request."""

    items: tuple[PushItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pop(Call):
    """A pop; `lease_seconds` is what the consumer knows of the length of its lease."""

    queue: str
    partition: str | None = None
    group: str = QUEUE_MODE
    batch: int = 1
    partitions: int = 1
    auto_ack: bool = False
    lease_seconds: float | None = None
    lease: str = ""
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Call):
    """Acks of one request."""

    items: tuple[AckItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal(Call):
    """More time for a lease; `ok` when it was granted."""

    lease: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(Call):
    """Pushes and acks, all or none."""

    pushes: tuple[PushItem, ...] = ()
    acks: tuple[AckItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A group that began at the oldest message was seen to have nothing left in the queue, nor anything leased."""

    at: int
    queue: str
    group: str = QUEUE_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The options of a queue that a checker needs to know; they held from the first record to the last."""

    queue: str
    retry_limit: int


Record: TypeAlias = Push | Pop | Ack | Renewal | Transaction | Drained | Configured

_KINDS: dict[str, type[Record]] = {
    kind.__name__: kind for kind in (Push, Pop, Ack, Renewal, Transaction, Drained, Configured)
}
_PARTS: dict[tuple[str, str], type[PushItem | Delivery | AckItem]] = {
    ("Push", "items"): PushItem,
    ("Pop", "deliveries"): Delivery,
    ("Ack", "items"): AckItem,
    ("Transaction", "pushes"): PushItem,
    ("Transaction", "acks"): AckItem,
}


def to_line(record: Record) -> str:
    """A record as one line of JSON, without the line break."""
    return json.dumps({"kind": type(record).__name__, **asdict(record)}, separators=(",", ":"))


def from_lines(lines: Iterable[str]) -> History:
    """The history that these lines hold.

    Raises:
        ValueError: a line holds no record; names the line.
    """
    return History(tuple(_from_line(number, line) for number, line in enumerate(lines, 1)))


def _from_line(number: int, line: str) -> Record:
    try:
        fields = json.loads(line)
        kind = fields.pop("kind")
        for (name, field), part in _PARTS.items():
            if name == kind:
                fields[field] = tuple(part(**each) for each in fields[field])
        return _KINDS[kind](**fields)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"line {number} is no record: {error!r}") from error


@dataclass(slots=True, eq=False)
class Message:
    """The history of one message.

    Attributes:
        began: when a client first tried to store it.
        stored: when it was first known to be stored.
        offset: from a delivery, if known.
    """

    lane: Lane
    id: str
    pushes: list[tuple[Push | Transaction, PushItem]] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    began: int = NEVER
    stored: int = NEVER
    offset: int | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether some group was given it."""
        return any(reading.deliveries for reading in self.readings)

    @property
    def seen(self) -> int:
        """When it was first seen to be there."""
        return min((pop.end for reading in self.readings for pop, _ in reading.deliveries), default=NEVER)


@dataclass(slots=True, eq=False)
class Reading:
    """One message and one group.

    Attributes:
        maybe_done_at: from when on the group may be done with it.
        done_at: from when on the group is known to be done with it.
    """

    message: Message
    track: Track
    deliveries: list[tuple[Pop, Delivery]] = field(default_factory=list)
    acks: list[tuple[Ack | Transaction, AckItem]] = field(default_factory=list)
    maybe_done_at: int = NEVER
    done_at: int = NEVER

    def finish(self, maybe_at: int, known_at: int) -> None:
        """Note a call that may have finished the message, and when it is known to have."""
        self.maybe_done_at = min(self.maybe_done_at, maybe_at)
        self.done_at = min(self.done_at, known_at)


@dataclass(slots=True, eq=False)
class Track:
    """One lane and one group: the messages, and what each pop took of them."""

    lane: Lane
    group: str
    readings: list[Reading] = field(default_factory=list)
    claims: list[tuple[Pop, list[Reading]]] = field(default_factory=list)


@dataclass(frozen=True)
class History:
    """Records in any order, with views for the checkers."""

    records: tuple[Record, ...]
    _views: dict[Callable[[History], object], object] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def view(self, look: Callable[[History], View]) -> View:
        """The result of a function for this history, cached for all checkers that need it."""
        if look not in self._views:
            self._views[look] = look(self)
        return self._views[look]  # type: ignore[return-value]

    @cached_property
    def _index(self) -> _Index:
        return _Index(self.records)

    @property
    def messages(self) -> Iterable[Message]:
        """Every message that was pushed, delivered or acked."""
        return self._index.messages.values()

    @property
    def readings(self) -> Iterable[Reading]:
        """Every message with every group that was given it or acked it."""
        return self._index.readings.values()

    @property
    def tracks(self) -> Iterable[Track]:
        """Every lane with every group."""
        return self._index.tracks.values()

    def message(self, item: PushItem | AckItem | Delivery) -> Message:
        """The message that an item of this history is about."""
        return self._index.messages[item.queue, item.partition, item.transaction_id]

    def reading(self, item: AckItem) -> Reading:
        """The message and group that an ack of this history is about."""
        return self._index.readings[item.queue, item.partition, item.transaction_id, item.group]

    @cached_property
    def pushes(self) -> list[Push]:
        """All requests that push, without transactions."""
        return [record for record in self.records if type(record) is Push]

    @cached_property
    def pops(self) -> list[Pop]:
        """All pops."""
        return [record for record in self.records if type(record) is Pop]

    @cached_property
    def renewals(self) -> list[Renewal]:
        """All renewals, the first one first."""
        found = [record for record in self.records if type(record) is Renewal]
        return sorted(found, key=lambda renewal: renewal.invoked)

    @cached_property
    def transactions(self) -> list[Transaction]:
        """All transactions."""
        return [record for record in self.records if type(record) is Transaction]

    @cached_property
    def unanswered_pops(self) -> dict[tuple[str, str], int]:
        """When a pop that may have taken messages unseen was first invoked, by queue and group."""
        found: dict[tuple[str, str], int] = {}
        for pop in self.pops:
            if pop.outcome == "unknown":
                place = (pop.queue, pop.group)
                found[place] = min(pop.invoked, found.get(place, NEVER))
        return found

    @cached_property
    def swallowed(self) -> set[tuple[str, str]]:
        """Queues and groups in which an autoAck pop without an answer may have finished unseen messages."""
        return {(pop.queue, pop.group) for pop in self.pops if pop.auto_ack and pop.outcome == "unknown"}

    @cached_property
    def drained(self) -> dict[tuple[str, str], int]:
        """When a queue was last seen to be empty for a group."""
        found: dict[tuple[str, str], int] = {}
        for record in self.records:
            if type(record) is Drained:
                place = (record.queue, record.group)
                found[place] = max(record.at, found.get(place, 0))
        return found

    def drained_after(self, queue: str, time: int) -> bool:
        """Whether some group has seen the queue empty after that time."""
        return self._last_drained.get(queue, -1) > time

    @cached_property
    def _last_drained(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for (queue, _), at in self.drained.items():
            found[queue] = max(at, found.get(queue, -1))
        return found

    @cached_property
    def retry_limits(self) -> dict[str, int]:
        """The retry limits that are known, by queue."""
        return {record.queue: record.retry_limit for record in self.records if type(record) is Configured}


class _Index:
    """Messages, readings and tracks by name, in one pass over the records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.messages: dict[tuple[str, str, str], Message] = {}
        self.readings: dict[tuple[str, str, str, str], Reading] = {}
        self.tracks: dict[tuple[str, str, str], Track] = {}
        for record in records:
            match record:
                case Push():
                    self._add_pushes(record, record.items)
                case Pop():
                    self._add_deliveries(record)
                case Ack():
                    self._add_acks(record, record.items)
                case Transaction():
                    self._add_pushes(record, record.pushes)
                    self._add_acks(record, record.acks)

    def _add_pushes(self, call: Push | Transaction, items: tuple[PushItem, ...]) -> None:
        begin, end = call.invoked, call.end
        for item in items:
            message = self._message(item.queue, item.partition, item.transaction_id)
            message.pushes.append((call, item))
            message.began = min(message.began, begin)
            if end < message.stored and item.outcome == "ok":
                message.stored = end

    def _add_deliveries(self, pop: Pop) -> None:
        claims: dict[Track, list[Reading]] = {}
        for delivery in pop.deliveries:
            reading = self._reading(delivery.queue, delivery.partition, delivery.transaction_id, pop.group)
            reading.deliveries.append((pop, delivery))
            if delivery.offset is not None:
                reading.message.offset = delivery.offset
            if pop.auto_ack:
                reading.finish(pop.invoked, pop.end)
            if reading.track in claims:
                claims[reading.track].append(reading)
            else:
                claims[reading.track] = [reading]
        for track, readings in claims.items():
            track.claims.append((pop, readings))

    def _add_acks(self, call: Ack | Transaction, items: tuple[AckItem, ...]) -> None:
        begin, end = call.invoked, call.end
        for item in items:
            reading = self._reading(item.queue, item.partition, item.transaction_id, item.group)
            reading.acks.append((call, item))
            if item.may_finish:
                reading.finish(begin, end if item.outcome == "ok" else NEVER)

    def _message(self, queue: str, partition: str, id_: str) -> Message:
        place = (queue, partition, id_)
        found = self.messages.get(place)
        if found is None:
            found = self.messages[place] = Message(Lane(queue, partition), id_)
        return found

    def _reading(self, queue: str, partition: str, id_: str, group: str) -> Reading:
        place = (queue, partition, id_, group)
        found = self.readings.get(place)
        if found is None:
            message, track = self._message(queue, partition, id_), self._track(queue, partition, group)
            found = self.readings[place] = Reading(message, track)
            message.readings.append(found)
            track.readings.append(found)
        return found

    def _track(self, queue: str, partition: str, group: str) -> Track:
        place = (queue, partition, group)
        found = self.tracks.get(place)
        if found is None:
            found = self.tracks[place] = Track(Lane(queue, partition), group)
        return found
