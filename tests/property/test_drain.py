"""A whole engine in simulated time over a database that is slow, refuses, and fails: every job gets its answer."""

import asyncio
import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from queen.core.batch_policy import BatchPolicy
from queen.core.concurrency import Vegas, VegasSettings
from queen.core.errors import DatabaseUnavailableError, DataRejectedError, OverloadedError
from queen.core.job_type import JobType
from queen.engine.context import ignore_notification
from queen.engine.engine import Engine, Shares
from queen.engine.failures import Rules
from queen.engine.handlers.pop import Outcome
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JOB_SPECS, JobSpec
from queen.engine.offer import offered
from queen.engine.orphans import Orphans
from queen.engine.ports import Notification
from queen.engine.prefetch import Prefetch
from queen.engine.slots import Slots
from queen.engine.waiters import Waiters
from queen.log.requests import Claim, PartitionBatch, Pop, Popped, Push, Pushed
from spec.guarantees import Level, checks
from tests.support.virtual_time import run

HOT = (JobType.PUSH, JobType.POP, JobType.ACK, JobType.TRANSACTION)
POLICY = BatchPolicy(preferred=5, hold_ms=20, batch_max=8, in_flight_max=3, queued_max=200)


@dataclass(frozen=True)
class Request:
    """What a made-up operation is asked: it fails if it is ``bad``, and so does whatever shares its call."""

    number: int
    bad: bool = False


@dataclass
class Database:
    """Serves made-up calls, and notes what it saw."""

    choice: random.Random
    slowest_s: float
    outages: float = 0.0
    crashes: float = 0.0
    in_flight: Counter[JobType] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    begun: list[tuple[float, JobType, list[int]]] = field(default_factory=list)

    def handler(self, kind: JobType) -> Any:
        async def handle(_context: object, requests: Sequence[Any]) -> list[Any]:
            self.in_flight[kind] += 1
            self.most[kind.value] = max(self.most[kind.value], self.in_flight[kind])
            hot = sum(self.in_flight[each] for each in HOT)
            self.most["hot"] = max(self.most["hot"], hot)
            now = asyncio.get_running_loop().time()
            self.begun.append((now, kind, [r.number for r in requests if isinstance(r, Request)]))
            try:
                await asyncio.sleep(self.choice.uniform(0.001, self.slowest_s))
                if self.choice.random() < self.outages:
                    raise DatabaseUnavailableError("down")
                if self.choice.random() < self.crashes:
                    raise ZeroDivisionError
                if any(isinstance(r, Request) and r.bad for r in requests):
                    raise DataRejectedError("bad data")
                return [self.result(request) for request in requests]
            finally:
                self.in_flight[kind] -= 1

        return handle

    def result(self, request: Any) -> Any:
        if not isinstance(request, Pop):
            return request.number
        outcome = Outcome()
        if self.choice.random() < 0.2:
            outcome.popped = Popped(None, [Claim(1, request.queue, "p", 0, frozenset(), 0, 1, [])])
        elif self.choice.random() < 0.1:
            outcome.ready_in = 0.0
        return outcome


class Harness:
    """An engine over such a database, and the answers that it gave."""

    def __init__(
        self,
        database: Database,
        hot: int,
        policy: BatchPolicy = POLICY,
        vegas: bool = False,
        log: "Log | None" = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.answers: dict[int, list[Any]] = defaultdict(list)
        self.answered_at: dict[int, float] = {}
        self.counted: list[Popped] = []
        self.loop = asyncio.get_running_loop()
        context: Any = SimpleNamespace(
            notify=ignore_notification,
            unavailable=False,
            cache=None,
            counters=SimpleNamespace(batch=lambda *_: None, pop=lambda _request, popped: self.counted.append(popped)),
            orphans=Orphans(),
            prefetch=Prefetch(),
            pop_maintenance=False,
            unfinished=set(),
            rules=Rules(30, 5),
            new_lease=uuid4,
        )
        table = {kind: JobSpec(database.handler(kind)) for kind in HOT}
        popping = database.handler(JobType.POP) if log is None else log.pop
        table[JobType.POP] = replace(JOB_SPECS[JobType.POP], handler=popping)
        if log is not None:
            table[JobType.PUSH] = replace(JOB_SPECS[JobType.PUSH], handler=log.push)
        table[JobType.CUSTOM] = JobSpec(database.handler(JobType.CUSTOM), cold=True)

        def job_queue(_kind: JobType) -> JobQueue:
            return JobQueue(policy, Vegas(policy.in_flight_max, VegasSettings(window=4)) if vegas else None)

        shares, clock = Shares(hot, 1, 10_000), clock or self.loop.time
        self.engine = Engine(context, job_queue, Waiters(100, 1000), shares, self.answer, table, clock)
        if log is not None:
            context.notify = self.engine.notify

    def answer(self, job: Job, result: Any) -> None:
        self.answers[id(job)].append(result)
        self.answered_at[id(job)] = self.loop.time()

    def submit(self, kind: JobType, request: Any) -> Job:
        job = Job(kind, request, self.loop.create_future())
        self.engine.accept([job])
        return job


arrivals = st.lists(
    st.tuples(
        st.sampled_from((*HOT, JobType.CUSTOM)),
        st.floats(0, 0.02),
        st.sampled_from((False, False, False, False, True)),
        st.sampled_from((0, 0, 50, 700)),
    ),
    min_size=1,
    max_size=120,
)


@checks("G-ISO-1", "G-WAIT-1", level=Level.MODEL)
@settings(max_examples=60, deadline=None)
@given(
    plan=arrivals,
    hot=st.integers(1, 6),
    outages=st.sampled_from((0, 0, 0.2)),
    crashes=st.sampled_from((0, 0.1)),
    vegas=st.booleans(),
    linger_ms=st.sampled_from((0, 2)),
    seed=st.integers(0, 10**6),
)
def test_every_job_is_answered_once_and_in_time(
    plan: list[tuple[JobType, float, bool, int]],
    hot: int,
    outages: float,
    crashes: float,
    vegas: bool,
    linger_ms: int,
    seed: int,
) -> None:
    async def live() -> None:
        database = Database(random.Random(seed), 0.05, outages, crashes)
        harness = Harness(database, hot, dataclasses.replace(POLICY, linger_ms=linger_ms), vegas=vegas)
        choice = random.Random(seed)
        jobs: list[tuple[Job, float]] = []
        gone: set[int] = set()
        for number, (kind, pause, bad, wait_ms) in enumerate(plan):
            await asyncio.sleep(pause)
            request = Pop(f"q{number % 3}", wait_ms=wait_ms) if kind is JobType.POP else Request(number, bad)
            jobs.append((harness.submit(kind, request), harness.loop.time()))
            if choice.random() < 0.1:
                harness.engine.notify(Notification(f"q{number % 3}", choice.randint(1, 3)))
            if choice.random() < 0.05:
                harness.engine.abandon(jobs[-1][0])
                gone.add(id(jobs[-1][0]))
        await asyncio.sleep(60)
        await harness.engine.stop()
        for job, _ in jobs:
            expected = (0, 1) if id(job) in gone else (1,)
            assert len(harness.answers[id(job)]) in expected, job.kind
        for job, begin in jobs:
            if id(job) in gone or not isinstance(job.request, Pop) or not job.request.wait_ms:
                continue
            assert harness.answered_at[id(job)] <= begin + job.request.wait_ms / 1000 + 0.001, "a timeout was overrun"
        check_answers(jobs, harness, gone, innocent_fail=bool(outages or crashes))
        popped = [answer for answers in harness.answers.values() for answer in answers if isinstance(answer, Popped)]
        assert len(harness.counted) == len(popped), "what is answered is counted, and nothing else"
        assert database.most["hot"] <= hot
        assert database.most["custom"] <= 1
        assert all(database.most[kind.value] <= POLICY.in_flight_max for kind in HOT)
        metrics = harness.engine.metrics()
        assert (metrics.hot.free, metrics.cold.free, metrics.waiting, metrics.wait_lists) == (hot, 1, 0, 0)
        assert all(
            (job_queue.queued, job_queue.queued_bytes, job_queue.in_flight) == (0, 0, 0)
            for job_queue in metrics.job_queues
        )

    run(live())


def check_answers(jobs: list[tuple[Job, float]], harness: Harness, gone: set[int], *, innocent_fail: bool) -> None:
    """Each job has its own answer; only bad ones are refused for their data."""
    for job, _ in jobs:
        if id(job) in gone or isinstance(job.request, Pop):
            continue
        [answer] = harness.answers[id(job)]
        if isinstance(answer, DataRejectedError):
            assert job.request.bad, "one request's bad data failed another's"
        elif isinstance(answer, Exception):
            assert innocent_fail
        else:
            assert answer == job.request.number
            assert not job.request.bad


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), hot=st.integers(1, 8), flooded=st.sampled_from(HOT))
def test_a_flood_of_one_kind_does_not_starve_another(seed: int, hot: int, flooded: JobType) -> None:
    """A lone job of each other kind begins within the time of as many calls as there are kinds."""
    slowest_s = 0.05

    async def live() -> None:
        database = Database(random.Random(seed), slowest_s)
        harness = Harness(database, hot, BatchPolicy(preferred=1, hold_ms=0, batch_max=1, in_flight_max=8))
        for number in range(300):
            harness.submit(flooded, Pop(f"q{number}") if flooded is JobType.POP else Request(number))
        await asyncio.sleep(0.1)
        others = {kind: harness.loop.time() for kind in HOT if kind is not flooded}
        for kind in others:
            harness.submit(kind, Pop("other") if kind is JobType.POP else Request(1000))
        await asyncio.sleep(60)
        for kind, asked in others.items():
            begun = next(now for now, each, _ in database.begun if each is kind)
            assert begun - asked <= len(HOT) * slowest_s + 1e-9, (kind, begun - asked)
        await harness.engine.stop()

    run(live())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), hold_ms=st.sampled_from((5, 20)), pauses=st.lists(st.floats(0, 0.03), max_size=60))
def test_no_job_waits_longer_than_its_hold_while_connections_are_free(
    seed: int, hold_ms: int, pauses: list[float]
) -> None:
    async def live() -> None:
        database = Database(random.Random(seed), 0.2)
        policy = BatchPolicy(preferred=1000, hold_ms=hold_ms, batch_max=1000, in_flight_max=1000)
        harness = Harness(database, 1000, policy)
        asked = {}
        for number, pause in enumerate(pauses):
            await asyncio.sleep(pause)
            asked[number] = harness.loop.time()
            harness.submit(JobType.PUSH, Request(number))
        await asyncio.sleep(10)
        for now, _, numbers in database.begun:
            assert all(now - asked[number] <= hold_ms / 1000 + 1e-6 for number in numbers)
        await harness.engine.stop()

    run(live())


async def shared_calls(harness: Harness, database: Database, *, pipelines: int, rounds: int) -> list[int]:
    """Pipelines that come again when they are answered; how many shared each call."""

    jobs = []

    async def pipeline() -> None:
        for number in range(rounds):
            jobs.append(job := harness.submit(JobType.TRANSACTION, Request(number)))
            while not harness.answers[id(job)]:
                await asyncio.sleep(0.0002)
            await asyncio.sleep(0.0005)

    await asyncio.gather(*(pipeline() for _ in range(pipelines)))
    return [len(numbers) for _, _, numbers in database.begun]


def test_pipelines_that_come_again_at_once_share_each_call_but_the_first() -> None:
    async def live(linger_ms: int) -> list[int]:
        database = Database(random.Random(0), 0.002)
        harness = Harness(database, 2, dataclasses.replace(POLICY, linger_ms=linger_ms))
        shared = await shared_calls(harness, database, pipelines=4, rounds=20)
        await harness.engine.stop()
        return shared

    assert run(live(2)) == [1, *[4] * 19, 3]
    assert len(run(live(0))) > 30


def test_a_job_that_waits_for_others_is_answered_when_the_worker_stops() -> None:
    async def live() -> None:
        harness = Harness(Database(random.Random(0), 0.002), 2, dataclasses.replace(POLICY, linger_ms=1000))
        jobs = [harness.submit(JobType.TRANSACTION, Request(number)) for number in range(3)]
        await asyncio.sleep(0.1)
        assert harness.engine.queued == 2, "the one that was answered may come again"
        await harness.engine.stop()
        assert [harness.answers[id(job)] for job in jobs] == [[0], [1], [2]]

    run(live())


@checks("G-WAIT-1", level=Level.MODEL)
@pytest.mark.parametrize("parked", [True, False], ids=["parked", "in its first look"])
def test_a_database_that_hangs_does_not_overrun_a_timeout(parked: bool) -> None:
    async def live() -> None:
        database = Database(random.Random(1), 0.002)
        harness = Harness(database, 4)
        if not parked:
            database.slowest_s = 100.0
            database.choice = SimpleNamespace(uniform=lambda _low, high: high, random=lambda: 0.9)  # type: ignore[assignment]
        job = harness.submit(JobType.POP, Pop("q", wait_ms=1000))
        await asyncio.sleep(0.05)
        database.slowest_s = 100.0
        database.choice = SimpleNamespace(uniform=lambda _low, high: high, random=lambda: 0.9)  # type: ignore[assignment]
        await asyncio.sleep(200)
        assert harness.answers[id(job)] == [Popped()]
        assert harness.answered_at[id(job)] <= 1.001
        await harness.engine.stop()

    run(live())


def test_one_job_too_many_is_refused_and_counted() -> None:
    async def live() -> None:
        database = Database(random.Random(1), 0.1)
        harness = Harness(database, 1, BatchPolicy(1, 0, 1, 1, queued_max=3))
        jobs = [harness.submit(JobType.PUSH, Request(number)) for number in range(10)]
        await asyncio.sleep(60)
        refused = [job for job in jobs if isinstance(harness.answers[id(job)][0], OverloadedError)]
        assert len(refused) == 6  # one left at once, three may wait
        [push] = [job_queue for job_queue in harness.engine.metrics().job_queues if job_queue.kind is JobType.PUSH]
        assert (push.refused, push.jobs, push.failed) == (6, 4, 0)
        await harness.engine.stop()

    run(live())


def test_calls_are_timed_finer_than_a_loop_knows_the_time() -> None:
    async def live() -> None:
        times = iter((5.0, 5.0004))
        harness = Harness(Database(random.Random(0), 0.002), hot=2, clock=lambda: next(times))
        harness.submit(JobType.ACK, Request(1))
        await harness.engine.stop()
        assert harness.engine._job_queues[JobType.ACK].limiter.rtt_ms == pytest.approx(0.4)

    run(live())


@given(
    total=st.integers(1, 10),
    steps=st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from("abcd")), st.integers(0, 10**6)), max_size=80),
)
def test_slots_are_shared_fairly(total: int, steps: list[tuple[bool, set[str], int]]) -> None:
    slots, held = Slots(total, "abcd"), Counter[str]()
    passed_over = Counter[str]()
    for ends, due, number in steps:
        if ends and held.total():
            kind = sorted(held.elements())[number % held.total()]
            slots.give_back(kind)
            held[kind] -= 1
            continue
        kind_or_none = slots.next(due)
        if kind_or_none is None:
            spare_kept = total >= 4 and slots.free == 1 and not any(held[kind] == 0 for kind in due)
            assert not due or not slots.free or spare_kept
            continue
        assert kind_or_none in due
        assert held[kind_or_none] == min(held[kind] for kind in due), "the fewest come first"
        slots.take(kind_or_none)
        held[kind_or_none] += 1
        for kind in due:
            passed_over[kind] = 0 if kind == kind_or_none or held[kind] else passed_over[kind] + 1
            assert passed_over[kind] <= 3, "the turn goes round"
        for kind in set("abcd") - due:
            passed_over[kind] = 0
        assert 0 <= slots.free == total - held.total()


class Log:
    """A log of one queue that pushes fill and pops empty; pushes serve who is offered to them where ``serves``."""

    def __init__(self, *, serves: bool) -> None:
        self.serves = serves
        self.messages = 0
        self.looks = 0

    async def push(self, _context: object, requests: Sequence[Push]) -> list[Pushed]:
        await asyncio.sleep(0.001)
        self.messages += sum(request.items for request in requests)
        offer = offered.get() if self.serves else None
        for job in list(offer.jobs) if offer is not None else ():
            if taken := min(job.request.batch, self.messages):
                self.messages -= taken
                assert offer is not None
                offer.answer(job, popped_of(job.request, taken), taken)
        return [Pushed([])] * len(requests)

    async def pop(self, _context: object, requests: Sequence[Pop]) -> list[Outcome]:
        self.looks += 1
        outcomes = [Outcome() for _ in requests]
        for outcome, request in zip(outcomes, requests, strict=True):
            taken = min(request.batch, self.messages)
            self.messages -= taken
            outcome.more = taken == request.batch
            if taken:
                outcome.popped = popped_of(request, taken)
        await asyncio.sleep(0.001)
        return outcomes


def popped_of(request: Pop, messages: int) -> Popped:
    """So many messages, which stand as the attempt of one claim."""
    return Popped(None, [Claim(1, request.queue, "p", 0, frozenset(), 0, messages, [])])


async def long_polls(harness: Harness, batches: list[int]) -> list[Job]:
    """They have looked, found nothing, and wait."""
    jobs = [harness.submit(JobType.POP, Pop("q", batch=batch, wait_ms=50_000)) for batch in batches]
    await asyncio.sleep(0.01)
    return jobs


@checks("G-WAIT-1", level=Level.MODEL)
@settings(max_examples=100, deadline=None)
@given(
    serves=st.booleans(),
    waiters=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    pushes=st.lists(st.tuples(st.floats(0, 0.004), st.integers(1, 4)), min_size=1, max_size=8),
)
def test_long_polls_get_pushed_messages_at_once_in_any_way(
    serves: bool, waiters: list[int], pushes: list[tuple[float, int]]
) -> None:
    async def live() -> None:
        log, told = Log(serves=serves), []
        database = Database(random.Random(1), 0.001)
        harness = Harness(database, 4, log=log)
        jobs = await long_polls(harness, waiters)
        for pause, messages in pushes:
            await asyncio.sleep(pause)
            told.append(harness.submit(JobType.PUSH, push_of(messages)))
        await asyncio.sleep(0.05)  # less than the first re-check takes
        pushed = sum(messages for _, messages in pushes)
        got = sum(answer.claims[0].attempt for job in jobs for answer in harness.answers[id(job)])
        assert got + log.messages == pushed
        assert not (log.messages and harness.engine.metrics().waiting), "somebody waits beside a message"
        assert all(len(harness.answers[id(job)]) == 1 for job in told)
        await harness.engine.stop()

    run(live())


def push_of(messages: int) -> Push:
    return Push([PartitionBatch("q", "p", range(messages), b"", [0] * messages, None)], messages)


@checks("G-WAIT-1", level=Level.MODEL)
def test_a_message_for_one_of_many_waiters_takes_no_look() -> None:
    async def live() -> None:
        log = Log(serves=True)
        harness = Harness(Database(random.Random(1), 0.001), 4, log=log)
        jobs = await long_polls(harness, [10] * 8)
        looks = log.looks
        harness.submit(JobType.PUSH, push_of(1))
        await asyncio.sleep(0.05)
        assert [len(harness.answers[id(job)]) for job in jobs] == [1, 0, 0, 0, 0, 0, 0, 0]
        assert log.looks == looks
        await harness.engine.stop()

    run(live())
