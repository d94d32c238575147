"""What is given up when a worker holds too much."""

from math import inf

import pytest

from queen.server.connections import Bounds, Connection, Connections, Stage

MIB = 1 << 20
BOUNDS = Bounds(
    head_bytes_max=32 << 10, headers_max=100, url_bytes_max=16 << 10, request_timeout_s=20, connections_max=100,
    held_bytes_max=64 * MIB, body_bytes_max=64 * MIB,
)  # fmt: skip


class Client:
    """A connection that holds bytes. If it ``reads``, its client has read some of them at each look."""

    deadline = inf

    def __init__(self, shared: Connections, stage: Stage, held: int, since: float, unfinished: int = 0) -> None:
        self.stage, self.held, self.since, self.unfinished = stage, held, since, unfinished
        self.shared, self.is_given_up, self.reads = shared, False, False
        shared.bytes += held
        shared.unfinished += unfinished

    def measure(self) -> None:
        if self.reads:
            self.since = 1e9

    def postpone(self, seconds: float) -> None:
        raise AssertionError(seconds)

    def end(self, now: float) -> None:
        raise AssertionError(now)

    def give_way(self) -> None:
        self.is_given_up = True
        self.shared.release(self.held)

    def read_on(self) -> None:
        raise AssertionError

    def stop_reading(self) -> None:
        raise AssertionError


@pytest.fixture
def shared() -> Connections:
    return Connections(BOUNDS)


def everybody(*clients: Client) -> list[Connection]:
    return list(clients)


def test_a_complete_request_is_not_given_up_for_unread_answers(shared: Connections) -> None:
    """It is being looked at: its connection has no other request yet, and so looks like one that owes its head."""
    unread = [Client(shared, Stage.ANSWER_UNREAD, 15 * MIB, since) for since in range(10)]
    whole = Client(shared, Stage.HEAD, 300, since=0)
    assert not shared.is_overloaded(everybody(whole, *unread))
    assert not whole.is_given_up
    assert [client.is_given_up for client in unread] == [True] * 6 + [False] * 4


def test_incomplete_requests_are_dropped_first(shared: Connections) -> None:
    unread = Client(shared, Stage.ANSWER_UNREAD, 60 * MIB, since=0)
    begun = Client(shared, Stage.BODY, 90 * MIB, since=1, unfinished=90 * MIB)
    assert not shared.is_overloaded(everybody(unread, begun))
    assert (unread.is_given_up, begun.is_given_up) == (False, True)


def test_clients_that_read_are_dropped_after_those_that_do_not(shared: Connections) -> None:
    clients = [Client(shared, Stage.ANSWER_UNREAD, 50 * MIB, since) for since in range(3)]
    clients[0].reads = True
    assert not shared.is_overloaded(everybody(*clients))
    assert [client.is_given_up for client in clients] == [False, True, True]


def test_a_small_request_whose_rest_is_on_its_way_is_not_refused_for_unread_answers(
    shared: Connections,
) -> None:
    unread = [Client(shared, Stage.ANSWER_UNREAD, 25 * MIB, since) for since in range(1, 8)]
    begun = Client(shared, Stage.HEAD, 200, since=0, unfinished=200)
    assert not shared.is_overloaded(everybody(begun, *unread))
    assert not begun.is_given_up


def test_many_small_incomplete_requests_are_refused(shared: Connections) -> None:
    begun = [Client(shared, Stage.BODY, 60 << 10, since, unfinished=60 << 10) for since in range(3000)]
    assert not shared.is_overloaded(everybody(*begun))
    assert [client.is_given_up for client in begun[:100]] == [True] * 100
    assert not begun[-1].is_given_up


class Expecting(Client):
    """A connection that owes something until a time."""

    deadline = 10.0
    ended_at = inf

    def postpone(self, seconds: float) -> None:
        self.deadline += seconds

    def end(self, now: float) -> None:
        self.ended_at = min(self.ended_at, now)


@pytest.mark.parametrize(
    ("checks", "ended_at"),
    [
        ([*range(1, 20)], 11),
        ([1, 2, 3.9, 5.8, 7, 8, 9, 10, 11], 11),  # a little late
        ([1, 8, 15, 22, 29, 30, 31, 32, 33, 34, 35], 35),  # four times six seconds
    ],
)
def test_time_in_which_the_worker_stood_still_does_not_count(
    shared: Connections, checks: list[float], ended_at: float
) -> None:
    client = Expecting(shared, Stage.BODY, MIB, since=0)
    for now in checks:
        shared.check(everybody(client), now)
    assert client.ended_at == ended_at


class HeldBack(Expecting):
    """A body that waits for room, and whose end makes room for others."""

    def end(self, now: float) -> None:
        super().end(now)
        self.shared.forget(self)
        self.shared.release(self.held)

    def stop_reading(self) -> None:
        self.deadline = 10.0

    def read_on(self) -> None:
        self.deadline = 30.0


def test_a_body_for_which_the_end_of_another_makes_room_is_read_on(shared: Connections) -> None:
    served = Client(shared, Stage.BUSY, 70 * MIB, since=0)
    bodies = [HeldBack(shared, Stage.BODY, 20 * MIB, since, unfinished=20 * MIB) for since in (1, 2)]
    everyone = everybody(served, *bodies)
    assert [shared.is_held_back(each, everyone) for each in bodies] == [True, True]
    shared.release(30 * MIB)  # not enough for both: 80 of 64 MiB
    shared.check(everyone, 11)
    assert [(each.ended_at, each.deadline) for each in bodies] == [(11, 10), (inf, 30)]
