"""Dead letters: neither early nor late nor twice."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import Ack, AckItem, History, Reading
from .verdict import Violation


@checks("G-DLQ-1", "G-DLQ-2", level=Level.LIVE)
def dead_letters_come_in_time(history: History) -> Iterator[Violation | None]:
    """The ack that counts failure number `retryLimit` + 1 of its message, and no other, dead-letters it."""
    limits = history.retry_limits
    for reading in history.readings:
        limit = limits.get(reading.track.lane.queue)
        if limit is not None and any(item.status != "completed" for _, item in reading.acks):
            yield from _judge(reading, limit)


def _judge(reading: Reading, limit: int) -> Iterator[Violation | None]:
    id_ = reading.message.id
    letters = sum(item.dead and item.outcome == "ok" for _, item in reading.acks)
    if letters:
        yield Violation(id_, f"was dead-lettered {letters} times") if letters > 1 else None
    failures = _failures(reading)
    # A request counts one failure, however often it says so.
    begun = sorted({id(call): call.invoked for call, _ in failures}.values())
    counted = sorted({id(call): call.end for call, item in failures if item.outcome == "ok"}.values())
    for call, item in failures:
        if item.outcome == "ok":
            least, most = bisect_left(counted, call.invoked), bisect_left(begun, call.end) - 1
            yield _timing(id_, limit, item, least, most)


def _failures(reading: Reading) -> list[tuple[Ack, AckItem]]:
    """Acks that count a failure of the message, or may do so, the first one first; one of a transaction ends it."""
    found = [
        (call, item)
        for call, item in reading.acks
        if item.status == "failed" and item.outcome != "fail" and isinstance(call, Ack)
    ]
    return sorted(found, key=lambda failure: failure[0].invoked)


def _timing(id_: str, limit: int, item: AckItem, least: int, most: int) -> Violation | None:
    if item.dead and most < limit:
        return Violation(id_, f"was dead-lettered after {most} retries, and the limit is {limit}")
    if not item.dead and least >= limit:
        return Violation(id_, f"was not dead-lettered after {least} retries, and the limit is {limit}")
    return None
