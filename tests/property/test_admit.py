"""The judge: it accepts every lawful answer, and names the guarantee that a planted fault breaks."""

from dataclasses import replace

import pytest

from spec.guarantees import GUARANTEES, Level, checks
from spec.model import (
    Ack,
    Acked,
    AckItem,
    AckResult,
    Cleaned,
    Committed,
    Configure,
    Configured,
    Deleted,
    DeleteQueue,
    Delivery,
    Evicted,
    EvictOverdue,
    Lane,
    MessageId,
    Options,
    Pop,
    Popped,
    Push,
    Pushed,
    PushItem,
    PushResult,
    QueueFull,
    Removed,
    RemoveExpired,
    RemoveIdle,
    Renewed,
    RenewLease,
    RolledBack,
    State,
    Transaction,
    Violation,
    admit,
    step,
)


def after(*operations, now=0):
    state = State()
    for operation in operations:
        state, _ = step(state, operation, now)
    return state


def name(offset, partition="a", queue="q"):
    return MessageId(queue, partition, offset)


def pushed(count, partition="a", queue="q"):
    return Push(tuple(PushItem(queue, payload=n, partition=partition) for n in range(count)))


def delivered(*offsets, partition="a", queue="q", attempt=1, **fields):
    ids = [name(offset, partition, queue) for offset in offsets]
    return tuple(replace(Delivery(id_, id_, id_.offset, 0, attempt), **fields) for id_ in ids)


def broken_by(state, operation, observed, now=0):
    with pytest.raises(Violation) as caught:
        admit(state, operation, observed, now)
    assert caught.value.guarantee in GUARANTEES
    return caught.value.guarantee


THREE = after(pushed(3))
LEASED = after(pushed(3), Pop("q", batch=2, lease="L"))
DONE = after(pushed(3), Pop("q", auto_ack=True))
DELAYED = after(Configure("q", Options(delayed_processing=9)), pushed(3))
FAILED = after(
    Configure("q", Options(retry_delay=5000)),
    pushed(1),
    Pop("q"),
    Ack((AckItem("q", "a", name(0), "failed", lease="lease"),)),
)
TWO_QUEUES = after(
    Configure("low", Options(priority=0), "n"),
    Configure("high", Options(priority=1), "n"),
    pushed(1, queue="low"),
    pushed(1, queue="high"),
)


@pytest.mark.parametrize(
    ("guarantee", "state", "operation", "observed"),
    [
        ("G-DUR-3", THREE, Pop("q", batch=9), delivered(0, 1, 2, 3)),
        ("G-DUR-3", THREE, Pop("q"), delivered(0, payload="other")),
        ("G-DUR-3", THREE, Pop("q"), delivered(0, transaction_id="other")),
        ("G-ORD-1", THREE, Pop("q", batch=3), delivered(1, 0, 2)),
        ("G-ORD-1", THREE, Pop("q", batch=3), delivered(0, 0, 1)),
        ("G-ORD-2", THREE, Pop("q", batch=2), delivered(0, 2)),
        ("G-ORD-2", THREE, Pop("q"), delivered(1)),
        ("G-ORD-5", THREE, Pop("q"), delivered(0, created_at=-1)),
        ("G-LEASE-5", THREE, Pop("q"), delivered(0, attempt=2)),
        ("G-POP-1", THREE, Pop("q"), delivered(0, 1)),
        ("G-POP-1", THREE, Pop("q", partition="b"), delivered(0)),
        ("G-POP-3", THREE, Pop("q", batch=2), delivered(0)),
        ("G-POP-3", THREE, Pop("q"), ()),
        ("G-LEASE-1", LEASED, Pop("q"), delivered(2)),
        ("G-ACK-2", DONE, Pop("q"), delivered(0)),
        ("G-ACK-6", FAILED, Pop("q"), delivered(0, attempt=2)),
        ("G-WAIT-2", DELAYED, Pop("q"), delivered(0)),
        ("G-POP-4", TWO_QUEUES, Pop(namespace="n"), delivered(0, queue="low")),
    ],
)
def test_admit_names_what_a_pop_breaks(guarantee, state, operation, observed):
    assert broken_by(state, operation, Popped(operation.lease if observed else None, observed)) == guarantee


def test_admit_wants_one_lease_id_and_none_for_auto_ack():
    assert broken_by(THREE, Pop("q", lease="mine"), Popped("other", delivered(0))) == "G-POP-1"
    assert broken_by(THREE, Pop("q", auto_ack=True), Popped("lease", delivered(0))) == "G-POP-5"


def test_admit_lets_an_attempt_go_unseen():
    assert admit(THREE, Pop("q"), Popped("lease", delivered(0, attempt=None)), 0) == step(THREE, Pop("q"), 0)[0]


@checks("G-POP-2", level=Level.MODEL)
def test_admit_takes_ties_in_any_order_and_none_out_of_turn():
    tie = after(Pop("q", group="g"), pushed(1, "a"), pushed(1, "b"))
    for partition in "ab":
        admit(tie, Pop("q", group="g"), Popped("lease", delivered(0, partition=partition)), 0)
    state, _ = step(tie, Pop("q", group="g", auto_ack=True), 1)
    state, _ = step(state, pushed(1, "a"), 2)
    late = (replace(delivered(1, partition="a")[0], payload=0, created_at=2),)
    assert broken_by(state, Pop("q", group="g"), Popped("lease", late), 3) == "G-POP-2"


def test_admit_takes_the_partitions_of_an_answer_in_any_order():
    state = after(pushed(2, "a"), pushed(2, "b"))
    pop = Pop("q", batch=3, partitions=2)
    admit(state, pop, Popped("lease", delivered(0, 1, partition="b") + delivered(0)), 0)
    admit(state, pop, Popped("lease", delivered(0) + delivered(0, 1, partition="b")), 0)
    spread = Popped("lease", delivered(0) + delivered(0, partition="b"))
    assert broken_by(state, replace(pop, batch=2), spread) == "G-POP-3"


@pytest.mark.parametrize(
    ("guarantee", "items", "observed"),
    [
        ("G-IDEM-1", ["t", "t"], [("queued", 0), ("queued", 1)]),
        ("G-IDEM-1", ["t"], [("duplicate", 0)]),
        ("G-IDEM-2", ["t", "u", "u"], [("queued", 0), ("queued", 1), ("duplicate", 0)]),
        ("G-IDEM-4", [name(0)], [("queued", 0)]),
        ("G-ORD-2", [None], [("queued", 1)]),
        ("G-ISO-2", [None, None], [("queued", 0)]),
    ],
)
def test_admit_names_what_a_push_breaks(guarantee, items, observed):
    operation = Push(tuple(PushItem("q", partition="a", transaction_id=item) for item in items))
    results = tuple(PushResult(status, name(offset)) for status, offset in observed)
    assert broken_by(State(), operation, Pushed(results)) == guarantee


OURS = AckItem("q", "a", name(0), lease="L")


@pytest.mark.parametrize(
    ("guarantee", "item", "observed"),
    [
        ("G-LEASE-3", replace(OURS, lease="stale"), AckResult()),
        ("G-LEASE-6", replace(OURS, transaction_id=name(2)), AckResult()),
        ("G-ACK-4", OURS, AckResult(noop=True)),
        ("G-ISO-2", OURS, AckResult("Invalid or expired lease")),
        ("G-ISO-2", replace(OURS, status="lost"), AckResult()),
        ("G-DLQ-1", replace(OURS, status="failed"), AckResult(dead_lettered=True)),
    ],
)
def test_admit_names_what_an_ack_breaks(guarantee, item, observed):
    assert broken_by(LEASED, Ack((item,)), Acked((observed,))) == guarantee


@pytest.mark.parametrize(
    ("guarantee", "operation", "observed"),
    [
        ("G-TXN-1", Transaction((OURS, PushItem("q"))), RolledBack(1, "why")),
        ("G-TXN-1", Transaction((OURS,)), Committed((AckResult(noop=True),))),
        ("G-TXN-3", Transaction((replace(OURS, lease="stale"),)), Committed((AckResult(),))),
        ("G-LEASE-4", RenewLease("stale", 5), Renewed(1, 5)),
        ("G-RET-3", DeleteQueue("q"), Deleted(existed=False)),
        ("G-ISO-2", Configure("q"), Deleted(existed=True)),
    ],
)
def test_admit_names_what_another_operation_breaks(guarantee, operation, observed):
    assert broken_by(LEASED, operation, observed) == guarantee


@pytest.mark.parametrize(
    ("guarantee", "options", "operation", "observed"),
    [
        ("G-RET-1", Options(ttl=10), RemoveExpired("q"), Removed({"Default": 1})),
        ("G-RET-4", Options(ttl=9), RemoveExpired("q"), Removed({"Default": 0})),
        ("G-RET-8", Options(max_size=1), Push((PushItem("q"),)), Pushed((PushResult("queued", None),))),
        ("G-RET-8", Options(max_size=2), Push((PushItem("q"),)), QueueFull()),
        ("G-RET-6", Options(max_wait_time_seconds=10), EvictOverdue("q"), Evicted(1)),
        ("G-RET-7", Options(), RemoveIdle("q", 5), Cleaned(frozenset())),
    ],
)
def test_admit_names_what_a_service_or_a_full_queue_breaks(guarantee, options, operation, observed):
    state, _ = step(State(), Configure("q", options), 0)
    state, _ = step(state, Push((PushItem("q"),)), 0)
    with pytest.raises(Violation) as violation:
        admit(state, operation, observed, 10)
    assert violation.value.guarantee == guarantee


@pytest.mark.parametrize(("oldest", "guarantee"), [(0, "G-RET-4"), (1, None), (2, "G-RET-1")])
def test_admit_lets_a_server_remove_what_is_completed_and_no_more(oldest, guarantee):
    options = Options(completed_retention_seconds=5)
    state, _ = step(State(), Configure("q", options), 0)
    state, _ = step(state, Push((PushItem("q"), PushItem("q"))), 0)
    state, _ = step(state, Pop("q", batch=1, auto_ack=True), 0)
    observed = Removed({"Default": oldest})
    if guarantee is None:
        assert admit(state, RemoveExpired("q"), observed, 9).partition(Lane("q", "Default")).removed == oldest
        return
    with pytest.raises(Violation) as violation:
        admit(state, RemoveExpired("q"), observed, 9)
    assert violation.value.guarantee == guarantee


def test_admit_lets_a_server_name_any_operation_that_had_to_fail():
    stale = Transaction((OURS, replace(OURS, lease="stale"), replace(OURS, lease="old")))
    for index in (1, 2):
        assert admit(LEASED, stale, RolledBack(index, "in its own words"), 0) == LEASED


def test_admit_goes_on_from_a_lawful_answer():
    assert admit(State(), Configure("q"), Configured(), 0) == step(State(), Configure("q"), 0)[0]
