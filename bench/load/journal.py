"""Converts k6's record of its calls to a journal for `queen audit` (docs/journal.md).

The scripts record requests and answers unparsed, because parsing would cost k6 more than sending. They are parsed here,
after the run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bench.load.lines import Line, answer_of, read
from bench.load.simple_mq_journal import SIMPLE_MQ
from spark_validation.journal.changes import keeps_dead_letters
from spark_validation.journal.files import write_lines, write_parquet
from spark_validation.journal.hashes import hash_of
from spark_validation.journal.schema import QUEUE_MODE, AckItem, Call, Delivery, Outcome, PushItem

_TIMERS = ("scheduled", "rescheduled")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RETRY_LIMIT = 3  # of a queue whose configuration does not say
_LEASE_S = 60  # of a queue whose leaseTime is 0


@dataclass
class _Known:
    """Facts from earlier calls: queue and partition by partition id, and the lease seconds by queue."""

    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)


class _Pushed(Struct):
    status: str = ""
    transaction_id: str | None = None
    message_id: str | None = None


class _Message(Struct):
    id: str
    transactionId: str  # noqa: N815 - the interface's names
    partitionId: str  # noqa: N815
    queue: str
    partition: str
    data: Raw
    createdAt: str  # noqa: N815
    offset: int | None = None
    deliveryAttempt: int | None = None  # noqa: N815


class _Popped(Struct):
    leaseId: str = ""  # noqa: N815
    messages: list[_Message] = []


class _Acked(Struct):
    success: bool = False
    error: str | None = None
    dlq: bool = False
    noop: bool = False


class _Options(Struct):
    leaseTime: int | None = None  # noqa: N815


class _Configured(Struct):
    options: _Options


class _Time(Struct):
    timestamp: str


class _Executed(Struct):
    success: bool = False
    results: list[dict[str, Any]] = []


def convert(lines: Path, target: Path, run: str, agent: str, *, ended: bool) -> int:
    """Writes the calls of one k6 process as Parquet; returns their number.

    Args:
        lines: the console output of k6.
        target: the file to write.
        run: the load test.
        agent: the k6 process.
        ended: whether k6 ended normally; else the journal counts as cut short.
    """
    count = 0

    def rows() -> Iterator[Call]:
        nonlocal count
        last = 0
        for call in calls(read(lines), run, agent):
            count, last = count + 1, max(last, call.answered or call.sent)
            yield call
        if ended:
            yield Call(run=run, agent=agent, number=count, kind="end", sent=last)

    write_parquet(target, rows())
    return count


def write_kill(path: Path, run: str, agent: str, killed_ns: int) -> None:
    """A separate journal with the time at which PostgreSQL was killed: `queen audit` marks it in its plots.

    Args:
        path: the file to write.
        run: the load test.
        agent: the running k6 process.
        killed_ns: nanoseconds since 1970.
    """
    name, at = f"{agent}, faults", killed_ns // 1000
    killed = Call(run=run, agent=name, number=0, kind="fault", client="PostgreSQL killed", sent=at)
    write_lines(path, [killed, Call(run=run, agent=name, number=1, kind="end", sent=at)])


def calls(lines: Iterable[Line], run: str, agent: str) -> Iterator[Call]:
    """The rows of a journal."""
    known = _Known()
    makers = {
        "push": _push, "pop": _pop, "ack": _ack, "transaction": _transaction, "configure": _configured,
        "drained": _drained, "clock": _clock,
        **SIMPLE_MQ,
    }  # fmt: skip
    number = 0
    for line in lines:
        if (make := makers.get(line.op)) is None:
            continue
        fields = make(line, known)
        # A call without an answer has no end; the client's timeout says nothing about the server.
        answered = None if line.outcome == "unknown" else line.answered * 1000
        common: dict[str, Any] = {
            "run": run, "agent": agent, "number": number, "client": str(line.vu), "sent": line.sent * 1000,
            "answered": answered, "outcome": line.outcome,
        }  # fmt: skip
        yield Call(**common | fields)
        number += 1


def _outcome(answer: "_Pushed | None", *, stored: bool) -> Outcome:
    # A timer enters the log later, or never.
    if answer is None or answer.status in _TIMERS:
        return "unknown"
    return "ok" if stored else "fail"


def _push_items(items: list[dict[str, Any]], told: list[_Pushed] | None) -> tuple[PushItem, ...]:
    found = []
    for number, item in enumerate(items):
        answer = told[number] if told is not None else None
        stored = answer is not None and answer.status in ("queued", "duplicate", "buffered")
        found.append(
            PushItem(
                item["queue"], item.get("partition") or "Default",
                item.get("transactionId") or (answer.transaction_id if answer else None),
                _outcome(answer, stored=stored),
                duplicate=answer is not None and answer.status == "duplicate",
                spooled=answer is not None and answer.status == "buffered",
                message_id=answer.message_id if answer else None,
                payload_hash=hash_of(msgspec.json.encode(item["payload"])),
            )
        )  # fmt: skip
    return tuple(found)


def _push(line: Line, _known: _Known) -> dict[str, Any]:
    items = (line.request or {})["items"]
    told = answer_of(line, list[_Pushed])
    pushes = _push_items(items, told)
    if line.outcome == "fail":
        pushes = tuple(msgspec.structs.replace(item, outcome="fail") for item in pushes)
    return {"kind": "push", "pushes": pushes}


def _pop(line: Line, known: _Known) -> dict[str, Any]:
    asked = line.request or {}
    queue = asked.get("queue")  # not of a pop by namespace or task
    popped = answer_of(line, _Popped) or _Popped()
    for message in popped.messages:
        known.places[message.partitionId] = (message.queue, message.partition)
    deliveries = tuple(
        Delivery(
            message.queue, message.partition, message.transactionId, message.offset, message.deliveryAttempt,
            (datetime.fromisoformat(message.createdAt) - _EPOCH) // _MICROSECOND, message.id,
            hash_of(bytes(message.data)),
        )
        for message in popped.messages
    )  # fmt: skip
    return {
        "kind": "pop", "queue": queue, "group": asked.get("consumerGroup", QUEUE_MODE),
        "batch": asked.get("batch", 1), "partitions": asked.get("partitions", 1),
        "auto_ack": bool(asked.get("autoAck")), "lease": popped.leaseId or None,
        "lease_seconds": asked.get("leaseSeconds", known.leases.get(queue or "")), "deliveries": deliveries,
    }  # fmt: skip


def _ack_items(
    items: list[dict[str, Any]], group: str, told: list[_Acked] | None, outcome: Outcome, known: _Known
) -> tuple[AckItem, ...]:
    found = []
    for number, item in enumerate(items):
        answer = told[number] if told is not None else None
        queue, partition = known.places[item["partitionId"]]
        result: Outcome = outcome if answer is None else "ok" if answer.success else "fail"
        found.append(
            AckItem(
                queue, partition, item["transactionId"], item.get("consumerGroup") or group,
                item.get("status") or "completed", item.get("leaseId"), result,
                dead=answer is not None and answer.dlq, noop=answer is not None and answer.noop,
                error=answer.error if answer else None,
            )
        )  # fmt: skip
    return tuple(found)


def _ack(line: Line, known: _Known) -> dict[str, Any]:
    asked = line.request or {}
    told = answer_of(line, list[_Acked])
    group = asked.get("consumerGroup") or QUEUE_MODE
    return {"kind": "ack", "acks": _ack_items(asked["acknowledgments"], group, told, line.outcome, known)}


def _executed(line: Line) -> tuple[Outcome, list[_Pushed]]:
    """The outcome of a transaction, and what its answer says of its pushes."""
    executed = answer_of(line, _Executed)
    if executed is None:
        return line.outcome, []
    if not executed.success:
        return "fail", []
    pushes = [each for each in executed.results if each["type"] == "push"]
    return line.outcome, [_Pushed("queued", each["transactionId"], each["messageId"]) for each in pushes]


def _transaction(line: Line, known: _Known) -> dict[str, Any]:
    operations, (outcome, pushed) = (line.request or {})["operations"], _executed(line)
    items = [item for each in operations if each["type"] == "push" for item in each["items"]]
    acks = [each for each in operations if each["type"] == "ack"]
    pushes = _push_items(items, pushed or None)
    return {
        "kind": "transaction", "outcome": outcome,
        "pushes": tuple(msgspec.structs.replace(item, outcome=outcome) for item in pushes),
        "acks": _ack_items(acks, QUEUE_MODE, None, outcome, known),
    }  # fmt: skip


def _configured(line: Line, known: _Known) -> dict[str, Any]:
    asked, told = line.request or {}, answer_of(line, _Configured)
    options = asked.get("options") or {}
    # The answer has the resulting options. Without one it is unknown whether they changed.
    if told is not None and told.options.leaseTime is not None:
        known.leases[asked["queue"]] = told.options.leaseTime or _LEASE_S
    elif line.outcome != "fail":
        known.leases.pop(asked["queue"], None)
    limit, silent = options.get("retryLimit", _RETRY_LIMIT), not keeps_dead_letters(options)
    return {"kind": "configured", "queue": asked["queue"], "retry_limit": limit, "auto_ack": silent}


def _drained(line: Line, _known: _Known) -> dict[str, Any]:
    asked = line.request or {}
    return {"kind": "drained", "queue": asked["queue"], "group": asked.get("consumerGroup") or QUEUE_MODE}


def _clock(line: Line, _known: _Known) -> dict[str, Any]:
    told = answer_of(line, _Time)
    if told is None:
        return {"kind": "clock"}
    at = (datetime.fromisoformat(told.timestamp) - _EPOCH) // _MICROSECOND
    return {"kind": "clock", "server_time": at, "server_precision": 1000}
