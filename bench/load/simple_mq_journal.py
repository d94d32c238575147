"""Calls of simple-mq as rows of a journal."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from bench.load.lines import Line, answer_of
from spark_validation.journal.hashes import hash_of
from spark_validation.journal.schema import AckItem, Delivery, PushItem

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class _Created(Struct):
    queue_id: str


class _Enqueued(Struct):
    message_id: str


class _Message(Struct):
    message_id: str
    data: str
    delivery_count: int
    created_at: str


class _Dequeued(Struct):
    message: _Message | None


def _configured(line: Line, _places: object) -> dict[str, Any]:
    asked, made = line.request or {}, answer_of(line, _Created)
    limits = {"retry_limit": asked["maxDeliveries"], "lease_seconds": asked["visibilityTimeout"]}
    return {"kind": "configured", "queue": made.queue_id if made else None, **limits}


def _enqueue(line: Line, _places: object) -> dict[str, Any]:
    asked, stored = line.request or {}, answer_of(line, _Enqueued)
    item = PushItem(
        asked["queue"], "", outcome=line.outcome, message_id=stored.message_id if stored else None,
        payload_hash=hash_of(asked["data"].encode()),
    )  # fmt: skip
    return {"kind": "enqueue", "pushes": (item,)}


def _dequeue(line: Line, _places: object) -> dict[str, Any]:
    queue, polled = (line.request or {})["queue"], answer_of(line, _Dequeued)
    deliveries: tuple[Delivery, ...] = ()
    if polled and (message := polled.message):
        created_at = datetime.fromisoformat(message.created_at).replace(tzinfo=UTC)
        deliveries = (
            Delivery(
                queue, "", message.message_id, attempt=message.delivery_count,
                created_at=(created_at - _EPOCH) // _MICROSECOND, message_id=message.message_id,
                payload_hash=hash_of(message.data.encode()),
            ),
        )  # fmt: skip
    return {"kind": "dequeue", "queue": queue, "batch": 1, "deliveries": deliveries}


def _acknowledge(line: Line, _places: object) -> dict[str, Any]:
    asked = line.request or {}
    item = AckItem(asked["queue"], "", asked["message"], outcome=line.outcome, message_id=asked["message"])
    return {"kind": "acknowledge", "acks": (item,)}


#: Functions for the fields of a row, by the operation in the record of the scripts.
SIMPLE_MQ: Mapping[str, Callable[[Line, Any], dict[str, Any]]] = {
    "simple_mq_create_queue": _configured,
    "simple_mq_enqueue": _enqueue,
    "simple_mq_dequeue": _dequeue,
    "simple_mq_ack": _acknowledge,
}
