"""Long polls in simulated time: nobody is forgotten, the first to wait is the first to be checked."""

import asyncio
import weakref
from collections import Counter
from collections.abc import Iterator
from math import inf
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from queen.core.operations import JobType, Pop
from queen.core.simple_mq import Dequeue
from queen.engine.job import Job
from queen.engine.waiters import Waiters
from queen_spec.guarantees import Level, checks

PLACES = (Pop("q"), Pop("q", group="g"), Pop("q", partition="p", auto_ack=True), Pop("r", batch=2), Pop("", task="t"))


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Waiting(RuleBasedStateMachine):
    """Pops come, are checked, find something or not, give up; time passes."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.waiters = Waiters(100, 1000)
        self.now = 1000.0
        self.parked: list[Job] = []
        self.out: list[Job] = []
        self.news: set[Pop] = set()

    def job(self, pop: Pop) -> Job:
        return Job(JobType.POP, pop, self.loop.create_future())

    @rule(place=st.sampled_from(PLACES), wait=st.sampled_from((0.05, 1, 30)), ready=st.sampled_from((inf, inf, 0.5)))
    def come(self, place: Pop, wait: float, ready: float) -> None:
        job = self.job(place)
        job.deadline = self.now + wait
        self.waiters.begin(job)
        self.waiters.park(job, self.now, self.now + ready)
        self.parked.append(job)
        self.news.discard(place)  # the check that it brings on comes after the push, whoever makes it

    def handed_out(self, jobs: list[Job]) -> None:
        for place in PLACES:
            mine = [job for job in jobs if job.request == place]
            first = [job for job in self.parked if job.request == place][: len(mine)]
            assert mine == first, "the first to wait is the first to be checked"
        for job in jobs:
            self.parked.remove(job)
            self.out.append(job)

    @rule(
        queue=st.sampled_from(("q", "r", "s")),
        messages=st.integers(1, 3),
        besides=st.sets(st.sampled_from(PLACES), max_size=2),
    )
    def push(self, queue: str, messages: int, besides: set[Pop]) -> None:
        waiting = {place: sum(job.request == place for job in self.parked) for place in PLACES}
        out = {place: sum(job.request == place for job in self.out) for place in PLACES}
        concerned = {place for place in PLACES if place.queue in (queue, "")} - besides
        jobs = self.waiters.wake(queue, messages, besides={place.place for place in besides})
        self.handed_out(jobs)
        self.news |= {place for place in concerned if out[place]}
        for place in PLACES:
            woken = sum(job.request == place for job in jobs)
            wanted = max(messages - out[place], 0)
            assert woken == (min(wanted, waiting[place]) if place in concerned else 0)

    @rule(queue=st.sampled_from(("q", "r", "s")), messages=st.integers(1, 3))
    def board(self, queue: str, messages: int) -> None:
        waiting = {place: sum(job.request == place for job in self.parked) for place in PLACES}
        out = {job.request for job in self.out}
        jobs = self.waiters.board(queue, messages)
        self.handed_out(jobs)
        for place in PLACES:
            free = place.partition is None and place not in out and place.queue in (queue, "")
            wanted = -(-messages // place.batch) if free else 0
            assert sum(job.request == place for job in jobs) == min(wanted, waiting[place])

    @rule(seconds=st.sampled_from((0.01, 0.1, 0.2, 1.0, 5.0)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        checks_due, expired = self.waiters.due(self.now)
        for job in expired:
            assert job.deadline <= self.now
            if job in self.parked:
                self.parked.remove(job)
            else:
                assert job in self.out, "answered twice"
                assert not job.request.auto_ack
                job.gone = True
        assert all(job.gone or job.deadline > self.now or job.request.auto_ack for job in self.out)
        self.handed_out(checks_due)
        assert all(job.deadline > self.now for job in self.parked), "a timeout was overrun"

    @rule(data=st.data(), found=st.booleans(), more=st.booleans())
    def end_a_check(self, data: st.DataObject, found: bool, more: bool) -> None:
        if not self.out:
            return
        job = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if found or job.deadline <= self.now or job.gone:
            self.waiters.leave(job)
            brought = self.waiters.next_of(job.request, more=more)
            if more or job.request in self.news:
                assert bool(brought) == any(each.request == job.request for each in self.parked)
            else:
                assert not brought
            if brought:
                self.news.discard(job.request)
            self.handed_out(brought)
        else:
            self.waiters.park(job, self.now, inf)
            self.parked = sorted([*self.parked, job], key=lambda each: each.turn)
            if job.request in self.news:
                event = self.waiters.next_event()
                assert event is not None
                assert event <= self.now, "a check that may have looked before the push is made again"
                self.news.discard(job.request)

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.parked:
            job = self.parked.pop(data.draw(st.integers(0, len(self.parked) - 1)))
            assert self.waiters.cancel(job)
            assert not self.waiters.cancel(job)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        self.news &= {job.request for job in (*self.parked, *self.out)}  # with the last waiter a place is forgotten
        assert len(self.waiters) == len(self.parked)
        event = self.waiters.next_event()
        if self.parked:
            assert event is not None
            assert event <= min(job.deadline for job in self.parked)
            assert event <= self.now + 1.0, "a lost notice costs a second at most"


@checks("G-WAIT-1", level=Level.MODEL)
def test_waiters_under_random_programs(loop: asyncio.AbstractEventLoop) -> None:
    Waiting.loop = loop
    run_state_machine_as_test(Waiting, settings=settings(max_examples=200, deadline=None))


@checks("G-WAIT-1", level=Level.MODEL)
def test_what_came_during_a_check_that_took_all_it_saw_is_looked_for_by_the_next(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiters = Waiters(100, 1000)
    first, second = (Job(JobType.POP, Pop("q", batch=10), loop.create_future()) for _ in range(2))
    for job in (first, second):
        job.deadline = 100.0
        waiters.begin(job)
        waiters.park(job, 0.0, inf)
    assert waiters.board("q", 1) == [first]
    assert waiters.wake("q", 1) == []  # the one that is out came before
    waiters.leave(first)
    assert waiters.next_of(first.request, more=False) == [second]
    assert waiters.next_of(first.request, more=False) == []


def test_checks_of_a_place_back_off_together(loop: asyncio.AbstractEventLoop) -> None:
    waiters, now, times = Waiters(100, 1000), 0.0, []
    for _ in range(50):
        job = Job(JobType.POP, Pop("q"), loop.create_future())
        job.deadline = 100.0
        waiters.begin(job)
        waiters.park(job, now, inf)
    while len(times) < 6:
        now = waiters.next_event() or inf
        for job in waiters.due(now)[0]:
            times.append(now)
            waiters.park(job, now, inf)
    gaps = [round(after - before, 3) for before, after in zip([0.0, *times], times, strict=False)]
    assert gaps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_time_that_the_database_named_comes_before_the_back_off(loop: asyncio.AbstractEventLoop) -> None:
    waiters = Waiters(100, 1000)
    job = Job(JobType.POP, Pop("q"), loop.create_future())
    job.deadline = 100.0
    waiters.begin(job)
    waiters.park(job, 0.0, 0.03)
    assert waiters.next_event() == pytest.approx(0.03)


def test_re_checks_of_many_places_keep_the_budget(loop: asyncio.AbstractEventLoop) -> None:
    """From the moment on in which the quick first re-checks are over, which a place makes in its first two seconds."""
    places, budget = 3000, 100
    waiters, now = Waiters(100, 1000, budget), 0.0
    by_second, by_place, calls = Counter[int](), Counter[str](), set()
    for number in range(places):
        job = Job(JobType.POP, Pop(f"q{number}"), loop.create_future())
        job.deadline = 1000.0
        waiters.begin(job)
        waiters.park(job, number / 1000, inf)
    quick_s, period_s = 5, places // budget
    while (now := waiters.next_event() or inf) < quick_s + 4 * period_s:
        jobs = waiters.due(now)[0]
        if now >= quick_s:
            by_second[int(now)] += len(jobs)
            by_place.update(job.request.queue for job in jobs)
            calls.add(now)
        for job in jobs:
            waiters.park(job, now, inf)
    assert max(by_second.values()) <= 1.1 * budget
    assert len(by_place) == places
    assert set(by_place.values()) <= {3, 4, 5}, "each at its turn"
    assert len(calls) <= 4 * period_s + 1, "re-checks share calls"


def test_the_budget_puts_nobody_off_when_most_have_left(loop: asyncio.AbstractEventLoop) -> None:
    waiters = Waiters(100, 1000, 10)
    jobs = [Job(JobType.POP, Pop(f"q{number}"), loop.create_future()) for number in range(1000)]
    for job in jobs:
        job.deadline = 1e6
        waiters.begin(job)
        waiters.park(job, 0.0, inf)
    for second in range(20):
        for job in waiters.due(second)[0]:
            waiters.park(job, second, inf)
    for job in jobs[1:]:
        waiters.cancel(job)
    last = jobs[0] if jobs[0].turn else jobs[1]
    waiters.wake("q0", 1)
    looks = []
    waiters.park(last, 20.0, inf)
    while len(looks) < 8:
        looks.append(now := waiters.next_event() or inf)
        for job in waiters.due(now)[0]:
            waiters.park(job, now, inf)
    assert looks[-1] <= 20 + 8


def test_what_has_left_is_not_kept(loop: asyncio.AbstractEventLoop) -> None:
    waiters = Waiters(100, 1000)
    for number in range(20_000):
        job = Job(JobType.POP, Pop("q", group=f"g{number % 7}"), loop.create_future())
        job.deadline = 1e6
        waiters.begin(job)
        waiters.park(job, 0.0, inf)
        if number % 2:
            waiters.cancel(job)
        else:
            for handed_out in waiters.wake("q", 1, job.request.group):
                waiters.leave(handed_out)
    assert (len(waiters), waiters.live, waiters.places) == (0, 0, 0)
    assert len(waiters._deadlines) + len(waiters._checks) < 3000


def test_polls_of_simple_mq_wait_beside_pops_and_count_for_no_queue_of_the_log(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiters = Waiters(100, 1000)
    poll = Dequeue(UUID(int=7), wait_ms=1000)
    for kind, request in ((JobType.POP, Pop("q")), (JobType.DEQUEUE, poll)):
        job = Job(kind, request, loop.create_future())
        job.deadline = 2.0
        waiters.begin(job)
        waiters.park(job, 1.0, inf)
    assert (len(waiters), waiters.by_queue()) == (2, {"q": 1})
    assert waiters.wake("q", 5, poll.group) == []
    assert [job.request for job in waiters.wake(poll.queue, 5, poll.group)] == [poll]


@pytest.mark.parametrize("parked", [True, False])
async def test_a_long_poll_that_is_answered_is_kept_by_nobody(parked: bool) -> None:
    """Its answer may have 16 MiB, and its deadline may be an hour away."""
    waiters = Waiters(100, 1000)
    job = Job(JobType.POP, Pop("q"), asyncio.get_running_loop().create_future())
    job.deadline = 3600.0
    waiters.begin(job)
    if parked:
        waiters.park(job, 0, inf)
        waiters.cancel(job)
    else:
        waiters.leave(job)
    kept = weakref.ref(job.future)
    del job
    assert kept() is None
    assert waiters.due(4000) == ([], [])
