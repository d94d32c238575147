"""The reference model under random programs.

Watchers look at each step from outside: they keep their own books of what was pushed, delivered and acked.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule, run_state_machine_as_test

from spec.guarantees import Level, checks
from spec.model import (
    QUEUE_MODE,
    Ack,
    Acked,
    AckItem,
    Committed,
    Configure,
    DeleteQueue,
    MessageId,
    Operation,
    Options,
    Outcome,
    Pop,
    Popped,
    Push,
    Pushed,
    PushItem,
    RenewLease,
    RolledBack,
    State,
    Transaction,
    admit,
    step,
)
from spec.model.ack import message_named


@dataclass(frozen=True)
class Event:
    """One step of the model."""

    before: State
    operation: Operation
    outcome: Outcome
    after: State
    now: float

    @property
    def deliveries(self):
        return self.outcome.deliveries if isinstance(self.outcome, Popped) else ()

    @property
    def group(self):
        return self.operation.group_name

    @property
    def items(self):
        match self.operation:
            case Push() | Ack():
                return self.operation.items
            case Transaction():
                return self.operation.operations
        return ()

    def answered(self, kind):
        """Each item of this kind in a push, ack or committed transaction, with its result."""
        if isinstance(self.outcome, Pushed | Acked | Committed):
            pairs = zip(self.items, self.outcome.results, strict=True)
            yield from ((item, result) for item, result in pairs if isinstance(item, kind))

    def carried_out(self):
        """Each ack that was accepted and is no repetition: (message, group), item and result."""
        for item, result in self.answered(AckItem):
            if result.error is None and not result.noop:
                message = message_named(self.after.partition(item.lane), item.lane, item.transaction_id)
                yield (MessageId(*item.lane, message.offset), item.group_name), item, result


def cursor_of(state, lane, group):
    partition = state.partition(lane)
    return partition.cursors.get(group) if partition else None


class Watcher:
    """Sees every step; its books on a queue, keyed by a place in it, are closed when the queue is deleted."""

    def __init__(self):
        self.books = defaultdict(Counter)

    def close(self, queue):
        for key in [key for key in self.books if key[0].queue == queue]:
            del self.books[key]


@checks("G-ORD-1", "G-ORD-2", "G-LEASE-5", level=Level.MODEL)
class Deliveries(Watcher):
    """First deliveries rise and leave out only what is done; later ones have higher attempts."""

    def see(self, event):
        for delivery in event.deliveries:
            lane, offset = delivery.message.lane, delivery.message.offset
            seen = self.books[lane, event.group]
            if not seen[offset]:
                cursor = cursor_of(event.after, lane, event.group)
                assert all(other <= offset for other in seen)
                assert all(cursor.is_done(other) for other in range(offset) if not seen[other])
                assert delivery.attempt == 1
            assert delivery.attempt > seen[offset]
            seen[offset] = delivery.attempt


@checks("G-DUR-3", "G-DUR-4", "G-IDEM-1", "G-IDEM-2", "G-IDEM-3", "G-ORD-3", "G-ORD-4", "G-ORD-5", level=Level.MODEL)
class Log(Watcher):
    """A partition is the list of its answered pushes, in order, without the duplicates."""

    def __init__(self):
        self.books = defaultdict(list)

    def see(self, event):
        for item, result in event.answered(PushItem):
            log = self.books[item.lane, None]
            known = [transaction_id for transaction_id, _ in log]
            if item.transaction_id in known:
                expected = ("duplicate", MessageId(*item.lane, known.index(item.transaction_id)))
            else:
                expected = ("queued", MessageId(*item.lane, len(log)))
                log.append((item.transaction_id or expected[1], item.payload))
            assert (result.status, result.message) == expected
        for name, queue in event.after.queues.items():
            for lane, partition in queue.partitions.items():
                times = [message.created_at for message in partition.messages]
                stored = [(message.transaction_id, message.payload) for message in partition.messages]
                assert stored == self.books[MessageId(name, lane, 0).lane, None]
                assert times == sorted(times)
        for delivery in event.deliveries:
            stored = self.books[delivery.message.lane, None][delivery.message.offset]
            assert (delivery.transaction_id, delivery.payload) == stored


@checks("G-POP-1", "G-POP-3", "G-POP-5", level=Level.MODEL)
class Budget(Watcher):
    """A pop keeps to its budget, uses it, and leaves a lease unless the messages are done at once."""

    def see(self, event):
        if not isinstance(event.operation, Pop):
            return
        batch, lanes = max(event.operation.batch, 1), {delivery.message.lane for delivery in event.deliveries}
        assert len(event.deliveries) <= batch
        assert len(lanes) <= event.operation.partitions
        assert event.outcome.lease == (event.operation.lease if lanes and not event.operation.auto_ack else None)
        for delivery in event.deliveries:
            cursor = cursor_of(event.after, delivery.message.lane, event.group)
            assert cursor.is_done(delivery.message.offset) == event.operation.auto_ack
            assert (cursor.live_lease(event.now) is None) == event.operation.auto_ack
        if len(event.deliveries) < batch and len(lanes) < event.operation.partitions:
            assert not step(event.after, event.operation, event.now)[1].deliveries


@checks("G-WAIT-2", "G-WAIT-3", "G-ACK-6", level=Level.MODEL)
class Patience(Watcher):
    """Nothing is delivered before its time."""

    def see(self, event):
        for (message, group), item, _ in event.carried_out():
            if item.status == "failed" and not cursor_of(event.after, message.lane, group).is_done(message.offset):
                delay = event.before.queues[message.queue].options.retry_delay
                self.books[message.lane, group] = event.now + delay / 1000
        for delivery in event.deliveries:
            assert event.now >= self.books.get((delivery.message.lane, event.group), 0)
            options = event.before.queues[delivery.message.queue].options
            youngest = event.before.partition(delivery.message.lane).messages[-1]
            assert event.now >= delivery.created_at + options.delayed_processing
            assert not options.window_buffer or event.now >= youngest.created_at + options.window_buffer


@checks("G-LEASE-1", "G-ACK-5", level=Level.MODEL)
class Leases(Watcher):
    """While a lease lives no other consumer is served, and only its end or an ack of its partition finishes it."""

    def see(self, event):
        for lane in {delivery.message.lane for delivery in event.deliveries}:
            lease, end = self.books.pop((lane, event.group), (None, event.now))
            assert end <= event.now, f"{lease} was still alive"
        for lane, group, cursor in event.after.cursors():
            if lease := cursor.live_lease(event.now):
                assert not all(map(cursor.is_done, range(lease.upto + 1)))
                self.books[lane, group] = (lease.id, cursor.ready)
        acked = {(message.lane, group) for (message, group), _, _ in event.carried_out()}
        for (lane, group), (_, end) in [*self.books.items()]:
            if (cursor := cursor_of(event.after, lane, group)) is None or not cursor.live_lease(event.now):
                assert cursor is None or end <= event.now or (lane, group) in acked
                del self.books[lane, group]

    def close(self, queue):
        assert not any(lane.queue == queue for lane, _ in self.books)


@checks("G-LEASE-3", "G-LEASE-6", level=Level.MODEL)
class Refusals(Watcher):
    """A lease that lives acks what it delivered; any other is refused, unless it repeats, and changes nothing."""

    def see(self, event):
        for delivery in event.deliveries:
            self.books[delivery.message, event.group][event.outcome.lease] += 1
        for key, item, _ in event.carried_out():
            assert not item.lease or self.books[key][item.lease]
        for item, result in event.answered(AckItem):
            cursor = cursor_of(event.before, item.lane, item.group_name)
            lease = cursor.live_lease(event.now) if cursor else None
            assert not item.lease or result.error or result.noop or (lease and lease.id == item.lease)
        if isinstance(event.outcome, Acked) and not [*event.carried_out()]:
            assert event.after == event.before


@checks("G-ACK-1", "G-ACK-2", level=Level.MODEL)
class Done(Watcher):
    """What is done is never delivered again, and no cursor moves back."""

    def see(self, event):
        assert not any((delivery.message, event.group) in self.books for delivery in event.deliveries)
        if isinstance(event.operation, Pop) and event.operation.auto_ack:
            self.books.update({(delivery.message, event.group): True for delivery in event.deliveries})
        ended = [key for key, item, _ in event.carried_out() if self.ends(event, key, item.status)]
        assert not any(key in self.books for key in ended)
        self.books.update(dict.fromkeys(ended, True))
        for lane, group, cursor in event.before.cursors():
            later = cursor_of(event.after, lane, group)
            assert later is None or (cursor.acked <= later.acked and all(map(later.is_done, cursor.ahead)))

    def ends(self, event, key, status):
        message, group = key
        given_up = status == "failed" and cursor_of(event.after, message.lane, group).is_done(message.offset)
        return status in {"completed", "dlq"} or given_up


@checks("G-DLQ-1", "G-DLQ-2", "G-DLQ-4", level=Level.MODEL)
class DeadLetters(Watcher):
    """A message leaves one dead letter, at its failure number `retryLimit` + 1 or when told to."""

    def __init__(self):
        self.books = Counter()

    def see(self, event):
        said = defaultdict(set)
        for key, item, _ in event.carried_out():
            said[key].add(item.status)
        buried = [letter for queue in event.after.queues.values() for letter in queue.dead_letters]
        kept = [key for key, statuses in said.items() if self.ends(event, key, statuses)]
        for key in kept:
            (letter,) = [letter for letter in buried if (letter.message, letter.group) == key]
            message = event.after.partition(key[0].lane).messages[key[0].offset]
            assert (letter.payload, letter.failures) == (message.payload, self.books[key])
        self.books.update(key for key, statuses in said.items() if "failed" in statuses)
        if not isinstance(event.operation, DeleteQueue):
            assert len(buried) == len(kept) + sum(len(queue.dead_letters) for queue in event.before.queues.values())

    def ends(self, event, key, statuses):
        options = event.before.queues[key[0].queue].options
        final = isinstance(event.operation, Transaction) or self.books[key] >= options.retry_limit
        given_up = "dlq" in statuses or ("failed" in statuses and final)
        said = (options.dead_letter_queue, options.dlq_after_max_retries)
        return given_up and (True in said or False not in said)


@checks("G-TXN-1", "G-TXN-3", level=Level.MODEL)
class Transactions(Watcher):
    """All or nothing, and not twice."""

    def see(self, event):
        if isinstance(event.outcome, RolledBack):
            assert event.after == event.before
        if isinstance(event.outcome, Committed):
            assert all(result.status == "queued" for _, result in event.answered(PushItem))
            assert len([*event.carried_out()]) == len([*event.answered(AckItem)])
            done = [key for key, item, _ in event.carried_out() if item.status != "retry"]
            assert all(cursor_of(event.after, m.lane, group).is_done(m.offset) for m, group in done)
            assert not done or isinstance(step(event.after, event.operation, event.now)[1], RolledBack)


@checks("G-GRP-1", "G-GRP-2", "G-GRP-3", level=Level.MODEL)
class Groups(Watcher):
    """A group's cursors move by its own requests, and what its start excludes never comes."""

    def see(self, event):
        if isinstance(event.operation, Pop | Ack | Transaction):
            asked = [event.operation] if isinstance(event.operation, Pop) else event.items
            groups = {item.group_name for item in asked if not isinstance(item, PushItem)}
            for lane, group, cursor in event.before.cursors():
                unmoved = cursor_of(event.after, lane, group).acked == cursor.acked
                assert group in groups or unmoved or event.before.queues[lane.queue].groups[group].after is not None
        for name, queue in event.before.queues.items():
            later = event.after.queue(name)
            assert later is None or queue.groups.items() <= later.groups.items()
        for delivery in event.deliveries:
            after = event.after.queues[delivery.message.queue].groups[event.group].after
            assert after is None or delivery.created_at > after


WATCHERS = (Deliveries, Log, Budget, Patience, Leases, Refusals, Done, DeadLetters, Transactions, Groups)

QUEUES = st.sampled_from(["shop.orders", "shop.bills"])
PARTITIONS = st.sampled_from(["north", "south"])
GROUPS = st.sampled_from([None, "one", "two"])
STATUSES = st.sampled_from(["completed", "completed", "failed", "failed", "retry", "dlq", "lost"])
SCOPES = st.one_of(
    st.fixed_dictionaries({"queue": QUEUES}),
    st.fixed_dictionaries({"queue": QUEUES, "partition": PARTITIONS}),
    st.sampled_from([{"namespace": "shop"}, {"task": "orders"}, {"namespace": "shop", "task": "bills"}]),
)
STARTS = st.sampled_from([{}, {}, {"subscription_mode": "new"}, {"subscription_from": "now"}, {"subscription_from": 5}])
OPTIONS = st.builds(
    Options,
    lease_time=st.sampled_from([10, 60]),
    retry_limit=st.integers(0, 2),
    retry_delay=st.sampled_from([0, 0, 5000]),
    delayed_processing=st.sampled_from([0, 0, 3]),
    window_buffer=st.sampled_from([0, 0, 2]),
    dead_letter_queue=st.sampled_from((None, False, True)),
    dlq_after_max_retries=st.sampled_from((None, False, True)),
    priority=st.integers(0, 1),
)
PUSH_ITEMS = st.builds(
    PushItem,
    queue=QUEUES,
    partition=PARTITIONS,
    payload=st.integers(0, 9),
    transaction_id=st.sampled_from([None, None, None, "", "t1", "t2", "t3"]),
)
WILD_ACKS = st.builds(
    AckItem,
    queue=QUEUES,
    partition=PARTITIONS,
    transaction_id=st.sampled_from(["t1", "t2", "t3", "t4"]),
    status=STATUSES,
    group=GROUPS,
    lease=st.sampled_from([None, "lease 1", "nobody's"]),
)


@checks("G-LEASE-2", "G-ACK-3", "G-DLQ-3", "G-GRP-1", level=Level.MODEL)
class Broker(RuleBasedStateMachine):
    """Random programs; at the end of each, all consumers come back and everything is delivered and done."""

    held = Bundle("held")
    reached: ClassVar = Counter()

    def __init__(self):
        super().__init__()
        self.state, self.now, self.leases = State(), 0, 0
        self.watchers = [watcher() for watcher in WATCHERS]

    def do(self, operation):
        before, (self.state, outcome) = self.state, step(self.state, operation, self.now)
        assert admit(before, operation, outcome, self.now) == self.state
        for watcher in self.watchers:
            watcher.see(Event(before, operation, outcome, self.state, self.now))
        Broker.reached.update(corners(outcome))
        return outcome

    @rule(seconds=st.sampled_from([1, 2, 3, 10, 60]))
    def wait(self, seconds):
        self.now += seconds

    @rule(items=st.lists(PUSH_ITEMS, min_size=1, max_size=4))
    def push(self, items):
        self.do(Push(tuple(items)))

    @rule(
        target=held,
        scope=SCOPES,
        group=GROUPS,
        batch=st.integers(0, 4),
        partitions=st.integers(1, 3),
        auto_ack=st.sampled_from([False, False, False, True]),
        lease_seconds=st.sampled_from([None, 5]),
        start=STARTS,
    )
    def pop(self, scope, start, group, **parameters):
        self.leases += 1
        operation = Pop(**scope, **start, **parameters, group=group, lease=f"lease {self.leases}")
        outcome = self.do(operation)
        return multiple(
            *(
                AckItem(*delivery.message.lane, delivery.transaction_id, group=group, lease=outcome.lease)
                for delivery in outcome.deliveries
            )
        )

    @rule(scope=SCOPES, group=GROUPS, statuses=st.lists(STATUSES, min_size=1, max_size=4))
    def work(self, scope, group, statuses):
        self.leases += 1
        taken = self.do(Pop(**scope, group=group, batch=len(statuses), partitions=2, lease=f"lease {self.leases}"))
        self.do(
            Ack(
                tuple(
                    AckItem(*delivery.message.lane, delivery.transaction_id, status, group, taken.lease)
                    for delivery, status in zip(taken.deliveries, statuses, strict=False)
                )
            )
        )

    @rule(items=st.lists(st.tuples(held, STATUSES), min_size=1, max_size=4))
    def ack(self, items):
        self.do(Ack(tuple(replace(item, status=status) for item, status in items)))

    @rule(item=held, status=STATUSES)
    def ack_without_lease(self, item, status):
        self.do(Ack((replace(item, status=status, lease=None),)))

    @rule(items=st.lists(WILD_ACKS, min_size=1, max_size=2))
    def ack_anything(self, items):
        self.do(Ack(tuple(items)))

    @rule(item=held, seconds=st.sampled_from([-1, 0, 5, 100]))
    def renew_lease(self, item, seconds):
        self.do(RenewLease(item.lease or "", seconds))

    @rule(
        acks=st.lists(st.tuples(held, st.sampled_from(["completed", "completed", "failed", "retry"])), max_size=2),
        pushes=st.lists(PUSH_ITEMS, min_size=1, max_size=2),
        naming=st.sampled_from(["each ack", "required", "nowhere"]),
    )
    def transaction(self, acks, pushes, naming):
        items = [replace(item, status=status) for item, status in acks]
        leases = tuple(item.lease for item in items if item.lease)
        if naming != "each ack":
            items = [replace(item, lease=None) for item in items]
        self.do(Transaction((*items, *pushes), leases if naming == "required" else ()))

    @rule(queue=QUEUES, options=OPTIONS)
    def configure(self, queue, options):
        namespace, task = queue.split(".")
        self.do(Configure(queue, options, namespace, task))

    @rule(queue=st.sampled_from(["shop.none", "shop.none", "shop.bills"]))
    def delete_queue(self, queue):
        self.do(DeleteQueue(queue))
        for watcher in self.watchers:
            watcher.close(queue)

    def teardown(self):
        self.now += 1_000
        for name, group in [(name, group) for name, queue in self.state.queues.items() for group in queue.groups]:
            taken = self.do(Pop(name, group=group, batch=1_000, partitions=10, lease="last"))
            items = (AckItem(*d.message.lane, d.transaction_id, group=group, lease="last") for d in taken.deliveries)
            self.do(Ack(tuple(items)))
        for lane, _, cursor in self.state.cursors():
            assert cursor.acked + 1 == self.state.partition(lane).head
        deliveries, done = (self.watchers[WATCHERS.index(kind)].books for kind in (Deliveries, Done))
        for (lane, group), seen in deliveries.items():
            assert all((MessageId(*lane, offset), group) in done for offset in seen)


def corners(outcome):
    """What a run must have seen to be worth its time."""
    yield type(outcome).__name__
    for result in getattr(outcome, "results", ()):
        yield getattr(result, "status", None) or getattr(result, "error", None) or "done"
        yield "noop" if getattr(result, "noop", False) else "dead letter" * getattr(result, "dead_lettered", False)
    for delivery in getattr(outcome, "deliveries", ()):
        yield f"delivered for the {min(delivery.attempt, 4)}. time"


TestBroker = Broker.TestCase
# How fast examples are made says nothing of the model, and everything of what else the machine does.
TestBroker.settings = settings(
    stateful_step_count=40, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_random_programs_reach_every_corner():
    Broker.reached.clear()
    run_state_machine_as_test(
        Broker, settings=settings(max_examples=150, stateful_step_count=40, derandomize=True, deadline=None)
    )
    assert {
        "Committed",
        "RolledBack",
        "Renewed",
        "queued",
        "duplicate",
        "delivered for the 1. time",
        "delivered for the 4. time",
        "noop",
        "dead letter",
        "Message not found",
        "Consumer group not found",
        "Message already completed",
        "Invalid or expired lease",
        "Unknown status: lost",
    } <= set(Broker.reached)


@checks("G-TXN-2", level=Level.MODEL)
@given(st.lists(st.tuples(st.sampled_from(["take", "send", "wait"]), st.integers(0, 1)), max_size=40))
@settings(print_blob=True, deadline=None)
def test_transforming_workers_that_stall_and_repeat_make_each_output_once(program):
    """Two workers; a worker may send its transaction late, again, or never."""
    now, inputs = 0, 5
    state, _ = step(State(), Push(tuple(PushItem("in", payload=n) for n in range(inputs))), now)
    prepared = {0: None, 1: None}
    rescue = [("wait", 0), ("take", 0), ("send", 0)] * inputs
    for number, (action, worker) in enumerate(program + rescue):
        if action == "wait":
            now += 61
        elif action == "send" and prepared[worker]:
            state, _ = step(state, prepared[worker], now)
        elif action == "take":
            state, taken = step(state, Pop("in", lease=f"lease {number}"), now)
            prepared[worker] = transform(taken) or prepared[worker]
    outputs = [message.payload for message in state.queues["out"].partitions["Default"].messages]
    assert sorted(outputs) == list(range(inputs))


def transform(taken):
    for delivery in taken.deliveries:
        done = AckItem(*delivery.message.lane, delivery.transaction_id, lease=taken.lease)
        return Transaction((done, PushItem("out", payload=delivery.payload)))
    return None


def test_an_unnamed_group_is_the_group_of_queue_mode():
    assert Pop("q").group_name == Pop("q", group="").group_name == Pop("q", group=QUEUE_MODE).group_name == QUEUE_MODE
