"""Three databases behind the router against the reference model of one: they refine it, but for what is named here."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from spec import model
from spec.guarantees import Level, checks
from spec.model.pop import pop as model_pop
from tests.property.test_engine_against_model import EngineAgainstModel, group_names, partitions, queues
from tests.support.servers import create_database, drop_database
from tests.support.sharded_broker import ShardedBroker, SpansError

NAMES = ("a", "b", "c")


class ShardsAgainstModel(EngineAgainstModel):
    """The same operations; a pop has messages of one database, and what spans databases is refused."""

    broker: ClassVar[ShardedBroker]

    def perform(self, operation: model.Operation) -> tuple[model.Operation, Any]:
        if isinstance(operation, model.Configure):  # the maximum size counts on each database alone
            operation = replace(operation, options=replace(operation.options, max_size=0))
        try:
            performed, observed = self.broker.perform(operation)
        except SpansError:
            assert len(homes_of(operation, self.broker)) > 1
            return operation, None
        if isinstance(performed, model.RemoveIdle):
            queue = self.state.queue(performed.queue)
            observed = model.Cleaned(observed.partitions & frozenset(queue.partitions if queue else ()))
        self.state = model.admit(self.state, performed, observed, self.now, home=self.broker.home)
        return performed, observed

    @rule(queue=queues, partition=st.none() | partitions, group=group_names)
    def has_pending(self, queue: str, partition: str | None, group: str) -> None:
        pop = model.Pop(queue, partition, group=group)
        _, popped = model_pop(self.state, pop, self.now)
        rows = self.broker.query("SELECT queen.has_pending_messages_v1($1, $2, $3)", queue, partition, pop.group_name)
        assert any(pending for [pending] in rows) == bool(popped.deliveries)


def homes_of(operation: Any, broker: ShardedBroker) -> set[str]:
    """The databases of the partitions that an operation names."""
    if isinstance(operation, model.Cycle):
        lanes = [(operation.queue, operation.partition), *((item.queue, item.partition) for item in operation.pushes)]
    else:
        lanes = [(each.queue, each.partition) for each in operation.operations]
    return {broker.home(model.Lane(*lane)) for lane in lanes}


@pytest.fixture(scope="module")
def broker(postgres: str) -> Iterator[ShardedBroker]:
    databases = {name: asyncio.run(create_database(postgres)) for name in NAMES}
    broker = ShardedBroker(databases)
    yield broker
    broker.close()
    for url in databases.values():
        asyncio.run(drop_database(postgres, url))


@checks("G-SHARD-6", level=Level.MODEL)
@pytest.mark.parametrize(("start", "seen"), [("all", {0, 1}), ("new", {1})])
def test_a_group_begins_in_all_databases_as_its_first_pop_says(
    broker: ShardedBroker, start: str, seen: set[int]
) -> None:
    ShardsAgainstModel.broker = broker
    machine = ShardsAgainstModel()
    machine.begin()

    def push(payload: int) -> None:
        machine.perform(model.Push(tuple(model.PushItem("c", payload, f"p@{name}") for name in NAMES)))
        machine.wait(1)

    def pop(start: str | None = None) -> list[tuple[str, int]]:
        asked = model.Pop("c", group="g", batch=10, partitions=10, auto_ack=True, subscription_mode=start)
        return [(each.message.partition, each.payload) for each in machine.perform(asked)[1].deliveries]

    push(0)
    found = pop(start)
    push(1)
    for _ in NAMES:  # each has messages of one database
        found += pop()
    assert sorted(found) == [(f"p@{name}", payload) for name in NAMES for payload in sorted(seen)]
    assert pop() == []


@checks("G-SHARD-1", "G-SHARD-4", "G-SHARD-6", level=Level.MODEL)
def test_three_databases_answer_what_the_model_of_one_allows(broker: ShardedBroker) -> None:
    ShardsAgainstModel.broker = broker
    run_state_machine_as_test(
        ShardsAgainstModel,
        settings=settings(stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )
