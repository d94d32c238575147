"""Acks: what is done stays done."""

from __future__ import annotations

from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import NEVER, Ack, History
from .verdict import Violation


@checks("G-ACK-1", "G-ACK-2", level=Level.LIVE)
def what_is_done_does_not_come_again(history: History) -> Iterator[Violation | None]:
    """No pop that was invoked after a message was known to be done delivers it to that group."""
    for pop, delivery in history.delivered:
        done = history.done_at.get((delivery.lane, pop.group, delivery.transaction_id), NEVER)
        if done < NEVER:
            text = f"was delivered to group {pop.group} after its completion had been answered"
            yield Violation(delivery.transaction_id, text) if pop.invoked > done else None


@checks("G-ACK-4", level=Level.LIVE)
def a_repeated_ack_is_harmless(history: History) -> Iterator[Violation | None]:
    """Of what is done, `completed` is accepted and everything else is refused."""
    for call, item in history.acked:
        done = history.done_at.get((item.lane, item.group, item.transaction_id), NEVER)
        if isinstance(call, Ack) and call.outcome == "ok" and call.invoked > done:
            wanted = "ok" if item.status == "completed" else "fail"
            text = f"was done, and its ack as {item.status} was answered {item.outcome} ({item.error})"
            yield None if item.outcome == wanted else Violation(item.transaction_id, text)
