"""What operators did, from the log of a server: lines of the logger ``queen.audit`` as rows of a journal.

A row of kind ``change`` names the operation as ``client``. A dead letter that was replayed is also a push.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from .schema import AckItem, Call, PushItem

AUDIT = "queen.audit"
GROUP_DELETED, GROUP_SOUGHT = "group deleted", "group moved"
LETTERS_DELETED, LETTER_DELETED, LETTER_REPLAYED = "dead letters deleted", "dead letter deleted", "dead letter replayed"
GIVEN_UP, CONFIGURED, MESSAGE_DELETED = "message given up", "queue configured", "message deleted"
RETENTION = "retention configured"
"""With the shortest time after which messages are removed (``lease_seconds``; 0: never)."""

LEASE = "lease time configured"
"""With the ``leaseTime`` of the queue (``lease_seconds``)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _MILLISECOND = timedelta(microseconds=1), 1000
_UNKNOWN_MS = 60_000.0  # how long a change took, if the log does not say
_OK = 200
_RETRY_LIMIT = 3  # of a queue whose configuration does not say
_V1 = "/api/v1"
_PATHS = tuple(
    (method, re.compile(_V1 + path), change)
    for method, path, change in (
        ("DELETE", r"/consumer-groups/(?P<group>.+)/queues/(?P<queue>.+)", GROUP_DELETED),
        ("DELETE", r"/consumer-groups/(?P<group>.+)", GROUP_DELETED),
        (
            "POST",
            r"/consumer-groups/(?P<group>.+)/queues/(?P<queue>.+)/partitions/(?P<partition>.+)/seek",
            GROUP_SOUGHT,
        ),
        ("POST", r"/consumer-groups/(?P<group>.+)/queues/(?P<queue>.+)/seek", GROUP_SOUGHT),
        ("DELETE", r"/dlq", LETTERS_DELETED),
        ("POST", r"/dlq/replay", LETTER_REPLAYED),
        ("DELETE", r"/dlq/.+", LETTER_DELETED),
        ("POST", r"/dlq/.+/replay", LETTER_REPLAYED),
        ("POST", r"/messages/.+/.+/retry", LETTER_REPLAYED),
        ("POST", r"/messages/(?P<part>[^/]+)/(?P<id>.+)/dlq", GIVEN_UP),
        ("DELETE", r"/messages/(?P<part>[^/]+)/(?P<id>.+)", MESSAGE_DELETED),
        ("POST", r"/configure", CONFIGURED),
    )
)


class _Letter(Struct, rename="camel"):
    partition_id: str
    transaction_id: str
    consumer_group: str


class _ReplayedAs(Struct, rename="camel"):
    queue: str
    partition: str
    transaction_id: str
    message_id: str
    duplicate: bool


class _Numbers(Struct, rename="camel"):
    """Options of a queue; other types are refused."""

    retry_limit: float | None = None
    lease_time: float | None = None
    max_wait_time_seconds: float | None = None
    ttl: float | None = None
    retention_seconds: float | None = None
    completed_retention_seconds: float | None = None


class _Line(Struct):
    logger: str
    time: datetime
    method: str = ""
    path: str = ""
    query: str = ""
    body: str = ""
    answer: str = ""
    status: int | None = None
    took_ms: float = _UNKNOWN_MS
    dead_letter: _Letter | None = None
    replayed_as: _ReplayedAs | None = None

    @property
    def known(self) -> bool:
        """Whether the outcome is known."""
        return self.status is not None and self.status < 500


_decode = msgspec.json.Decoder(_Line).decode


def read_changes(path: Path, agent: str) -> Iterator[Call]:
    """The rows of a server's log, which may have any other lines; nothing if it has no changes."""
    number, last = 0, 0
    with path.open("rb") as file:
        for line in file:
            if AUDIT.encode() not in line:
                continue
            try:
                told = _decode(line)
            except msgspec.DecodeError:
                continue
            for fields in _rows(told) if told.logger == AUDIT else ():
                at = (told.time - _EPOCH) // _MICROSECOND
                last = max(last, at)
                answered = at + _MILLISECOND if told.known else None
                sent = max(at - int(told.took_ms * 1000) - _MILLISECOND, 0)
                outcome = "unknown" if answered is None else "ok"
                yield Call(
                    run="", agent=agent, number=number, sent=sent, answered=answered, **fields | {"outcome": outcome}
                )
                number += 1
    if number:
        yield Call(run="", agent=agent, number=number, kind="end", sent=last)


def _rows(line: _Line) -> Iterator[dict[str, Any]]:
    for method, pattern, change in _PATHS:
        if line.method == method and (found := pattern.fullmatch(line.path)):
            yield from _MAKERS.get(change, _plain)(line, change, found.groupdict())
            return


def _json(text: str) -> dict[str, Any]:
    """An object, as far as the line has it."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _plain(line: _Line, change: str, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    query = parse_qs(line.query)
    queue = names.get("queue") or query.get("queue", [None])[0]
    group = names.get("group") or query.get("consumerGroup", [""])[0]
    partition = names.get("partition") or query.get("partition", [None])[0]
    yield {"kind": "change", "client": change, "queue": queue, "partition": partition, "group": group}


def _sought(line: _Line, change: str, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    # Behind the beginning, messages are left out: the group is not whole any more.
    [row] = _plain(line, change, names)
    yield row | {"auto_ack": not _json(line.body).get("toBeginning")}


def _configured(line: _Line, change: str, _names: dict[str, str]) -> Iterator[dict[str, Any]]:
    asked = _json(line.body)
    parts = [said.get("options") or {} for said in (asked, _json(line.answer))]
    try:
        options: dict[str, Any] = reduce(or_, msgspec.convert(parts, list[dict[str, Any]]))
        numbers = msgspec.convert(options, _Numbers)
    except msgspec.ValidationError:
        return
    if not isinstance(asked.get("queue"), str):
        return
    row = {"kind": "change", "client": change, "queue": asked["queue"], "group": ""}
    yield row | {
        "retry_limit": int(_RETRY_LIMIT if numbers.retry_limit is None else numbers.retry_limit),
        "lease_seconds": numbers.max_wait_time_seconds or 0,
        "auto_ack": not keeps_dead_letters(options),
    }
    yield row | {"client": RETENTION, "lease_seconds": _keeps_s(options)}
    if numbers.lease_time is not None:
        yield row | {"client": LEASE, "lease_seconds": numbers.lease_time}


def keeps_dead_letters(options: dict[str, Any]) -> bool:
    """Whether a queue with these options keeps dead letters."""
    said = [options.get(name) for name in ("deadLetterQueue", "dlqAfterMaxRetries")]
    return True in said or False not in said


def _keeps_s(options: dict[str, Any]) -> float:
    names = ["ttl"] + (["retentionSeconds", "completedRetentionSeconds"] if options.get("retentionEnabled") else [])
    return min((float(options[name]) for name in names if options.get(name)), default=0.0)


def _given_up(line: _Line, change: str, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    groups = _json(line.answer).get("consumerGroups") or [""]
    items = tuple(AckItem("", names["part"], names["id"], group) for group in groups)
    yield {"kind": "change", "client": change, "group": "", "acks": items}


def _message_deleted(line: _Line, change: str, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """With its dead letters in all groups."""
    if not line.known or line.status == _OK:
        item = AckItem("", names["part"], names["id"], "")
        yield {"kind": "change", "client": change, "group": "", "acks": (item,)}


def _letter_gone(line: _Line, change: str, _names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The dead letter that the line names; one that it does not name was not found."""
    if letter := line.dead_letter:
        item = AckItem("", letter.partition_id, letter.transaction_id, letter.consumer_group)
        yield {"kind": "change", "client": change, "group": "", "acks": (item,)}


def _replayed(line: _Line, change: str, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    now = line.replayed_as
    # One that was replayed before, or could not be, is kept.
    if not line.known or (now and not now.duplicate):
        yield from _letter_gone(line, change, names)
    if now:
        item = PushItem(now.queue, now.partition, now.transaction_id, "ok", now.duplicate, message_id=now.message_id)
        yield {"kind": "push", "pushes": (item,)}


_MAKERS = {
    GROUP_SOUGHT: _sought,
    CONFIGURED: _configured,
    GIVEN_UP: _given_up,
    MESSAGE_DELETED: _message_deleted,
    LETTER_DELETED: _letter_gone,
    LETTER_REPLAYED: _replayed,
}
