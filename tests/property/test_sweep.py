"""Sweeps and leadership with a database and a clock of the test's own."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.jobs.jobs import Chore, Schedule, Services
from queen.jobs.leadership import LEASE_S, RENEWAL_S, Leadership
from queen.jobs.ports import ClockStep, Page, Place, State, Step
from queen.jobs.sweep import (
    CALL_PARTITIONS,
    DUTY,
    Call,
    Pacer,
    Service,
    Work,
    share,
    sweep,
)
from spec.guarantees import Level, checks


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds


class FakeQueue:
    """Partitions with so many messages, of which some are held for so many looks; a call takes 10 ms."""

    def __init__(self, partitions: dict[int, int], held: dict[int, int], clock: FakeClock) -> None:
        self.left, self.held, self.clock = dict(partitions), dict(held), clock
        self.calls: list[tuple[Sequence[Place], bool]] = []

    async def find(self, _queue_id: int, after: str, limit: int) -> Page:
        self.clock.now += 0.001
        names = sorted(f"{n:06}" for n in self.left if f"{n:06}" > after)[:limit]
        found = [int(name) for name in names if self.left[int(name)]]
        return Page(names[-1] if len(names) == limit else None, found)

    async def apply(self, _queue_id: int, places: Sequence[Place], wait: bool) -> list[Step]:
        self.clock.now += 0.01
        self.calls.append((places, wait))
        return [self._step(place, wait) for place in places]

    def _step(self, place: Place, wait: bool) -> Step:
        if self.held.get(place.part_id, 0) > 0 and not wait:
            self.held[place.part_id] -= 1
            return Step(place, 0, State.BUSY)
        count = min(3, self.left[place.part_id])
        self.left[place.part_id] -= count
        return Step(place, count, State.MORE if self.left[place.part_id] else State.DONE)

    async def sweep(self, interval_s: float = 1e9, goes_on: Callable[[], bool] = lambda: True) -> int:
        service = Service("test", interval_s, self.find, self.apply)
        return await sweep(service, [1], Pacer(self.clock, self.clock.sleep, interval_s), goes_on)


@checks("G-RET-4", level=Level.MODEL)
async def test_a_sweep_leaves_out_what_a_transaction_holds_for_long() -> None:
    """Waiting for its lock ends with an error: the sweep goes on with the next partition, and comes back later."""
    queue = FakeQueue({1: 3, 2: 3, 3: 3}, {1: 1, 2: 1}, FakeClock())
    free = queue.apply

    async def apply(queue_id: int, places: Sequence[Place], wait: bool) -> list[Step]:
        if wait and places[0].part_id == 1:
            raise TooSlowError("locked", lock=True)
        return await free(queue_id, places, wait)

    queue.apply = apply  # type: ignore[method-assign]
    assert await queue.sweep() == 6
    assert queue.left == {1: 3, 2: 0, 3: 0}


partitions = st.dictionaries(st.integers(0, 3000), st.integers(0, 10), max_size=250)


@checks("G-RET-4", level=Level.MODEL)
@given(partitions, st.dictionaries(st.integers(0, 3000), st.integers(0, 3), max_size=50))
async def test_a_sweep_does_everything_despite_locks_of_others(sizes: dict[int, int], held: dict[int, int]) -> None:
    clock = FakeClock()
    queue = FakeQueue(sizes, held, clock)
    assert await queue.sweep() == sum(sizes.values())
    assert not any(queue.left.values())
    for places, wait in queue.calls:
        ids = [place.part_id for place in places]
        assert ids == sorted(set(ids)), "the order of locks"
        assert len(ids) <= (1 if wait else CALL_PARTITIONS), "a call that waits holds nothing else"


async def test_a_sweep_works_for_its_share_of_the_time_only() -> None:
    clock = FakeClock()
    queue = FakeQueue(dict.fromkeys(range(500), 9), {}, clock)
    await queue.sweep()
    assert abs((clock.now - clock.slept) / clock.now - DUTY) < 1e-9


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 86_400))
def test_a_sweep_that_does_not_keep_up_gets_more_of_the_time(lasted_s: float, more_s: float, interval_s: float) -> None:
    assert DUTY <= share(lasted_s, interval_s) <= share(lasted_s + more_s, interval_s) <= 1
    assert share(min(lasted_s, interval_s), interval_s) == DUTY
    assert share(interval_s / DUTY, interval_s) == 1


class FilledQueue(FakeQueue):
    """One partition into which messages come all the time; a call that removes 100 takes 20 ms."""

    def __init__(self, clock: FakeClock, messages_per_s: float) -> None:
        super().__init__({1: 1}, {}, clock)
        self.rate, self.removed = messages_per_s, 0

    @property
    def stored(self) -> int:
        return int(self.clock.now * self.rate) - self.removed

    async def apply(self, _queue_id: int, places: Sequence[Place], _wait: bool) -> list[Step]:
        self.clock.now += 0.02
        count = min(100, self.stored)
        self.removed += count
        return [Step(place, count, State.MORE if self.stored else State.DONE) for place in places]


@checks("G-RET-4", level=Level.MODEL)
@pytest.mark.parametrize("messages_per_s", [1000.0, 2000.0, 4000.0])
async def test_what_is_stored_is_bounded_as_long_as_removing_is_faster_than_pushing(messages_per_s: float) -> None:
    """A quarter of the time would be enough for 1,250 a second."""
    clock, interval_s = FakeClock(), 60.0
    queue = FilledQueue(clock, messages_per_s)
    most = 3 * interval_s * messages_per_s
    for _ in range(20):
        await clock.sleep(interval_s)
        await queue.sweep(interval_s, goes_on=lambda: queue.stored < most)
        assert queue.stored < messages_per_s, "what came since the last call"


async def test_a_sweep_ends_when_the_lead_is_lost() -> None:
    clock = FakeClock()
    queue = FakeQueue(dict.fromkeys(range(1000), 1), {}, clock)
    await queue.sweep(goes_on=lambda: len(queue.calls) < 2)
    assert len(queue.calls) == 2


def test_rows_locked_for_too_long_are_left_to_the_next_sweep() -> None:
    work = Work([7])
    first = work.next()
    assert first is not None
    work.learn(first, [Step(Place(7), 0, State.BUSY)])
    second = work.next()
    assert second == Call([Place(7)], True)
    work.learn(second, [Step(Place(7), 0, State.BUSY)])
    assert work.next() is None


def test_more_of_a_partition_goes_on_where_it_is_known_to_be_empty() -> None:
    work = Work([7, 8])
    call = work.next()
    assert call is not None
    work.learn(call, [Step(Place(7, 41), 3, State.MORE), Step(Place(8), 0, State.DONE)])
    assert work.next() == Call([Place(7, 41)], False)


class FakeLease:
    """The row ``queen.service_leader`` with a clock of its own."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.holder, self.until = clock, UUID(int=0), 0.0
        self.unavailable = False

    async def lead(self, holder: UUID, seconds: float) -> bool:
        if self.unavailable:
            raise ConnectionError
        if self.holder != holder and self.clock.now < self.until:
            return False
        self.holder, self.until = holder, self.clock.now + seconds
        return True

    async def look_at_clock(self, _holder: UUID) -> ClockStep:
        return ClockStep(0, False)

    async def resign(self, holder: UUID) -> None:
        if self.holder == holder:
            self.until = 0.0


@given(st.lists(st.tuples(st.sampled_from(("a", "b", "c")), st.floats(0, 20), st.booleans()), max_size=60))
async def test_two_never_lead_at_once(turns: list[tuple[str, float, bool]]) -> None:
    clock = FakeClock()
    row: Any = FakeLease(clock)
    workers = {name: Leadership(row, clock) for name in "abc"}
    for name, seconds, resigns in turns:
        clock.now += seconds
        await (workers[name].resign() if resigns else workers[name].renew())
        assert sum(worker.held for worker in workers.values()) <= 1


async def test_a_leader_without_its_database_stops_by_itself_and_another_takes_over() -> None:
    clock = FakeClock()
    row: Any = FakeLease(clock)
    first, second = Leadership(row, clock), Leadership(row, clock)
    await first.renew()
    await second.renew()
    assert (first.held, second.held) == (True, False)
    clock.now += RENEWAL_S
    assert first.held, "a renewal may come late"
    clock.now += LEASE_S
    assert not first.held
    await second.renew()
    assert second.held
    await second.resign()
    await first.renew()
    assert (first.held, second.held) == (True, False)


class FakeDatabase(FakeLease):
    """Nothing to sweep."""

    async def find_queues(self, _service: str) -> list[int]:
        return []

    async def find_expired(self, _queue_id: int, _after: str, _limit: int) -> Page:
        return Page(None, [])

    find_overdue = find_expired

    async def remove_expired(self, _queue_id: int, _places: Sequence[Place], _messages: int, _wait: bool) -> list[Step]:
        raise AssertionError("nothing was found")

    evict_overdue = remove_expired

    async def purge_partitions(self) -> bool:
        return False

    async def count_backlog(self) -> bool:
        return False

    async def forget_fenced_flushes(self) -> None:
        pass


@checks("G-RET-4", level=Level.MODEL)
async def test_a_background_job_runs_on_the_leader_and_survives_failures() -> None:
    clock, turns = FakeClock(), {"first": 0, "second": 0}
    database: Any = FakeDatabase(clock)
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        clock.now += seconds / 1000
        await asyncio.sleep(0)

    def chore(name: str) -> Chore:
        async def run() -> None:
            turns[name] += 1
            if turns[name] == 10:
                enough.set()
            raise DatabaseUnavailableError("down") if turns[name] % 2 else ValueError(name)

        return Chore(name, 1.0, run)

    schedule = Schedule(300.0, 1000, 60.0, 1000, timedelta(days=30))
    first, second = (Services(database, schedule, [chore(name)], clock, sleep) for name in turns)
    first.start()
    second.start()
    await enough.wait()
    assert turns == {"first": 10, "second": 0}
    enough.clear()
    await first.stop()
    await enough.wait()
    await second.stop()
    assert turns == {"first": 10, "second": 10}


async def test_full_queues_are_counted_until_none_is_left_at_a_quarter_of_the_time() -> None:
    clock, counted, rests = FakeClock(), 0, list[float]()
    database: Any = FakeDatabase(clock)

    async def count_backlog() -> bool:
        nonlocal counted
        counted += 1
        clock.now += 2.0
        return counted < 3

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    database.count_backlog = count_backlog
    services = Services(database, Schedule(300.0, 1000, 60.0, 1000, timedelta(days=30)), (), clock, sleep)
    await services.leadership.renew()
    await services._count()
    assert (counted, rests) == (3, [6.0] * 3)
