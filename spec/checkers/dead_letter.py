"""Dead letters: neither early nor late nor twice."""

from __future__ import annotations

from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import Ack, AckItem, History, Transaction
from .verdict import Violation


@checks("G-DLQ-1", "G-DLQ-2", level=Level.LIVE)
def dead_letters_come_in_time(history: History) -> Iterator[Violation | None]:
    """The ack that counts failure number `retryLimit` + 1 of its message, and no other, dead-letters it."""
    for (lane, _, id_), acks in history.acks_of.items():
        limit = history.retry_limits.get(lane.queue)
        if limit is not None:
            yield from _judge(id_, limit, sorted(acks, key=lambda ack: ack[0].invoked))


def _judge(id_: str, limit: int, acks: list[tuple[Ack | Transaction, AckItem]]) -> Iterator[Violation | None]:
    letters = sum(item.dead and item.outcome == "ok" for _, item in acks)
    if letters:
        yield Violation(id_, f"was dead-lettered {letters} times") if letters > 1 else None
    failures = [(call, item) for call, item in acks if item.status == "failed" and item.outcome != "fail"]
    for call, item in failures:
        if item.outcome == "ok" and isinstance(call, Ack):
            others = [(each, other) for each, other in failures if each is not call]
            least = len({id(each) for each, other in others if other.outcome == "ok" and each.end < call.invoked})
            most = len({id(each) for each, _ in others if each.invoked < call.end})
            yield _timing(id_, limit, item, least, most)


def _timing(id_: str, limit: int, item: AckItem, least: int, most: int) -> Violation | None:
    if item.dead and most < limit:
        return Violation(id_, f"was dead-lettered after {most} retries, and the limit is {limit}")
    if not item.dead and least >= limit:
        return Violation(id_, f"was not dead-lettered after {least} retries, and the limit is {limit}")
    return None
