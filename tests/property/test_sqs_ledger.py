"""The journal of a load on SQS: what is right is not accused, and each fault is noticed under its guarantee."""

from typing import Any

import pytest

from bench.sqs_ledger import Deleting, Ledger, Receiving, Sending

LATER = 100.0


def right() -> Ledger:
    """Two messages of one group; the first delivery of the first was abandoned, one send was repeated."""
    ledger = Ledger(visibility_s=10.0)
    ledger.sent = [
        Sending(1, "a", "g", 0, 1), Sending(1, "a", "g", 1, 2), Sending(2, "b", "g", 2, 3), Sending(3, "c", "h", 2, 3),
    ]  # fmt: skip
    ledger.received = [Receiving([1], 3, 4), Receiving([3], 4, 5), Receiving([1, 2], 13, 14)]
    ledger.deleted = [Deleting(1, 15, 16), Deleting(2, 16, 17)]
    ledger.left = 1
    return ledger


def test_what_is_right_is_not_accused() -> None:
    assert not any(right().violations().values())


@pytest.mark.parametrize(
    ("guarantee", "change"),
    [
        ("G-SQS-1", {"left": 0}),
        ("G-SQS-1", {"left": 2}),
        ("G-SQS-1", {"received": [*right().received, Receiving([2], LATER, LATER + 1)]}),
        ("G-SQS-1", {"received": [*right().received, Receiving([9], 3, 4)]}),
        ("G-SQS-2", {"received": [*right().received[:2], Receiving([1, 2], 12, 12.9)]}),
        ("G-SQS-2", {"received": [*right().received[:2], Receiving([1, 2, 1], 13, 14)]}),
        ("G-SQS-3", {"received": [Receiving([2], 1, 2), *right().received[:2]]}),
        ("G-SQS-3", {"received": [*right().received[1:2], Receiving([2, 1], 13, 14)]}),
        ("G-SQS-3", {"received": [*right().received[:2], Receiving([2], 5, 6)]}),
        ("G-SQS-4", {"sent": [*right().sent, Sending(1, "d", "g", 5, 6)]}),
    ],
)
def test_each_fault_is_noticed(guarantee: str, change: dict[str, Any]) -> None:
    ledger = right()
    for name, value in change.items():
        setattr(ledger, name, value)
    assert ledger.violations()[guarantee] > 0


def test_what_may_have_happened_is_not_accused() -> None:
    """A receive that lasts over the end of the timeout, or over the deletion, may have come after it."""
    ledger = right()
    ledger.received[2] = Receiving([1, 2], 5, 13.1)
    ledger.received.append(Receiving([2], 16, LATER))
    ledger.doubtful, ledger.left = {3}, 0
    assert not any(ledger.violations().values())
