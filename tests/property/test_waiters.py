"""Long polls in simulated time: none is forgotten, the first to wait is the first to be checked."""

import asyncio
import weakref
from collections import Counter
from collections.abc import Iterator
from math import inf
from uuid import UUID, uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec import structs

from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.engine.waiters import Waiters
from queen.log.requests import Pop
from queen.simple_mq.requests import Dequeue
from queen.simple_mq.sqs_requests import ReceiveMessages
from spec.guarantees import Level, checks

PLACES = (Pop("q"), Pop("q", group="g"), Pop("q", partition="p", auto_ack=True), Pop("r", batch=2), Pop("", task="t"))


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Waiting(RuleBasedStateMachine):
    """Pops come, are checked, find something or not, give up; time passes."""

    loop: asyncio.AbstractEventLoop
    linger_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.waiters = Waiters(100, 1000, linger_s=self.linger_s)
        self.now = 1000.0
        self.parked: list[Job] = []
        self.out: list[Job] = []
        self.news: set[Pop] = set()
        self.lent: list[Job] = []
        #: Places to which messages came that no check has looked for since then.
        self.unseen: set[Pop] = set()

    def job(self, pop: Pop) -> Job:
        return Job(JobType.POP, pop, self.loop.create_future())

    @rule(place=st.sampled_from(PLACES), wait=st.sampled_from((0.05, 1, 30)), ready=st.sampled_from((inf, inf, 0.5)))
    def come(self, place: Pop, wait: float, ready: float) -> None:
        job = self.job(place)
        job.deadline = self.now + wait
        known = self.waiters.ready_at_if_empty(place, self.now)
        looks = known is None
        assert looks or place not in self.unseen, "it looks if messages came that no pop has looked for"
        self.waiters.begin(job)
        if looks:
            if place not in self.news:
                self.unseen.discard(place)
            self.waiters.note_empty(place, self.now, self.now + ready)
        self.waiters.park(job, self.now, self.now + ready if known is None else known)
        self.parked.append(job)
        self.news.discard(place)  # the check that it causes comes after the push

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
        served=st.sets(st.sampled_from([place.group for place in PLACES]), max_size=1),
    )
    def push(self, queue: str, messages: int, served: set[str]) -> None:
        waiting = {place: sum(job.request == place for job in self.parked) for place in PLACES}
        out = {place: sum(job.request == place for job in self.out) for place in PLACES}
        concerned = {place for place in PLACES if place.queue in (queue, "") and place.group not in served}
        jobs = self.waiters.wake(queue, messages, served=sorted(served))
        self.handed_out(jobs)
        self.news |= {place for place in concerned if out[place]}
        self.unseen |= concerned
        lent = {place: sum(job.request == place for job in self.lent) for place in PLACES}
        now_out = {place: sum(job.request == place for job in self.out) for place in PLACES}
        assert dict(self.waiters.missing(queue, messages, None, sorted(served))) == {
            place.wait_key: messages - now_out[place]
            for place in concerned
            if lent[place] and now_out[place] < messages
        }
        for place in PLACES:
            woken = sum(job.request == place for job in jobs)
            wanted = max(messages - out[place], 0)
            assert woken == (min(wanted, waiting[place]) if place in concerned else 0)

    @rule(queue=st.sampled_from(("q", "r", "s")), messages=st.integers(1, 3))
    def offer(self, queue: str, messages: int) -> None:
        waiting = {place: sum(job.request == place for job in self.parked) for place in PLACES}
        jobs = self.waiters.offer(queue, messages)
        self.handed_out(jobs)
        for place in PLACES:
            free = place.partition is None and place.queue in (queue, "")
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
                assert job in self.out or job in self.lent, "answered twice"
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
        if job.request not in self.news:
            self.unseen.discard(job.request)
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
    def lend(self, data: st.DataObject) -> None:
        if self.out:
            job = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
            self.waiters.lend(job)
            self.lent.append(job)

    @rule(data=st.data())
    def come_home(self, data: st.DataObject) -> None:
        if self.lent:
            job = self.lent.pop(data.draw(st.integers(0, len(self.lent) - 1)))
            self.waiters.take_back(job)
            self.out.append(job)

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.parked:
            job = self.parked.pop(data.draw(st.integers(0, len(self.parked) - 1)))
            assert self.waiters.cancel(job)
            assert not self.waiters.cancel(job)

    @invariant()
    def no_long_poll_is_forgotten(self) -> None:
        # With the last waiter a place is forgotten.
        self.news &= {job.request for job in (*self.parked, *self.out, *self.lent)}
        assert len(self.waiters) == len(self.parked)
        event = self.waiters.next_event()
        if self.parked:
            assert event is not None
            assert event <= min(job.deadline for job in self.parked)
            assert event <= self.now + 1.0, "a lost notification costs a second at most"


class Lingering(Waiting):
    """The same, if wait lists stay for a while, as with several databases."""

    linger_s = 2.0


@checks("G-WAIT-1", level=Level.MODEL)
@pytest.mark.parametrize("machine", [Waiting, Lingering])
def test_waiters_under_random_programs(loop: asyncio.AbstractEventLoop, machine: type[Waiting]) -> None:
    Waiting.loop = loop
    run_state_machine_as_test(machine, settings=settings(max_examples=200, deadline=None))


def test_a_place_that_lingers_stays_empty_until_a_notification_or_its_end(loop: asyncio.AbstractEventLoop) -> None:
    said: list[bool] = []
    waiters, pop = Waiters(100, 1000, waiting=said.append, linger_s=2.0), Pop("q")

    def look(now: float) -> None:
        job = Job(JobType.POP, pop, loop.create_future())
        job.deadline = 100.0
        waiters.begin(job)
        waiters.note_empty(pop, now, inf)
        waiters.park(job, now, inf)
        waiters.cancel(job)

    look(0.0)
    assert waiters.ready_at_if_empty(pop, 1.9) == inf
    waiters.wake("q", 1)
    assert waiters.ready_at_if_empty(pop, 1.9) is None
    look(2.0)
    waiters.due(3.9)
    assert (waiters.wait_lists, said) == (1, [True])
    waiters.due(4.0)
    assert (waiters.wait_lists, said) == (0, [True, False])


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
    assert waiters.offer("q", 1) == [first]
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


def test_the_budget_delays_no_long_poll_when_most_have_left(loop: asyncio.AbstractEventLoop) -> None:
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


def test_finished_jobs_are_not_kept(loop: asyncio.AbstractEventLoop) -> None:
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
    assert (len(waiters), waiters.live, waiters.wait_lists) == (0, 0, 0)
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
async def test_a_long_poll_that_is_answered_is_kept_nowhere(parked: bool) -> None:
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


def borrowed(loop: asyncio.AbstractEventLoop, deadline: float) -> Job:
    job = Job(JobType.POP, Pop("q"), loop.create_future())
    job.reply, job.deadline = lambda _popped: True, deadline
    return job


@checks("G-WAIT-1", level=Level.MODEL)
def test_a_long_poll_of_a_sibling_is_served_by_pushes_and_never_looks(loop: asyncio.AbstractEventLoop) -> None:
    waiters = Waiters(100, 1000)
    own, guest = Job(JobType.POP, Pop("q"), loop.create_future()), borrowed(loop, 50.0)
    own.deadline = 50.0
    for job in (guest, own):
        waiters.begin(job)
        waiters.park(job, 0.0, inf)
    assert waiters.wake_all() == [own]
    waiters.park(own, 0.0, inf)
    assert waiters.wake("q", 2) == [own]
    waiters.park(own, 0.0, inf)
    assert waiters.due(10.0)[0] == [own]
    waiters.park(own, 10.0, inf)
    assert set(waiters.offer("q", 2)) == {own, guest}
    waiters.park(guest, 10.0, inf)
    assert waiters.cancel(guest)


@checks("G-WAIT-1", level=Level.MODEL)
def test_what_is_offered_to_long_polls_of_this_worker_is_not_offered_to_those_of_siblings(
    loop: asyncio.AbstractEventLoop,
) -> None:
    waiters = Waiters(100, 1000)
    own, guest = Job(JobType.POP, Pop("q"), loop.create_future()), borrowed(loop, 50.0)
    for job in (own, guest):
        waiters.begin(job)
        waiters.park(job, 0.0, inf)
    assert waiters.offer("q", 1) == [own]


@checks("G-WAIT-1", level=Level.MODEL)
@checks("G-SQS-5", level=Level.MODEL)
def test_a_receive_that_may_repeat_an_earlier_one_looks_beside_waiting_ones(loop: asyncio.AbstractEventLoop) -> None:
    waiters = Waiters(100, 1000)
    receive = ReceiveMessages(uuid4(), 100, wait_ms=1000)
    waiting = Job(JobType.POP, receive, loop.create_future())
    waiting.deadline = 50.0
    waiters.begin(waiting)
    waiters.park(waiting, 0.0, inf)
    assert waiters.ready_at_if_empty(receive, 0.0) == inf
    assert waiters.ready_at_if_empty(structs.replace(receive, attempt_id="again"), 0.0) is None


@pytest.mark.parametrize(("passed", "served", "finds"), [
    (0.05, None, True), (0.2, None, False), (0.05, (), False), (0.05, ("g",), True),
])  # fmt: skip
def test_a_long_poll_does_not_look_where_a_look_has_just_found_nothing(
    loop: asyncio.AbstractEventLoop, passed: float, served: tuple[str, ...] | None, finds: bool
) -> None:
    waiters, pop = Waiters(100, 1000), Pop("q", group="g")
    other = keep_waiting(waiters, loop)
    job = Job(JobType.POP, pop, loop.create_future())
    job.deadline = 50.0
    waiters.begin(job)
    waiters.note_empty(pop, 0.0, inf)
    waiters.leave(job)
    if served is not None:
        waiters.wake("q", 1, served=served)
    assert (waiters.ready_at_if_empty(pop, passed) is not None) == finds
    assert waiters.ready_at_if_empty(Pop("q", group="h"), passed) is None
    waiters.cancel(other)
    assert waiters.ready_at_if_empty(pop, passed) is None, "without a long poll there are no notifications"


def keep_waiting(waiters: Waiters, loop: asyncio.AbstractEventLoop) -> Job:
    """A parked long poll of another queue."""
    job = Job(JobType.POP, Pop("other"), loop.create_future())
    job.deadline = 50.0
    waiters.begin(job)
    waiters.park(job, 0.0, inf)
    return job


def test_a_worker_says_that_it_waits_before_its_first_check_and_until_its_last_long_poll_has_left(
    loop: asyncio.AbstractEventLoop,
) -> None:
    said: list[bool] = []
    waiters = Waiters(100, 1000, waiting=said.append)
    first, second = (Job(JobType.POP, Pop("q", group=group), loop.create_future()) for group in "ab")
    waiters.begin(first)
    assert said == [True], "a message that is stored after the check must be announced"
    waiters.begin(second)
    waiters.park(second, 0.0, inf)
    waiters.leave(first)
    assert said == [True]
    waiters.cancel(second)
    waiters.begin(first)
    assert said == [True, False, True]


def test_so_many_empty_places_are_remembered_and_no_more(loop: asyncio.AbstractEventLoop) -> None:
    waiters, remembered = Waiters(100, 1000), []
    keep_waiting(waiters, loop)
    for number in range(30_000):
        pop = Pop("q", group=f"g{number}")
        job = Job(JobType.POP, pop, loop.create_future())
        job.deadline = 50.0
        waiters.begin(job)
        waiters.note_empty(pop, 0.0, inf)
        waiters.leave(job)
        if number % 1000 == 999:
            remembered.append(
                sum(waiters.ready_at_if_empty(Pop("q", group=f"g{n}"), 0.05) is not None for n in range(number + 1))
            )
    assert max(remembered) <= 10_000
    waiters.wake("q", 1, served=["g29999"])
    assert waiters.ready_at_if_empty(Pop("q", group="g29999"), 0.05) is not None
    assert waiters.ready_at_if_empty(Pop("q", group="g29998"), 0.05) is None
