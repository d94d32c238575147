"""The policy for failures: any batch over a database in which requests are too slow, wait for locks and are refused."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.core.batch_policy import BatchPolicy
from queen.core.errors import (
    DatabaseSlowError,
    DatabaseUnavailableError,
    DataRejectedError,
    LockedError,
    OutcomeUnknownError,
    QueenError,
    TooSlowError,
)
from queen.core.operations import JobType, Pop, Popped
from queen.engine.context import tell_nobody
from queen.engine.engine import Engine, Shares
from queen.engine.failures import Pace, Part, Repeats, Rules, Trial, call_limit_s
from queen.engine.handlers.pop import Outcome
from queen.engine.job import Job
from queen.engine.lane import Lane
from queen.engine.operations import Operation, Waiting
from queen.engine.orphans import Orphans
from queen.engine.waiters import Waiters
from queen_spec.guarantees import Level, checks
from tests.support.virtual_time import run

RULES = Rules(limit_s=30.0, patience_s=5.0)
#: Much less than the shortest limit, also for a whole batch.
QUICK_S = 0.003
#: Of a wait for a lock, as a part of the limit of its call.
LOCK_SHARE = 0.8


@dataclass(frozen=True)
class Request:
    """How long PostgreSQL takes for it, until when it waits for a lock, and whether its data are refused."""

    number: int
    seconds: float = QUICK_S
    locked_until: float = 0.0
    bad: bool = False

    @property
    def is_innocent(self) -> bool:
        return self.seconds == QUICK_S and not self.bad and not self.locked_until


@dataclass
class Database:
    """Carries out calls in simulated time, each within its limit; ``slowness`` multiplies what each request takes."""

    slowness: float = 1.0
    now: float = 0.0
    carried_out: Counter[int] = field(default_factory=Counter)
    calls: list[tuple[list[int], float]] = field(default_factory=list)

    def ends(self, requests: Sequence[Request], limit_s: float, now: float) -> tuple[float, QueenError | None]:
        """How long a call takes that begins now, and its error."""
        self.calls.append(([request.number for request in requests], limit_s))
        waits_s = max((request.locked_until - now for request in requests), default=0.0)
        if waits_s > LOCK_SHARE * limit_s:
            return LOCK_SHARE * limit_s, TooSlowError("lock timeout", lock=True, limit_s=limit_s)
        takes_s = max(waits_s, 0.0) + self.slowness * sum(request.seconds for request in requests)
        if takes_s > limit_s:
            return limit_s, TooSlowError("statement timeout", limit_s=limit_s)
        if any(request.bad for request in requests):
            return takes_s, DataRejectedError("refused")
        self.carried_out.update(request.number for request in requests)
        return takes_s, None


def carry_out(database: Database, requests: Sequence[Request], pace: Pace | None = None) -> dict[int, Any]:
    """The answers to a batch, as the engine finds them."""
    trial, answers = Trial(requests, RULES, pace or Pace(), database.now), dict[int, Any]()
    while (part := trial.next(database.now)) is not None:
        database.now += part.pause_s
        limit_s = RULES.limit_s if part.limit_s is None else part.limit_s
        takes_s, problem = database.ends(part.requests, limit_s, database.now)
        database.now += takes_s
        outcomes = [(request, "done" if problem is None else problem) for request in part.requests]
        for request, answer in trial.settle(part, outcomes, database.now):
            assert request.number not in answers, "a request is answered once"
            answers[request.number] = answer
    return answers


requests_of_a_batch = st.lists(
    st.one_of(
        st.just({}),
        st.just({"seconds": 1000.0}),
        st.builds(lambda seconds: {"seconds": seconds}, st.floats(0.5, 29.0)),
        st.builds(lambda until: {"locked_until": until}, st.floats(0.01, 200.0)),
        st.just({"bad": True}),
    ),
    min_size=1,
    max_size=32,
).map(lambda given: [Request(number, **each) for number, each in enumerate(given)])


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=600, deadline=None)
@given(batch=requests_of_a_batch)
def test_what_is_at_fault_fails_alone(batch: list[Request]) -> None:
    database = Database()
    answers = carry_out(database, batch)
    assert sorted(answers) == [request.number for request in batch]
    for request in batch:
        answer = answers[request.number]
        assert database.carried_out[request.number] == (answer == "done"), "once, and what is answered so"
        if request.is_innocent:
            assert answer == "done"
        elif request.bad:
            assert isinstance(answer, DataRejectedError | DatabaseSlowError)
        elif request.locked_until:
            assert answer == "done" or isinstance(answer, LockedError | DatabaseSlowError)
        elif request.seconds > RULES.limit_s:
            assert isinstance(answer, TooSlowError | DatabaseSlowError)
        else:
            assert answer == "done" or isinstance(answer, DatabaseSlowError)
    # The first call, its halves, last tries, and what they overrun; locks have the patience besides.
    assert database.now <= 7 * RULES.limit_s + 2 * RULES.patience_s


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=200, deadline=None)
@given(size=st.integers(2, 500), slowness=st.floats(2e4, 1e9))
def test_where_all_are_slow_nobody_is_at_fault_and_all_pause(size: int, slowness: float) -> None:
    database, pace = Database(slowness), Pace()
    answers = carry_out(database, [Request(number) for number in range(size)], pace)
    assert {type(answer) for answer in answers.values()} == {DatabaseSlowError}
    assert not database.carried_out
    assert pace.pause_s > 0
    assert database.now <= 5 * RULES.limit_s
    database.slowness = 1.0
    assert carry_out(database, [Request(0)], pace) == {0: "done"}
    assert pace.pause_s == 0


@settings(max_examples=200, deadline=None)
@given(size=st.integers(2, 500), culprits=st.sets(st.integers(0, 499), min_size=1))
def test_however_many_are_at_fault_there_is_an_end(size: int, culprits: set[int]) -> None:
    database = Database()
    batch = [Request(number, 1000.0 if number in culprits else QUICK_S) for number in range(size)]
    answers = carry_out(database, batch)
    assert database.now <= 6 * RULES.limit_s
    assert all(answer == "done" or isinstance(answer, TooSlowError | DatabaseSlowError) for answer in answers.values())
    assert all(isinstance(answers[number], QueenError) for number in culprits if number < size)


def test_halves_have_shorter_limits_and_the_one_at_fault_a_last_try_when_the_others_are_done() -> None:
    database = Database()
    answers = carry_out(database, [Request(0), Request(1), Request(2, 1000.0), Request(3)])
    assert database.calls == [
        ([0, 1, 2, 3], 30.0), ([0, 1], 7.5), ([2, 3], 7.5), ([2], 1.875), ([3], 1.875), ([2], 30.0),
    ]  # fmt: skip
    assert {number: answer for number, answer in answers.items() if number != 2} == {0: "done", 1: "done", 3: "done"}
    assert isinstance(answers[2], TooSlowError)
    assert str(answers[2]) == (
        "PostgreSQL did not complete this request alone within 30 s (DB_STATEMENT_TIMEOUT); nothing of it was stored. "
        "Send it in smaller parts"
    )


def test_what_needs_nearly_all_the_time_has_it_alone() -> None:
    database = Database()
    assert carry_out(database, [Request(0, 29.0), Request(1, 29.0)]) == {0: "done", 1: "done"}


def test_one_that_is_alone_in_the_worker_is_told_that_it_was_too_slow_each_time() -> None:
    database, pace = Database(), Pace()
    for _ in range(3):
        [answer] = carry_out(database, [Request(0, 1000.0)], pace).values()
        assert isinstance(answer, TooSlowError)
        database.now += 1


def test_of_two_at_the_same_time_that_find_nothing_else_the_second_is_not_at_fault() -> None:
    pace, now = Pace(), 0.0
    first, second = (Trial([Request(number)], RULES, pace, now) for number in range(2))
    parts = [trial.next(now) for trial in (first, second)]
    kinds = []
    for trial, part in zip((first, second), parts, strict=True):
        assert part is not None
        [(_, answer)] = trial.settle(part, [(part.requests[0], TooSlowError("slow", limit_s=30.0))], 30.0)
        kinds.append(type(answer))
    assert kinds == [TooSlowError, DatabaseSlowError]
    assert pace.pause_s > 0


def test_a_call_of_another_batch_that_got_through_says_that_postgresql_is_not_slow() -> None:
    pace = Pace()
    slow, other = Trial([Request(0), Request(1)], RULES, pace, 0.0), Trial([Request(2)], RULES, pace, 1.0)
    [part] = [other.next(1.0)]
    assert part is not None
    assert other.settle(part, [(part.requests[0], "done")], 1.1) == [(part.requests[0], "done")]
    answers, now = dict[int, type](), 0.0
    while (part := slow.next(now)) is not None:
        now += 30.0 if part.limit_s is None else part.limit_s
        outcomes: list[tuple[Request, Any]] = [(request, TooSlowError("slow")) for request in part.requests]
        answers |= {request.number: type(answer) for request, answer in slow.settle(part, outcomes, now)}
    assert answers == {0: TooSlowError, 1: TooSlowError}


def test_a_lock_is_nobodys_fault_and_those_beside_it_get_through() -> None:
    database = Database()
    answers = carry_out(database, [Request(0), Request(1, locked_until=1e6), Request(2), Request(3)])
    assert isinstance(answers.pop(1), LockedError)
    assert answers == {0: "done", 2: "done", 3: "done"}


def test_a_lock_that_ends_in_time_is_waited_for() -> None:
    database = Database()
    assert carry_out(database, [Request(0, locked_until=26.0), Request(1)]) == {0: "done", 1: "done"}


def test_where_calls_may_not_be_repeated_the_first_failure_is_the_last() -> None:
    for problem, expected in [(TooSlowError("slow"), TooSlowError), (TooSlowError("lock", lock=True), LockedError)]:
        trial = Trial([Request(0)], RULES, Pace(), 0.0, repeats=False)
        part = trial.next(0.0)
        assert part is not None
        assert [type(answer) for _, answer in trial.settle(part, [(Request(0), problem)], 30.0)] == [expected]
        assert trial.next(30.0) is None


def test_requests_whose_calls_failed_apart_are_not_put_together() -> None:
    """A handler that makes several calls returns the error of each: what the others did stays done."""
    trial, [a, b, c] = Trial(["a", "b", "c"], RULES, Pace(), 0.0), ["a", "b", "c"]
    part = trial.next(0.0)
    assert part is not None
    shared = DataRejectedError("one of them")
    assert trial.settle(part, [(a, shared), (b, "done"), (c, shared)], 1.0) == [(b, "done")]
    rest = [trial.next(1.0), trial.next(1.0)]
    assert rest == [Part(["a"]), Part(["c"])]


# ---------------------------------------------------------------- one call


SLOW, LOST, AWAY = TooSlowError("slow"), OutcomeUnknownError("lost"), DatabaseUnavailableError("away")


@pytest.mark.parametrize(
    ("problems", "ends_with"),
    [
        ((SLOW,), TooSlowError),
        ((AWAY, SLOW), TooSlowError),
        ((LOST, SLOW), None),
        ((LOST, SLOW, AWAY), None),
        ((LOST,), None),
        ((AWAY,), None),
    ],
)
def test_a_call_is_repeated_while_its_outcome_is_unknown_and_one_that_was_only_too_slow_is_not(
    problems: Sequence[QueenError], ends_with: type[QueenError] | None
) -> None:
    repeats = Repeats(RULES, 0.0)
    after = [repeats.after(problem, 0.0, waits=True) for problem in problems]
    assert isinstance(after[-1], ends_with or float)
    assert repeats.again == (LOST in problems)


@pytest.mark.parametrize(
    ("problems", "ends_with"),
    [((AWAY,), DatabaseUnavailableError), ((LOST, SLOW), OutcomeUnknownError), ((LOST, AWAY), OutcomeUnknownError)],
)
def test_what_may_have_happened_is_told_when_the_patience_is_over(
    problems: Sequence[QueenError], ends_with: type[QueenError]
) -> None:
    repeats = Repeats(RULES, 0.0)
    assert [type(repeats.after(problem, 5.1, waits=True)) for problem in problems][-1] is ends_with


@given(times=st.lists(st.floats(0, 0.1), min_size=200, max_size=200))
def test_no_call_is_repeated_for_longer_than_the_patience(times: list[float]) -> None:
    repeats, now = Repeats(RULES, 0.0), 0.0
    for takes_s in times:
        now += takes_s
        pause_s = repeats.after(AWAY, now, waits=True)
        if not isinstance(pause_s, float):
            break
        now += pause_s
        assert now <= RULES.patience_s
    else:
        pytest.fail("it goes on and on")


# ---------------------------------------------------------------- the engine


class Harness:
    """An engine with one kind of jobs that write and one that look, over such a database."""

    def __init__(self, database: Database) -> None:
        self.database, self.answers = database, dict[int, tuple[Any, float]]()
        self.loop = asyncio.get_running_loop()
        context: Any = SimpleNamespace(
            heard=tell_nobody, away=False, directory=None, orphans=Orphans(), unfinished=set(), rules=RULES,
            meter=SimpleNamespace(batch=lambda *_: None),
        )  # fmt: skip
        waiting = Waiting(Popped(), self.give_back, lambda *_: None)
        table = {JobType.PUSH: Operation(self.handle), JobType.POP: Operation(self.look, waiting=waiting)}
        policy = BatchPolicy(preferred=50, hold_ms=0, batch_max=64, in_flight_max=1)
        shares = Shares(4, 1, 1000)
        self.engine = Engine(
            context, lambda _kind: Lane(policy), Waiters(100, 1000), shares, self.answer, table, self.loop.time
        )

    async def handle(self, _context: object, requests: Sequence[Request]) -> list[Any]:
        limit_s = call_limit_s.get() or RULES.limit_s
        takes_s, problem = self.database.ends(requests, limit_s, self.loop.time())
        await asyncio.sleep(takes_s)
        if problem is not None:
            raise problem
        return [request.number for request in requests]

    async def look(self, _context: object, pops: Sequence[Pop]) -> list[Any]:
        await self.handle(None, [Request(int(pop.queue)) for pop in pops])
        return [Outcome() for _ in pops]

    async def give_back(self, *_: object) -> None:
        raise AssertionError("nothing was found")

    def answer(self, job: Job, result: Any) -> None:
        self.answers[id(job)] = (result, self.loop.time())

    def submit(self, kind: JobType, requests: Sequence[Any]) -> list[Job]:
        jobs = [Job(kind, request, self.loop.create_future()) for request in requests]
        self.engine.accept(jobs)
        return jobs


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=60, deadline=None)
@given(batch=requests_of_a_batch, others=st.integers(0, 5))
def test_the_engine_answers_innocent_requests_whatever_comes_with_them(batch: list[Request], others: int) -> None:
    async def live() -> None:
        harness = Harness(Database())
        late = [Request(100 + number) for number in range(others)]
        jobs = harness.submit(JobType.PUSH, batch)
        await asyncio.sleep(1)
        jobs += harness.submit(JobType.PUSH, late)
        await asyncio.sleep(20 * RULES.limit_s)
        for job, request in zip(jobs, [*batch, *late], strict=True):
            result, at = harness.answers[id(job)]
            assert harness.database.carried_out[request.number] == (result == request.number)
            if request in batch and request.is_innocent:
                assert result == request.number
                assert at <= 4 * RULES.limit_s, "before the last tries of those at fault"
            elif request in late:
                assert result == request.number
        await harness.engine.stop()
        status = harness.engine.status()
        assert (status.hot.free, [lane.in_flight for lane in status.lanes]) == (4, [0, 0])

    run(live())


def test_the_sender_who_has_gone_has_no_last_try() -> None:
    async def live() -> None:
        harness = Harness(Database())
        jobs = harness.submit(JobType.PUSH, [Request(0, 1000.0), Request(1)])
        await asyncio.sleep(31)
        harness.engine.abandon(jobs[0])
        await asyncio.sleep(10 * RULES.limit_s)
        assert ([0], RULES.limit_s) not in harness.database.calls
        assert harness.answers[id(jobs[1])][0] == 1
        await harness.engine.stop()

    run(live())


def test_a_long_poll_outwaits_a_slow_database_and_one_that_does_not_wait_is_told() -> None:
    async def live() -> None:
        harness = Harness(Database(slowness=1e6))
        polls = [Pop(str(number), wait_ms=600_000) for number in range(2)]
        waiting = harness.submit(JobType.POP, polls)
        await asyncio.sleep(599)
        assert not harness.answers
        harness.database.slowness = 1.0
        await asyncio.sleep(10)
        assert [type(harness.answers[id(job)][0]) for job in waiting] == [Popped, Popped]
        harness.database.slowness = 1e6
        told = harness.submit(JobType.POP, [Pop("0"), Pop("1")])
        await asyncio.sleep(10 * RULES.limit_s)
        assert [type(harness.answers[id(job)][0]) for job in told] == [DatabaseSlowError] * 2
        await harness.engine.stop()

    run(live())


@checks("G-ISO-1", level=Level.MODEL)
def test_data_that_is_refused_concerns_its_own_request_also_where_calls_are_not_repeated() -> None:
    trial: Trial[int] = Trial([1, 2], RULES, Pace(), 0.0, repeats=False)
    part = trial.next(0.0)
    assert part is not None
    refused = DataRejectedError("bad data")
    assert trial.settle(part, [(1, refused), (2, refused)], 1.0) == []
    alone = [part.requests for part in iter(lambda: trial.next(1.0), None)]
    assert alone == [[1], [2]]
