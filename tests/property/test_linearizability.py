"""The search for an order: finds one where there is one, and says where there is none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.guarantees import Level, checks
from spec.history import NEVER
from spec.linearizability import Call, UnexplainedError, View, explain
from spec.model import (
    QUEUE_MODE,
    Ack,
    Acked,
    AckItem,
    AckResult,
    Committed,
    Delivery,
    Lane,
    MessageId,
    Pop,
    Popped,
    Push,
    Pushed,
    PushItem,
    PushResult,
    Renewed,
    RenewLease,
    RolledBack,
    State,
    Transaction,
    step,
)
from tests.support.simulation import Simulation

LANE = Lane("q", "p")


def item(id_, partition="p"):
    return PushItem("q", {"id": id_}, partition, id_)


def message(offset, partition="p"):
    return MessageId("q", partition, offset)


def push(invoked, completed, *stored, partition="p"):
    """Of ("id", offset)."""
    items = tuple(item(id_, partition) for id_, _ in stored)
    results = tuple(PushResult("queued", message(offset, partition)) for _, offset in stored)
    return Call(Push(items), invoked, completed, Pushed(results))


def pop(invoked, completed, *delivered, lease="l", partition="p", **how):
    """Of ("id", offset), in lane p unless told otherwise."""
    deliveries = tuple(
        Delivery(message(offset, partition), id_, {"id": id_}, 0.0, how.get("attempt", 1)) for id_, offset in delivered
    )
    asked = {name: value for name, value in how.items() if name != "attempt"}
    operation = Pop("q", lease=lease, **{"batch": 10, "partitions": 10, **asked})
    return Call(
        operation, invoked, completed, Popped(lease if delivered and not how.get("auto_ack") else None, deliveries)
    )


def ack(invoked, completed, id_, lease="l", status="completed", result=None):
    return Call(
        Ack((AckItem("q", "p", id_, status, lease=lease),)), invoked, completed, Acked((result or AckResult(),))
    )


def refuted(*calls):
    with pytest.raises(UnexplainedError) as problem:
        explain(calls)
    return problem.value


# Explained


def test_calls_one_after_the_other_are_explained():
    explain([push(1, 2, ("a", 0)), pop(3, 4, ("a", 0)), ack(5, 6, "a"), pop(7, 8)])


def test_calls_side_by_side_may_have_any_order():
    explain([push(1, 10, ("a", 1)), push(2, 9, ("b", 0)), pop(3, 8, ("b", 0))])


def test_a_pop_beside_others_may_leave_what_they_hold():
    explain([push(1, 2, ("a", 0)), pop(3, 6), pop(4, 5, ("a", 0))])


def test_what_was_never_answered_may_have_happened_or_not():
    lost = replace(push(1, NEVER, ("a", 0)), outcome=None)
    explain([lost, pop(3, 4, ("a", 0))])
    explain([lost, pop(3, 4)])
    explain([lost, pop(3, 4), pop(5, 6, ("a", 0))])


def test_an_unanswered_pop_may_have_taken_any_number():
    lost = Call(Pop("q", batch=2, auto_ack=True), 3, NEVER, None)
    stored = push(1, 2, ("a", 0), ("b", 1), ("c", 2))
    for offset, id_ in enumerate("abc"):
        explain([stored, lost, pop(5, 6, *[(name, place) for place, name in enumerate("abc") if place >= offset])])
        assert id_


def test_each_group_and_partition_is_explained_alone():
    both = Call(
        Push((item("a"), item("b", "r"))), 1, 2,
        Pushed((PushResult("queued", message(0)), PushResult("queued", message(0, "r")))),
    )  # fmt: skip
    explain(
        [
            both,
            pop(3, 4, ("a", 0), partitions=1),
            pop(5, 6, ("b", 0), partition="r", group="g", lease="m", partitions=1),
        ]
    )


def test_a_transaction_is_explained_in_every_view_of_it():
    operations = (AckItem("q", "p", "a", lease="l"), item("x", "r"))
    done = Committed((AckResult(), PushResult("queued", message(0, "r"))))
    history = [push(1, 2, ("a", 0)), pop(3, 4, ("a", 0)), Call(Transaction(operations), 5, 6, done)]
    explain([*history, pop(7, 8, ("x", 0), partition="r", lease="m")])
    assert refuted(*history, pop(7, 8, ("a", 0), lease="m", attempt=2)).view == View(LANE, QUEUE_MODE)


def test_a_transaction_that_was_undone_needs_a_reason():
    again = Transaction((item("x", "r"), item("a")))
    explain([push(1, 2, ("a", 0)), Call(again, 3, 4, RolledBack(1, "Duplicate"))])
    assert "no reason to fail" in str(refuted(push(1, 2, ("a", 0)), Call(again, 3, 4, RolledBack(0, "Duplicate"))))


def test_acks_that_meet_may_be_taken_together():
    held = [push(1, 2, ("a", 0), ("b", 1)), pop(3, 4, ("a", 0), ("b", 1))]
    for status in ("completed", "failed"):
        explain([*held, ack(5, 8, "a", status=status), ack(6, 7, "a", status=status)])
        assert refuted(*held, ack(5, 6, "a", status=status), ack(7, 8, "a", status=status)), "they do not meet"


def test_a_beginning_is_taken_into_account():
    state, _ = step(State(), Push((item("a"),)), 0.0)
    explain([pop(1, 2, ("a", 0))], state)
    with pytest.raises(UnexplainedError):
        explain([pop(1, 2)], state)


def test_a_lease_on_several_partitions_is_renewed_on_each_of_them():
    both = Call(
        Push((item("a"), item("b", "r"))), 1, 2,
        Pushed((PushResult("queued", message(0)), PushResult("queued", message(0, "r")))),
    )  # fmt: skip
    held = pop(3, 4, ("a", 0))
    other = pop(3, 4, ("b", 0), partition="r")
    held = replace(held, outcome=Popped("l", (*held.outcome.deliveries, *other.outcome.deliveries)))
    for cursors in (1, 2):
        explain([both, held, Call(RenewLease("l", 100), 5, 6, Renewed(cursors, 100.0))])
    assert refuted(both, held, Call(RenewLease("l", 100), 5, 6, Renewed(0, None)))


# Refuted


@checks("G-ORD-1", "G-ORD-2", "G-ORD-3", "G-IDEM-1", "G-LEASE-1", "G-LEASE-3", "G-ACK-2", level=Level.MODEL)
def test_planted_histories_without_an_order_are_refuted():
    stored = push(1, 2, ("a", 0), ("b", 1))
    assert refuted(push(1, 2, ("a", 1)), push(3, 4, ("b", 0))), "the order of the answers"
    assert refuted(stored, pop(3, 4, ("b", 1))), "passed over"
    assert refuted(stored, pop(3, 4, ("b", 1), ("a", 0))), "out of order"
    assert refuted(stored, pop(3, 4)), "left although no other consumer was there"
    assert refuted(stored, pop(3, 6, ("a", 0), batch=1), pop(4, 5, ("a", 0), batch=1, lease="m")), "two leases"
    assert refuted(stored, pop(3, 4, ("a", 0), ("b", 1)), pop(5, 8, ("b", 1), lease="m"), ack(6, 7, "a")), (
        "half a lease"
    )
    assert refuted(push(1, 5, ("a", 0)), push(2, 6, ("a", 1))), "stored twice"
    assert refuted(stored, pop(3, 4, ("a", 0), batch=1), ack(5, 6, "a", lease="x")), "a foreign lease"
    assert refuted(stored, pop(3, 4, ("a", 0), batch=1), ack(5, 6, "a"), pop(7, 8, ("a", 0), batch=1, lease="m"))
    assert refuted(pop(1, 2, ("a", 0)), push(3, 4, ("a", 0))), "from the future"
    assert refuted(stored, replace(push(3, NEVER, ("c", 2)), outcome=None), pop(4, 5, ("c", 2), auto_ack=True))


def test_the_report_names_what_cannot_follow():
    problem = refuted(push(1, 2, ("a", 0)), pop(3, 4), push(9, 10, ("b", 1)))
    assert problem.view == View(LANE, QUEUE_MODE)
    assert [call.invoked for call in problem.explained] == [1]
    [(call, reason)] = problem.problems
    assert (call.invoked, reason.split(":")[0]) == (3, "G-POP-3")


# Simulated


@given(st.integers(0, 2**32), st.integers(1, 25))
def test_histories_of_the_model_are_explained(seed, rounds):
    simulation = Simulation(seed)
    explain(simulation.run(rounds), simulation.beginning)


def test_a_long_history_is_explained():
    simulation = Simulation(7)
    explain(simulation.run(300), simulation.beginning)
    assert len(simulation.calls) > 500
