"""Converts between journals and the histories for the checkers of the specification.

A history has payloads and a journal their hashes, so a converted journal has hashes instead of payloads. Times of a
history are nanoseconds, those of a journal microseconds.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from spec import history

from .hashes import hash_of
from .schema import AckItem, Call, Delivery, PushItem

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def payload_hash(payload: object) -> int:
    """The hash of a payload in journals: 52 bits of a hash of its JSON without spaces, keys sorted."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hash_of(text.encode())


def from_history(records: history.History, run: str = "run", agent: str = "agent") -> Iterator[Call]:
    """The journal of one agent, with its last row."""
    last = 0
    for number, record in enumerate(records.records):
        call = _to_call(record, run, agent, number)
        last = max(last, call.sent, call.answered or 0)
        yield call
    yield Call(run=run, agent=agent, number=len(records.records), kind="end", sent=last)


def _to_call(record: history.Record, run: str, agent: str, number: int) -> Call:  # noqa: PLR0911 - one a kind
    row: dict[str, Any] = {"run": run, "agent": agent, "number": number}
    match record:
        case history.Drained():
            return Call(**row, kind="drained", sent=record.at // 1000, queue=record.queue, group=record.group)
        case history.Configured():
            return Call(**row, kind="configured", sent=0, queue=record.queue, retry_limit=record.retry_limit)
    row |= {
        "client": record.client,
        "sent": record.invoked // 1000,
        "answered": None if record.completed is None else record.completed // 1000,
        "outcome": record.outcome,
    }
    match record:
        case history.Push():
            return Call(**row, kind="push", pushes=tuple(map(_push_item, record.items)))
        case history.Ack():
            return Call(**row, kind="ack", acks=tuple(map(_ack_item, record.items)))
        case history.Transaction():
            pushes, acks = tuple(map(_push_item, record.pushes)), tuple(map(_ack_item, record.acks))
            return Call(**row, kind="transaction", pushes=pushes, acks=acks)
        case history.Renewal():
            return Call(**row, kind="renew", lease=record.lease, lease_seconds=record.seconds)
        case history.Pop():
            return Call(
                **row,
                kind="pop",
                queue=record.queue,
                partition=record.partition,
                group=record.group,
                batch=record.batch,
                partitions=record.partitions,
                auto_ack=record.auto_ack,
                lease=record.lease,
                lease_seconds=record.lease_seconds,
                deliveries=tuple(map(_delivery, record.deliveries)),
            )


def _push_item(item: history.PushItem) -> PushItem:
    return PushItem(
        item.queue,
        item.partition,
        item.transaction_id,
        item.outcome,
        item.duplicate,
        message_id=item.message_id,
        payload_hash=payload_hash(item.payload),
    )


def _delivery(item: history.Delivery) -> Delivery:
    created_at = None
    if item.created_at:
        created_at = (datetime.fromisoformat(item.created_at) - _EPOCH) // timedelta(microseconds=1)
    return Delivery(
        item.queue,
        item.partition,
        item.transaction_id,
        item.offset,
        item.attempt,
        created_at,
        item.message_id,
        payload_hash(item.payload),
    )


def _ack_item(item: history.AckItem) -> AckItem:
    return AckItem(
        item.queue,
        item.partition,
        item.transaction_id,
        item.group,
        item.status,
        item.lease,
        item.outcome,
        item.dead,
        item.noop,
        item.error,
    )


def to_history(calls: Iterable[Call]) -> history.History:
    """The history for the checkers; without comparisons of clocks and ends of agents."""
    return history.History(tuple(record for call in calls if (record := _to_record(call)) is not None))


def _to_record(call: Call) -> history.Record | None:
    row: dict[str, Any] = {
        "invoked": call.sent * 1000,
        "completed": None if call.answered is None else call.answered * 1000,
        "client": call.client,
        "outcome": call.outcome,
    }
    match call.kind:
        case "push":
            return history.Push(**row, items=tuple(_to_push_items(call)))
        case "ack":
            return history.Ack(**row, items=tuple(map(_to_ack_item, call.acks)))
        case "transaction":
            acks = tuple(map(_to_ack_item, call.acks))
            return history.Transaction(**row, pushes=tuple(_to_push_items(call)), acks=acks)
        case "renew":
            return history.Renewal(**row, lease=call.lease or "", seconds=call.lease_seconds or 0)
        case "pop":
            return _to_pop(call, row)
    return _to_fact(call)


def _to_fact(call: Call) -> history.Record | None:
    """What is no call of a client."""
    match call.kind:
        case "drained":
            group = call.group or history.QUEUE_MODE
            return history.Drained(at=call.sent * 1000, queue=call.queue or "", group=group)
        case "configured":
            return history.Configured(queue=call.queue or "", retry_limit=call.retry_limit or 0)
    return None


def _to_pop(call: Call, row: dict[str, Any]) -> history.Pop:
    return history.Pop(
        **row,
        queue=call.queue or "",
        partition=call.partition,
        group=call.group or history.QUEUE_MODE,
        batch=call.batch or 1,
        partitions=call.partitions or 1,
        auto_ack=call.auto_ack,
        lease_seconds=call.lease_seconds,
        lease=call.lease or "",
        deliveries=tuple(_to_delivery(call.lease or "", item) for item in call.deliveries),
    )


def _to_push_items(call: Call) -> Iterator[history.PushItem]:
    for place, item in enumerate(call.pushes):
        # A message without a known id cannot be confused with another one.
        name = item.transaction_id or item.message_id or f"{call.agent} {call.number} {place}"
        yield history.PushItem(
            item.queue, item.partition, name, item.payload_hash, item.outcome, item.duplicate, item.message_id
        )


def _to_delivery(lease: str, item: Delivery) -> history.Delivery:
    created_at = ""
    if item.created_at is not None:
        created_at = (_EPOCH + timedelta(microseconds=item.created_at)).isoformat()
    name = item.message_id or f"{item.offset}"
    return history.Delivery(
        item.queue,
        item.partition,
        "",
        name,
        item.transaction_id,
        item.payload_hash,
        lease,
        item.offset,
        item.attempt,
        created_at,
    )


def _to_ack_item(item: AckItem) -> history.AckItem:
    return history.AckItem(
        item.queue,
        item.partition,
        item.transaction_id,
        item.group,
        item.status,
        item.lease,
        item.outcome,
        item.dead,
        item.noop,
        item.error,
    )
