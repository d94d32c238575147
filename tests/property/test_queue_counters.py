"""What a worker counts."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from queen.core.errors import SpoolDrainingError
from queen.core.job_type import JobType
from queen.core.metrics import QueueCounts
from queen.engine.queue_counters import QueueCounters
from queen.log.requests import (
    Acked,
    AckResult,
    Claim,
    PartitionBatch,
    Pop,
    Popped,
    Push,
    Pushed,
    Slice,
    Stored,
    Transaction,
    TransactionResult,
)

NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)


def counters() -> QueueCounters:
    return QueueCounters(clock=NOW.timestamp)


def taken(counted: QueueCounters) -> dict[str, QueueCounts]:
    return {each.queue: each.counts for each in counted.take()}


def batch(queue: str, number: int) -> PartitionBatch:
    return PartitionBatch(queue, "p", range(number), b"", [], None)


def slice_of(number: int, age_s: float) -> Slice:
    return Slice(0, NOW - timedelta(seconds=age_s), b"\0" * 4 * number, 0, b"")


def test_pushes_count_what_was_stored() -> None:
    own = counters()
    pushed = Pushed([Stored(1, None, (0, 1, 2), frozenset({1}), frozenset({2})), Stored(2, 0)])
    own.batch(JobType.PUSH, [Push([batch("a", 3), batch("b", 2)], 5)], [pushed])
    assert taken(own) == {
        "a": QueueCounts(push_requests=1, push_messages=1),
        "b": QueueCounts(push_requests=1, push_messages=2),
    }
    assert (own.requests, own.messages) == (1, 3)
    assert own.take() == []


def test_pops_count_messages_and_their_age() -> None:
    own = counters()
    claims = [
        Claim(1, "a", "p", 3, frozenset({1}), -1, 1, [slice_of(2, 1), slice_of(2, 3)]),
        Claim(2, "b", "p", 0, frozenset(), -1, 1, [slice_of(1, -5)]),
    ]
    own.pop(Pop(""), Popped(uuid4(), claims))
    own.pop(Pop("a"), Popped())
    counts = taken(own)
    assert (counts["a"].pop_requests, counts["a"].pop_messages, counts["a"].pop_empty) == (2, 3, 1)
    assert (counts["a"].lag_ms_sum, counts["a"].lag_ms_max) == (8000, 3000)
    assert (counts["b"].pop_messages, counts["b"].lag_ms_sum) == (1, 0)


def test_acks_count_by_queue() -> None:
    own = counters()
    results = [AckResult(None, "a"), AckResult("no", "a"), AckResult(None, "b", dead=True), AckResult("no")]
    own.batch(JobType.ACK, [object()], [Acked(results)])
    assert taken(own) == {
        "a": QueueCounts(ack_requests=1, ack_success=1, ack_failed=1),
        "b": QueueCounts(ack_requests=1, ack_success=1, dead_letters=1),
    }


def test_an_undone_transaction_counts_as_such_only() -> None:
    own = counters()
    request = Transaction(Push([batch("a", 1)], 1), [], None)
    own.batch(JobType.TRANSACTION, [request], [TransactionResult(True, Pushed([Stored(1, 0)]), [])])
    assert taken(own) == {"a": QueueCounts(transactions=1)}
    own.batch(JobType.TRANSACTION, [request], [TransactionResult(False, Pushed([Stored(1, 0)]), [])])
    assert taken(own) == {"a": QueueCounts(transactions=1, push_requests=1, push_messages=1)}


def test_a_transaction_that_was_refused_beside_others_counts_for_nothing() -> None:
    own = counters()
    request = Transaction(Push([batch("a", 1)], 1), [], None)
    results = [SpoolDrainingError("simulated"), TransactionResult(False, Pushed([Stored(1, 0)]), [])]
    own.batch(JobType.TRANSACTION, [request, request], results)
    assert taken(own)["a"].transactions == 1


def test_counts_that_could_not_be_stored_are_counted_still() -> None:
    own = counters()
    own.pop(Pop("a"), Popped())
    lost = own.take()
    own.pop(Pop("a"), Popped())
    own.parked("a", 3)
    own.give_back(lost)
    assert taken(own) == {"a": QueueCounts(pop_requests=2, pop_empty=2, parked=3)}


def test_names_asked_for_at_random_do_not_fill_the_memory() -> None:
    own = counters()
    for n in range(10_500):
        own.pop(Pop(f"q{n}"), Popped())
    counted = own.take()
    assert len(counted) == 10_001
    assert sum(each.counts.pop_empty for each in counted) == 10_500


def test_long_polls_are_told_once_a_minute_unless_they_become_more() -> None:
    now = 60.0
    own = QueueCounters(lambda: now)
    for waiting, told in ((3, 3), (3, None), (2, None), (4, 4), (1, None)):
        own.parked("a", waiting)
        assert taken(own) == ({} if told is None else {"a": QueueCounts(parked=told)})
    now = 120.0
    own.parked("a", 1)
    assert taken(own) == {"a": QueueCounts(parked=1)}
