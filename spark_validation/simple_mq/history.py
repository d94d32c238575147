"""Converts histories of simple-mq for the checkers of the specification to journals and stored rows."""

from collections.abc import Iterator
from typing import Any

from spec import simple_mq_history as history

from ..journal.hashes import hash_of
from ..journal.schema import AckItem, Call, Delivery, PushItem
from .stored import StoredMessage, StoredQueue

_SIZE = 1_000_000


def to_calls(records: history.SimpleMqHistory, agent: str = "agent") -> Iterator[Call]:
    """The journal of one agent, with its last row."""
    number, last = 0, 0
    for queue in sorted({record.queue for record in records.records}):
        settings: dict[str, Any] = {
            "lease_seconds": records.visibility_timeout_s,
            "retry_limit": records.max_deliveries,
        }
        yield Call(run="run", agent=agent, number=number, kind="configured", sent=0, queue=queue, **settings)
        number += 1
    for record in records.records:
        if not isinstance(record, history.Left):
            call = _to_call(record, agent, number)
            number, last = number + 1, max(last, call.sent, call.answered or 0)
            yield call
    yield Call(run="run", agent=agent, number=number, kind="end", sent=last)


def _to_call(record: history.Enqueue | history.Poll | history.Ack, agent: str, number: int) -> Call:
    answered = None if record.completed is None else record.completed // 1000
    common: dict[str, Any] = {
        "run": "run",
        "agent": agent,
        "number": number,
        "sent": record.invoked // 1000,
        "answered": answered,
    }
    match record:
        case history.Enqueue():
            hash_ = hash_of(record.data.encode())
            item = PushItem(
                record.queue, "", outcome=record.outcome, message_id=record.message_id or None, payload_hash=hash_
            )
            return Call(**common, outcome=record.outcome, kind="enqueue", pushes=(item,))
        case history.Poll():
            return Call(
                **common, outcome=record.outcome, kind="dequeue", queue=record.queue, deliveries=tuple(_given(record))
            )
        case history.Ack():
            ack = AckItem(record.queue, "", record.message_id, outcome=record.outcome, message_id=record.message_id)
            return Call(**common, outcome=record.outcome, kind="acknowledge", acks=(ack,))


def _given(poll: history.Poll) -> Iterator[Delivery]:
    if poll.message_id:
        yield Delivery(
            poll.queue, "", poll.message_id, attempt=poll.delivery_count, message_id=poll.message_id,
            payload_hash=hash_of(poll.data.encode()),
        )  # fmt: skip


def to_stored(records: history.SimpleMqHistory) -> tuple[list[StoredQueue], list[StoredMessage]]:
    """The tables at the end of the history; each queue has one dead-letter queue with its dead letters.

    Data that was not sent in the history is empty.
    """
    data = {enqueue.message_id: enqueue.data for enqueue in records.enqueued() if enqueue.message_id}
    counts = {id_: max(poll.delivery_count for poll in polls) for id_, polls in records.delivered().items()}
    queues, messages = [], []
    timeout, most = int(records.visibility_timeout_s), records.max_deliveries
    for left in records.left():
        dead = tuple(sorted(records.dead))
        dlq = f"{left.queue}-dlq"
        queues.append(StoredQueue(left.queue, _SIZE, timeout, most, left.count, dlq if dead else None))
        messages += [_stored(left.queue, id_, data, counts.get(id_, 0)) for id_ in left.message_ids]
        if dead:
            queues.append(StoredQueue(dlq, _SIZE, timeout, most, len(dead), parent=left.queue))
            messages += [_stored(dlq, id_, data, most) for id_ in dead]
    return queues, messages


def _stored(queue: str, id_: str, data: dict[str, str], deliveries: int) -> StoredMessage:
    return StoredMessage(queue, id_, deliveries, hash_of(data.get(id_, "").encode()))
