"""What a worker has prefetched: for whom, for how long, and what stays of it when the worker is killed."""

import os
import signal
from itertools import count
from math import inf
from typing import Any
from uuid import UUID, uuid4

import pytest

from queen.engine.prefetch import CHAIN_S, HOLD_S, PREFETCHED_S, NextLease, Prefetch, PrefetchedBatch, returned_in_s
from queen.engine.prefetched_leases import LeasesOfWorkers, PrefetchedLeases
from queen.log.requests import Claim, Pop, Popped
from spec.guarantees import Level, checks


class World:
    """A prefetch whose time is set."""

    def __init__(self) -> None:
        self.time, self.leases = 100.0, PrefetchedLeases(4)
        self.prefetch = Prefetch(self.leases, lambda: self.time)
        self._offsets = count()

    def popped(self, lease: UUID) -> Popped:
        return Popped(lease, [Claim(1, "q", "p", next(self._offsets), frozenset(), -1, 1, [])])

    def ack(self, pop: Pop, **how: Any) -> NextLease | None:
        """Answers a pop, and then its messages are acknowledged."""
        lease = uuid4()
        self.prefetch.served(pop, self.popped(lease), **how)
        return self.prefetch.next_of(lease)

    def hold(self, pop: Pop) -> UUID:
        following = self.ack(pop)
        assert following is not None
        self.keep(following)
        return following.lease

    def keep(self, following: NextLease) -> None:
        [claim] = self.popped(following.lease).claims
        self.prefetch.put(PrefetchedBatch(following, claim, self.time))


@pytest.fixture
def world() -> World:
    return World()


@checks("G-POP-1", level=Level.MODEL)
def test_a_prefetched_lease_serves_one_matching_pop(world: World) -> None:
    lease = world.hold(Pop("q", batch=2))
    for other in (Pop("q"), Pop("r", batch=2), Pop("q", group="g", batch=2), Pop("q", batch=2, lease_seconds=5)):
        assert world.prefetch.take(other) is None
    popped = world.prefetch.take(Pop("q", batch=2, wait_ms=1000))
    assert popped is not None
    assert popped.lease == lease
    assert world.prefetch.take(Pop("q", batch=2)) is None


@pytest.mark.parametrize(
    "pop",
    [Pop("q", auto_ack=True), Pop("q", partition="p"), Pop("q", partitions=2), Pop("", namespace="n")],
)
def test_nothing_is_prefetched_for_pops_that_are_served_in_another_way(world: World, pop: Pop) -> None:
    assert world.ack(pop) is None


@checks("G-LEASE-1", "G-LEASE-7", level=Level.MODEL)
def test_unused_prefetched_leases_are_released_in_time_for_others(world: World) -> None:
    lease = world.hold(Pop("q"))
    assert 0 < world.prefetch.due_at - world.prefetch.now() < PREFETCHED_S
    world.time += HOLD_S + 1e-6
    assert world.prefetch.take(Pop("q")) is None, "a stopped process must not batch out what others rely on by now"
    assert [batch.asked.lease for batch in world.prefetch.due()] == [lease]
    assert (len(world.prefetch), world.prefetch.due_at) == (0, inf)


@checks("G-POP-2", level=Level.MODEL)
def test_a_partition_is_prefetched_for_a_short_time_only(world: World) -> None:
    following = world.ack(Pop("q"))
    assert following is not None
    world.time += CHAIN_S
    assert world.ack(Pop("q"), begun=following.begun) is not None
    world.time += 1e-6
    assert world.ack(Pop("q"), begun=following.begun) is None


def test_useless_attempts_become_less_frequent(world: World) -> None:
    tries = []
    for number in range(200):
        if (following := world.ack(Pop("q"))) is not None:
            world.keep(following)
            world.time += HOLD_S + 1e-6
            world.prefetch.forget([batch.asked.lease for batch in world.prefetch.due()])
            tries.append(number)
    assert tries == [0, 2, 6, 14, 30, 62, 126]


@checks("G-LEASE-7", level=Level.MODEL)
def test_nothing_is_prefetched_while_the_worker_stops(world: World) -> None:
    lease = world.hold(Pop("q"))
    assert [batch.asked.lease for batch in world.prefetch.drain()] == [lease]
    assert world.ack(Pop("q")) is None


@checks("G-LEASE-7", level=Level.MODEL)
def test_the_shared_memory_has_what_may_be_leased_and_no_consumer_has(world: World) -> None:
    pop = Pop("q")
    asked = world.ack(pop)
    held = world.hold(pop)
    assert asked is not None
    world.prefetch.forget([asked.lease])
    taken = world.hold(pop)
    popped = world.prefetch.take(pop)
    assert popped is not None
    assert {popped.lease, *world.leases.take()} == {held, taken}


def test_nothing_is_prefetched_where_the_next_pop_is_known(world: World) -> None:
    lease = uuid4()
    world.prefetch.served(Pop("q"), world.popped(lease))
    world.prefetch.unfollow([lease, uuid4()])
    assert world.prefetch.next_of(lease) is None


def test_without_room_in_the_shared_memory_nothing_is_prefetched(world: World) -> None:
    assert [world.ack(Pop("q")) is not None for _ in range(5)] == [True] * 4 + [False]


@checks("G-LEASE-7", level=Level.FAULTS)
def test_the_successor_of_a_killed_process_finds_its_leases() -> None:
    workers, leases = LeasesOfWorkers(), [uuid4() for _ in range(3)]
    workers.begin(1)
    child = os.fork()
    if child == 0:
        assert workers.mine is not None
        for lease in leases:
            workers.mine.note(lease)
        workers.mine.strike(leases[1])
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert workers.take_left() == []
    workers.end(1)
    workers.begin(2)
    assert set(workers.take_left()) == {leases[0], leases[2]}
    assert workers.take_left() == []


@checks("G-POP-3", "G-LEASE-7", level=Level.MODEL)
@pytest.mark.parametrize("begins_s", [0, 0.03, 0.1])
@pytest.mark.parametrize("late_s", [0, 0.01, 0.05, 0.15])
def test_a_pop_that_does_not_wait_outlasts_a_worker_that_returns_late(begins_s: float, late_s: float) -> None:
    """Tries at the times that it is told, while another worker holds everything until ``late_s`` after its time."""
    now, tries = begins_s, 0
    while now < PREFETCHED_S + late_s:
        lease_ends_s = 60.0
        ready_in = PREFETCHED_S - now if now < PREFETCHED_S else lease_ends_s
        after_s = returned_in_s(ready_in, tries, prefetched=now < PREFETCHED_S + 0.25)
        assert after_s is not None, f"the pop was answered empty after {now} s"
        now, tries = now + after_s, tries + 1


def test_a_pop_that_does_not_wait_is_answered_when_nothing_is_prefetched() -> None:
    assert returned_in_s(60.0, 0, prefetched=False) is None
    assert returned_in_s(60.0, 1, prefetched=False) is None


def test_a_pop_that_does_not_wait_tries_again_a_few_times_only() -> None:
    tries = 0
    while returned_in_s(0.01, tries, prefetched=True) is not None:
        tries += 1
    assert tries <= 5
