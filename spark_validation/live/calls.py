"""Splits a row of a journal by partition and group, with what it says against itself."""

import re
from collections.abc import Iterator
from typing import Any

from ..journal.schema import QUEUE_MODE, AckItem, Call, Delivery, PushItem
from .windows import Flaw, Place, Said

_MESSAGE_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8001-8000-[0-9a-f]{12}")
_Told = Delivery | AckItem | PushItem
_DYING, _DONE = ("failed", "dlq"), ("completed", "success")
_PARTITIONS_MAX = 1_000


def said(call: Call) -> Iterator[tuple[Place, Said]]:
    """One part per partition and group; pushes have no group."""
    found: dict[Place, dict[str, Any]] = {}

    def at(item: _Told, group: str = "") -> dict[str, Any]:
        there = found.setdefault(
            Place(item.queue, item.partition, group),
            {
                **{name: [] for name in ("first", "given", "finished", "queued", "named", "tried", "flaws")},
                "part": None,
            },
        )
        there["part"] = _part(item) if there["part"] is None else there["part"]
        return there

    for delivery in call.deliveries:
        _give(at(delivery, call.group or QUEUE_MODE), delivery, auto_ack=call.auto_ack)
    for ack in call.acks:
        if _finishes(ack):
            at(ack, ack.group)["finished"].append((ack.transaction_id, _offset(ack)))
    for push in call.pushes if call.kind != "sql" else ():  # no answer told whether it was a duplicate
        if _is_stored(push):
            at(push)["named" if push.duplicate else "queued"].append((push.transaction_id, _offset(push)))
    for item, group, flaw in _flaws(call):
        at(item, group)["flaws"].append(flaw)
    for place, what in found.items():
        yield place, Said(call.agent, call.number, call.sent, call.answered, **what)


def _give(there: dict[str, Any], delivery: Delivery, *, auto_ack: bool) -> None:
    offset = _offset(delivery)
    there["given"].append((delivery.transaction_id, offset))
    if auto_ack:
        there["finished"].append((delivery.transaction_id, offset))
    if delivery.attempt is not None:
        there["tried"].append((delivery.transaction_id, offset, delivery.attempt))
    if delivery.attempt == 1 and offset is not None:
        there["first"].append(offset)


def _is_stored(push: PushItem) -> bool:
    return push.outcome == "ok" and bool(push.transaction_id) and not push.spooled


def _flaws(call: Call) -> Iterator[tuple[_Told, str, Flaw]]:
    """What no answer can say, whatever the others say; the audit has the same cases (``audits/answers.py``)."""
    for wrong, text in _beyond_limits(call) if call.kind == "pop" and call.deliveries else ():
        if wrong:
            first = call.deliveries[0]
            yield first, call.group or QUEUE_MODE, ("G-POP-1", _offset(first), text)
    for ack in filter(_contradicts, call.acks):
        text = f"was acked as {ack.status} ({ack.outcome}), and the answer says {'dead' if ack.dead else 'noop'}"
        yield ack, ack.group, ("G-ACK-4", _offset(ack), f"{ack.transaction_id} {text}")
    for push in call.pushes if call.kind != "sql" else ():
        for guarantee, text in _contradictions(push):
            yield push, "", (guarantee, None, f"{push.transaction_id} {text}")


def _contradicts(ack: AckItem) -> bool:
    refused = ack.outcome == "fail" and (ack.dead or ack.noop)
    return refused or (ack.dead and ack.status not in _DYING) or (ack.noop and ack.status not in _DONE)


def _contradictions(push: PushItem) -> Iterator[tuple[str, str]]:
    refused = push.outcome == "fail"
    if push.duplicate and (push.spooled or refused):
        yield "G-IDEM-2", f"was answered as a duplicate, and as {'buffered' if push.spooled else 'refused'}"
    elif push.spooled and refused:
        yield "G-DUR-4", "was answered as refused, and as buffered"


def _beyond_limits(call: Call) -> Iterator[tuple[bool, str]]:
    given = len(call.deliveries)
    places = {(each.queue, each.partition) for each in call.deliveries}
    most = call.partitions or _PARTITIONS_MAX
    yield call.batch is not None and given > call.batch, f"asked for {call.batch} messages, and got {given}"
    yield len(places) > most, f"asked for {most} partitions, and got {len(places)}"
    for what, wanted, there in (
        ("queue", call.queue, {queue for queue, _ in places}),
        ("partition", call.partition, {partition for _, partition in places}),
    ):
        yield wanted is not None and there != {wanted}, f"asked for {what} {wanted}, and got one of another"
    yield call.outcome == "ok" and not call.auto_ack and not call.lease, "got messages without a lease"
    yield call.auto_ack and bool(call.lease), "got a lease with autoAck"


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
