"""Commands side by side through the engines of two workers: what is observed must have an order, by the model."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from queen.core.limits import CURSORS_STEP
from spec import model
from spec.guarantees import Level, checks
from spec.linearizability import Call, explain
from tests.support.broker import ConcurrentBroker

Delivered: TypeAlias = tuple[model.Delivery, str | None, str | None]

PARTITIONS = ("Default", "p")
GROUPS = (None, "g")
OPTIONS = model.Options(lease_time=30, retry_limit=1)

items = st.builds(
    model.PushItem,
    queue=st.just("q"),
    partition=st.sampled_from(PARTITIONS),
    payload=st.integers(0, 9),
    transaction_id=st.none() | st.sampled_from("vwxyz"),
)
pushes = st.lists(items, min_size=1, max_size=4)
pops = st.builds(
    model.Pop,
    queue=st.just("q"),
    partition=st.none() | st.none() | st.sampled_from(PARTITIONS),
    group=st.sampled_from(GROUPS),
    batch=st.integers(1, 5),
    partitions=st.integers(1, 2),
    auto_ack=st.sampled_from((False, False, False, True)),
    subscription_mode=st.just("all"),
)
#: Which delivery so far (counted from the last one), and what becomes of it, with or without its lease.
numbers = st.integers(0, 7)
statuses = st.sampled_from(("completed", "completed", "completed", "failed", "retry", "dlq"))
acks = st.lists(st.tuples(numbers, statuses, st.sampled_from((True, True, True, False))), min_size=1, max_size=4)
commands = st.one_of(
    st.tuples(st.just("push"), pushes),
    st.tuples(st.just("pop"), pops),
    st.tuples(st.just("pop"), pops),
    st.tuples(st.just("ack"), acks),
    st.tuples(st.just("ack"), acks),
    st.tuples(st.just("renew"), st.tuples(numbers, st.sampled_from((10, 100)))),
    st.tuples(st.just("transaction"), st.tuples(acks, pushes)),
)
#: How many seconds pass, and what then happens at once.
rounds = st.tuples(st.sampled_from((0, 0, 0, 31)), st.lists(commands, min_size=1, max_size=6))


class Clients:
    """Turns commands into operations on what has been delivered so far, and keeps all calls."""

    def __init__(self, broker: ConcurrentBroker) -> None:
        self.broker, self.now = broker, 0.0
        self.calls: list[Call] = []
        self.delivered: list[Delivered] = []
        broker.reset()
        broker.set_clock(self.now)
        self.perform([model.Configure("q", OPTIONS), model.Push((model.PushItem("q", 0, "p"),))])

    def wait(self, seconds: float) -> None:
        if seconds:
            self.now += seconds
            self.broker.set_clock(self.now)

    def perform(self, operations: list[model.Operation]) -> None:
        for call in self.broker.perform_together(operations, self.now):
            self.calls.append(call)
            if isinstance(call.operation, model.Pop) and isinstance(call.outcome, model.Popped):
                group, lease = call.operation.group, call.outcome.lease
                self.delivered += [(delivery, group, lease) for delivery in call.outcome.deliveries]

    def operation(self, kind: str, what: Any) -> model.Operation | None:
        match kind:
            case "push":
                return model.Push(tuple(what))
            case "pop":
                return what  # type: ignore[no-any-return]
            case "ack":
                return model.Ack(chosen) if (chosen := self.acks(what)) else None
            case "transaction":
                return model.Transaction((*self.acks(what[0]), *what[1]))
            case _:
                number, seconds = what
                lease = self.pick(number)[2] if self.delivered else None
                return model.RenewLease(lease, seconds) if lease else None

    def pick(self, number: int) -> Delivered:
        return self.delivered[-1 - number % len(self.delivered)]

    def acks(self, wanted: Any) -> tuple[model.AckItem, ...]:
        if not self.delivered:
            return ()
        return tuple(self.ack(*self.pick(number), status, leased) for number, status, leased in wanted)

    def ack(
        self, delivery: model.Delivery, group: str | None, lease: str | None, status: str, leased: bool
    ) -> model.AckItem:
        place = delivery.message
        return model.AckItem(
            place.queue, place.partition, delivery.transaction_id, status, group, lease if leased else None
        )


@pytest.fixture(scope="module")
def broker(postgres: str) -> Iterator[ConcurrentBroker]:
    broker = ConcurrentBroker(postgres)
    yield broker
    broker.close()


@checks(
    "G-ORD-1",
    "G-ORD-2",
    "G-ORD-3",
    "G-IDEM-1",
    "G-LEASE-1",
    "G-LEASE-3",
    "G-ACK-1",
    "G-ACK-2",
    "G-DLQ-1",
    "G-TXN-3",
    "G-GRP-1",
    level=Level.MODEL,
)
@pytest.mark.parametrize("cursors", [CURSORS_STEP, 1])
# Not shrunk: the same program may meet another order of events, and then proves nothing.
@settings(suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(program=st.lists(rounds, min_size=1, max_size=8))
def test_concurrent_histories_are_linearizable(
    broker: ConcurrentBroker, monkeypatch: pytest.MonkeyPatch, cursors: int, program: Any
) -> None:
    """Also where a page of cursors is one of them."""
    monkeypatch.setattr("queen.postgres.store.CURSORS_STEP", cursors)
    monkeypatch.setattr("queen.postgres.consumer_groups.CURSORS_STEP", cursors)
    clients = Clients(broker)
    for seconds, together in program:
        clients.wait(seconds)
        operations = [clients.operation(*command) for command in together]
        clients.perform([operation for operation in operations if operation is not None])
    for group in GROUPS:  # alone, so that nothing may be left out
        clients.perform([model.Pop("q", group=group, batch=100, partitions=10)])
    explain(clients.calls)


@checks("G-LEASE-1", level=Level.MODEL)
@pytest.mark.parametrize(
    "others", [{"partition": "p"}, {"queue": None, "task": "t"}, {"queue": None, "namespace": "q"}], ids=str
)
def test_pops_of_one_group_in_one_call_do_not_share_a_partition(broker: ConcurrentBroker, others: Any) -> None:
    """Found by Hypothesis: one names the partition or the task, the other the queue, and both are fused."""
    broker.reset()
    broker.set_clock(0)
    for queue in "qr":
        broker.perform_together([model.Configure(queue, OPTIONS, "q", "t")], 0)
    broker.perform_together([model.Push((model.PushItem("q", 0, "p"),))], 0)
    pop = model.Pop("q", group="g", batch=5)
    answers = broker.pop_in_one_call([replace(pop, **others), pop, replace(pop, **others)])
    assert sum(len(outcome.deliveries) for _, outcome in answers) == 1
