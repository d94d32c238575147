"""simple-mq: the same commands against the model and the real procedures, on a PostgreSQL whose clock the test sets."""

from typing import Any, ClassVar
from uuid import UUID

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

from spec.guarantees import Level, checks
from spec.model import simple_mq as model
from tests.support.simple_mq import SimpleMqBroker

NAMES = tuple(str(UUID(int=0x01000000_0000_7000_8000_000000000000 + number)) for number in range(3))
PLACES = (*NAMES, *(model.dlq_id(name) for name in NAMES))

names = st.sampled_from(NAMES)
places = st.sampled_from((*NAMES, *NAMES, *PLACES))
messages = st.tuples(st.sampled_from(("a", "b", "é\u2028💥")), st.sampled_from((None, None, "g", "h")))


class SimpleMqAgainstModel(RuleBasedStateMachine):
    """Each rule performs an operation on both, and the answers must be the same."""

    broker: ClassVar[SimpleMqBroker]
    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.state = model.State()
        self.now = 0.0
        self.broker.reset()
        self.broker.set_clock(self.now)

    def perform(self, operation: model.Operation) -> model.Outcome:
        performed, observed = self.broker.perform(operation)
        self.state, expected = model.step(self.state, performed, self.now)
        assert observed == expected, f"{performed}: answered {observed}, expected {expected}"
        return observed

    @rule(seconds=st.sampled_from((1 / 64, 0.5, 1, 2, 5, 10, 30, 31)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.broker.set_clock(self.now)

    @rule(
        queue=names,
        size=st.sampled_from((1, 3, 3, 20)),
        timeout=st.sampled_from((0, 1, 10, 10)),
        deliveries=st.sampled_from((1, 1, 2, 3)),
    )
    def create(self, queue: str, size: int, timeout: int, deliveries: int) -> None:
        if queue not in self.state.queues and model.dlq_id(queue) not in self.state.queues:
            self.perform(model.CreateQueue(queue, size, timeout, deliveries))

    @rule(queue=places)
    def delete(self, queue: str) -> None:
        self.perform(model.DeleteQueue(queue))

    @rule(target=ids, queue=places, batch=st.lists(messages, min_size=1, max_size=4))
    def enqueue(self, queue: str, batch: list[Any]) -> Any:
        performed, observed = self.broker.perform(model.Enqueue(queue, tuple(batch)))
        self.state, expected = model.step(self.state, performed, self.now)
        assert observed == expected
        return multiple(*performed.ids)  # type: ignore[union-attr]

    @rule(queue=places, limit=st.sampled_from((1, 1, 2, 10)))
    def poll(self, queue: str, limit: int) -> None:
        self.perform(model.Poll(queue, limit))

    @rule(queue=places, acked=st.lists(ids, min_size=1, max_size=3, unique=True))
    def ack(self, queue: str, acked: list[str]) -> None:
        self.perform(model.Ack(queue, tuple(acked)))

    @rule(id_=ids)
    def ack_where_it_is(self, id_: str) -> None:
        for name, queue in self.state.queues.items():
            if id_ in queue.messages:
                self.perform(model.Ack(name, (id_,)))
                return

    @rule(queue=places, id_=ids, seconds=st.sampled_from((0, 1, 60)))
    def extend(self, queue: str, id_: str, seconds: int) -> None:
        self.perform(model.Extend(queue, id_, seconds))

    @rule(queue=places, id_=ids)
    def requeue(self, queue: str, id_: str) -> None:
        self.perform(model.Requeue(queue, id_))

    @rule(id_=ids)
    def requeue_what_is_back(self, id_: str) -> None:
        for queue in self.state.queues.values():
            if id_ in queue.messages and queue.dlq:
                self.perform(model.Requeue(queue.dlq, id_))
                return

    @rule(queue=places)
    def requeue_all(self, queue: str) -> None:
        self.perform(model.RequeueAll(queue))

    @rule()
    def sweep(self) -> None:
        self.perform(model.Sweep())

    @rule(queue=places, limit=st.integers(1, 4))
    def peek_pages(self, queue: str, limit: int) -> None:
        after = None
        while True:
            page = self.perform(model.Peek(queue, after, limit))
            if not isinstance(page, model.Seen) or len(page.messages) < limit:
                return
            after = (page.messages[-1][4], page.messages[-1][0])

    @rule(queue=places)
    def describe(self, queue: str) -> None:
        self.perform(model.Describe(queue))

    @invariant()
    def the_count_equals_the_messages(self) -> None:
        if hasattr(self, "state"):
            rows = self.broker.query(
                "SELECT q.queue_id, simple_mq.message_count(q.queue_id) AS counted, count(m.message_id) AS stored"
                " FROM simple_mq.queues q LEFT JOIN simple_mq.messages m USING (queue_id) GROUP BY 1"
            )
            assert {(str(row["queue_id"]), row["counted"], row["stored"]) for row in rows} == {
                (name, len(queue.messages), len(queue.messages)) for name, queue in self.state.queues.items()
            }


@pytest.fixture(scope="module")
def broker(postgres: str) -> Any:
    broker = SimpleMqBroker(postgres)
    yield broker
    broker.close()


@checks(
    "G-SMQ-1",
    "G-SMQ-2",
    "G-SMQ-3",
    "G-SMQ-4",
    "G-SMQ-5",
    "G-SMQ-7",
    "G-SMQ-8",
    "G-SMQ-9",
    "G-SMQ-10",
    "G-SMQ-11",
    "G-SMQ-12",
    "G-SMQ-14",
    "G-SMQ-15",
    "G-SMQ-16",
    level=Level.MODEL,
)
def test_simple_mq_answers_what_the_model_answers(broker: SimpleMqBroker) -> None:
    SimpleMqAgainstModel.broker = broker
    run_state_machine_as_test(
        SimpleMqAgainstModel,
        settings=settings(stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )
