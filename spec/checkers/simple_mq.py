"""simple-mq: checks histories of enqueues, polls and acks. Exact also for calls with unknown outcomes.

The server's clock is not seen. What is certain: a message is taken between the invocation of its poll and the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

from ..guarantees import Level, checks
from ..simple_mq_history import SimpleMqHistory
from .verdict import Violation

SimpleMqChecker: TypeAlias = Callable[[SimpleMqHistory], Iterator[Violation | None]]

SECOND_NS = 1_000_000_000
#: Maximum difference in speed between the clocks of client and server; PostgreSQL counts in microseconds.
_DRIFT = 0.999


@checks("G-SMQ-1", level=Level.AUDIT)
def given_to_one_at_a_time(history: SimpleMqHistory) -> Iterator[Violation | None]:
    """Two deliveries of a message lie at least its visibility timeout apart."""
    apart = int(history.visibility_timeout_s * SECOND_NS * _DRIFT)
    for id_, polls in history.delivered().items():
        for earlier, later in pairwise(polls):
            most = max(later.end - earlier.invoked, earlier.end - later.invoked)
            text = f"was delivered twice within {most / SECOND_NS:.3f} s"
            yield Violation(id_, text) if most < apart else None


@checks("G-SMQ-2", level=Level.AUDIT)
def delivery_counts_rise(history: SimpleMqHistory) -> Iterator[Violation | None]:
    """1 at first, more at each next, and never above the maximum; a poll without an answer may have taken a count."""
    lost = any(getattr(record, "outcome", "ok") == "unknown" for record in history.records)
    for id_, polls in history.delivered().items():
        counts = [poll.delivery_count for poll in polls]
        rises = all(low < high for low, high in pairwise(counts))
        exact = counts == list(range(1, len(counts) + 1))
        good = (exact or (lost and rises)) and counts[-1] <= history.max_deliveries
        yield None if good else Violation(id_, f"has the delivery counts {counts}, at most {history.max_deliveries}")


@checks("G-SMQ-7", level=Level.AUDIT)
def nothing_is_lost(history: SimpleMqHistory) -> Iterator[Violation | None]:
    """A message answered with 201 is acked, or in a queue, or among the dead letters."""
    there = history.dead | {id_ for left in history.left() for id_ in left.message_ids}
    acked = history.acked()
    for enqueue in history.enqueued():
        if enqueue.outcome == "ok":
            gone = any(ack.outcome != "fail" for ack in acked.get(enqueue.message_id, ()))
            found = gone or enqueue.message_id in there
            yield None if found else Violation(enqueue.message_id, "was answered 201, but is in no queue")


@checks("G-SMQ-6", level=Level.AUDIT)
def nothing_comes_from_nowhere(history: SimpleMqHistory) -> Iterator[Violation | None]:
    """A delivered message was enqueued, with the same data."""
    sent = {enqueue.message_id: enqueue.data for enqueue in history.enqueued() if enqueue.outcome == "ok"}
    unsure = {enqueue.data for enqueue in history.enqueued() if enqueue.outcome == "unknown"}
    for id_, polls in history.delivered().items():
        for poll in polls:
            good = sent[id_] == poll.data if id_ in sent else poll.data in unsure
            yield None if good else Violation(id_, f"was delivered with {poll.data[:40]!r}, which was not sent")


@checks("G-SMQ-8", level=Level.AUDIT)
def acked_is_gone(history: SimpleMqHistory) -> Iterator[Violation | None]:
    """No poll that began after an ack was answered delivers the message, and no second ack of it succeeds."""
    delivered = history.delivered()
    for id_, acks in history.acked().items():
        done = sorted(ack.end for ack in acks if ack.outcome == "ok")
        if done:
            late = any(poll.invoked > done[0] for poll in delivered.get(id_, ()))
            yield Violation(id_, "was delivered after its ack had been answered") if late else None
            yield Violation(id_, f"was acked successfully {len(done)} times") if len(done) > 1 else None


@checks("G-SMQ-4", level=Level.AUDIT)
def counts_are_exact(history: SimpleMqHistory) -> Iterator[Violation | None]:
    """The message count of an unused queue is the number of its messages."""
    for left in history.left():
        text = f"counts {left.count} messages and has {len(left.message_ids)}"
        yield None if left.count == len(left.message_ids) else Violation(left.queue, text)


CHECKERS: tuple[SimpleMqChecker, ...] = (
    given_to_one_at_a_time,
    delivery_counts_rise,
    nothing_is_lost,
    nothing_comes_from_nowhere,
    acked_is_gone,
    counts_are_exact,
)


def violations(history: SimpleMqHistory) -> list[Violation]:
    """All violations of a history."""
    return [found for checker in CHECKERS for found in checker(history) if found]
