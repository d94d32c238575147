"""Loss: what was answered arrives, whole and unchanged, and what arrived is done in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import NEVER, Delivery, History, Pop, Push, PushItem
from .verdict import Violation


@checks("G-GRP-1", level=Level.LIVE)
def every_group_gets_every_message(history: History) -> Iterator[Violation | None]:
    """What was stored before a queue was seen to be empty for a group has been delivered to that group."""
    by_queue: dict[str, list[str]] = {}
    for queue, group in history.drained:
        by_queue.setdefault(queue, []).append(group)
    for place, attempts in history.pushes_of.items():
        stored = min((call.end for call, item in attempts if item.outcome == "ok"), default=NEVER)
        groups = {pop.group for pop, _ in history.deliveries_of.get(place, [])}
        for group in by_queue.get(place[0].queue, []):
            if stored < history.drained[place[0].queue, group]:
                text = f"was stored in {place[0]}, and never delivered to group {group}"
                yield None if group in groups else Violation(place[1], text)


@checks("G-ACK-3", level=Level.LIVE)
def what_was_delivered_is_done_in_the_end(history: History) -> Iterator[Violation | None]:
    """When a queue is empty for a group, somebody has finished each message that the group was given."""
    for (lane, group), deliveries in history.deliveries_to.items():
        empty = history.drained.get((lane.queue, group), 0)
        finished = {delivery.transaction_id for pop, delivery in deliveries if pop.auto_ack}
        for id_ in {delivery.transaction_id: None for pop, delivery in deliveries if pop.end < empty}:
            good = id_ in finished or any(item.may_finish for _, item in history.acks_of.get((lane, group, id_), []))
            text = f"was delivered to group {group}, never finished, and did not come again"
            yield None if good else Violation(id_, text)


@checks("G-DUR-3", level=Level.LIVE)
def deliveries_are_what_was_pushed(history: History) -> Iterator[Violation | None]:
    """A delivered message was pushed to that partition before, with that payload."""
    for place, deliveries in history.deliveries_of.items():
        items = [(call.invoked, item) for call, item in history.pushes_of.get(place, [])]
        payloads = {_canonical(item.payload) for _, item in items}
        first = min((invoked for invoked, _ in items), default=NEVER)
        for pop, delivery in deliveries:
            text = _forgery(pop, delivery, first, payloads)
            yield Violation(delivery.transaction_id, text) if text else None


def _forgery(pop: Pop, delivery: Delivery, first: int, payloads: set[str]) -> str:
    if not payloads:
        return f"was delivered from {delivery.lane}, and never pushed there"
    if pop.end < first:
        return "was delivered before it was pushed"
    return (
        "" if _canonical(delivery.payload) in payloads else "was delivered with another payload than it was pushed with"
    )


def _canonical(payload: object) -> str:
    return json.dumps(payload, sort_keys=True)


@checks("G-DUR-4", level=Level.LIVE)
def a_request_is_stored_whole_or_not_at_all(history: History) -> Iterator[Violation | None]:
    """An unanswered push has all of its messages in the queue or none, and a refused one none."""
    for call in history.records:
        if isinstance(call, Push) and call.outcome != "ok":
            # Only what nobody else pushed can tell whether this request was stored.
            own = [item for item in call.items if len(history.pushes_of[item.lane, item.transaction_id]) == 1]
            there = [item for item in own if (item.lane, item.transaction_id) in history.deliveries_of]
            text = _half(history, call, own, there)
            yield Violation(own[0].transaction_id, text) if text else None


def _half(history: History, call: Push, own: list[PushItem], there: list[PushItem]) -> str:
    if not there:
        return ""
    if call.outcome == "fail":
        return f"was refused with its request, and {len(there)} messages of that were delivered"
    seen = min(pop.end for item in there for pop, _ in history.deliveries_of[item.lane, item.transaction_id])
    missing = [item for item in own if item not in there and history.drained_after(item.queue, seen)]
    return f"{len(there)} messages of its request were delivered, {len(missing)} were not stored" if missing else ""
