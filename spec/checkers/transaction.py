"""Transactions: all or none, and each input once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import History, Message, Reading, Transaction
from .verdict import Violation


@checks("G-TXN-1", level=Level.LIVE)
def a_transaction_happens_whole_or_not_at_all(history: History) -> Iterator[Violation | None]:
    """All messages of a transaction exist and its inputs are acknowledged; no message of a failed one exists."""
    for transaction in history.transactions:
        own = _own(history, transaction)
        if own:
            text = _half(history, transaction, own)
            yield Violation(own[0].id, text) if text else None


def _own(history: History, transaction: Transaction) -> list[Message]:
    """The messages that only this transaction can have stored."""
    return [message for message in map(history.message, transaction.pushes) if len(message.pushes) == 1]


def _half(history: History, transaction: Transaction, own: list[Message]) -> str:
    seen = [message for message in own if message.is_delivered]
    if transaction.outcome == "fail":
        return "was pushed by a transaction that failed, and delivered" if seen else ""
    happened = min([transaction.end, *(message.seen for message in seen)])
    missing = [each for each in own if not each.is_delivered and history.drained_after(each.lane.queue, happened)]
    if missing:
        return f"{len(missing)} of {len(own)} messages of its transaction are missing"
    again = _input_again(history, transaction, happened)
    return f"was pushed by a transaction whose input {again} was delivered again" if again else ""


def _input_again(history: History, transaction: Transaction, happened: int) -> str:
    """An input that was delivered by a pop which was invoked after the transaction had happened."""
    last_pops = history.view(_last_pops)
    again = (item.transaction_id for item in transaction.acks if last_pops[history.reading(item)] > happened)
    return next(again, "")


def _last_pops(history: History) -> dict[Reading, int]:
    """When the last pop was invoked that delivered an input of a transaction; before all time if there is none."""
    inputs = {history.reading(item) for transaction in history.transactions for item in transaction.acks}
    return {each: max((pop.invoked for pop, _ in each.deliveries), default=-1) for each in inputs}


@checks("G-TXN-2", level=Level.LIVE)
def each_input_makes_its_output_once(history: History) -> Iterator[Violation | None]:
    """Of all transactions that complete a message for a group, at most one has happened."""
    by_input: dict[Reading, list[bool]] = defaultdict(list)
    for transaction in history.transactions:
        happened = _has_happened(history, transaction)
        for item in transaction.acks:
            by_input[history.reading(item)].append(happened)
    for reading, outcomes in by_input.items():
        text = f"is the input of {sum(outcomes)} transactions that happened"
        yield Violation(reading.message.id, text) if sum(outcomes) > 1 else None


def _has_happened(history: History, transaction: Transaction) -> bool:
    return transaction.outcome == "ok" or any(message.is_delivered for message in _own(history, transaction))


@checks("G-TXN-3", level=Level.LIVE)
def a_late_transaction_fails(history: History) -> Iterator[Violation | None]:
    """A transaction that acks a message known to be acknowledged is refused."""
    for transaction in history.transactions:
        for item in transaction.acks:
            if transaction.outcome != "unknown" and transaction.invoked > history.reading(item).done_at:
                text = "was done, but a transaction that acks it succeeded"
                yield Violation(item.transaction_id, text) if transaction.outcome == "ok" else None
