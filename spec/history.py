"""What clients asked and what they were told: the input of the checkers.

A record is one call: when it was invoked, when its answer was there, and how it ended. `ok` and `fail` are answers;
`unknown` is a call without one (a timeout, a broken connection, a crash), which may take effect at any time from its
invocation on, or never. Times are nanoseconds of one clock that does not jump. A history is kept as JSON lines.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal, TypeAlias

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
    "Outcome",
    "Pop",
    "Push",
    "PushItem",
    "Record",
    "Renewal",
    "Transaction",
    "from_lines",
    "to_line",
]

Outcome: TypeAlias = Literal["ok", "fail", "unknown"]

NEVER = 1 << 62
"""A time after every other."""


@dataclass(frozen=True, slots=True)
class PushItem:
    """A message to store. `outcome` is `ok` when it is stored, also as a duplicate of an earlier one."""

    queue: str
    partition: str
    transaction_id: str
    payload: object = None
    outcome: Outcome = "unknown"
    duplicate: bool = False
    message_id: str | None = None

    @property
    def lane(self) -> Lane:
        """Where the message goes."""
        return Lane(self.queue, self.partition)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in the answer to a pop. Not every server tells `offset` and `attempt`."""

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
    """What a consumer said of a message, and whether that was accepted."""

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

    @property
    def finishes(self) -> bool:
        """Whether the group is done with the message once the answer is there."""
        return self.may_finish and self.outcome == "ok"


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


@dataclass(frozen=True)
class History:
    """Records in any order, and the ways in which checkers look at them."""

    records: tuple[Record, ...]

    @cached_property
    def pushed(self) -> list[tuple[Push | Transaction, PushItem]]:
        """Every message that somebody tried to store, alone or in a transaction."""
        pushes = ((record, item) for record in self.records if isinstance(record, Push) for item in record.items)
        return [*pushes, *((transaction, item) for transaction in self.transactions for item in transaction.pushes)]

    @cached_property
    def pushes_of(self) -> dict[tuple[Lane, str], list[tuple[Push | Transaction, PushItem]]]:
        """The attempts to store a message, by lane and transaction id."""
        found = defaultdict(list)
        for call, item in self.pushed:
            found[item.lane, item.transaction_id].append((call, item))
        return dict(found)

    @cached_property
    def pops(self) -> list[Pop]:
        """All pops."""
        return [record for record in self.records if isinstance(record, Pop)]

    @cached_property
    def delivered(self) -> list[tuple[Pop, Delivery]]:
        """Every delivery with its pop."""
        return [(pop, delivery) for pop in self.pops for delivery in pop.deliveries]

    @cached_property
    def deliveries_to(self) -> dict[tuple[Lane, str], list[tuple[Pop, Delivery]]]:
        """The deliveries by lane and group."""
        found = defaultdict(list)
        for pop, delivery in self.delivered:
            found[delivery.lane, pop.group].append((pop, delivery))
        return dict(found)

    @cached_property
    def deliveries_of(self) -> dict[tuple[Lane, str], list[tuple[Pop, Delivery]]]:
        """The deliveries of a message to any group, by lane and transaction id."""
        found = defaultdict(list)
        for pop, delivery in self.delivered:
            found[delivery.lane, delivery.transaction_id].append((pop, delivery))
        return dict(found)

    @cached_property
    def offsets(self) -> dict[tuple[Lane, str], int]:
        """The offset of each delivered message, as far as it was told, by lane and transaction id."""
        return {
            (delivery.lane, delivery.transaction_id): delivery.offset
            for _, delivery in self.delivered
            if delivery.offset is not None
        }

    @cached_property
    def renewals(self) -> list[Renewal]:
        """All renewals."""
        return [record for record in self.records if isinstance(record, Renewal)]

    @cached_property
    def transactions(self) -> list[Transaction]:
        """All transactions."""
        return [record for record in self.records if isinstance(record, Transaction)]

    @cached_property
    def acked(self) -> list[tuple[Ack | Transaction, AckItem]]:
        """Every ack, alone or in a transaction."""
        acks = ((record, item) for record in self.records if isinstance(record, Ack) for item in record.items)
        return [*acks, *((transaction, item) for transaction in self.transactions for item in transaction.acks)]

    @cached_property
    def acks_of(self) -> dict[tuple[Lane, str, str], list[tuple[Ack | Transaction, AckItem]]]:
        """The acks of a message, by lane, group and transaction id."""
        found = defaultdict(list)
        for call, item in self.acked:
            found[item.lane, item.group, item.transaction_id].append((call, item))
        return dict(found)

    @cached_property
    def done_at(self) -> dict[tuple[Lane, str, str], int]:
        """From when on a group is known to be done with a message, by lane, group and transaction id."""
        found: dict[tuple[Lane, str, str], int] = {}
        for place, end in self._finishes():
            found[place] = min(end, found.get(place, NEVER))
        return found

    def _finishes(self) -> Iterator[tuple[tuple[Lane, str, str], int]]:
        for call, item in self.acked:
            if item.finishes:
                yield (item.lane, item.group, item.transaction_id), call.end
        for pop, delivery in self.delivered:
            if pop.auto_ack:
                yield (delivery.lane, pop.group, delivery.transaction_id), pop.end

    @cached_property
    def drained(self) -> dict[tuple[str, str], int]:
        """When a queue was last seen to be empty for a group."""
        seen = [record for record in self.records if isinstance(record, Drained)]
        return {(record.queue, record.group): record.at for record in sorted(seen, key=lambda record: record.at)}

    def drained_after(self, queue: str, time: int) -> bool:
        """Whether some group has seen the queue empty after that time."""
        return any(name == queue and at > time for (name, _), at in self.drained.items())

    @cached_property
    def retry_limits(self) -> dict[str, int]:
        """The retry limits that are known, by queue."""
        return {record.queue: record.retry_limit for record in self.records if isinstance(record, Configured)}
