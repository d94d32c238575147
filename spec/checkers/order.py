"""Order: offsets, the order of pushes, and the order of deliveries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

from ..guarantees import Level, checks
from ..history import History, Lane, Pop, PushItem
from .spans import Span, greatest_before
from .verdict import NotObservableError, Violation


def _need_offsets(history: History) -> None:
    if history.delivered and not history.offsets:
        raise NotObservableError("deliveries carry no offset")


@checks("G-ORD-1", level=Level.LIVE)
def first_deliveries_come_in_offset_order(history: History) -> Iterator[Violation | None]:
    """By real time between pops, and by position within the answer to one."""
    _need_offsets(history)
    yield from _order_within_answers(history)
    hidden = {(pop.queue, pop.group) for pop in history.pops if pop.outcome == "unknown"}
    for (lane, group), deliveries in history.deliveries_to.items():
        earliest: dict[int, Span] = {}
        for pop, delivery in deliveries:
            # A pop without an answer may have been the first; then only the server's own word tells.
            first = delivery.attempt == 1 or (delivery.attempt is None and (lane.queue, group) not in hidden)
            if delivery.offset is not None and first:
                span = Span(pop.invoked, pop.end, delivery.offset, delivery.transaction_id)
                known = earliest.get(delivery.offset)
                earliest[delivery.offset] = span if known is None or span.invoked < known.invoked else known
        for span, before in greatest_before(earliest.values()):
            yield _later(span, before, "was delivered first after")


def _order_within_answers(history: History) -> Iterator[Violation | None]:
    for pop in history.pops:
        by_lane = defaultdict(list)
        for delivery in pop.deliveries:
            if delivery.offset is not None:
                by_lane[delivery.lane].append(delivery)
        for deliveries in by_lane.values():
            for one, other in pairwise(deliveries):
                text = f"offset {other.offset} stands behind offset {one.offset} in the answer to a pop"
                good = (one.offset or 0) < (other.offset or 0)
                yield None if good else Violation(other.transaction_id, text)


def _later(span: Span, before: Span | None, how: str) -> Violation | None:
    if before is None or before.value <= span.value:
        return None
    return Violation(span.subject, f"offset {span.value} {how} offset {before.value} ({before.subject})")


@checks("G-ORD-2", level=Level.LIVE)
def deliveries_leave_no_gap(history: History) -> Iterator[Violation | None]:
    """Below a delivered offset nothing is missing, except what an unanswered autoAck pop may have taken."""
    _need_offsets(history)
    swallowed = {(pop.queue, pop.group) for pop in history.pops if pop.auto_ack and pop.outcome == "unknown"}
    for (lane, group), deliveries in history.deliveries_to.items():
        offsets = sorted({delivery.offset for _, delivery in deliveries if delivery.offset is not None})
        for one, other in pairwise(offsets):
            good = other == one + 1 or (lane.queue, group) in swallowed
            text = f"offset {other} was delivered to group {group}, but nothing between it and {one}"
            yield None if good else Violation(f"{lane.queue}/{lane.partition}", text)


@checks("G-ORD-3", level=Level.LIVE)
def pushes_one_after_the_other_keep_their_order(history: History) -> Iterator[Violation | None]:
    """Of two messages, the one whose push was answered before the other's was sent has the smaller offset."""
    _need_offsets(history)
    by_lane: dict[Lane, list[Span]] = defaultdict(list)
    for place, calls in history.pushes_of.items():
        offset = history.offsets.get(place)
        if offset is not None:
            # It was stored by one of its attempts: after the first was sent, before the first was answered.
            ends = [call.end for call, item in calls if item.outcome == "ok"]
            began = min(call.invoked for call, _ in calls)
            by_lane[place[0]].append(Span(began, min(ends, default=1 << 62), offset, place[1]))
    for spans in by_lane.values():
        for span, before in greatest_before(spans):
            yield _later(span, before, "was pushed after the answer to the push of")


@checks("G-ORD-4", level=Level.LIVE)
def a_request_keeps_its_order(history: History) -> Iterator[Violation | None]:
    """The messages that one request alone pushed to a partition have rising offsets."""
    _need_offsets(history)
    by_request: dict[tuple[int, Lane], list[PushItem]] = defaultdict(list)
    for call, item in history.pushed:
        if len(history.pushes_of[item.lane, item.transaction_id]) == 1:
            by_request[id(call), item.lane].append(item)
    for (_, lane), items in by_request.items():
        known = [(item, history.offsets.get((lane, item.transaction_id))) for item in items]
        for (one, low), (other, high) in pairwise([(item, offset) for item, offset in known if offset is not None]):
            text = f"offset {high} stands behind offset {low} ({one.transaction_id}) in its request"
            yield None if low < high else Violation(other.transaction_id, text)


@checks("G-ORD-5", level=Level.LIVE)
def times_never_fall(history: History) -> Iterator[Violation | None]:
    """`createdAt` does not fall from an offset to a higher one."""
    _need_offsets(history)
    by_lane: dict[Lane, dict[int, tuple[str, str]]] = defaultdict(dict)
    for _, delivery in history.delivered:
        if delivery.offset is not None and delivery.created_at:
            by_lane[delivery.lane][delivery.offset] = (delivery.transaction_id, delivery.created_at)
    for messages in by_lane.values():
        for (_, before), (subject, after) in pairwise(message for _, message in sorted(messages.items())):
            good = datetime.fromisoformat(before) <= datetime.fromisoformat(after)
            yield None if good else Violation(subject, f"createdAt {after} stands above {before}")


@checks("G-POP-1", level=Level.LIVE)
def answers_keep_to_what_was_asked(history: History) -> Iterator[Violation | None]:
    """At most `batch` messages of at most `partitions` of the partitions asked for, under one lease."""
    for pop in history.pops:
        if pop.deliveries:
            text = _excess(pop)
            yield Violation(pop.lease, text) if text else None


def _excess(pop: Pop) -> str:
    lanes = {delivery.lane for delivery in pop.deliveries}
    leases = {delivery.lease for delivery in pop.deliveries} - {""}
    if len(pop.deliveries) > pop.batch:
        return f"{len(pop.deliveries)} messages for a batch of {pop.batch}"
    if len(lanes) > pop.partitions:
        return f"messages of {len(lanes)} partitions for a limit of {pop.partitions}"
    if any(lane.queue != pop.queue or pop.partition not in {None, lane.partition} for lane in lanes):
        return f"messages of {sorted(lanes)} for a pop of {pop.queue}/{pop.partition or '*'}"
    if pop.auto_ack or (len(leases) == 1 and leases == {pop.lease}):
        return ""
    return f"leases {sorted(leases)} in an answer with the lease {pop.lease!r}"
