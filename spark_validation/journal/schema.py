"""The schema of a journal: one row per call, with its answer. ``docs/journal.md`` explains it.

Times are microseconds since 1970 of the agent's clock, save ``created_at`` and ``server_time``, which are the server's.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.json import Encoder

VERSION = 1
"""Version of the schema; a change that old readers would misread needs a new one."""

QUEUE_MODE = "__QUEUE_MODE__"
"""The group of consumers that name none (queue mode)."""

WHOLE_MAX = (1 << 60) - 1
"""The maximum of times in microseconds, offsets and counts; times in nanoseconds exceed it."""

Whole: TypeAlias = Annotated[int, Meta(ge=0, le=WHOLE_MAX)]
SECONDS_MAX = WHOLE_MAX / 1_000_000
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Outcome: TypeAlias = Literal["ok", "fail", "unknown"]
Kind: TypeAlias = Literal[
    "push", "pop", "ack", "renew", "transaction", "sql", "drained", "configured", "clock", "fault", "change", "end",
    "enqueue", "dequeue", "acknowledge", "requeue", "extend",
    "send", "receive", "delete", "hide", "left",
]  # fmt: skip


class PushItem(Struct, frozen=True):
    """A pushed message.

    Attributes:
        transaction_id: the producer's, or that of the answer; null if there is neither.
        outcome: ``ok`` if it is stored, also as a duplicate, or spooled.
        spooled: it was answered as ``buffered``.
        offset, message_id: from the answer, if known; one is enough.
        payload_hash: the first 13 hexadecimal digits of the SHA-256 of the payload, as a number.
    """

    queue: str
    partition: str
    transaction_id: str | None = None
    outcome: Outcome = "unknown"
    duplicate: bool = False
    spooled: bool = False
    offset: Whole | None = None
    message_id: str | None = None
    payload_hash: Whole | None = None


class Delivery(Struct, frozen=True):
    """A delivered message, in the order of the answer to the pop."""

    queue: str
    partition: str
    transaction_id: str
    offset: Whole | None = None
    attempt: Whole | None = None
    created_at: Whole | None = None
    message_id: str | None = None
    payload_hash: Whole | None = None


class AckItem(Struct, frozen=True):
    """An ack of a message, and its answer; ``dead``: the message is now a dead letter."""

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
    offset: Whole | None = None
    message_id: str | None = None


class Call(Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        run: the load test.
        agent: the process that wrote the row; one file has one agent.
        client: the producer or consumer within the agent; for ``fault``: the fault; for ``change``: what an operator
            did (``changes``).
        number: 0, 1, 2, … in the order in which the agent wrote; a gap means that rows were lost.
        kind: ``push``, ``pop``, ``ack``, ``renew`` and ``transaction`` are calls; ``sql`` is a transaction that pushes
            with SQL, from its BEGIN (``sent``) to the answer to COMMIT (``ok``) or ROLLBACK (``fail``); ``drained``
            says that a group, which began at the oldest message, found the queue empty; ``configured`` tells a queue's
            options; ``clock`` compares clocks; ``end`` is the last row of an agent that was not killed. Calls of
            simple-mq are ``enqueue`` (with ``pushes``), ``dequeue`` (with ``deliveries``), and with ``acks``
            ``acknowledge``, ``requeue`` and ``extend``; an item names its queue and message id, and its partition is
            empty. Calls of SQS are ``send`` (with ``pushes``), ``receive`` (with ``deliveries``), and with ``acks``
            ``delete`` and ``hide``; ``left`` says how many messages a queue has in the end.
        sent: when the request was sent, or what is told was seen.
        answered: when the answer arrived; null if there was none.
        outcome: ``unknown`` is a call without an answer, which may take effect at any time from ``sent`` on, or never.
        lease_seconds: of a pop the length of its lease, as far as the client knows; of a renewal what was asked for; of
            a simple-mq queue that is ``configured`` its visibility timeout (``retry_limit``: its most deliveries).
        server_time: of ``clock``: a time that the server told in the answer (in HTTP the header Date), rounded down ...
        server_precision: ... to a multiple of this.
    """

    run: str
    agent: str
    number: Whole
    kind: Kind
    sent: Whole
    answered: Whole | None = None
    outcome: Outcome = "ok"
    client: str = ""
    version: Whole = VERSION
    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    batch: Whole | None = None
    partitions: Whole | None = None
    auto_ack: bool = False
    lease: str | None = None
    lease_seconds: Seconds | None = None
    retry_limit: Whole | None = None
    server_time: Whole | None = None
    server_precision: Whole | None = None
    pushes: tuple[PushItem, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    acks: tuple[AckItem, ...] = ()


_encode = Encoder().encode


def to_line(call: Call) -> bytes:
    """A row as one line of JSON, with the line break."""
    return _encode(call) + b"\n"
