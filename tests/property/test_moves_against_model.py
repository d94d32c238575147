"""Three databases, between which partitions move, against the reference model of one, which knows of no moves."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from queen.shards import moves as shard_moves
from spec import model
from spec.guarantees import Level, checks
from spec.model.state import Lane, put_cursor
from tests.property.test_shards_against_model import NAMES, ShardsAgainstModel
from tests.support.moving_broker import MovingBroker
from tests.support.servers import create_database, drop_database


class MovesAgainstModel(ShardsAgainstModel):
    """The same operations. The list of databases changes at any time, and some partitions move where it places them."""

    broker: ClassVar[MovingBroker]

    @initialize()
    def begin(self) -> None:
        self.broker.reset_list()
        super().begin()

    @rule()
    def change_the_list(self) -> None:
        self.broker.change_list()

    @rule(which=st.integers(0, 9), interrupted=st.sampled_from((None, None, "awaited", "sealed", "brought")))
    def move(self, which: int, interrupted: str | None) -> None:
        for queue, partition in self.broker.move(which, interrupted):
            lane = Lane(queue, partition)
            found = self.state.partition(lane)
            for group, cursor in found.cursors.items() if found is not None else ():
                # Where it comes to, it is the last in turn.
                later = replace(cursor, ready=max(cursor.ready, self.now))
                self.state = put_cursor(self.state, lane, group, later)

    @rule(queue=st.sampled_from(("a.t", "b.t", "c")), partition=st.sampled_from(("Default", "p")))
    def push_again_what_was_pushed(self, queue: str, partition: str) -> None:
        items = tuple(model.PushItem(queue, 1, partition, name) for name in ("x", "y", "z"))
        self.perform(model.Push(items))


@pytest.fixture(scope="module")
def broker(postgres: str) -> Iterator[MovingBroker]:
    databases = {name: asyncio.run(create_database(postgres)) for name in NAMES}
    broker = MovingBroker(databases)
    yield broker
    broker.close()
    for url in databases.values():
        asyncio.run(drop_database(postgres, url))


@checks("G-SHARD-8", level=Level.MODEL)
def test_partitions_move_and_nobody_sees_it(broker: MovingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_moves, "PAUSE_S", 0.0)
    MovesAgainstModel.broker = broker
    run_state_machine_as_test(
        MovesAgainstModel,
        settings=settings(stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )
