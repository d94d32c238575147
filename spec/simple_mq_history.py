"""Histories of simple-mq calls and their answers: the input of `checkers.simple_mq`.

A record is one call, as in `history.py`: `ok` and `fail` are answers, `unknown` is a call without one. Times are
nanoseconds of one clock that does not jump.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .history import Call

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue(Call):
    """One message to store; an answered one has an id."""

    queue: str
    data: str
    message_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(Call):
    """A poll and its deliveries; if its outcome is unknown, it may have other deliveries."""

    queue: str
    message_id: str = ""
    data: str = ""
    delivery_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Call):
    """An ack; `fail` is a 404."""

    queue: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The final contents of a queue, after all clients have stopped, and its message count."""

    queue: str
    count: int
    message_ids: tuple[str, ...]


Record: TypeAlias = Enqueue | Poll | Ack | Left

_KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in (Enqueue, Poll, Ack, Left)}


@dataclass(frozen=True)
class SimpleMqHistory:
    """Records in any order, with the settings that all queues in it had; a dead-letter queue's records stand apart.

    Attributes:
        records: of the queues, not of their dead-letter queues.
        visibility_timeout_s: of all queues.
        max_deliveries: of all queues.
        dead: ids of the messages that were found in dead-letter queues at the end.
    """

    records: tuple[Record, ...]
    visibility_timeout_s: float
    max_deliveries: int
    dead: frozenset[str] = frozenset()

    def enqueued(self) -> list[Enqueue]:
        """All enqueues."""
        return [record for record in self.records if isinstance(record, Enqueue)]

    def delivered(self) -> dict[str, list[Poll]]:
        """The polls that got a message, by message id, in the order of their answers."""
        found: dict[str, list[Poll]] = {}
        polls = [record for record in self.records if isinstance(record, Poll) and record.message_id]
        for poll in sorted(polls, key=lambda record: record.end):
            found.setdefault(poll.message_id, []).append(poll)
        return found

    def acked(self) -> dict[str, list[Ack]]:
        """The acks by message id."""
        found: dict[str, list[Ack]] = {}
        for record in self.records:
            if isinstance(record, Ack):
                found.setdefault(record.message_id, []).append(record)
        return found

    def left(self) -> list[Left]:
        """The final contents of the queues."""
        return [record for record in self.records if isinstance(record, Left)]


def to_lines(history: SimpleMqHistory) -> list[str]:
    """A history as lines of JSON: the settings, then the records."""
    settings = {
        "kind": "settings", "visibility_timeout_s": history.visibility_timeout_s,
        "max_deliveries": history.max_deliveries, "dead": sorted(history.dead),
    }  # fmt: skip
    return [json.dumps(settings), *(json.dumps({"kind": type(r).__name__, **asdict(r)}) for r in history.records)]


def from_lines(lines: Iterable[str]) -> SimpleMqHistory:
    """The history that these lines hold.

    Raises:
        ValueError: a line holds no record; names the line.
    """
    settings: dict[str, Any] = {}
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            kind = fields.pop("kind")
            if kind == "settings":
                settings = fields
                continue
            if kind == "Left":
                fields["message_ids"] = tuple(fields["message_ids"])
            records.append(_KINDS[kind](**fields))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"line {number} is no record: {error!r}") from error
    dead = settings.pop("dead", ())
    return SimpleMqHistory(tuple(records), dead=frozenset(dead), **settings)
