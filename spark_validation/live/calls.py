"""Splits a row of a journal by partition and group."""

import re
from collections.abc import Iterator
from typing import Any

from ..journal.schema import QUEUE_MODE, AckItem, Call, Delivery, PushItem
from .windows import Place, Said

_MESSAGE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8001-8000-[0-9a-f]{12}")
_Told = Delivery | AckItem | PushItem


def said(call: Call) -> Iterator[tuple[Place, Said]]:
    """One part per partition and group; pushes have no group."""
    found: dict[Place, dict[str, Any]] = {}

    def at(item: _Told, group: str = "") -> dict[str, Any]:
        there = found.setdefault(
            Place(item.queue, item.partition, group),
            {"first": [], "given": [], "finished": [], "queued": [], "part": None},
        )
        there["part"] = _part(item) if there["part"] is None else there["part"]
        return there

    for delivery in call.deliveries:
        _give(at(delivery, call.group or QUEUE_MODE), delivery, auto_ack=call.auto_ack)
    for ack in call.acks:
        if _finishes(ack):
            at(ack, ack.group)["finished"].append((ack.transaction_id, _offset(ack)))
    for push in call.pushes if call.kind != "sql" else ():  # no answer told whether it was a duplicate
        if _is_queued(push):
            at(push)["queued"].append((push.transaction_id, _offset(push)))
    for place, what in found.items():
        yield place, Said(call.agent, call.number, call.sent, call.answered, **what)


def _give(there: dict[str, Any], delivery: Delivery, *, auto_ack: bool) -> None:
    offset = _offset(delivery)
    there["given"].append((delivery.transaction_id, offset))
    if auto_ack:
        there["finished"].append((delivery.transaction_id, offset))
    if delivery.attempt == 1 and offset is not None:
        there["first"].append(offset)


def _is_queued(push: PushItem) -> bool:
    return push.outcome == "ok" and bool(push.transaction_id) and not push.duplicate and not push.spooled


def _finishes(ack: AckItem) -> bool:
    return ack.outcome == "ok" and ack.status != "retry" and (ack.status != "failed" or ack.dead)


def _id_of(item: _Told) -> str:
    """The message id of an item, if known (``queen/log/ids.py`` documents its form)."""
    id_ = item.message_id or ""
    return id_ if _MESSAGE_ID.fullmatch(id_) else ""


def _offset(item: _Told) -> int | None:
    """The offset, from the item or else from its message id."""
    if item.offset is None and (id_ := _id_of(item)):
        return int(id_[24:], 16)
    return item.offset


def _part(item: _Told) -> int | None:
    """The number of the partition, from the message id."""
    id_ = _id_of(item)
    return int(id_[:8] + id_[9:13], 16) if id_ else None
