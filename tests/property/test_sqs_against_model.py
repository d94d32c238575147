"""SQS: the same commands against the model and the real procedures, on a PostgreSQL whose clock the test sets.

Not a state machine of Hypothesis: that one leaves out some rules in each run, and here most need all the others.
"""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec.model import sqs as model
from tests.support.sqs import SqsBroker

#: Later than everything that happened at another moment, and no round sum.
TICK = 1 / 64
#: Queues by their roles; all of an example are standard or all FIFO, as dead letters need it.
ROLES = ("a", "dead", "b")
roles = st.sampled_from(("a", "a", "a", "a", "dead", "b"))
settings_of_queue = st.tuples(
    st.sampled_from((10, 10, 0, 40)),
    st.sampled_from((0, 0, 0, 5)),
    st.sampled_from((345_600, 345_600, 60)),
    st.sampled_from((None, 1, 1, 2)),
    st.booleans(),
)
messages = st.tuples(
    st.sampled_from((None, "g", "h")), st.sampled_from((None, None, "x", "y")), st.sampled_from((None, None, 3))
)
chosen = st.lists(st.integers(0, 7), min_size=1, max_size=3)
visibility = st.sampled_from((None, None, 0, 20))
attempt = st.sampled_from((None, None, "1", "1", "2"))


def command(weight: int, name: str, *arguments: st.SearchStrategy[Any]) -> list[st.SearchStrategy[Any]]:
    """A command of the driver below, as often as its weight says."""
    return [st.tuples(st.just(name), *arguments)] * weight


commands = st.one_of(
    *command(4, "wait", st.sampled_from((0.25, 2, 9, 9, 31, 31, 70, 151, 302))),
    *command(5, "send", roles, st.lists(messages, min_size=1, max_size=4)),
    *command(
        8, "receive", roles, st.sampled_from((1, 2, 10, 10)), visibility, attempt, st.sampled_from((99, 99, 99, 2))
    ),
    *command(3, "remove", chosen),
    *command(3, "change", chosen, st.sampled_from((0, 0, 5, 60))),
    *command(1, "give_back", chosen),
    *command(2, "figures", roles),
    *command(2, "start_move", st.sampled_from(("dead", "dead", "a")), st.sampled_from((None, None, "b"))),
    *command(2, "move_on"),
    *command(1, "cancel_move"),
    *command(1, "sweep"),
    *command(1, "expire"),
    *command(1, "delete_or_create", roles, settings_of_queue),
    *command(1, "purge", roles),
)


class Both:
    """Carries out commands on the server and the model; the answers must be the same."""

    def __init__(self, broker: SqsBroker, queues: Any, *, fifo: bool) -> None:
        self.broker, self.fifo = broker, fifo
        self.state = model.State()
        self.now = 0.0
        self.numbers = count()
        self.handles: list[tuple[str, tuple[str, int]]] = []
        broker.reset()
        for role, settings_ in zip(ROLES, queues, strict=True):
            self.create(role, settings_)

    def name(self, role: str) -> str:
        return f"{role}.fifo" if self.fifo else role

    def perform(self, operation: model.Operation) -> Any:
        self.now += TICK
        self.broker.set_clock(self.now)
        observed = self.broker.perform(operation, self.now)
        self.state, expected = model.step(self.state, operation, self.now)
        assert observed == expected, f"{operation}: answered {observed}, expected {expected}"
        return observed

    def create(self, role: str, settings_: Any) -> None:
        visible, delay, retention, receives, per_group = settings_
        dead = self.name("dead") if role != "b" and receives is not None else None
        queue = model.Queue(
            self.fifo, f"{role}#{next(self.numbers)}", visible, delay, retention, dead,
            None if dead is None else receives, per_group and self.fifo,
        )  # fmt: skip
        self.perform(model.Create(self.name(role), queue))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def delete_or_create(self, role: str, settings_: Any) -> None:
        if self.name(role) in self.state.queues:
            self.perform(model.Delete(self.name(role)))
        else:
            self.create(role, settings_)

    def purge(self, role: str) -> None:
        self.perform(model.Purge(self.name(role)))

    def send(self, role: str, batch: list[Any]) -> None:
        sent = [
            (
                f"m{next(self.numbers)}",
                group or ("g" if self.fifo else None),
                (deduplication or f"d{next(self.numbers)}") if self.fifo else None,
                None if self.fifo else delay,
            )
            for group, deduplication, delay in batch
        ]
        self.perform(model.Send(self.name(role), tuple(sent)))

    def receive(self, role: str, limit: int, visible: int | None, attempt_id: str | None, most: int) -> None:
        queue = self.name(role)
        answer = self.perform(model.Receive(queue, limit, visible, attempt_id, most))
        if isinstance(answer, model.Received):
            self.handles[:0] = [(queue, (message[0], message[1])) for message in answer.messages]

    def pick(self, places: list[int]) -> tuple[str, tuple[tuple[str, int], ...]]:
        """Handles of one queue, the latest first, each message once."""
        picked = [self.handles[place] for place in places if place < len(self.handles)]
        if not picked:
            return self.name("a"), ()
        by_body = {handle[0]: handle for queue, handle in picked if queue == picked[0][0]}
        return picked[0][0], tuple(by_body.values())

    def remove(self, places: list[int]) -> None:
        queue, handles = self.pick(places)
        if handles:
            self.perform(model.Remove(queue, handles + handles[:1]))

    def change(self, places: list[int], seconds: int) -> None:
        queue, handles = self.pick(places)
        if handles:
            self.perform(model.Change(queue, handles, seconds))

    def give_back(self, places: list[int]) -> None:
        queue, handles = self.pick(places)
        if handles:
            self.perform(model.GiveBack(queue, handles))

    def figures(self, role: str) -> None:
        self.perform(model.Figures(self.name(role)))

    def start_move(self, role: str, destination: str | None) -> None:
        move, queue = self.state.move, self.name(role)
        if move is None or move.status != "RUNNING" or move.source == queue:
            self.perform(model.StartMove(queue, None if destination is None else self.name(destination)))

    def move_on(self) -> None:
        self.perform(model.MoveOn())

    def cancel_move(self) -> None:
        self.perform(model.CancelMove())

    def sweep(self) -> None:
        self.perform(model.Sweep())

    def expire(self) -> None:
        self.perform(model.Expire())

    def the_counts_are_those_of_the_messages(self) -> None:
        rows = self.broker.query(
            "SELECT (SELECT (sum(c.messages), sum(c.in_flight), sum(c.delayed))::text FROM simple_mq.counts AS c"
            " WHERE c.queue_id = q.store_id) AS counted, (count(m.message_id), count(*) FILTER (WHERE m.state = 't'),"
            " count(*) FILTER (WHERE m.state = 'd'))::text AS stored FROM simple_mq.sqs_queues AS q"
            " LEFT JOIN simple_mq.messages AS m ON m.queue_id = q.store_id GROUP BY q.queue_id"
        )
        assert [row["counted"] for row in rows] == [row["stored"] for row in rows]


@pytest.fixture(scope="module")
def broker(postgres: str) -> Any:
    broker = SqsBroker(postgres)
    yield broker
    broker.close()


@settings(suppress_health_check=list(HealthCheck))
@given(
    fifo=st.booleans(), queues=st.tuples(*[settings_of_queue] * 3), done=st.lists(commands, min_size=20, max_size=60)
)
def test_sqs_answers_what_the_model_answers(broker: SqsBroker, queues: Any, done: list[Any], *, fifo: bool) -> None:
    both = Both(broker, queues, fifo=fifo)
    for name, *arguments in done:
        getattr(both, name)(*arguments)
    both.the_counts_are_those_of_the_messages()
