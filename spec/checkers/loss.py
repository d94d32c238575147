"""Loss: answered messages are delivered, complete and unchanged, and delivered messages are finished in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import NEVER, Delivery, History, Message, Pop, Push
from .verdict import Violation


@checks("G-GRP-1", level=Level.LIVE)
def every_group_gets_every_message(history: History) -> Iterator[Violation | None]:
    """Messages that were stored before a queue was seen to be empty for a group have been delivered to that group."""
    by_queue: dict[str, list[tuple[str, int]]] = {}
    for (queue, group), at in history.drained.items():
        if (queue, group) not in history.swallowed:
            by_queue.setdefault(queue, []).append((group, at))
    for message in history.messages:
        # A message that was acked without a lease need not have been delivered.
        groups = {each.track.group for each in message.readings if each.deliveries or each.maybe_done_at < NEVER}
        for group, empty in by_queue.get(message.lane.queue, ()):
            if message.stored < empty:
                yield None if group in groups else Violation(message.id, _lost(message, group))


def _lost(message: Message, group: str) -> str:
    return f"was stored in {message.lane}, and never delivered to group {group}"


@checks("G-ACK-3", level=Level.LIVE)
def what_was_delivered_is_done_in_the_end(history: History) -> Iterator[Violation | None]:
    """If a queue is empty for a group, each message that was delivered to the group is finished."""
    for track in history.tracks:
        place = (track.lane.queue, track.group)
        empty = history.drained.get(place, 0) if place not in history.swallowed else 0
        for reading in track.readings if empty else ():
            if any(pop.end < empty for pop, _ in reading.deliveries):
                if reading.maybe_done_at < NEVER:
                    yield None
                else:
                    text = f"was delivered to group {track.group}, never finished, and did not come again"
                    yield Violation(reading.message.id, text)


@checks("G-DUR-3", level=Level.LIVE)
def deliveries_are_what_was_pushed(history: History) -> Iterator[Violation | None]:
    """A delivered message was pushed to that partition before, with that payload."""
    for message in history.messages:
        for reading in message.readings:
            for pop, delivery in reading.deliveries:
                text = _forgery(message, pop, delivery)
                yield Violation(message.id, text) if text else None


def _forgery(message: Message, pop: Pop, delivery: Delivery) -> str:
    if not message.pushes:
        return f"was delivered from {message.lane}, and never pushed there"
    if pop.end < message.began:
        return "was delivered before it was pushed"
    for _, item in message.pushes:
        if _are_equal(delivery.payload, item.payload):
            return ""
    return "was delivered with another payload than it was pushed with"


def _are_equal(one: object, other: object) -> bool:
    """Compares as JSON: 1, 1.0 and true differ, and the order of names does not count."""
    return repr(one) == repr(other) or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@checks("G-DUR-4", level=Level.LIVE)
def a_request_is_stored_whole_or_not_at_all(history: History) -> Iterator[Violation | None]:
    """An unanswered push has all of its messages in the queue or none, and a refused one none."""
    for call in history.pushes:
        if call.outcome != "ok":
            # Only messages that no other request pushed show whether this request was stored.
            messages = map(history.message, call.items)
            own = [message for message in messages if len(message.pushes) == 1]
            text = _half(history, call, own)
            yield Violation(own[0].id, text) if text else None


def _half(history: History, call: Push, own: list[Message]) -> str:
    there = [message for message in own if message.is_delivered]
    if not there:
        return ""
    if call.outcome == "fail":
        return f"was refused with its request, and {len(there)} messages of that were delivered"
    seen = min(message.seen for message in there)
    missing = [each for each in own if not each.is_delivered and history.drained_after(each.lane.queue, seen)]
    return f"{len(there)} messages of its request were delivered, {len(missing)} were not stored" if missing else ""
