"""Order: offsets, the order of pushes, and the order of deliveries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

from ..guarantees import Level, checks
from ..history import NEVER, Delivery, History, Lane, Message, Pop, Track
from .spans import Span, greatest_before
from .verdict import NotObservableError, Violation


def _lanes(history: History) -> dict[Lane, list[Message]]:
    """The delivered messages of each partition, by offset.

    Raises:
        NotObservableError: deliveries carry no offset.
    """
    found: dict[Lane, list[Message]] = defaultdict(list)
    for message in history.messages:
        if message.offset is not None:
            found[message.lane].append(message)
    if not found and any(pop.deliveries for pop in history.pops):
        raise NotObservableError("deliveries carry no offset")
    for messages in found.values():
        messages.sort(key=lambda message: message.offset or 0)
    return found


@checks("G-ORD-1", level=Level.LIVE)
def first_deliveries_come_in_offset_order(history: History) -> Iterator[Violation | None]:
    """By real time between pops, and by position within the answer to one."""
    history.view(_lanes)
    for pop in history.pops:
        if len(pop.deliveries) > 1:
            yield from _order_within(pop)
    for track in history.tracks:
        hidden = (track.lane.queue, track.group) in history.unanswered_pops
        for span, before in greatest_before(_first_deliveries(track, hidden)):
            yield _later(span, before, "was delivered first after")


def _order_within(pop: Pop) -> Iterator[Violation | None]:
    highest: dict[tuple[str, str], int] = {}
    for delivery in pop.deliveries:
        if delivery.offset is not None:
            place = (delivery.queue, delivery.partition)
            before = highest.get(place)
            highest[place] = delivery.offset
            if before is not None:
                yield None if before < delivery.offset else _swapped(delivery, before)


def _swapped(delivery: Delivery, before: int) -> Violation:
    text = f"offset {delivery.offset} stands behind offset {before} in the answer to a pop"
    return Violation(delivery.transaction_id, text)


def _first_deliveries(track: Track, hidden: bool) -> Iterator[Span]:
    """The earliest delivery of each message.

    A pop without an answer may have been the first; then only the attempt that the server reports counts.
    """
    for reading in track.readings:
        first: Span | None = None
        for pop, delivery in reading.deliveries:
            known_first = delivery.attempt == 1 or (delivery.attempt is None and not hidden)
            if delivery.offset is not None and known_first and (first is None or pop.invoked < first[0]):
                first = (pop.invoked, pop.end, delivery.offset, delivery.transaction_id)
        if first:
            yield first


def _later(span: Span, before: Span | None, how: str) -> Violation | None:
    if before is None or before[2] <= span[2]:
        return None
    (_, _, offset, id_), (_, _, highest, other) = span, before
    return Violation(id_, f"offset {offset} {how} offset {highest} ({other})")


@checks("G-ORD-2", level=Level.LIVE)
def deliveries_leave_no_gap(history: History) -> Iterator[Violation | None]:
    """Below a delivered offset no message is missing, except messages finished without a known delivery."""
    history.view(_lanes)
    for track in history.tracks:
        passed = (track.lane.queue, track.group) in history.swallowed or any(
            not reading.deliveries and reading.maybe_done_at < NEVER for reading in track.readings
        )
        seen = {each.message.offset for each in track.readings if each.deliveries}
        for one, other in pairwise(sorted(offset for offset in seen if offset is not None)):
            if other == one + 1 or passed:
                yield None
            else:
                text = f"offset {other} was delivered to group {track.group}, but nothing between it and {one}"
                yield Violation(f"{track.lane.queue}/{track.lane.partition}", text)


@checks("G-ORD-3", level=Level.LIVE)
def pushes_one_after_the_other_keep_their_order(history: History) -> Iterator[Violation | None]:
    """If the push of one message was answered before that of another was sent, the first one has the smaller offset."""
    for messages in history.view(_lanes).values():
        # Each was stored by one of its attempts: after the first was sent, before the first was answered.
        spans = ((each.began, each.stored, each.offset or 0, each.id) for each in messages if each.pushes)
        for span, before in greatest_before(spans):
            yield _later(span, before, "was pushed after the answer to the push of")


@checks("G-ORD-4", level=Level.LIVE)
def a_request_keeps_its_order(history: History) -> Iterator[Violation | None]:
    """The messages that one request alone pushed to a partition have rising offsets."""
    history.view(_lanes)
    for items in (*(call.items for call in history.pushes), *(call.pushes for call in history.transactions)):
        highest: dict[Lane, Message] = {}
        for message in map(history.message, items) if len(items) > 1 else ():
            if len(message.pushes) == 1 and message.offset is not None:
                before = highest.get(message.lane)
                highest[message.lane] = message
                yield _behind(before, message) if before else None


def _behind(before: Message, message: Message) -> Violation | None:
    low, high = before.offset or 0, message.offset or 0
    if low < high:
        return None
    return Violation(message.id, f"offset {high} stands behind offset {low} ({before.id}) in its request")


@checks("G-ORD-5", level=Level.LIVE)
def times_never_fall(history: History) -> Iterator[Violation | None]:
    """`createdAt` does not fall from an offset to a higher one."""
    for messages in history.view(_lanes).values():
        latest, shown = _BEFORE_ALL_TIME, ""
        for message in messages:
            for reading in message.readings:
                for _, delivery in reading.deliveries:
                    text = delivery.created_at
                    if text and text != shown:
                        time = _time(text)
                        yield Violation(message.id, f"createdAt {text} stands above {shown}") if time < latest else None
                        latest, shown = max((latest, shown), (time, text))


_BEFORE_ALL_TIME = datetime.min.replace(tzinfo=UTC)


def _time(text: str) -> datetime:
    """The time of a text.

    Raises:
        NotObservableError: the text is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise NotObservableError(f"createdAt is not a time: {text}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@checks("G-POP-1", level=Level.LIVE)
def answers_keep_to_what_was_asked(history: History) -> Iterator[Violation | None]:
    """At most `batch` messages of at most `partitions` of the partitions asked for, under one lease."""
    for pop in history.pops:
        if pop.deliveries:
            text = _excess(pop)
            yield Violation(pop.lease, text) if text else None


def _excess(pop: Pop) -> str:
    lanes = {(delivery.queue, delivery.partition) for delivery in pop.deliveries}
    leases = {delivery.lease for delivery in pop.deliveries if delivery.lease}
    if len(pop.deliveries) > pop.batch:
        return f"{len(pop.deliveries)} messages for a batch of {pop.batch}"
    if len(lanes) > pop.partitions:
        return f"messages of {len(lanes)} partitions for a limit of {pop.partitions}"
    if any(queue != pop.queue or pop.partition not in {None, partition} for queue, partition in lanes):
        return f"messages of {sorted(lanes)} for a pop of {pop.queue}/{pop.partition or '*'}"
    if pop.auto_ack or leases == {pop.lease}:
        return ""
    return f"leases {sorted(leases)} in an answer with the lease {pop.lease!r}"
