"""The same commands against the reference model and the real engine on a real PostgreSQL, whose clock the test sets."""

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from queen.core.limits import CURSORS_STEP
from spec import model
from spec.guarantees import Level, checks
from spec.model.pop import pop as model_pop
from tests.support.broker import Broker, play

QUEUES = ("a.t", "b.t", "c")
PARTITIONS = ("Default", "p")
GROUPS = (None, "g", "h")
IDS = ("x", "y", "z")

queues = st.sampled_from(QUEUES)
partitions = st.sampled_from(PARTITIONS)
groups = st.sampled_from(GROUPS)
chosen_ids = st.none() | st.sampled_from(IDS)
items = st.builds(
    model.PushItem,
    queue=queues,
    partition=partitions,
    payload=st.integers(0, 9) | st.just({"a": [1, None, "\0é"]}),
    transaction_id=chosen_ids,
)
#: A group, and how much later than now it wants to start; only group i ever starts in the future.
starts = st.sampled_from([("g", -60), ("g", -5), ("h", -1), ("i", 0), ("i", 5), ("i", 40)])
#: What is known of the size of a queue that has a maximum is no less than there is.
SMALLER_THAN_IT_IS = """
SELECT q.name FROM queen.queue_sizes AS s JOIN queen.queues AS q ON q.id = s.queue_id AND q.max_size > 0
WHERE s.most < queen.backlog(q.id, NULL)
"""
STREAMS = ("s", "t")
#: A lease that was never given.
OVER = "00000000-0000-4000-8000-000000000000"
#: How much later than now the window of a row is over.
WINDOW_ENDS = st.sampled_from((None, -1.0, 0.25, 40.0))
group_names = st.sampled_from((model.QUEUE_MODE, "g", "h", "i"))
#: By the producer's id, or by the id that the server gave the message with this offset.
message_names = st.sampled_from(IDS) | st.integers(0, 3)
statuses = st.sampled_from(("completed", "completed", "completed", "failed", "retry", "dlq", "nonsense"))


def named(queue: str, partition: str, name: str | int) -> model.TransactionId:
    return model.MessageId(queue, partition, name) if isinstance(name, int) else name


class EngineAgainstModel(RuleBasedStateMachine):
    """Each rule performs an operation on the engine and asks the model whether the answer is allowed."""

    broker: ClassVar[Broker]
    deliveries = Bundle("deliveries")
    leases = Bundle("leases")

    @initialize()
    def begin(self) -> None:
        self.state = model.State()
        self.now = 0.0
        self.broker.reset()
        self.broker.set_clock(self.now)

    @invariant()
    def no_queue_is_larger_than_its_pushes_take_it_for(self) -> None:
        assert self.broker.query(SMALLER_THAN_IT_IS) == []

    def perform(self, operation: model.Operation) -> tuple[model.Operation, Any]:
        performed, observed = self.broker.perform(operation)
        if isinstance(performed, model.RemoveIdle):
            queue = self.state.queue(performed.queue)  # which knows nothing of what an undone transaction left behind
            observed = model.Cleaned(observed.partitions & frozenset(queue.partitions if queue else ()))
        self.state = model.admit(self.state, performed, observed, self.now)
        return performed, observed

    @rule(seconds=st.sampled_from((0.5, 1, 5, 29, 30, 31, 60, 61, 300)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.broker.set_clock(self.now)

    @rule(batch=st.lists(items, min_size=1, max_size=6))
    def push(self, batch: list[model.PushItem]) -> None:
        self.perform(model.Push(tuple(batch)))

    @rule(queue=queues, partition=partitions, offset=st.integers(0, 5))
    def push_under_a_message_id(self, queue: str, partition: str, offset: int) -> None:
        own = model.MessageId(queue, partition, offset)
        if self.state.partition(own.lane) is not None:
            self.perform(model.Push((model.PushItem(queue, 0, partition, own),)))

    def _pop(self, operation: model.Pop) -> Any:
        performed, observed = self.perform(operation)
        assert isinstance(performed, model.Pop)
        return multiple(*[(delivery, performed.group, observed.lease) for delivery in observed.deliveries])

    @rule(
        target=deliveries,
        queue=queues,
        partition=st.none() | partitions,
        group=groups,
        batch=st.integers(1, 6),
        parts=st.integers(1, 3),
        seconds=st.sampled_from((None, None, 5, 30)),
        start=st.sampled_from(("", "", "all", "new", "new-only")),
    )
    def pop(
        self,
        queue: str,
        partition: str | None,
        group: str | None,
        batch: int,
        parts: int,
        seconds: int | None,
        start: str,
    ) -> Any:
        parts = 1 if partition else parts
        return self._pop(
            model.Pop(
                queue,
                partition,
                group=group,
                batch=batch,
                partitions=parts,
                lease_seconds=seconds,
                subscription_mode=start,
            )
        )

    @rule(target=deliveries, queue=queues, group=groups, batch=st.integers(1, 6), parts=st.integers(1, 3))
    def pop_with_auto_ack(self, queue: str, group: str | None, batch: int, parts: int) -> Any:
        return self._pop(model.Pop(queue, group=group, batch=batch, partitions=parts, auto_ack=True))

    @rule(
        target=deliveries,
        queue=queues,
        since=starts,
    )
    def pop_since(self, queue: str, since: tuple[str, float]) -> Any:
        group, later = since
        return self._pop(model.Pop(queue, group=group, batch=6, partitions=3, subscription_from=self.now + later))

    @rule(
        target=deliveries,
        task=st.sampled_from(("t", "")),
        group=groups,
        batch=st.integers(1, 6),
        parts=st.integers(1, 4),
    )
    def pop_by_task(self, task: str, group: str | None, batch: int, parts: int) -> Any:
        if task:
            return self._pop(model.Pop(None, task=task, group=group, batch=batch, partitions=parts))
        return self._pop(model.Pop(None, namespace="c", group=group, batch=batch, partitions=parts))

    def _ack_item(self, delivered: Any, status: str, with_lease: bool, by_message_id: bool = False) -> model.AckItem:
        delivery, group, lease = delivered
        message = delivery.message
        name = message if by_message_id else delivery.transaction_id
        return model.AckItem(message.queue, message.partition, name, status, group, lease if with_lease else None)

    @rule(
        acks=st.lists(
            st.tuples(deliveries, statuses, st.sampled_from((True, True, True, False)), st.booleans()),
            min_size=1,
            max_size=5,
        )
    )
    def ack(self, acks: list[tuple[Any, str, bool, bool]]) -> None:
        self.perform(model.Ack(tuple(self._ack_item(*each) for each in acks)))

    @rule(queue=queues, partition=partitions, name=message_names, group=group_names, status=statuses)
    def ack_without_a_pop(self, queue: str, partition: str, name: str | int, group: str, status: str) -> None:
        item = model.AckItem(queue, partition, named(queue, partition, name), status, group)
        self.perform(model.Ack((item,)))

    @rule(delivered=deliveries, seconds=st.sampled_from((0, 10, 100)))
    def renew(self, delivered: Any, seconds: int) -> None:
        if delivered[2] is not None:
            self.perform(model.RenewLease(delivered[2], seconds))

    @rule(
        acks=st.lists(
            st.tuples(deliveries, st.sampled_from(("completed", "completed", "failed", "dlq", "retry")), st.booleans()),
            max_size=2,
        ),
        pushes=st.lists(items, max_size=3),
        acks_first=st.booleans(),
        required=st.lists(deliveries, max_size=1),
    )
    def transaction(self, acks: Any, pushes: Any, acks_first: bool, required: Any) -> None:
        parts = [self._ack_item(*each) for each in acks], pushes
        operations = tuple(each for part in (parts if acks_first else parts[::-1]) for each in part)
        if operations:
            leases = tuple(lease for _, _, lease in required if lease is not None)
            self.perform(model.Transaction(operations, leases))

    @rule(
        queue=queues,
        options=st.builds(
            model.Options,
            lease_time=st.sampled_from((5, 60)),
            retry_limit=st.integers(0, 2),
            retry_delay=st.sampled_from((0, 0, 2000)),
            delayed_processing=st.sampled_from((0, 0, 0, 10)),
            window_buffer=st.sampled_from((0, 0, 0, 5)),
            dead_letter_queue=st.sampled_from((None, False, True)),
            dlq_after_max_retries=st.sampled_from((None, False, True)),
            priority=st.integers(0, 2),
            retention_enabled=st.booleans(),
            retention_seconds=st.sampled_from((0, 30)),
            completed_retention_seconds=st.sampled_from((0, 5, 5)),
            ttl=st.sampled_from((0, 0, 60)),
            max_wait_time_seconds=st.sampled_from((0, 30)),
            max_size=st.sampled_from((0, 0, 0, 3, 8)),
        ),
        task=st.sampled_from(("t", "u")),
    )
    def configure(self, queue: str, options: model.Options, task: str) -> None:
        self.perform(model.Configure(queue, options, queue.partition(".")[0], task))

    @rule(stream=st.sampled_from(STREAMS), chain=st.sampled_from(("a", "a", "b")), reset=st.booleans())
    def register(self, stream: str, chain: str, reset: bool) -> None:
        self.perform(model.Register(stream, chain, reset))

    @rule(
        stream=st.sampled_from(STREAMS),
        delivered=deliveries,
        with_ack=st.booleans(),
        status=st.sampled_from(("completed", "completed", "failed")),
        changes=st.lists(st.tuples(st.sampled_from("kl"), st.none() | st.integers(0, 9), WINDOW_ENDS), max_size=2),
        pushes=st.lists(items, max_size=2),
        release=st.booleans(),
        twice=st.booleans(),
    )
    def cycle(
        self,
        stream: str,
        delivered: Any,
        with_ack: bool,
        status: str,
        changes: Any,
        pushes: Any,
        release: bool,
        twice: bool,
    ) -> None:
        delivery, group, lease = delivered
        lane = delivery.message.lane
        if stream not in self.state.streams or self.state.partition(lane) is None or (with_ack and lease is None):
            return
        # A cycle that was undone may leave an empty queue behind, as a transaction may: name none that is not there.
        pushes = [item for item in pushes if self.state.partition(item.lane) is not None]
        rows = {key: model.StateChange(key, value, end and self.now + end) for key, value, end in changes}
        ack = self._ack_item(delivered, status, True) if with_ack else None
        operation = model.Cycle(stream, *lane, group, tuple(rows.values()), tuple(pushes), ack, release)
        for _ in range(1 + twice):
            self.perform(operation)

    @rule(queue=queues, partition=st.none() | partitions, group=group_names)
    def has_pending(self, queue: str, partition: str | None, group: str) -> None:
        """It says what a pop would find."""
        pop = model.Pop(queue, partition, group=group)
        _, popped = model_pop(self.state, pop, self.now)
        [[pending]] = self.broker.query(
            "SELECT queen.has_pending_messages_v1($1, $2, $3)", queue, partition, pop.group_name
        )
        assert pending == bool(popped.deliveries)

    @rule(queue=queues, seconds=st.sampled_from((0, 0, 6, 31, 61)))
    def remove_expired(self, queue: str, seconds: int) -> None:
        self.wait(seconds)
        self.perform(model.RemoveExpired(queue))

    @rule(queue=queues, seconds=st.sampled_from((0, 0, 31)))
    def evict_overdue(self, queue: str, seconds: int) -> None:
        self.wait(seconds)
        self.perform(model.EvictOverdue(queue))

    @rule(queue=queues, seconds=st.sampled_from((0, 60)))
    def remove_idle(self, queue: str, seconds: int) -> None:
        self.perform(model.RemoveIdle(queue, seconds))

    @rule(queue=queues)
    def delete(self, queue: str) -> None:
        self.perform(model.DeleteQueue(queue))

    @rule(queue=queues, partition=partitions, name=message_names)
    def delete_message(self, queue: str, partition: str, name: str | int) -> None:
        self.perform(model.DeleteMessage(queue, partition, named(queue, partition, name)))

    @rule(queue=queues, partition=partitions, name=message_names, group=st.none() | group_names)
    def give_up(self, queue: str, partition: str, name: str | int, group: str | None) -> None:
        self.perform(model.GiveUp(queue, partition, named(queue, partition, name), group))

    @rule(delivered=deliveries, group=st.none() | group_names)
    def give_up_what_was_delivered(self, delivered: Any, group: str | None) -> None:
        message = delivered[0].message
        self.perform(model.GiveUp(message.queue, message.partition, message, group))

    @rule(delivered=deliveries)
    def delete_what_was_delivered(self, delivered: Any) -> None:
        message = delivered[0].message
        self.perform(model.DeleteMessage(message.queue, message.partition, message))

    @rule(
        queue=queues,
        partition=st.none() | partitions,
        group=group_names,
        place=st.sampled_from(("end", "beginning", "beginning", 0, -1, -5, -60)),
    )
    def seek(self, queue: str, partition: str | None, group: str, place: str | int) -> None:
        since = self.now + place if isinstance(place, int) else float("-inf")
        self.perform(model.Seek(queue, group, partition, place == "end", since))

    @rule(queue=queues, group=group_names, later=st.sampled_from((-60, -5, 0, 5, 40)))
    def update_subscription(self, queue: str, group: str, later: int) -> None:
        self.perform(model.UpdateSubscription(queue, group, self.now + later))

    @rule(queue=queues, group=group_names, subscription=st.booleans())
    def delete_group(self, queue: str, group: str, subscription: bool) -> None:
        self.perform(model.DeleteGroup(queue, group, subscription))

    @rule(queue=queues, group=st.none() | group_names, paused=st.booleans())
    def pause(self, queue: str, group: str | None, paused: bool) -> None:
        self.perform(model.Pause(queue, group, paused))

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        remembered = {
            (queue, partition, *key): row.value
            for queue, content in self.state.queues.items()
            for partition, log in content.partitions.items()
            for key, row in log.remembered.items()
        }
        assert self.broker.remembered() == remembered
        expected = sorted(
            (
                letter.message.queue,
                letter.message.partition,
                letter.message.offset,
                letter.group,
                letter.failures,
                letter.payload != 0,
            )
            for queue in self.state.queues.values()
            for letter in queue.dead_letters
        )
        rows = self.broker.query(
            "SELECT q.name, p.name, d.off, d.consumer_group, d.retry_count, d.payload::text <> '0'"
            " FROM queen.dead_letter_queue d"
            " JOIN queen.partitions p ON p.id = d.part_id JOIN queen.queues q ON q.id = d.queue_id"
        )
        assert sorted(tuple(row) for row in rows) == expected


@checks(
    "G-ORD-1",
    "G-ORD-2",
    "G-IDEM-1",
    "G-LEASE-1",
    "G-LEASE-3",
    "G-POP-6",
    "G-ACK-1",
    "G-ACK-2",
    "G-ACK-3",
    "G-DLQ-1",
    "G-TXN-1",
    "G-STR-1",
    "G-STR-2",
    "G-GRP-1",
    "G-GRP-5",
    "G-GRP-6",
    "G-GRP-7",
    "G-DLQ-6",
    "G-PAUSE-1",
    "G-RET-1",
    "G-RET-2",
    "G-RET-5",
    "G-RET-6",
    "G-RET-7",
    "G-RET-8",
    level=Level.MODEL,
)
@pytest.mark.parametrize("cursors", [CURSORS_STEP, 1])
def test_the_engine_answers_what_the_model_allows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, cursors: int
) -> None:
    """Also where a page of cursors is one of them, so that groups are popped, moved and deleted between two pages."""
    for place in ("store.CURSORS_STEP", "consumer_groups.CURSORS_STEP", "consumer_groups.DELETE_STEP"):
        monkeypatch.setattr(f"queen.postgres.{place}", cursors)
    EngineAgainstModel.broker = broker
    run_state_machine_as_test(
        EngineAgainstModel,
        settings=settings(stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )


@checks("G-ACK-4", "G-ISO-2", level=Level.MODEL)
def test_neighbours_in_one_request_are_acked_each_by_itself(broker: Broker) -> None:
    """Found by Hypothesis: one of them is done, and the lease that names both is over."""
    names = [model.MessageId("q", "p", offset) for offset in range(3)]
    _, observed = play(
        broker,
        (0, model.Push((model.PushItem("q", 0, "p"),) * 3)),
        (0, model.Pop("q", batch=2, auto_ack=True)),
        (0, model.Ack(tuple(model.AckItem("q", "p", name, lease=OVER) for name in names))),
    )
    assert observed == model.Acked(
        (model.AckResult(noop=True), model.AckResult(noop=True), model.AckResult("Invalid or expired lease"))
    )


@checks("G-RET-8", level=Level.MODEL)
def test_messages_before_the_start_of_a_pending_group_are_not_backlog(broker: Broker) -> None:
    """Found by Hypothesis: its cursors move when its start has come, and until then they made its queue too large."""
    one = model.Push((model.PushItem("q", 0),))
    _, observed = play(
        broker,
        (0, model.Configure("q", model.Options(max_size=2))),
        (0, model.Pop("q", group="later", subscription_from=40)),
        (0, one),
        (0, one),
        (0, one),
        (0, model.Pop("q", group="now", subscription_mode="all", auto_ack=True)),
        (0, one),
        (0, model.Pop("q", group="now", batch=3, auto_ack=True)),
        (0, one),
    )
    assert isinstance(observed, model.Pushed)


@checks("G-RET-6", level=Level.MODEL)
@pytest.mark.parametrize("start", [0, 10, 40])
def test_messages_before_the_start_of_a_pending_group_are_not_evicted_for_it(broker: Broker, start: float) -> None:
    """Found by Hypothesis: it was dead-lettered for a group that had never asked for it."""
    state, _ = play(
        broker,
        (0, model.Configure("q", model.Options(max_wait_time_seconds=5))),
        (0, model.Pop("q", group="later", subscription_from=start)),
        (0, model.Push((model.PushItem("q", 0), model.PushItem("q", 1, "p")))),
        (0, model.Pop("q", group="now", subscription_mode="all")),
        (20, model.EvictOverdue("q")),
        (0, model.Push((model.PushItem("q", 2),))),
        (20, model.EvictOverdue("q")),
        (20, model.Pop("q", group="later", batch=9)),
    )
    assert {letter.group for letter in state.queues["q"].dead_letters} == {"now"} | ({"later"} if start < 20 else set())


@checks("G-POP-6", level=Level.MODEL)
def test_messages_that_have_waited_too_long_are_not_pending_for_a_new_group(broker: Broker) -> None:
    """Found by Hypothesis: a pop of the group begins behind them."""
    options = model.Options(max_wait_time_seconds=30)
    play(broker, (0, model.Push((model.PushItem("q", 0),))), (31, model.Configure("q", options)))
    [[pending]] = broker.query("SELECT queen.has_pending_messages_v1('q', NULL, 'new')")
    assert pending is False
    broker.perform(model.Push((model.PushItem("q", 1),)))
    [[pending]] = broker.query("SELECT queen.has_pending_messages_v1('q', NULL, 'new')")
    assert pending is True


@checks("G-RET-2", level=Level.MODEL)
@pytest.mark.parametrize("groups", [(), ("now",)])
def test_what_no_group_has_completed_is_no_completed_message(broker: Broker, groups: tuple[str, ...]) -> None:
    """Found by Hypothesis: without a group, completedRetentionSeconds removed all if there was another limit, too."""
    options = model.Options(completed_retention_seconds=5, ttl=60, retention_enabled=True, retention_seconds=60)
    _, observed = play(
        broker,
        (0, model.Configure("q", options)),
        (0, model.Push((model.PushItem("q", 0), model.PushItem("q", 1)))),
        *[(0, model.Pop("q", group=group, auto_ack=True)) for group in groups],
        (6, model.RemoveExpired("q")),
    )
    assert observed == model.Removed({"Default": len(groups)})


@checks("G-STR-2", level=Level.MODEL)
def test_a_cycle_that_ends_at_a_deleted_message_is_told_that_it_is_done(broker: Broker) -> None:
    """Found by Hypothesis: of a lease that is over, and with a message before it that is not done."""
    last = model.MessageId("q", "Default", 1)
    _, observed = play(
        broker,
        (0, model.Push((model.PushItem("q", 0), model.PushItem("q", 1)))),
        (0, model.Pop("q", batch=2)),
        (0, model.Register("s", "a")),
        (0, model.DeleteMessage("q", "Default", last)),
        (0, model.DeleteGroup("q", model.QUEUE_MODE, subscription=False)),
        (0, model.Cycle("s", "q", "Default", ack=model.AckItem("q", "Default", last, lease=OVER))),
    )
    assert observed.error == "Message already completed"
