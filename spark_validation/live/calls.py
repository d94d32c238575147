"""From a row of a journal to what it says of each partition and group."""

from collections.abc import Iterator
from typing import Any

from ..journal.schema import QUEUE_MODE, AckItem, Call, Delivery
from .windows import Place, Said

_KIND = "-8001-8000-"


def said(call: Call) -> Iterator[tuple[Place, Said]]:
    """One for each partition and group; what was pushed is told of the partition alone."""
    found: dict[Place, dict[str, list[Any]]] = {}

    def at(queue: str, partition: str, group: str = "") -> dict[str, list[Any]]:
        return found.setdefault(
            Place(queue, partition, group), {"first": [], "given": [], "finished": [], "queued": []}
        )

    for delivery in call.deliveries:
        there = at(delivery.queue, delivery.partition, call.group or QUEUE_MODE)
        there["given"].append(delivery.transaction_id)
        if call.auto_ack:
            there["finished"].append(delivery.transaction_id)
        if delivery.attempt == 1 and (offset := _offset(delivery)) is not None:
            there["first"].append(offset)
    for ack in call.acks:
        if _finishes(ack):
            at(ack.queue, ack.partition, ack.group)["finished"].append(ack.transaction_id)
    for push in call.pushes:
        if push.outcome == "ok" and push.transaction_id and not push.duplicate and not push.spooled:
            at(push.queue, push.partition)["queued"].append(push.transaction_id)
    for place, lists in found.items():
        yield place, Said(call.agent, call.number, call.sent, call.answered, **lists)


def _finishes(ack: AckItem) -> bool:
    return ack.outcome == "ok" and ack.status != "retry" and (ack.status != "failed" or ack.dead)


def _offset(delivery: Delivery) -> int | None:
    """As told, else from the message id (``queen/core/ids.py`` documents it)."""
    id_ = delivery.message_id or ""
    if delivery.offset is None and id_[13:24] == _KIND:
        return int(id_[24:], 16)
    return delivery.offset
