"""The policy for failures: any batch over a database in which requests are too slow, wait for locks and are refused."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice, product
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
    OverloadedError,
    QueenError,
    TooSlowError,
)
from queen.core.job_type import JobType
from queen.core.limits import LOCK_WAIT_S
from queen.engine.context import ignore_notification
from queen.engine.engine import Engine, Shares
from queen.engine.failures import (
    Bisection,
    Locked,
    Pace,
    Part,
    Repeats,
    Rules,
    UnknownLock,
    call_limit_s,
    lock_wait_s,
    locked_error,
)
from queen.engine.handlers.pop import Outcome
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JobSpec, Waiting
from queen.engine.lock_queue import LockQueue
from queen.engine.orphans import Orphans
from queen.engine.prefetch import Prefetch
from queen.engine.waiters import Waiters
from queen.log.requests import Pop, Popped
from spec.guarantees import Level, checks
from tests.support.virtual_time import run

RULES = Rules(limit_s=30.0, retry_timeout_s=5.0)
#: Much less than the shortest limit, also for a whole batch.
QUICK_S = 0.003
#: Requests that share a call in the line.
BATCH_MAX = 20
#: What a round of the line and the pause before it take, with the quick requests of this file.
SLACK_S = 1.0


@dataclass(frozen=True)
class Request:
    """How long PostgreSQL takes for it, which locks it needs, and whether its data are refused.

    Locks below 0 cannot be named.
    """

    number: int
    seconds: float = QUICK_S
    locks: frozenset[int] = frozenset()
    bad: bool = False

    @property
    def is_innocent(self) -> bool:
        return self.seconds == QUICK_S and not self.bad and not self.locks


@dataclass
class Database:
    """Carries out calls in simulated time, each within its limit; ``slowness`` multiplies what each request takes.

    ``locked`` says until when somebody holds each lock.
    """

    slowness: float = 1.0
    now: float = 0.0
    locked: dict[int, float] = field(default_factory=dict)
    carried_out: Counter[int] = field(default_factory=Counter)
    calls: list[tuple[list[int], float]] = field(default_factory=list)

    def free_at(self, request: Request) -> float:
        """When none of its locks is held any more."""
        return max((self.locked.get(lock, 0.0) for lock in request.locks), default=0.0)

    def find_locked(self, locks: AbstractSet[int], now: float) -> frozenset[int]:
        """Which of these somebody holds now, as far as that can be asked."""
        return frozenset(lock for lock in locks if lock >= 0 and self.locked.get(lock, 0.0) > now)

    def ends(
        self, requests: Sequence[Request], limit_s: float, now: float, wait_s: float = LOCK_WAIT_S
    ) -> tuple[float, QueenError | None]:
        """How long a call takes that begins now, and its error."""
        self.calls.append(([request.number for request in requests], limit_s))
        held = {lock for request in requests for lock in request.locks}
        assert wait_s == LOCK_WAIT_S or (len(held) == 1 and min(held) >= 0), "nothing is held while it waits"
        waits_s = max((self.free_at(request) - now for request in requests), default=0.0)
        if waits_s > wait_s:
            return wait_s, TooSlowError("lock timeout", lock=True, limit_s=limit_s)
        takes_s = max(waits_s, 0.0) + self.slowness * sum(request.seconds for request in requests)
        if takes_s > limit_s:
            return limit_s, TooSlowError("statement timeout", limit_s=limit_s)
        if any(request.bad for request in requests):
            return takes_s, DataRejectedError("refused")
        self.carried_out.update(request.number for request in requests)
        return takes_s, None


def at_most(number: int) -> Callable[[Iterable[Any]], int]:
    """So many requests share a call."""
    return lambda requests: len(list(islice(requests, number)))


class Batch:
    """A batch, and the line of those of it that wait for locks: its rounds come when the batch itself is done with.

    Attributes:
        answers: by the number of the request; the answer, and when it was given.
    """

    def __init__(self, database: Database, pace: Pace | None = None) -> None:
        self._database, self._pace = database, pace or Pace()
        self.line = LockQueue[Request, int](RULES)
        self.answers: dict[int, tuple[Any, float]] = {}

    def carry_out(self, requests: Sequence[Request], *, wait_s: float | None = None) -> None:
        """The calls of a batch."""
        if not requests:
            return
        database = self._database
        trial = Bisection(requests, RULES, self._pace, database.now, wait_s=wait_s)
        while (part := trial.next(database.now)) is not None:
            database.now += part.pause_s
            limit_s = RULES.limit_s if part.limit_s is None else part.limit_s
            takes_s, problem = database.ends(part.requests, limit_s, database.now)
            database.now += takes_s
            outcomes = [(request, "done" if problem is None else problem) for request in part.requests]
            met = {request: database.find_locked(request.locks, database.now) for request in part.requests}
            locks: dict[Request, Any] = {request: found for request, found in met.items() if found}
            for request, answer in trial.settle(part, outcomes, database.now, locks):
                if not isinstance(answer, Locked):
                    self.answer(request, answer)
                elif not self.line.join(request, answer.locks, database.now):  # type: ignore[arg-type]
                    self.answer(request, locked_error())

    def rounds(self) -> None:
        """The calls of the line, until none waits any more; one after another, as on a single connection."""
        line = self.line
        while line:
            locked = self._database.find_locked(line.locks, self._database.now)
            for request in line.late(locked, self._database.now):
                self.answer(request, locked_error())
            free = line.take_free(locked, at_most(BATCH_MAX))
            self.carry_out(free, wait_s=LOCK_WAIT_S)
            pause_s = line.end(line.free, self._database.now, called=bool(free))
            turn = line.take_turn(at_most(BATCH_MAX))
            self.carry_out(turn, wait_s=LOCK_WAIT_S)
            self._database.now += min(pause_s, line.end(line.turn, self._database.now, called=bool(turn)))

    def answer(self, request: Request, answer: Any) -> None:
        assert request.number not in self.answers, "a request is answered once"
        self.answers[request.number] = answer, self._database.now
        if request in self.line:
            self.line.leave(request, answer)


def carry_out(database: Database, requests: Sequence[Request], pace: Pace | None = None) -> dict[int, Any]:
    """The answers to a batch, as the engine finds them."""
    batch = Batch(database, pace)
    batch.carry_out(requests)
    batch.rounds()
    return {number: answer for number, (answer, _) in batch.answers.items()}


def batches(*kinds: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Request]]:
    return st.lists(st.one_of(st.just({}), *kinds), min_size=1, max_size=32).map(
        lambda given: [Request(number, **each) for number, each in enumerate(given)]
    )


def needing(*locks: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.frozensets(st.sampled_from(locks), min_size=1, max_size=3).map(lambda chosen: {"locks": chosen})


slow = st.one_of(st.just({"seconds": 1000.0}), st.floats(0.5, 29.0).map(lambda seconds: {"seconds": seconds}))
bad = st.just({"bad": True})
requests_of_a_batch = batches(slow, bad, needing(*range(6)))
locked = st.dictionaries(st.integers(-2, 6), st.one_of(st.floats(0.0, 10.0), st.just(1e6)))


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=600, deadline=None)
@given(batch=requests_of_a_batch, locked=locked)
def test_only_the_request_at_fault_fails(batch: list[Request], locked: dict[int, float]) -> None:
    database = Database(locked=locked)
    answers = carry_out(database, batch)
    assert sorted(answers) == [request.number for request in batch]
    for request in batch:
        answer = answers[request.number]
        assert database.carried_out[request.number] == (answer == "done"), "once, and what is answered so"
        if request.is_innocent:
            assert answer == "done"
        elif request.bad:
            assert isinstance(answer, DataRejectedError)
        elif request.locks:
            assert answer == "done" or isinstance(answer, LockedError | DatabaseSlowError)
        elif request.seconds > RULES.limit_s:
            assert isinstance(answer, TooSlowError | DatabaseSlowError)
        else:
            assert answer == "done" or isinstance(answer, DatabaseSlowError)
    # The first call, its halves, longer tries, and what they overrun; locks have the patience besides.
    assert database.now <= 7.5 * RULES.limit_s + 2 * RULES.retry_timeout_s


KINDS: dict[str, dict[str, Any]] = {
    "quick": {}, "takes 2 s": {"seconds": 2.0}, "takes 23 s": {"seconds": 23.0}, "at fault": {"seconds": 1000.0},
    "refused": {"bad": True},
}  # fmt: skip


@checks("G-ISO-1", level=Level.MODEL)
def test_in_each_batch_of_six_requests_the_innocent_are_answered_as_they_would_be_alone() -> None:
    """All 15,625 batches of five kinds. One that takes 23 s is, unless two others take as long or longer."""
    wrong = []
    for kinds in product(KINDS, repeat=6):
        batch = [Request(number, **KINDS[kind]) for number, kind in enumerate(kinds)]
        answers = carry_out(Database(), batch)
        few_take_long = kinds.count("takes 23 s") + kinds.count("at fault") <= 2
        for number, kind in enumerate(kinds):
            if kind == "refused":
                right = isinstance(answers[number], DataRejectedError)
            else:
                right = kind == "at fault" or answers[number] == "done" or (kind == "takes 23 s" and not few_take_long)
            if not right:
                wrong.append((kinds, number, answers[number]))
    assert not wrong, f"{len(wrong)}: {wrong[:3]}"


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=300, deadline=None)
@given(batch=batches(bad, needing(-2, -1, 0, 1)), locked=locked)
def test_requests_blocked_by_an_unknown_lock_are_found_by_halving(
    batch: list[Request], locked: dict[int, float]
) -> None:
    database = Database(locked=locked)
    carried = Batch(database)
    carried.carry_out(batch)
    if not any(request.bad for request in batch):
        assert len(database.calls) <= 2, "the job_queue is free again"
    carried.rounds()
    for request in batch:
        answer, _ = carried.answers[request.number]
        if request.bad:
            assert isinstance(answer, DataRejectedError)
        elif not isinstance(answer, LockedError):
            assert answer == "done"
        else:
            assert database.free_at(request) >= RULES.retry_timeout_s - SLACK_S
    assert database.now <= RULES.retry_timeout_s + SLACK_S + len(batch) * 4 * LOCK_WAIT_S


@settings(max_examples=300, deadline=None)
@given(batch=batches(slow, bad, needing(-2, -1, 0, 1)), locked=locked)
def test_every_mix_of_requests_terminates(batch: list[Request], locked: dict[int, float]) -> None:
    database = Database(locked=locked)
    for number, answer in carry_out(database, batch).items():
        assert database.carried_out[number] == (answer == "done")
        assert answer == "done" or isinstance(answer, QueenError)
    assert database.now <= 20 * RULES.limit_s


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=200, deadline=None)
@given(size=st.integers(2, 500), slowness=st.floats(2e4, 1e9))
def test_if_all_calls_are_slow_no_request_is_blamed_and_all_pause(size: int, slowness: float) -> None:
    database, pace = Database(slowness), Pace()
    answers = carry_out(database, [Request(number) for number in range(size)], pace)
    assert {type(answer) for answer in answers.values()} == {DatabaseSlowError}
    assert not database.carried_out
    assert pace.pause_s > 0
    assert database.now <= 7 * RULES.limit_s
    database.slowness = 1.0
    assert carry_out(database, [Request(0)], pace) == {0: "done"}
    assert pace.pause_s == 0


@settings(max_examples=200, deadline=None)
@given(size=st.integers(2, 500), culprits=st.sets(st.integers(0, 499), min_size=1))
def test_however_many_are_at_fault_there_is_an_end(size: int, culprits: set[int]) -> None:
    database = Database()
    batch = [Request(number, 1000.0 if number in culprits else QUICK_S) for number in range(size)]
    answers = carry_out(database, batch)
    assert database.now <= 7 * RULES.limit_s
    assert all(answer == "done" or isinstance(answer, TooSlowError | DatabaseSlowError) for answer in answers.values())
    assert all(isinstance(answers[number], QueenError) for number in culprits if number < size)


def test_halves_have_shorter_limits_and_the_one_at_fault_more_and_more_when_the_others_are_done() -> None:
    database = Database()
    answers = carry_out(database, [Request(0), Request(1), Request(2, 1000.0), Request(3)])
    assert database.calls == [
        ([0, 1, 2, 3], 30.0), ([0, 1], 7.5), ([2, 3], 7.5), ([2], 1.875), ([3], 1.875), ([2], 7.5),
        ([2], 30.0),
    ]  # fmt: skip
    assert {number: answer for number, answer in answers.items() if number != 2} == {0: "done", 1: "done", 3: "done"}
    assert isinstance(answers[2], TooSlowError)
    assert str(answers[2]) == (
        "PostgreSQL did not complete this request within 30 s, although it ran alone (DB_STATEMENT_TIMEOUT); "
        "nothing of it was stored. Send it in smaller parts"
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
    first, second = (Bisection([Request(number)], RULES, pace, now) for number in range(2))
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
    slow, other = Bisection([Request(0), Request(1)], RULES, pace, 0.0), Bisection([Request(2)], RULES, pace, 1.0)
    [part] = [other.next(1.0)]
    assert part is not None
    assert other.settle(part, [(part.requests[0], "done")], 1.1) == [(part.requests[0], "done")]
    answers, now = dict[int, type](), 0.0
    while (part := slow.next(now)) is not None:
        now += 30.0 if part.limit_s is None else part.limit_s
        outcomes: list[tuple[Request, Any]] = [(request, TooSlowError("slow")) for request in part.requests]
        answers |= {request.number: type(answer) for request, answer in slow.settle(part, outcomes, now)}
    assert answers == {0: TooSlowError, 1: TooSlowError}


# ---------------------------------------------------------------- locks


def waiting_for(number: int, *locks: int) -> Request:
    return Request(number, locks=frozenset(locks))


@checks("G-ISO-1", level=Level.MODEL)
def test_requests_that_need_a_lock_wait_apart_and_the_others_are_called_again_together() -> None:
    database = Database(locked={1: 1e6, 2: 0.2, 3: 0.0})
    batch = Batch(database)
    batch.carry_out([Request(0), waiting_for(1, 1), Request(2), waiting_for(3, 2), waiting_for(4, 3)])
    assert database.calls == [([0, 1, 2, 3, 4], 30.0), ([0, 2, 4], 30.0)]
    assert batch.line.locks == {1, 2}
    batch.rounds()
    assert isinstance(batch.answers.pop(1)[0], LockedError)
    assert {number: answer for number, (answer, _) in batch.answers.items()} == dict.fromkeys([0, 2, 3, 4], "done")


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=300, deadline=None)
@given(batch=st.lists(st.frozensets(st.integers(0, 6), max_size=3), min_size=1, max_size=40), locked=locked)
def test_no_request_waits_for_a_lock_of_another_nor_in_vain_for_one_that_ends_in_time(
    batch: list[frozenset[int]], locked: dict[int, float]
) -> None:
    requests = [waiting_for(number, *locks) for number, locks in enumerate(batch)]
    database = Database(locked=locked)
    carried = Batch(database)
    carried.carry_out(requests)
    # Two calls, of which each waits at most once: locks that end between them are waited for.
    assert database.now <= 2 * (LOCK_WAIT_S + len(requests) * QUICK_S)
    for request in requests:
        if database.free_at(request) == 0.0:
            assert carried.answers[request.number][0] == "done"
    carried.rounds()
    for request in requests:
        answer, at = carried.answers[request.number]
        if database.free_at(request) < RULES.retry_timeout_s - SLACK_S:
            assert answer == "done"
            assert at <= database.free_at(request) + SLACK_S
        elif database.free_at(request) > RULES.retry_timeout_s + SLACK_S:
            assert isinstance(answer, LockedError)
            assert RULES.retry_timeout_s <= at <= RULES.retry_timeout_s + SLACK_S


def test_a_lock_that_goes_from_one_to_the_next_and_is_never_free_is_waited_for_in_turn() -> None:
    line = LockQueue[str, int](RULES)
    for request, lock in {"a": 1, "b": 2, "c": 1, "d": 3}.items():
        line.join(request, frozenset([lock]), 0.0)
    turns = []
    for _ in range(4):
        turns.append(line.take_turn(at_most(9)))
        line.end(line.turn, 0.0, called=True)
    assert turns == [["a", "c"], ["b"], ["d"], ["a", "c"]]
    assert line.take_turn(at_most(9)) == ["b"]
    assert line.take_free(frozenset([3]), at_most(9)) == ["a", "c"], "not who is in a call already"
    line.end(line.free, 0.0, called=True)
    assert line.take_free(frozenset([3]), at_most(1)) == ["a"], "as many as share a call"
    assert [line.take_turn(at_most(9)) for _ in range(3)] == [["d"], ["c"], []]
    assert line.late(frozenset([1, 2, 3]), 1e6) == [], "who is in a call has its answer by that"


def test_lone_lock_waits_are_longer_the_fewer_requests_wait() -> None:
    line = LockQueue[str, int](RULES)
    waits = []
    for number in range(200):
        line.join(str(number), frozenset([number]), 0.0)
        waits.append(line.wait_s())
    assert waits == sorted(waits, reverse=True)
    assert (waits[0], waits[-1]) == (RULES.retry_timeout_s / 4, LOCK_WAIT_S)


def test_a_round_pauses_for_longer_and_longer_while_no_request_gets_through() -> None:
    line = LockQueue[str, int](RULES)
    line.join("a", frozenset([1]), 0.0)
    pauses = [line.end(line.turn, 0.0, called=bool(line.take_turn(at_most(9)))) for _ in range(7)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    line.join("b", frozenset([2]), 0.0)
    assert line.take_turn(at_most(1)) == ["a"]
    assert line.take_free(frozenset([1]), at_most(9)) == ["b"]
    line.leave("b", locked_error())
    assert line.end(line.free, 0.0, called=True) == 0.02, "a pause of its own"
    line.leave("a", "done")
    assert [line.end(line.turn, 0.0, called=called) for called in (True, False)] == [0.0, 0.02]
    assert line.due is None
    assert not line.locks


def test_a_waiting_request_keeps_its_deadline_after_a_change() -> None:
    line = LockQueue[str, int](RULES)
    line.join("a", frozenset([1]), 0.0)
    line.join("b", frozenset([1]), 1.0)
    line.join("a", frozenset([2]), 2.0)
    assert line.locks == {1, 2}
    both, times = frozenset([1, 2]), [RULES.retry_timeout_s + seconds for seconds in (-0.1, 0.0, 1.0)]
    assert [line.late(both, now) for now in times] == [[], ["a"], ["a", "b"]]
    assert line.late(frozenset([1]), times[2]) == ["b"], "what the other needs is free now"
    assert line.join("b", frozenset([3]), times[1])
    assert not line.join("a", frozenset([3]), times[1])


def test_where_calls_may_not_be_repeated_the_first_failure_is_the_last() -> None:
    for problem, expected in [(TooSlowError("slow"), TooSlowError), (TooSlowError("lock", lock=True), LockedError)]:
        trial = Bisection([Request(0)], RULES, Pace(), 0.0, repeats=False)
        part = trial.next(0.0)
        assert part is not None
        assert [type(answer) for _, answer in trial.settle(part, [(Request(0), problem)], 30.0)] == [expected]
        assert trial.next(30.0) is None


def test_requests_whose_calls_failed_apart_are_not_put_together() -> None:
    """A handler that makes several calls returns the error of each: what the others did stays done."""
    trial, [a, b, c] = Bisection(["a", "b", "c"], RULES, Pace(), 0.0), ["a", "b", "c"]
    part = trial.next(0.0)
    assert part is not None
    shared = DataRejectedError("one of them")
    assert trial.settle(part, [(a, shared), (b, "done"), (c, shared)], 1.0) == [(b, "done")]
    rest = [trial.next(1.0), trial.next(1.0)]
    assert rest == [Part(["a"]), Part(["c"])]


def test_only_those_of_the_call_that_met_a_lock_wait_for_it() -> None:
    trial: Bisection[str] = Bisection(["a", "b", "c", "d"], RULES, Pace(), 0.0)
    part = trial.next(0.0)
    assert part is not None
    one, other = TooSlowError("lock", lock=True), TooSlowError("lock", lock=True)
    x, y = frozenset(["x"]), frozenset(["y"])
    outcomes = [("a", one), ("b", "done"), ("c", other), ("d", other)]
    assert trial.settle(part, outcomes, 1.0, {"a": x, "d": y}) == [("b", "done"), ("a", Locked(x)), ("d", Locked(y))]
    again = trial.next(1.0)
    assert again is not None
    assert again.requests == ["c"]
    [(_, answer)] = trial.settle(again, [("c", other)], 2.0)
    assert [type(lock) for lock in answer.locks] == [UnknownLock]


# ---------------------------------------------------------------- one call


SLOW, LOST, DOWN = TooSlowError("slow"), OutcomeUnknownError("lost"), DatabaseUnavailableError("down")
LOCK = TooSlowError("lock timeout", lock=True)


@pytest.mark.parametrize(
    ("problems", "ends_with"),
    [
        ((SLOW,), TooSlowError),
        ((DOWN, SLOW), TooSlowError),
        ((LOST, SLOW), None),
        ((LOST, SLOW, DOWN), None),
        ((LOST,), None),
        ((DOWN,), None),
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
    [((DOWN,), DatabaseUnavailableError), ((LOST, SLOW), OutcomeUnknownError), ((LOST, DOWN), OutcomeUnknownError)],
)
def test_an_unknown_outcome_is_reported_after_the_retries(
    problems: Sequence[QueenError], ends_with: type[QueenError]
) -> None:
    repeats = Repeats(RULES, 0.0)
    assert [type(repeats.after(problem, 5.1, waits=True)) for problem in problems][-1] is ends_with


@pytest.mark.parametrize(
    ("problems", "ends_with"),
    [((LOST, SLOW), TooSlowError), ((LOST, LOCK), TooSlowError), ((LOST,), None), ((DOWN,), None)],
)
def test_idempotent_calls_have_no_unknown_outcome_and_block_no_others_at_a_lock(
    problems: Sequence[QueenError], ends_with: type[QueenError] | None
) -> None:
    repeats = Repeats(RULES, 0.0, idempotent=True)
    after = [repeats.after(problem, 0.0, waits=True) for problem in problems]
    assert isinstance(after[-1], ends_with or float)
    assert type(repeats.after(LOST, 5.1, waits=True)) is DatabaseUnavailableError


@given(times=st.lists(st.floats(0, 0.1), min_size=200, max_size=200))
def test_no_call_is_repeated_for_longer_than_the_patience(times: list[float]) -> None:
    repeats, now = Repeats(RULES, 0.0), 0.0
    for takes_s in times:
        now += takes_s
        pause_s = repeats.after(DOWN, now, waits=True)
        if not isinstance(pause_s, float):
            break
        now += pause_s
        assert now <= RULES.retry_timeout_s
    else:
        pytest.fail("it goes on and on")


# ---------------------------------------------------------------- the engine


class Harness:
    """An engine with one kind of jobs that write and one that look, over such a database."""

    def __init__(self, database: Database) -> None:
        self.database, self.answers, self.answered = database, dict[int, tuple[Any, float]](), 0
        self.loop = asyncio.get_running_loop()
        context: Any = SimpleNamespace(
            notify=ignore_notification, unavailable=False, cache=None, orphans=Orphans(), unfinished=set(), rules=RULES,
            prefetch=Prefetch(), pop_maintenance=False,
            counters=SimpleNamespace(batch=lambda *_: None), database=self,
        )  # fmt: skip
        waiting = Waiting(Popped(), self.give_back, lambda *_: None)
        self.in_flight = Counter[str]()
        table = {
            JobType.PUSH: JobSpec(self.handle, locks=lambda _, request: frozenset(map(abs, request.locks))),
            JobType.POP: JobSpec(self.look, waiting=waiting),
        }
        policy = BatchPolicy(preferred=50, hold_ms=0, batch_max=64, in_flight_max=1, queued_max=300)
        shares = Shares(4, 1, 1000)
        self.engine = Engine(
            context, lambda _kind: JobQueue(policy), Waiters(100, 1000), shares, self.answer, table, self.loop.time
        )

    async def handle(self, _context: object, requests: Sequence[Request]) -> list[Any]:
        limit_s = call_limit_s.get() or RULES.limit_s
        takes_s, problem = self.database.ends(requests, limit_s, self.loop.time(), lock_wait_s.get() or LOCK_WAIT_S)
        self.in_flight["now"] += 1
        self.in_flight["most"] = max(self.in_flight["most"], self.in_flight["now"])
        await asyncio.sleep(takes_s)
        self.in_flight["now"] -= 1
        if problem is not None:
            raise problem
        return [request.number for request in requests]

    async def find_locked(self, locks: AbstractSet[int]) -> frozenset[int]:
        await asyncio.sleep(QUICK_S)
        return self.database.find_locked(locks, self.loop.time())

    async def look(self, _context: object, pops: Sequence[Pop]) -> list[Any]:
        await self.handle(None, [Request(int(pop.queue), locks=frozenset([int(pop.queue)])) for pop in pops])
        return [Outcome() for _ in pops]

    async def give_back(self, *_: object) -> None:
        raise AssertionError("nothing was found")

    def answer(self, job: Job, result: Any) -> None:
        self.answers[id(job)] = (result, self.loop.time())
        self.answered += 1

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
        metrics = harness.engine.metrics()
        assert (metrics.hot.free, [job_queue.in_flight for job_queue in metrics.job_queues]) == (4, [0, 0])

    run(live())


@pytest.mark.parametrize("lock", [None, 1])
def test_what_is_answered_is_freed_while_the_rest_of_a_slow_call_is_repeated(lock: int | None) -> None:
    """A pop's answer may have 16 MiB, and a batch 500 pops. With a lock it is a call for those that waited for it."""

    async def live() -> None:
        harness, needs = Harness(Database(locked={1: 1.0})), frozenset[int]() if lock is None else frozenset({lock})
        quick = [Request(number, locks=needs) for number in range(39)]
        jobs = harness.submit(JobType.PUSH, [*quick, Request(39, 1000.0, needs)])
        futures = [weakref.ref(job.future) for job in jobs]
        del jobs
        while harness.answered < 20:  # those of the first half of a call that was too slow
            await asyncio.sleep(0.5)
        assert harness.in_flight["now"] == 1, "the next part is under way"
        assert (done := harness.answered) < 40
        assert [future() for future in futures].count(None) == done
        await harness.engine.stop()

    gc.disable()
    try:
        run(live())
    finally:
        gc.enable()


@checks("G-ISO-1", level=Level.MODEL)
@settings(max_examples=30, deadline=None)
@given(
    until=st.floats(1.0, RULES.retry_timeout_s - SLACK_S), waiting=st.integers(1, 200), locks=st.integers(1, 30),
    others=st.lists(st.integers(1, 5), min_size=10, max_size=10),
)  # fmt: skip
def test_the_engine_goes_on_while_some_wait_for_locks(
    until: float, waiting: int, locks: int, others: list[int]
) -> None:
    async def live() -> None:
        harness = Harness(Database(locked=dict.fromkeys(range(locks), until)))
        held_up = [
            waiting_for(number, number % locks, 0 if number % 3 else number % locks) for number in range(waiting)
        ]
        jobs = harness.submit(JobType.PUSH, held_up)
        for number, size in enumerate(others):
            innocent = [Request(1000 + 100 * number + each) for each in range(size)]
            later = waiting_for(500 + number, 0)
            jobs += harness.submit(JobType.PUSH, [later])
            sent = harness.submit(JobType.PUSH, innocent)
            await asyncio.sleep(0.25)
            assert all(id(job) in harness.answers for job in sent), "50 ms twice at most, and what the calls take"
            if harness.loop.time() < until:
                assert harness.engine.queued == waiting + number + 1
        await asyncio.sleep(until + SLACK_S + (waiting + 10) * QUICK_S)
        results = [harness.answers[id(job)][0] for job in jobs]
        assert results == [request.number for request in held_up] + [500 + number for number in range(10)]
        assert harness.in_flight["most"] <= 3, "those that wait share two connections"
        await harness.engine.stop()
        metrics = harness.engine.metrics()
        assert (metrics.hot.free, harness.engine.queued) == (4, 0)

    run(live())


@pytest.mark.parametrize("number", [0, -1])
def test_requests_that_wait_for_a_lock_are_counted_and_answered_at_shutdown(number: int) -> None:
    async def live() -> None:
        harness = Harness(Database(locked={number: 1e6}))
        jobs = harness.submit(JobType.PUSH, [waiting_for(each, number) for each in range(300)])
        await asyncio.sleep(1)
        [refused] = harness.submit(JobType.PUSH, [Request(1000)])
        assert isinstance(harness.answers[id(refused)][0], OverloadedError)
        harness.engine.abandon(jobs[0])
        await harness.engine.stop()
        assert id(jobs[0]) not in harness.answers
        assert {type(harness.answers[id(job)][0]) for job in jobs[1:]} == {LockedError}
        assert (harness.engine.metrics().hot.free, harness.engine.queued) == (4, 0)

    run(live())


def test_a_long_poll_waits_until_a_lock_is_released() -> None:
    async def live() -> None:
        harness = Harness(Database(locked={-1: 20.0}))
        [job] = harness.submit(JobType.POP, [Pop("-1", wait_ms=600_000)])
        await asyncio.sleep(30)
        assert not harness.answers
        assert harness.engine.metrics().waiting == 1
        await harness.engine.stop()
        assert isinstance(harness.answers[id(job)][0], Popped)

    run(live())


def test_no_final_attempt_for_a_disconnected_client() -> None:
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


def test_a_long_poll_waits_for_a_slow_database_and_a_plain_pop_is_refused() -> None:
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
    trial: Bisection[int] = Bisection([1, 2], RULES, Pace(), 0.0, repeats=False)
    part = trial.next(0.0)
    assert part is not None
    refused = DataRejectedError("bad data")
    assert trial.settle(part, [(1, refused), (2, refused)], 1.0) == []
    alone = [part.requests for part in iter(lambda: trial.next(1.0), None)]
    assert alone == [[1], [2]]


def test_calls_follow_each_other_without_pauses_while_the_patience_of_others_is_over() -> None:
    line = LockQueue[str, int](RULES)
    for name in ("a", "b"):
        assert line.join(name, frozenset({1}), 0.0)
    pauses = [
        line.end(line.turn, now, called=bool(line.take_turn(at_most(1)))) for now in (0.0, 1.0, RULES.retry_timeout_s)
    ]
    assert [pause > 0.0 for pause in pauses] == [True, True, False]
    assert line.end(line.turn, RULES.retry_timeout_s, called=False) > 0.0, "without a call it would spin"
