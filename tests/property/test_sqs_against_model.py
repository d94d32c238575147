"""SQS: the same commands against the model and the real procedures, on a PostgreSQL whose clock the test sets.

Not a state machine of Hypothesis, which leaves out some rules in each run and repeats others: here most need all the
others before anything happens. So the commands follow from a seed.
"""

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec.guarantees import Level, checks
from spec.model import sqs as model
from tests.support.sqs import SqsBroker

#: Later than everything that happened at another moment, and no round sum.
TICK = 1 / 64
#: Queues by their roles; all of an example are standard or all FIFO, as dead letters need it.
ROLES = ("a", "dead", "b")
_USED = ("a", "a", "a", "a", "dead", "b")
_COMMANDS = 40


def _queue(r: random.Random) -> tuple[int, int, int, int | None, bool]:
    """Visibility timeout, delay, retention, receives, and whether deduplication ids count per group."""
    return (
        r.choice((10, 10, 0, 40)), r.choice((0, 0, 0, 5)), r.choice((345_600, 345_600, 60)),
        r.choice((None, 1, 1, 2)), r.random() < 0.5,
    )  # fmt: skip


def _messages(r: random.Random) -> list[Any]:
    """Group, deduplication id and delay of each."""
    some = range(r.randint(1, 4))
    return [(r.choice((None, "g", "h")), r.choice((None, None, "x", "y")), r.choice((None, None, 3))) for _ in some]


def _receive(r: random.Random) -> tuple[Any, ...]:
    return (
        r.choice(_USED), r.choice((1, 2, 10, 10)), r.choice((None, None, 0, 20)), r.choice((None, "1", "2")),
        r.choice((99, 99, 99, 2)),
    )  # fmt: skip


def _handles(r: random.Random) -> list[int]:
    """Places among the handles, the latest first."""
    return [r.randint(0, 9) for _ in range(r.randint(1, 3))]


#: How often each command comes, and its arguments.
COMMANDS: dict[str, tuple[int, Callable[[random.Random], Sequence[Any]]]] = {
    "wait": (5, lambda r: [r.choice((0.25, 2, 9, 9, 31, 31, 70, 270, 302))]),
    "send": (6, lambda r: [r.choice(_USED), _messages(r)]),
    "replay": (2, lambda r: [r.choice(_USED), _messages(r), r.choice((0, 2, 60, 290, 310))]),
    "receive": (12, _receive),
    "remove": (3, lambda r: [_handles(r)]),
    "change": (3, lambda r: [_handles(r), r.choice((0, 0, 5, 60))]),
    "give_back": (1, lambda r: [_handles(r)]),
    "figures": (2, lambda r: [r.choice(_USED)]),
    "start_move": (1, lambda r: [r.choice(("dead", "dead", "a")), r.choice((None, None, "b"))]),
    "move_on": (2, lambda _r: []),
    "sweep": (1, lambda _r: []),
    "expire": (1, lambda _r: []),
    "delete_or_create": (1, lambda r: [r.choice(ROLES), _queue(r)]),
    "purge_or_cancel": (1, lambda r: [r.choice(ROLES), r.random() < 0.5]),
}


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

    def purge_or_cancel(self, role: str, cancels: bool) -> None:
        self.perform(model.CancelMove() if cancels else model.Purge(self.name(role)))

    def send(self, role: str, batch: list[Any]) -> None:
        self.perform(model.Send(self.name(role), self.messages(batch)))

    def replay(self, role: str, batch: list[Any], ago: float) -> None:
        self.perform(model.Replay(self.name(role), self.messages(batch), self.now - ago))

    def messages(self, batch: list[Any]) -> tuple[Any, ...]:
        return tuple(
            (
                f"m{next(self.numbers)}",
                group or ("g" if self.fifo else None),
                (deduplication or f"d{next(self.numbers)}") if self.fifo else None,
                None if self.fifo else delay,
            )
            for group, deduplication, delay in batch
        )

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


@checks(
    "G-SQS-1",
    "G-SQS-2",
    "G-SQS-3",
    "G-SQS-4",
    "G-SQS-5",
    "G-SQS-6",
    "G-SQS-7",
    "G-SQS-8",
    "G-SQS-9",
    "G-SQS-10",
    "G-SQS-11",
    "G-SQS-14",
    level=Level.MODEL,
)
@settings(suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**64))
def test_sqs_answers_what_the_model_answers(broker: SqsBroker, seed: int) -> None:
    r = random.Random(seed)
    both = Both(broker, [_queue(r) for _ in ROLES], fifo=r.random() < 0.5)
    names, weights = list(COMMANDS), [weight for weight, _ in COMMANDS.values()]
    for name in r.choices(names, weights, k=_COMMANDS):
        getattr(both, name)(*COMMANDS[name][1](r))
    both.the_counts_are_those_of_the_messages()
