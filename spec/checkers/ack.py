"""Acks: acknowledged messages stay acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import NEVER, Ack, AckItem, History
from .verdict import Violation


@checks("G-ACK-1", "G-ACK-2", level=Level.LIVE)
def what_is_done_does_not_come_again(history: History) -> Iterator[Violation | None]:
    """No pop that was invoked after a message was known to be done delivers it to that group."""
    for reading in history.readings:
        if reading.done_at < NEVER:
            for pop, delivery in reading.deliveries:
                if pop.invoked > reading.done_at:
                    text = f"was delivered to group {pop.group} after its completion had been answered"
                    yield Violation(delivery.transaction_id, text)
                else:
                    yield None


@checks("G-ACK-4", level=Level.LIVE)
def a_repeated_ack_is_harmless(history: History) -> Iterator[Violation | None]:
    """For an acknowledged message, `completed` is accepted and every other ack is refused."""
    for reading in history.readings:
        if reading.done_at < NEVER:
            for call, item in reading.acks:
                if isinstance(call, Ack) and call.outcome == "ok" and call.invoked > reading.done_at:
                    yield _repeated(item)


def _repeated(item: AckItem) -> Violation | None:
    if item.outcome == ("ok" if item.status == "completed" else "fail"):
        return None
    text = f"was done, and its ack as {item.status} was answered {item.outcome} ({item.error})"
    return Violation(item.transaction_id, text)
