"""Options and operations combined, one short program each: the engine has to answer what the model allows.

What is asserted beside that is what the reader should take from it.
"""

from typing import Any

import pytest

from spec import model
from spec.guarantees import Level, checks
from spec.model import (
    Ack,
    AckItem,
    AckResult,
    Configure,
    DeleteGroup,
    DeleteMessage,
    EvictOverdue,
    GiveUp,
    MessageId,
    Options,
    Pop,
    Push,
    PushItem,
    RemoveExpired,
    RemoveIdle,
    Seek,
    Transaction,
    UpdateSubscription,
)
from tests.support.broker import Broker, play

LEASE = "lease"
MODE = model.QUEUE_MODE
TAKEN = Pop("q", batch=9, partitions=9, auto_ack=True)


def push(*payloads: int, partition: str = "Default") -> Push:
    return Push(tuple(PushItem("q", payload, partition) for payload in payloads))


def ack(*offsets: int, status: str = "completed", group: str | None = None, lease: str | None = None) -> Ack:
    return Ack(tuple(AckItem("q", "Default", name(offset), status, group, lease) for offset in offsets))


def name(offset: int, partition: str = "Default") -> MessageId:
    return MessageId("q", partition, offset)


def payloads(popped: Any) -> list[object]:
    return [delivery.payload for delivery in popped.deliveries]


def letters(state: model.State) -> list[tuple[str, int, str, int]]:
    """Group, offset, error and failures of each dead letter."""
    found = state.queues["q"].dead_letters
    return [(letter.group, letter.message.offset, letter.error, letter.failures) for letter in found]


# ---------------------------------------------------------------- waits: delay, window, retry


@checks("G-ACK-6", level=Level.MODEL)
def test_a_retry_has_its_time_whatever_becomes_of_the_delays_and_of_its_message(broker: Broker) -> None:
    """Its message was completed meanwhile, so nothing else told that the cursor waited for a retry."""
    options = Options(retry_delay=60_000)
    _, popped = play(
        broker,
        (0, Configure("q", options)),
        (0, push(0, 1)),
        (0, Pop("q", batch=2)),
        (0, lambda lease: ack(0, status="failed", lease=lease)),
        (0, ack(0)),
        (0, Configure("q", Options(retry_delay=60_000, delayed_processing=10))),
        (20, Configure("q", options)),
        (39, Pop("q", batch=2)),
        (1, Pop("q", batch=2)),
    )
    assert payloads(popped) == [1]


@checks("G-POP-3", level=Level.MODEL)
@pytest.mark.parametrize("hiding", [Options(window_buffer=300), Options(delayed_processing=300)])
def test_a_wait_for_a_delay_ends_with_it_although_a_message_has_failed(broker: Broker, hiding: Options) -> None:
    _, popped = play(
        broker,
        (0, push(0)),
        (0, Pop("q")),
        (0, lambda lease: ack(0, status="failed", lease=lease)),
        (0, Configure("q", hiding)),
        (0, push(1)),
        (1, Pop("q", batch=2)),
        (0, Configure("q")),
        (0, Pop("q", batch=2)),
    )
    assert payloads(popped) == [0, 1]


@checks("G-WAIT-3", "G-ACK-6", level=Level.MODEL)
def test_a_retry_that_is_over_does_not_open_a_window(broker: Broker) -> None:
    _, popped = play(
        broker,
        (0, Configure("q", Options(retry_delay=5_000, window_buffer=10))),
        (0, push(0)),
        (10, Pop("q")),
        (0, lambda lease: ack(0, status="failed", lease=lease)),
        (4, push(1)),
        (1, Pop("q", batch=2)),
        (9, Pop("q", batch=2)),
    )
    assert payloads(popped) == [0, 1]


@checks("G-WAIT-2", "G-GRP-5", level=Level.MODEL)
def test_a_rewind_shows_nothing_that_is_too_young(broker: Broker) -> None:
    _, popped = play(
        broker,
        (0, push(0)),
        (0, TAKEN),
        (0, Configure("q", Options(delayed_processing=30))),
        (20, push(1)),
        (0, Seek("q", MODE)),
        (10, Pop("q", batch=2)),
    )
    assert payloads(popped) == [0]


# ---------------------------------------------------------------- groups to come


@checks("G-GRP-2", "G-ACK-4", level=Level.MODEL)
@pytest.mark.parametrize(
    ("status", "result"),
    [
        ("completed", AckResult(noop=True)),
        ("failed", AckResult("Message already completed")),
        ("dlq", AckResult("Message already completed")),
    ],
)
def test_messages_before_the_start_of_a_pending_group_count_as_acknowledged(
    broker: Broker, status: str, result: AckResult
) -> None:
    state, acked = play(
        broker,
        (0, Pop("q", group="later", subscription_from=40)),
        (0, push(0, 1)),
        (1, ack(0, status=status, group="later")),
    )
    assert (acked.results, letters(state)) == ((result,), [])


@checks("G-GRP-2", "G-DLQ-6", level=Level.MODEL)
def test_a_group_to_come_gives_up_only_what_it_would_get(broker: Broker) -> None:
    state, popped = play(
        broker,
        (0, Pop("q", group="later", subscription_from=10)),
        (0, push(0)),
        (0, GiveUp("q", "Default", name(0))),
        (11, push(1, 2)),
        (0, GiveUp("q", "Default", name(1))),
        (0, Pop("q", group="later", batch=9)),
    )
    assert (payloads(popped), letters(state)) == ([2], [("later", 1, "given up", 0)])


@checks("G-RET-2", "G-RET-4", level=Level.MODEL)
def test_completed_retention_does_not_wait_for_a_group_to_come(broker: Broker) -> None:
    _, removed = play(
        broker,
        (0, Configure("q", Options(completed_retention_seconds=5))),
        (0, Pop("q", group="later", subscription_from=1000)),
        (0, push(0)),
        (0, push(1)),
        (0, Pop("q", auto_ack=True)),
        (6, RemoveExpired("q")),
    )
    assert removed.oldest == {"Default": 1}


@checks("G-RET-2", "G-RET-4", "G-ORD-2", level=Level.MODEL)
def test_completed_retention_takes_a_part_of_what_was_pushed_together(broker: Broker) -> None:
    """Also where the batch of the job ends in the middle, and twice from one segment."""
    batch = tuple(PushItem("q", number, transaction_id=f"t{number}") for number in range(6))
    outcomes = [
        play(
            broker,
            (0, Configure("q", Options(completed_retention_seconds=5))),
            (0, Push(batch)),
            (0, Pop("q", batch=first, auto_ack=True)),
            (6, RemoveExpired("q")),
            (0, Pop("q", batch=second, auto_ack=True)),
            (6, RemoveExpired("q")),
            (0, Push(batch)),
            (0, Pop("q", group="other", batch=20)),
        )[1]
        for first, second in ((1, 1), (3, 2), (5, 1))
    ]
    assert [payloads(popped) for popped in outcomes] == [
        [2, 3, 4, 5, 0, 1],
        [5, 0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5],
    ]


@checks("G-GRP-6", level=Level.MODEL)
def test_a_group_to_come_whose_start_is_put_behind_it_begins_now(broker: Broker) -> None:
    _, popped = play(
        broker,
        (0, Pop("q", group="later", subscription_from=40)),
        (0, push(0)),
        (5, UpdateSubscription("q", "later", 1)),
        (1, push(1)),
        (0, Pop("q", group="later", batch=9)),
    )
    assert payloads(popped) == [1]


# ---------------------------------------------------------------- maximum size


FULL = Configure("q", Options(max_size=2, max_wait_time_seconds=10, ttl=100, lease_time=1000))


@checks("G-RET-8", level=Level.MODEL)
@pytest.mark.parametrize(
    "relief",
    [
        (11, EvictOverdue("q")),
        (101, RemoveExpired("q")),
        (0, DeleteMessage("q", "Default", name(0))),
        (0, GiveUp("q", "Default", name(0))),
        (0, ack(0, status="dlq")),
        (0, Seek("q", MODE, to_end=True)),
        (0, Seek("q", MODE, since=0)),
    ],
)
def test_every_completion_makes_room(broker: Broker, relief: tuple[float, model.Operation]) -> None:
    """A group that has nothing yet holds the queue: what it is through with is room again."""
    _, pushed = play(broker, (0, FULL), (0, push(0)), (0, Pop("q", auto_ack=True)), (0, Seek("q", MODE)), (0, push(1)),
                     relief, (0, push(2)))  # fmt: skip
    assert isinstance(pushed, model.Pushed)


@checks("G-RET-8", level=Level.MODEL)
@pytest.mark.parametrize(
    "burden",
    [
        (0, Seek("q", MODE)),
        (0, DeleteGroup("q", MODE, subscription=False)),
        (0, DeleteGroup("q", MODE)),
        (0, Pop("q", group="other", partition="none")),
    ],
)
def test_every_repetition_takes_room(broker: Broker, burden: tuple[float, model.Operation]) -> None:
    _, pushed = play(broker, (0, FULL), (0, push(0)), (0, push(1)), (0, TAKEN), burden, (0, push(2)))
    assert pushed == model.QueueFull()


@checks("G-RET-8", "G-TXN-1", level=Level.MODEL)
def test_a_transaction_cannot_push_into_the_room_that_its_acks_make(broker: Broker) -> None:
    state, popped = play(
        broker,
        (0, FULL),
        (0, push(0)),
        (0, push(1)),
        (0, Pop("q", batch=2)),
        (0, lambda lease: Transaction((*ack(0, 1, lease=lease).items, PushItem("q", 2)))),
        (0, lambda lease: ack(0, lease=lease)),
        (0, lambda lease: Transaction((*ack(1, lease=lease).items, PushItem("q", 2)))),
        (0, Pop("q", batch=9)),
    )
    assert payloads(popped) == [2]
    assert state.partition(model.Lane("q", "Default")).head == 3


@checks("G-TXN-3", level=Level.MODEL)
@pytest.mark.parametrize("what", ["x", name(1)])
@pytest.mark.parametrize("status", ["completed", "dlq"])
def test_a_transaction_cannot_ack_what_it_pushes(broker: Broker, status: str, what: model.TransactionId) -> None:
    """Found by Hypothesis, seed 60211: neither by its transaction id, before or after it, nor by its place."""
    message, its_ack = PushItem("q", 1, transaction_id="x"), AckItem("q", "Default", what, status)
    for operations in ((its_ack, message), (message, its_ack)):
        state, rolled_back = play(broker, (0, push(0)), (0, TAKEN), (0, Transaction(operations)))
        assert rolled_back.index == operations.index(its_ack)
        assert (state.partition(model.Lane("q", "Default")).head, letters(state)) == (1, [])


# ---------------------------------------------------------------- dead letters, eviction, retention


@checks("G-RET-6", "G-ACK-6", level=Level.MODEL)
def test_eviction_takes_what_waits_for_a_retry_and_the_pause_stays(broker: Broker) -> None:
    state, popped = play(
        broker,
        (0, Configure("q", Options(retry_delay=60_000, max_wait_time_seconds=10))),
        (0, push(0)),
        (0, Pop("q")),
        (0, lambda lease: ack(0, status="failed", lease=lease)),
        (11, push(1)),
        (0, EvictOverdue("q")),
        (0, Pop("q", batch=9)),
        (49, Configure("q", Options())),
        (0, Pop("q", batch=9)),
    )
    assert (payloads(popped), letters(state)) == ([1], [(MODE, 0, "Maximum wait time exceeded", 1)])


@checks("G-RET-6", level=Level.MODEL)
@pytest.mark.parametrize("hiding", [Options(window_buffer=300), Options(delayed_processing=300)])
def test_eviction_takes_what_no_consumer_could_see(broker: Broker, hiding: Options) -> None:
    options = model.Options(**{name: getattr(hiding, name) for name in ("window_buffer", "delayed_processing")},
                            max_wait_time_seconds=10)  # fmt: skip
    state, _ = play(broker, (0, Configure("q", options)), (0, push(0)), (0, Pop("q")), (11, EvictOverdue("q")))
    assert letters(state) == [(MODE, 0, "Maximum wait time exceeded", 0)]


@checks("G-RET-6", "G-DLQ-4", level=Level.MODEL)
def test_eviction_leaves_no_dead_letter_in_a_queue_that_keeps_none(broker: Broker) -> None:
    options = Options(max_wait_time_seconds=10, dead_letter_queue=False, dlq_after_max_retries=False)
    play(broker, (0, Configure("q", options)), (0, push(0)), (0, Pop("q", group="g")), (70, EvictOverdue("q")))
    assert broker.query("SELECT * FROM queen.dead_letter_queue") == []


@checks("G-RET-6", "G-LEASE-2", level=Level.MODEL)
def test_what_was_under_a_lease_is_overdue_when_that_ends(broker: Broker) -> None:
    state, evicted = play(
        broker,
        (0, Configure("q", Options(max_wait_time_seconds=10, lease_time=30))),
        (0, push(0, 1)),
        (0, Pop("q")),
        (20, EvictOverdue("q")),
        (10, EvictOverdue("q")),
    )
    assert evicted == model.Evicted(1)
    assert [offset for _, offset, _, _ in letters(state)] == [1, 0]


@checks("G-DLQ-1", "G-GRP-5", level=Level.MODEL)
def test_a_message_given_up_again_after_a_rewind_has_one_dead_letter(broker: Broker) -> None:
    state, _ = play(
        broker,
        (0, Configure("q", Options(retry_limit=1))),
        (0, push(0)),
        (0, Pop("q")),
        (0, lambda lease: ack(0, status="dlq", lease=lease)),
        (0, Seek("q", MODE)),
        (0, Pop("q")),
        (0, lambda lease: ack(0, status="failed", lease=lease)),
        (0, Pop("q")),
        (0, lambda lease: ack(0, status="failed", lease=lease)),
    )
    assert letters(state) == [(MODE, 0, "Retries exhausted", 1)]


@checks("G-RET-6", level=Level.MODEL)
@pytest.mark.parametrize("group", [None, "g"])
def test_eviction_gives_up_also_where_a_group_has_no_cursor_yet(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    monkeypatch.setattr("queen.postgres.store.CURSORS_STEP", 1)
    state, evicted = play(
        broker,
        (0, Configure("q", Options(max_wait_time_seconds=10, lease_time=5))),
        (1, Push(tuple(PushItem("q", 0, partition) for partition in "abc"))),
        (0, Pop("q", group=group)),
        (20, EvictOverdue("q")),
    )
    assert evicted == model.Evicted(3)
    assert len(letters(state)) == 3


@checks("G-GRP-7", level=Level.MODEL)
@pytest.mark.parametrize("subscription", [True, False])
@pytest.mark.parametrize("since", [None, 0, 1, 40])
def test_a_deletion_counts_all_partitions_also_where_the_group_has_no_cursor_yet(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, since: float | None, subscription: bool
) -> None:
    """A pop is answered as soon as it has what it asks for. The rest of its group's cursors is made later."""
    for place in ("store.CURSORS_STEP", "consumer_groups.CURSORS_STEP", "consumer_groups.DELETE_STEP"):
        monkeypatch.setattr(f"queen.postgres.{place}", 1)
    _, deleted = play(
        broker,
        (1, Push(tuple(PushItem("q", 0, partition) for partition in "abc"))),
        (0, Pop("q", group="g", subscription_from=since)),
        (0, Push((PushItem("q", 0, "made later"),))),
        (0, DeleteGroup("q", "g", subscription)),
    )
    assert deleted == model.DeletedGroup(4)


@checks("G-GRP-7", "G-DLQ-1", level=Level.MODEL)
def test_dead_letters_outlive_their_group_and_meet_those_of_the_next_of_its_name(broker: Broker) -> None:
    state, popped = play(
        broker,
        (0, push(0)),
        (0, push(1)),
        (0, Pop("q", group="g", batch=2)),
        (0, lambda lease: ack(0, 1, status="dlq", group="g", lease=lease)),
        (0, DeleteGroup("q", "g")),
        (0, Pop("q", group="g", batch=1)),
        (0, lambda lease: ack(0, status="dlq", group="g", lease=lease)),
        (0, Pop("q", group="g", batch=9)),
    )
    assert payloads(popped) == [1]
    assert sorted(offset for _, offset, _, _ in letters(state)) == [0, 1]


@checks("G-RET-1", "G-RET-4", "G-LEASE-3", level=Level.MODEL)
def test_a_lease_goes_on_for_what_retention_has_left_under_it(broker: Broker) -> None:
    _, acked = play(
        broker,
        (0, Configure("q", Options(ttl=10))),
        (0, push(0)),
        (5, push(1)),
        (0, Pop("q", batch=2)),
        (6, RemoveExpired("q")),
        (0, Pop("q")),
        (0, lambda lease: ack(0, 1, lease=lease)),
    )
    assert acked.results == (AckResult(noop=True), AckResult())


@checks("G-RET-7", level=Level.MODEL)
def test_clean_up_leaves_a_partition_that_has_messages(broker: Broker) -> None:
    _, cleaned = play(
        broker, (0, push(0, partition="full")), (0, push(0, partition="done")), (0, TAKEN), (60, RemoveIdle("q", 30))
    )
    assert cleaned.partitions == {"full", "done"}


@checks("G-RET-7", "G-ORD-2", level=Level.MODEL)
def test_a_partition_that_was_cleaned_up_begins_again_for_every_group(broker: Broker) -> None:
    _, popped = play(
        broker,
        (0, Configure("q", Options(ttl=5, window_buffer=5))),
        (0, push(0, 1, partition="p")),
        (10, Pop("q", group="g", batch=9)),
        (0, RemoveExpired("q")),
        (60, RemoveIdle("q", 30)),
        (0, push(2, partition="p")),
        (5, Pop("q", group="g", batch=9)),
    )
    assert [delivery.message.offset for delivery in popped.deliveries] == [0]


@checks("G-RET-5", "G-WAIT-3", level=Level.MODEL)
def test_a_deleted_message_still_keeps_a_window_open(broker: Broker) -> None:
    """The window is about what came, and a message that somebody deletes has come."""
    _, popped = play(
        broker,
        (0, Configure("q", Options(window_buffer=10))),
        (0, push(0)),
        (5, push(1)),
        (0, DeleteMessage("q", "Default", name(1))),
        (5, Pop("q", batch=9)),
        (5, Pop("q", batch=9)),
    )
    assert payloads(popped) == [0]


@checks("G-DLQ-6", level=Level.MODEL)
@pytest.mark.parametrize(("group", "given_up"), [(None, {MODE}), (MODE, {MODE}), ("g", set())])
def test_queue_mode_gives_up_messages_of_a_queue_without_groups(
    broker: Broker, group: str | None, given_up: set[str]
) -> None:
    _, moved = play(broker, (0, push(0)), (0, GiveUp("q", "Default", name(0), group)))
    assert moved.groups == given_up
