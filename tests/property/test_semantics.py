"""Each sentence of `docs/semantics.md` that random programs seldom meet, as an example on the model."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.guarantees import Level, checks
from spec.model import (
    Ack,
    AckItem,
    AckResult,
    Cleaned,
    Committed,
    Configure,
    Cycle,
    Deleted,
    DeleteQueue,
    Evicted,
    EvictOverdue,
    MessageId,
    Operation,
    Options,
    Pop,
    Push,
    PushItem,
    PushResult,
    QueueFull,
    Register,
    Registered,
    Removed,
    RemoveExpired,
    RemoveIdle,
    Renewed,
    RenewLease,
    RolledBack,
    State,
    StateChange,
    Transaction,
    step,
)
from spec.model.step import STEPS

DEFAULT = "Default"


def test_every_operation_has_its_step():
    assert set(STEPS) == set(get_args(Operation))


class Script:
    """A broker and a clock, for tests that read as a story."""

    def __init__(self, options=None):
        self.state, self.now = State(), 0
        if options is not None:
            self.do(Configure("q", options))

    def do(self, operation):
        self.state, outcome = step(self.state, operation, self.now)
        return outcome

    def push(self, count=1, queue="q", partition=DEFAULT, **fields):
        return self.do(
            Push(tuple(PushItem(queue, partition=partition, payload=n, **fields) for n in range(count)))
        ).results

    def pop(self, queue="q", **parameters):
        """The offsets that a pop delivers."""
        return [d.message.offset for d in self.do(Pop(queue, **{"batch": 10, **parameters})).deliveries]

    def ack(self, *offsets, lease="lease", status="completed", partition=DEFAULT, **fields):
        """The results of acking messages that have server-made ids."""
        ids = [MessageId("q", partition, offset) for offset in offsets]
        return self.do(Ack(tuple(AckItem("q", partition, id_, status, lease=lease, **fields) for id_ in ids))).results

    @property
    def cursor(self):
        return self.state.queues["q"].partitions[DEFAULT].cursors["__QUEUE_MODE__"]

    @property
    def letters(self):
        return [(d.message.offset, d.error, d.failures) for d in self.state.queues["q"].dead_letters]


@pytest.mark.parametrize(("name", "expected"), [("a.b.c", ("a", "b")), ("a.b", ("a", "b")), ("plain", ("plain", ""))])
def test_push_to_a_new_queue_takes_namespace_and_task_from_its_name(name, expected):
    script = Script()
    script.push(queue=name)
    assert (script.state.queues[name].namespace, script.state.queues[name].task) == expected


@checks("G-IDEM-2", "G-IDEM-3", level=Level.MODEL)
def test_push_of_a_known_transaction_id_names_the_stored_message_of_its_partition():
    script = Script()
    assert script.push(2, transaction_id="t") == (
        PushResult("queued", MessageId("q", DEFAULT, 0)),
        PushResult("duplicate", MessageId("q", DEFAULT, 0)),
    )
    assert script.push(partition="other", transaction_id="t") == (PushResult("queued", MessageId("q", "other", 0)),)


@checks("G-IDEM-4", level=Level.MODEL)
def test_push_under_the_id_of_a_message_is_a_duplicate_or_refused():
    script = Script()
    script.push()
    script.push(transaction_id="t")
    own, taken, coming, foreign = (
        MessageId("q", *place) for place in [(DEFAULT, 0), (DEFAULT, 1), (DEFAULT, 2), ("o", 0)]
    )
    assert script.push(transaction_id=own) == (PushResult("duplicate", own),)
    assert script.push(transaction_id=taken) == (PushResult("refused"),)
    assert script.push(transaction_id=coming) == (PushResult("refused"),)
    request = (PushItem("q"), PushItem("q", transaction_id=coming))
    assert [result.status for result in script.do(Push(request)).results] == ["queued", "refused"]
    assert script.push(transaction_id=foreign) == (PushResult("queued", MessageId("q", DEFAULT, 3)),)


@checks("G-ORD-5", level=Level.MODEL)
def test_created_at_when_the_clock_steps_back_stays():
    script = Script()
    script.now = 10
    script.push()
    script.now = 7
    script.push()
    assert [m.created_at for m in script.state.queues["q"].partitions[DEFAULT].messages] == [10, 10]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"subscription_mode": "all"}, [0, 1, 2, 3]),
        ({"subscription_mode": "new"}, [3]),
        ({"subscription_mode": "new-only"}, [3]),
        ({"subscription_from": "now"}, [3]),
        ({"subscription_from": "now", "subscription_mode": "all"}, [3]),
        ({"subscription_from": 1, "subscription_mode": "new"}, [2, 3]),
        ({"subscription_from": 0.5}, [1, 2, 3]),
        ({"subscription_from": -1}, [0, 1, 2, 3]),
        ({"subscription_from": 99}, []),
    ],
)
@checks("G-GRP-2", level=Level.MODEL)
def test_a_new_group_starts_where_its_first_pop_says(start, expected):
    script = Script()
    for second in (0, 1, 2):
        script.now = second
        script.push()
    got = script.pop(group="g", lease_seconds=1, **start)
    script.now = 3
    script.push()
    assert script.pop(group="g", subscription_mode="all") == expected
    assert got == expected[:-1]


@checks("G-GRP-3", level=Level.MODEL)
def test_a_partition_made_after_a_group_is_delivered_whole_save_what_a_future_start_excludes():
    script = Script()
    script.push()
    script.pop(group="new", subscription_mode="new")
    script.pop(group="future", subscription_from=5)
    for second in (1, 9):
        script.now = second
        script.push(partition="later")
    assert script.pop(group="new", partition="later") == [0, 1]
    assert script.pop(group="future", partition="later") == [1]


def test_queue_mode_ignores_a_subscription():
    script = Script()
    script.push()
    assert script.pop(subscription_mode="new") == [0]


@checks("G-GRP-4", level=Level.MODEL)
@pytest.mark.parametrize(("group", "exists"), [(None, False), ("", False), ("g", True)])
def test_a_pop_of_an_unknown_queue_makes_it_for_a_named_group_only(group, exists):
    script = Script()
    assert script.pop(group=group) == []
    assert (script.state != State()) == exists


@checks("G-GRP-1", level=Level.MODEL)
def test_groups_have_leases_and_cursors_of_their_own():
    script = Script()
    script.push(2)
    assert script.pop(group="a") == script.pop(group="b") == [0, 1]
    script.ack(0, 1, group="a")
    script.now = 60
    assert script.pop(group="b") == [0, 1]
    assert script.pop(group="a") == []


@checks("G-POP-1", level=Level.MODEL)
def test_a_pop_spends_its_batch_over_partitions_under_one_lease():
    script = Script()
    for partition in "abc":
        script.push(3, partition=partition)
    taken = script.do(Pop("q", batch=4, partitions=2, lease="L"))
    assert [(d.message.partition, d.message.offset) for d in taken.deliveries] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    ]
    assert {lane.partition: c.lease and c.lease.id for lane, _, c in script.state.cursors()} == {
        "a": "L",
        "b": "L",
        "c": None,
    }


@checks("G-POP-1", level=Level.MODEL)
@pytest.mark.parametrize("partitions", [0, -1])
def test_partitions_below_one_are_no_limit(partitions):
    script = Script()
    for partition in "abc":
        script.push(1, partition=partition)
    assert script.pop(batch=9, partitions=partitions) == [0, 0, 0]


@checks("G-POP-2", level=Level.MODEL)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_every_waiting_partition_is_served_before_one_is_served_twice(pushes):
    script = Script(Options())
    script.pop()
    for partition in [*"abc", *pushes]:
        script.now += 1
        script.push(partition=partition)
    waiting = {"a", "b", "c"}
    for _ in range(3):
        script.now += 1
        (delivery,) = script.do(Pop("q", auto_ack=True)).deliveries
        waiting.remove(delivery.message.partition)


@checks("G-POP-4", level=Level.MODEL)
@pytest.mark.parametrize("scope", [{"namespace": "n"}, {"task": "t"}, {"namespace": "n", "task": "t"}])
def test_a_pop_of_a_namespace_and_task_takes_the_highest_priority_first(scope):
    script = Script()
    for name, priority, namespace, task in [("a", 1, "n", "t"), ("b", 2, "n", "t"), ("c", 3, "m", "s")]:
        script.do(Configure(name, Options(priority=priority), namespace, task))
        script.push(queue=name)
    served = [script.do(Pop(**scope)).deliveries for _ in range(3)]
    assert [[d.message.queue for d in deliveries] for deliveries in served] == [["b"], ["a"], []]


@checks("G-POP-5", level=Level.MODEL)
def test_auto_ack_finishes_what_it_delivers():
    script = Script()
    script.push(3)
    taken = script.do(Pop("q", batch=2, auto_ack=True))
    assert (taken.lease, len(taken.deliveries)) == (None, 2)
    assert script.pop() == [2]


@checks("G-WAIT-2", level=Level.MODEL)
def test_a_delayed_message_is_visible_at_its_age_and_not_before():
    script = Script(Options(delayed_processing=5))
    script.push()
    script.now = 1
    script.push()
    script.now = 4.9
    assert script.pop() == []
    script.now = 5
    assert script.pop() == [0]


@checks("G-WAIT-3", level=Level.MODEL)
def test_a_window_holds_the_partition_until_its_youngest_message_is_old_enough():
    script = Script(Options(window_buffer=5))
    for second in (0, 3):
        script.now = second
        script.push()
    script.now = 7.9
    assert script.pop() == []
    script.now = 8
    assert script.pop() == [0, 1]


@checks("G-LEASE-1", "G-LEASE-2", "G-LEASE-5", level=Level.MODEL)
def test_a_lease_keeps_the_partition_until_its_end_and_then_everything_comes_again():
    script = Script(Options(lease_time=10))
    script.push(2)
    assert script.pop(batch=1) == [0]
    script.now = 9.9
    assert script.pop() == []
    script.now = 10
    again = script.do(Pop("q", batch=10)).deliveries
    assert [(d.message.offset, d.attempt) for d in again] == [(0, 2), (1, 1)]


@checks("G-LEASE-5", level=Level.MODEL)
def test_attempts_count_the_deliveries_of_the_cursor_until_all_that_was_delivered_is_done():
    script = Script(Options(lease_time=10))
    script.push(4)
    attempts = []
    for batch, done in [(2, []), (1, [0]), (2, [1, 2]), (1, []), (1, [3])]:
        attempts.append([d.attempt for d in script.do(Pop("q", batch=batch)).deliveries])
        script.ack(*done)
        script.now += 10
    assert attempts == [[1, 1], [2], [3, 1], [1], [2]]


def test_lease_seconds_win_over_the_queue():
    script = Script(Options(lease_time=10))
    script.push()
    script.pop(lease_seconds=3)
    assert script.cursor.ready == 3


@checks("G-LEASE-4", level=Level.MODEL)
def test_a_renewal_never_shortens_and_never_revives():
    script = Script(Options(lease_time=10))
    script.push(partition="a")
    script.push(partition="b")
    script.pop(partitions=2)
    assert script.do(RenewLease("lease", 5)) == Renewed(2, 10)
    assert script.do(RenewLease("lease", -5)) == Renewed(2, 10)
    script.now = 5
    assert script.do(RenewLease("lease", 20)) == Renewed(2, 25)
    assert script.do(RenewLease("other", 20)) == Renewed(0, None)
    script.now = 25
    assert script.do(RenewLease("lease", 20)) == Renewed(0, None)


@checks("G-LEASE-3", "G-LEASE-4", level=Level.MODEL)
def test_a_failure_without_lease_does_not_revive_the_ended_one():
    script = Script(Options(lease_time=2, retry_delay=5000))
    script.push()
    script.pop()
    script.now = 3
    script.ack(0, lease=None, status="failed")
    assert script.do(RenewLease("lease", 50)) == Renewed(0, None)
    assert script.ack(0)[0].error == "Invalid or expired lease"


@checks("G-LEASE-3", "G-LEASE-6", "G-ACK-4", level=Level.MODEL)
def test_each_row_of_the_ack_table():
    script = Script()
    script.push(4)
    assert script.ack(0, partition="none", status="lost")[0].error == "Message not found"
    assert script.ack(0, status="lost")[0].error == "Unknown status: lost"
    assert script.ack(9)[0].error == "Consumer group not found"
    script.pop(batch=2)
    script.ack(0)
    assert script.ack(9)[0].error == "Message not found"
    assert script.ack(0, lease="gone") == (AckResult(noop=True),)
    assert script.ack(0, lease=None) == (AckResult(noop=True),)
    assert script.ack(0, status="failed")[0].error == "Message already completed"
    assert script.ack(1, lease="gone")[0].error == "Invalid or expired lease"
    assert script.ack(2)[0].error == "Message not delivered under this lease"
    assert script.ack(1, lease=None, status="retry")[0].error == "Invalid or expired lease"
    assert script.ack(1, lease=None)[0].error == "Invalid or expired lease"
    assert script.ack(3, lease=None) == (AckResult(),)
    assert script.cursor.ahead == {3}
    script.now = 60
    assert script.ack(1)[0].error == "Invalid or expired lease"


@checks("G-ACK-2", "G-ACK-3", level=Level.MODEL)
def test_acks_out_of_order_leave_only_the_gap_to_come_again():
    script = Script()
    script.push(4)
    script.pop()
    script.ack(3, 1)
    assert (script.cursor.acked, script.cursor.ahead) == (-1, {1, 3})
    script.now = 60
    assert script.pop() == [0, 2]


@checks("G-ACK-5", level=Level.MODEL)
def test_a_lease_ends_with_the_last_ack_under_it():
    script = Script()
    script.push(3)
    script.pop(batch=2)
    script.ack(0)
    assert script.pop() == []
    script.ack(1)
    assert script.pop() == [2]


@checks("G-ACK-5", "G-DLQ-2", level=Level.MODEL)
def test_a_retry_sends_back_what_is_undone_and_counts_nothing():
    script = Script(Options(retry_limit=0, retry_delay=5000))
    script.push(3)
    script.pop()
    script.ack(1)
    script.ack(0, status="retry")
    assert script.pop() == [0, 2]
    assert script.cursor.failures == {}


@checks("G-ACK-6", level=Level.MODEL)
def test_a_failure_holds_the_partition_for_the_retry_delay():
    script = Script(Options(retry_delay=1500))
    script.push(2)
    script.pop()
    script.ack(0, status="failed")
    script.now = 1.4
    script.ack(0, lease=None, status="retry")
    assert script.pop() == []
    script.now = 1.5
    assert script.pop() == [0, 1]


@checks("G-DLQ-1", "G-DLQ-3", level=Level.MODEL)
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_message_is_dead_lettered_at_its_failure_number_limit_plus_one(limit):
    script = Script(Options(retry_limit=limit))
    script.push(2)
    for _ in range(limit):
        script.pop()
        assert script.ack(0, status="failed", error="why") == (AckResult(),)
    script.pop()
    assert script.letters == []
    assert script.ack(0, status="failed", error="why") == (AckResult(dead_lettered=True),)
    assert script.letters == [(0, "why", limit)]
    script.ack(1)
    assert script.cursor.acked == 1


@checks("G-DLQ-1", level=Level.MODEL)
def test_a_dead_letter_without_an_error_says_that_retries_are_exhausted():
    script = Script()
    script.push()
    script.pop()
    assert script.ack(0, 0, status="dlq") == (AckResult(dead_lettered=True),) * 2
    assert script.letters == [(0, "Retries exhausted", 0)]


def test_a_message_given_up_twice_in_a_request_keeps_the_first_error():
    script = Script()
    script.push()
    script.pop()
    item = AckItem("q", DEFAULT, MessageId("q", DEFAULT, 0), "dlq", lease="lease")
    script.do(Ack((replace(item, error="first"), replace(item, error="second"))))
    assert script.letters == [(0, "first", 0)]


@checks("G-DLQ-2", level=Level.MODEL)
def test_a_message_said_to_fail_twice_in_a_request_has_failed_once():
    script = Script(Options(retry_limit=1))
    script.push(2)
    script.pop()
    script.ack(0, 0, status="failed")
    script.pop()
    script.ack(1, status="failed")
    assert script.letters == []
    assert script.cursor.failures == {0: 1, 1: 1}


@checks("G-DLQ-4", level=Level.MODEL)
@pytest.mark.parametrize(
    ("queue", "retries", "kept"),
    [
        (False, False, 0),
        (False, None, 0),
        (None, False, 0),
        (True, False, 1),
        (False, True, 1),
        (True, None, 1),
        (None, None, 1),
    ],
)
def test_a_queue_that_wants_no_dead_letters_drops_what_is_given_up(queue, retries, kept):
    script = Script(Options(retry_limit=0, dead_letter_queue=queue, dlq_after_max_retries=retries))
    script.push(2)
    script.pop()
    script.ack(0, status="failed")
    assert len(script.letters) == kept
    assert script.cursor.acked == 0


def test_done_wins_over_failed_in_one_request():
    script = Script()
    script.push()
    script.pop()
    done = AckItem("q", DEFAULT, MessageId("q", DEFAULT, 0), lease="lease")
    script.do(Ack((replace(done, status="failed"), done)))
    assert (script.cursor.acked, script.cursor.failures) == (0, {})


@checks("G-ISO-2", level=Level.MODEL)
def test_items_of_one_request_are_judged_one_by_one():
    script = Script()
    script.push(2)
    script.pop(batch=1)
    assert [result.error for result in script.ack(7, 0, 1)] == [
        "Message not found",
        None,
        "Message not delivered under this lease",
    ]


def transaction(*offsets, lease="lease", required=(), status="completed"):
    acks = (AckItem("q", DEFAULT, MessageId("q", DEFAULT, offset), status, lease=lease) for offset in offsets)
    return Transaction((*acks, PushItem("out")), required)


@checks("G-TXN-1", "G-TXN-3", level=Level.MODEL)
def test_a_transaction_happens_once_and_a_late_repetition_changes_nothing():
    script = Script()
    script.push()
    script.pop()
    assert script.do(transaction(0)) == Committed((AckResult(), PushResult("queued", MessageId("out", DEFAULT, 0))))
    before = script.state
    assert script.do(transaction(0)) == RolledBack(0, "Message already completed")
    assert script.state == before


@checks("G-TXN-1", level=Level.MODEL)
def test_a_transaction_with_a_duplicate_names_it_and_acks_nothing():
    script = Script()
    script.push(transaction_id="t")
    script.pop()
    before = script.state
    ack = AckItem("q", DEFAULT, "t", lease="lease")
    assert script.do(Transaction((ack, PushItem("q", transaction_id="t")))) == RolledBack(1, "Duplicate transaction id")
    assert script.state == before


@checks("G-TXN-3", level=Level.MODEL)
def test_an_ack_without_lease_takes_the_required_one_that_is_live_or_fails():
    script = Script()
    script.push(2)
    script.pop()
    assert script.do(transaction(0, lease=None, required=("gone",))) == RolledBack(0, "Invalid or expired lease")
    assert isinstance(script.do(transaction(0, lease=None, required=("gone", "lease"))), Committed)
    script.now = 60
    assert script.do(transaction(1, lease=None, required=("lease",))) == RolledBack(0, "Invalid or expired lease")


def test_a_transaction_cannot_ack_what_it_pushes():
    script = Script(Options())
    script.pop()
    ack = AckItem("q", DEFAULT, "t")
    assert script.do(Transaction((PushItem("q", transaction_id="t"), ack))) == RolledBack(1, "Message not found")


def test_a_failure_in_a_transaction_is_final():
    script = Script(Options(retry_limit=5))
    script.push()
    script.pop()
    outcome = script.do(transaction(0, status="failed"))
    assert outcome.results[0] == AckResult(dead_lettered=True)


@pytest.mark.parametrize("status", ["retry", "lost"])
def test_a_transaction_cannot_send_a_message_back(status):
    script = Script()
    script.push()
    script.pop()
    assert isinstance(script.do(transaction(0, status=status)), RolledBack)


def test_configure_makes_the_queue_with_its_partition_and_replaces_its_options():
    script = Script(Options(retry_limit=1))
    assert list(script.state.queues["q"].partitions) == [DEFAULT]
    script.push()
    script.do(Configure("q", namespace="n"))
    queue = script.state.queues["q"]
    assert (queue.options, queue.namespace, queue.partitions[DEFAULT].head) == (Options(), "n", 1)


@checks("G-RET-3", level=Level.MODEL)
def test_a_deleted_queue_leaves_nothing_and_its_name_is_free():
    script = Script(Options(retry_limit=0))
    script.push(2)
    script.pop()
    script.ack(0, status="failed")
    assert script.do(DeleteQueue("q")) == Deleted(existed=True)
    assert script.do(DeleteQueue("q")) == Deleted(existed=False)
    assert script.state == State()
    assert script.push() == (PushResult("queued", MessageId("q", DEFAULT, 0)),)
    assert script.ack(0)[0].error == "Consumer group not found"
    assert script.pop() == [0]


# ---------------------------------------------------------------- streams


class Stream(Script):
    """A registered stream with three messages under a lease of its group."""

    def __init__(self):
        super().__init__()
        self.do(Register("s", "a"))
        self.push(3)
        self.pop(group="g")

    def item(self, offset, status="completed", lease="lease"):
        return AckItem("q", DEFAULT, MessageId("q", DEFAULT, offset), status, "g", lease)

    def cycle(self, ack=None, *changes, pushes=0, **fields):
        items = tuple(PushItem("out", n) for n in range(pushes))
        return self.do(Cycle("s", "q", DEFAULT, "g", changes, items, ack, **fields))

    @property
    def remembered(self):
        return {key: row.value for (_, key), row in self.state.queues["q"].partitions[DEFAULT].remembered.items()}


def test_a_stream_is_registered_once_and_another_chain_needs_a_reset():
    script = Stream()
    assert script.do(Register("s", "a")) == Registered(False, False)
    script.cycle(None, StateChange("k", 1))
    assert script.do(Register("s", "b")) == Registered(False, True)
    assert script.remembered == {"k": 1}
    assert script.do(Register("s", "b", reset=True)) == Registered(False, False)
    assert script.remembered == {}


@checks("G-STR-1", level=Level.MODEL)
def test_a_cycle_completes_everything_up_to_its_message_writes_and_pushes():
    script = Stream()
    done = script.cycle(script.item(1), StateChange("k", 1), pushes=2, release=False)
    assert (done.error, done.completed, done.released, len(done.results)) == (None, 2, False, 2)
    assert script.remembered == {"k": 1}
    assert script.pop("out") == [0, 1]
    assert script.pop(group="g") == []
    assert script.cycle(script.item(2)).released
    assert script.pop(group="g", lease="other") == []


@checks("G-STR-1", level=Level.MODEL)
def test_a_cycle_that_releases_its_lease_brings_the_rest_again():
    script = Stream()
    assert script.cycle(script.item(0)).released
    assert script.pop(group="g", lease="other") == [1, 2]


def test_a_cycle_gives_up_one_message_alone():
    script = Stream()
    done = script.cycle(script.item(1, "failed"))
    assert (done.completed, done.dead_lettered, done.released) == (0, True, True)
    assert [letter.message.offset for letter in script.state.queues["q"].dead_letters] == [1]
    assert script.pop(group="g", lease="other") == [0, 2]


@checks("G-STR-2", level=Level.MODEL)
@pytest.mark.parametrize("wait", [0, 61])
def test_a_cycle_sent_again_or_late_changes_nothing(wait):
    script = Stream()
    if wait:
        script.now += wait
    else:
        script.cycle(script.item(2), StateChange("k", 1), pushes=1)
    before = script.state
    again = script.cycle(script.item(2), StateChange("k", 2), pushes=1)
    assert again.error in ("Message already completed", "Invalid or expired lease")
    assert script.state == before


@checks("G-STR-2", level=Level.MODEL)
def test_a_flush_waits_for_leases_and_changes_and_happens_once():
    script = Stream()
    script.cycle(None, StateChange("w", 1, window_end=5.0))

    def flush():
        flushed = script.cycle(None, StateChange("w", None), pushes=1)
        assert flushed.noop == (flushed.error is not None)
        return flushed.error

    assert flush().startswith("The partition is leased")
    script.cycle(script.item(2))
    script.now = 10
    script.cycle(None, StateChange("w", 2, window_end=5.0))
    assert flush().startswith("The state changed a moment ago")
    script.now = 11
    assert flush() is None
    assert flush().startswith("State not found")
    assert script.pop("out") == [0]


# ---------------------------------------------------------------- retention, eviction, clean-up


@checks("G-RET-1", "G-RET-2", level=Level.MODEL)
def test_retention_lets_go_what_is_too_old_or_completed_by_all_and_nothing_else():
    script = Script(Options(retention_enabled=True, retention_seconds=100, completed_retention_seconds=10))
    script.push(3)
    assert script.pop(batch=2, auto_ack=True) == [0, 1]
    assert script.pop(batch=1, group="slow", auto_ack=True) == [0]
    script.now = 10
    assert script.do(RemoveExpired("q")) == Removed({DEFAULT: 0})
    script.now = 11
    assert script.do(RemoveExpired("q")) == Removed({DEFAULT: 1})
    script.now = 100
    assert script.do(RemoveExpired("q")) == Removed({DEFAULT: 1})
    script.now = 101
    assert script.do(RemoveExpired("q")) == Removed({DEFAULT: 3})
    assert script.push() == (PushResult("queued", MessageId("q", DEFAULT, 3)),)
    assert script.pop(group="slow") == [3]
    assert script.pop(group="new") == [3]


@checks("G-RET-1", level=Level.MODEL)
@pytest.mark.parametrize(
    "options",
    [Options(), Options(retention_seconds=1), Options(retention_enabled=True), Options(completed_retention_seconds=1)],
)
def test_retention_that_is_not_switched_on_removes_nothing(options):
    script = Script(options)
    script.push()
    script.now = 10**9
    assert script.do(RemoveExpired("q")) == Removed({DEFAULT: 0})


@checks("G-RET-1", "G-RET-2", level=Level.MODEL)
def test_completed_retention_needs_no_switch():
    script = Script(Options(completed_retention_seconds=10, retention_seconds=5))
    script.push(3)
    assert script.pop(batch=2, auto_ack=True) == [0, 1]
    script.now = 11
    assert script.do(RemoveExpired("q")) == Removed({DEFAULT: 2})


def test_a_lease_ends_with_the_messages_under_it_and_their_ids_are_free():
    script = Script(Options(ttl=5, lease_time=100))
    script.push(1, transaction_id="t")
    script.pop()
    script.now = 6
    script.do(RemoveExpired("q"))
    assert script.cursor.lease is None
    assert script.ack(0) == (AckResult(noop=True),)
    assert script.ack(0, status="failed") == (AckResult("Message already completed"),)
    assert script.push(1, transaction_id="t") == (PushResult("queued", MessageId("q", DEFAULT, 1)),)
    assert script.push(1, transaction_id=MessageId("q", DEFAULT, 0)) == (PushResult("refused"),)


@checks("G-RET-6", level=Level.MODEL)
def test_eviction_gives_up_what_waits_too_long_but_not_what_is_under_a_lease():
    script = Script(Options(max_wait_time_seconds=10, lease_time=100))
    script.push(4)
    assert script.pop(batch=2) == [0, 1]
    script.now = 11
    assert script.do(EvictOverdue("q")) == Evicted(2)
    assert script.letters == [(2, "Maximum wait time exceeded", 0), (3, "Maximum wait time exceeded", 0)]
    assert script.ack(0, 1) == (AckResult(), AckResult())
    assert script.cursor.acked == 3
    assert script.pop(group="late") == []
    assert script.do(EvictOverdue("q")) == Evicted(0)


@checks("G-RET-6", level=Level.MODEL)
def test_eviction_of_a_queue_without_groups_is_that_of_queue_mode():
    script = Script(Options(max_wait_time_seconds=10, dead_letter_queue=False, dlq_after_max_retries=False))
    script.push(2)
    assert script.do(EvictOverdue("q")) == Evicted(0)
    assert not script.state.queues["q"].groups
    script.now = 11
    assert script.do(EvictOverdue("q")) == Evicted(2)
    assert (script.letters, script.pop(), script.pop(group="g")) == ([], [], [])


@checks("G-RET-8", level=Level.MODEL)
def test_a_full_queue_takes_a_request_whole_or_not():
    script = Script(Options(max_size=2))
    script.push(1)
    assert script.do(Push((PushItem("q"), PushItem("q"), PushItem("other")))) == QueueFull()
    assert script.do(Transaction((PushItem("q"), PushItem("q")))) == RolledBack(0, "Queue is full")
    assert script.do(Push((PushItem("q", transaction_id="t"), PushItem("q", transaction_id="t")))) != QueueFull()
    assert script.pop(batch=1) == [0]
    assert script.do(Push((PushItem("q"),))) == QueueFull()
    script.ack(0)
    assert script.do(Push((PushItem("q"),))) != QueueFull()


@checks("G-RET-7", level=Level.MODEL)
def test_clean_up_leaves_what_is_young_kept_or_dead():
    script = Script(Options(ttl=5))
    for partition in ("empty", "dead", "kept"):
        script.push(1, partition=partition)
    script.pop(partition="dead")
    script.ack(0, partition="dead", status="dlq")
    script.now = 20
    script.do(RemoveExpired("q"))
    script.push(1, partition="kept")
    assert script.do(RemoveIdle("q", 20)) == Cleaned(frozenset({DEFAULT, "empty", "dead", "kept"}))
    assert script.do(RemoveIdle("q", 19)) == Cleaned(frozenset({DEFAULT, "dead", "kept"}))
    assert script.push(1, partition="empty") == (PushResult("queued", MessageId("q", "empty", 0)),)
