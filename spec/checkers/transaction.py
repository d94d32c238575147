"""Transactions: all or none, and each input once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..guarantees import Level, checks
from ..history import NEVER, History, Lane, PushItem, Transaction
from .verdict import Violation


@checks("G-TXN-1", level=Level.LIVE)
def a_transaction_happens_whole_or_not_at_all(history: History) -> Iterator[Violation | None]:
    """What it pushed is there with all of it, and with its inputs done; of a failed one nothing is there."""
    for transaction in history.transactions:
        own = [item for item in transaction.pushes if _is_own(history, item)]
        if own:
            text = _half(history, transaction, own)
            yield Violation(own[0].transaction_id, text) if text else None


def _is_own(history: History, item: PushItem) -> bool:
    """Whether only this transaction can have stored the message."""
    return len(history.pushes_of[item.lane, item.transaction_id]) == 1


def _half(history: History, transaction: Transaction, own: list[PushItem]) -> str:
    seen = [item for item in own if (item.lane, item.transaction_id) in history.deliveries_of]
    if transaction.outcome == "fail":
        return "was pushed by a transaction that failed, and delivered" if seen else ""
    ends = [pop.end for item in seen for pop, _ in history.deliveries_of[item.lane, item.transaction_id]]
    happened = min([transaction.end, *ends])
    missing = [item for item in own if item not in seen and history.drained_after(item.queue, happened)]
    if missing:
        return f"{len(missing)} of {len(own)} messages of its transaction are not there"
    again = _input_again(history, transaction, happened)
    return f"was pushed by a transaction whose input {again} was delivered again" if again else ""


def _input_again(history: History, transaction: Transaction, happened: int) -> str:
    """An input that was delivered by a pop which was invoked after the transaction had happened."""
    for item in transaction.acks:
        for pop, _ in history.deliveries_of.get((item.lane, item.transaction_id), []):
            if pop.group == item.group and pop.invoked > happened:
                return item.transaction_id
    return ""


@checks("G-TXN-2", level=Level.LIVE)
def each_input_makes_its_output_once(history: History) -> Iterator[Violation | None]:
    """Of all transactions that complete a message for a group, at most one has happened."""
    by_input: dict[tuple[Lane, str, str], list[Transaction]] = defaultdict(list)
    for transaction in history.transactions:
        for item in transaction.acks:
            by_input[item.lane, item.group, item.transaction_id].append(transaction)
    for (_, _, id_), transactions in by_input.items():
        happened = sum(_has_happened(history, transaction) for transaction in transactions)
        yield Violation(id_, f"is the input of {happened} transactions that happened") if happened > 1 else None


def _has_happened(history: History, transaction: Transaction) -> bool:
    return transaction.outcome == "ok" or any(
        _is_own(history, item) and (item.lane, item.transaction_id) in history.deliveries_of
        for item in transaction.pushes
    )


@checks("G-TXN-3", level=Level.LIVE)
def a_late_transaction_fails(history: History) -> Iterator[Violation | None]:
    """A transaction that acks what was known to be done is refused."""
    for transaction in history.transactions:
        for item in transaction.acks:
            done = history.done_at.get((item.lane, item.group, item.transaction_id), NEVER)
            if transaction.invoked > done and transaction.outcome != "unknown":
                text = "was done, and a transaction that acks it succeeded"
                yield Violation(item.transaction_id, text) if transaction.outcome == "ok" else None
