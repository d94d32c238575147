"""Idempotence: one transaction id, one message in a partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import History, Lane
from .verdict import Violation


@checks("G-IDEM-1", level=Level.LIVE)
def a_transaction_id_is_stored_once(history: History) -> Iterator[Violation | None]:
    """All that is said of a transaction id in a partition is said of one message, and one push of it is `queued`."""
    stored = _names(history)
    queued: dict[tuple[Lane, str], int] = defaultdict(int)
    for _, item in history.pushed:
        queued[item.lane, item.transaction_id] += item.outcome == "ok" and not item.duplicate
    for place, (messages, offsets) in stored.items():
        if len(messages) > 1 or len(offsets) > 1:
            text = f"stands for the messages {sorted(messages)} at the offsets {sorted(offsets)}"
            yield Violation(place[1], text)
        elif queued[place] > 1:
            yield Violation(place[1], f"{queued[place]} pushes were answered as queued")
        else:
            yield None


def _names(history: History) -> dict[tuple[Lane, str], tuple[set[str], set[int]]]:
    """Message ids and offsets of what was stored, by lane and transaction id; duplicates say nothing here."""
    found: dict[tuple[Lane, str], tuple[set[str], set[int]]] = defaultdict(lambda: (set(), set()))
    for _, item in history.pushed:
        if item.outcome == "ok" and not item.duplicate and item.message_id:
            found[item.lane, item.transaction_id][0].add(item.message_id)
    for _, delivery in history.delivered:
        messages, offsets = found[delivery.lane, delivery.transaction_id]
        messages.add(delivery.message_id)
        if delivery.offset is not None:
            offsets.add(delivery.offset)
    return found


@checks("G-IDEM-2", level=Level.LIVE)
def a_duplicate_names_the_stored_message(history: History) -> Iterator[Violation | None]:
    """The id in the answer to a duplicate is that of the message which is delivered, or was answered as queued."""
    stored = _names(history)
    for _, item in history.pushed:
        messages = stored.get((item.lane, item.transaction_id), (set(), set()))[0]
        if item.duplicate and messages:
            text = f"the answer to its duplicate names {item.message_id}, and stored is {sorted(messages)}"
            yield None if item.message_id in messages else Violation(item.transaction_id, text)


@checks("G-IDEM-3", level=Level.LIVE)
def a_duplicate_has_an_original_in_its_partition(history: History) -> Iterator[Violation | None]:
    """A push is answered as a duplicate only if another may have stored its transaction id in that partition."""
    for attempts in history.pushes_of.values():
        for call, item in attempts:
            if item.duplicate and item.outcome == "ok":
                others = [other for other in attempts if other[1] is not item and other[1].outcome != "fail"]
                good = any(other.invoked <= call.end for other, _ in others)
                text = f"was answered as a duplicate, and nobody else pushed it to {item.queue}/{item.partition}"
                yield None if good else Violation(item.transaction_id, text)
