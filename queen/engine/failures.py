"""The one policy for failures: what the engine does after a call to PostgreSQL has failed. No I/O, no clock.

    what happened, and its error    what is known        what follows
    ----------------------------    -----------------    -----------------------------------------------------------
    unreachable                     nothing was sent     A push is spooled, a long poll stays parked. Any other call
      DatabaseUnavailableError                           is repeated, with pauses, until DB_PATIENCE_MS is over:
                                                         503 database_unavailable.
    outcome unknown                 committed, or not    The same. The call is sent again under the same id, so that
      OutcomeUnknownError                                it happens once. If the outcome stays unknown: 503
                                                         outcome_unknown.
    too slow                        nothing was changed  Never an outage, never spooled. The batch is halved, each
      TooSlowError                                       half under a shorter limit. A request that is too slow alone
                                                         is called again when the others are answered, each time with
                                                         a longer limit, in the end with the whole one; then it is at
                                                         fault: 504 too_slow. But if the next one alone is too slow as
                                                         well, and no other call of the kind succeeds, PostgreSQL is
                                                         slow: 503 database_slow for all, and the next calls pause
                                                         before they begin.
    locked                          nothing was changed  Never at fault. A call waits 50 ms for a lock; then the engine
      TooSlowError, lock                                 asks PostgreSQL which locks other transactions hold now. The
                                                         requests that need one of them join the lock queue of their
                                                         kind; the rest is called again at once, together. If that
                                                         meets a lock that cannot be named, all join the lock queue,
                                                         and are halved there. A request that has been in it for
                                                         DB_PATIENCE_MS: 503 locked.
    refused                         nothing was changed  The batch is halved until the request at fault is alone and
      DataRejectedError                                  gets the error. If the call took longer than a shorter
                                                         limit, each half has that limit.

A call is halved between requests, never inside one. ``Repeats`` decides the first two rows, for one call; ``Bisection``
the others, for the requests of a batch; ``LockQueue`` (``queen.engine.lock_queue``) when requests that wait for locks
are called. A call that was sent again because its outcome is unknown stays unknown if it is too slow then: halves would
have other ids.

How long a request may wait for others: after a call that was too slow under the limit T, its halves have the limit T/4,
their halves T/16, and so on, but not below T/64 or 0.25 s. That goes on for 2T. Then the requests that were too slow
alone are called for 3T, round by round, each with four times its last limit. A request that was not called by then is
answered 503: it shared its batch with dozens that were at fault, or takes more than T/4 itself and shared it with two
others that do.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from contextvars import ContextVar
from math import inf
from typing import Any, Generic, TypeVar

from msgspec import Struct

from queen.core.backoff import doubled
from queen.core.errors import (
    DatabaseSlowError,
    DatabaseUnavailableError,
    DataRejectedError,
    LockedError,
    OutcomeUnknownError,
    QueenError,
    TooSlowError,
)

R = TypeVar("R", bound=Hashable)

#: The time limit in seconds of the calls that are made in this context; ``None``: that of the connection.
call_limit_s: ContextVar[float | None] = ContextVar("call_limit_s", default=None)
#: How long such a call waits for a lock, if it has a time limit of its own.
lock_wait_s: ContextVar[float | None] = ContextVar("lock_wait_s", default=None)
#: Whether the engine sends no other call in the same step, which could share the transaction of one in this context.
leaves_alone: ContextVar[bool] = ContextVar("leaves_alone", default=False)

PAUSE_FIRST_MS, PAUSE_LIMIT_MS = 20.0, 500.0
#: How long the calls of a kind pause before the next one when PostgreSQL is slow.
_SLOW_FIRST_MS, _SLOW_LIMIT_MS = 100.0, 2000.0
_SHORTER, _SHORTEST, _SHORTEST_S = 4, 64, 0.25
#: How long a batch is halved: in whole limits, and the minimum in seconds.
_SEARCH, _SEARCH_S = 2, 10.0
#: For how many whole limits the requests that were too slow alone are called afterwards.
_LONGER_TRIES = 3

# Consumers of the published client end when a pop fails, unless the text has the word "timeout".
_TOO_SLOW = "PostgreSQL did not complete this request within {:g} s, although it ran alone (DB_STATEMENT_TIMEOUT)"
_IN_PARTS = "; nothing of it was stored. Send it in smaller parts"
_SLOW = "PostgreSQL is too slow at the moment: all requests exceed DB_STATEMENT_TIMEOUT. Try again later"
_NO_TIME = "This request was not executed, because others in its batch exceeded DB_STATEMENT_TIMEOUT. Try again"
_LOCKED = "Another transaction in PostgreSQL holds a lock that this request needs (lock timeout). Try again later"


def shorter_limit_s(limit_s: float, whole_s: float) -> float:
    """The limit of the parts of a call that was too slow under ``limit_s``, where the first had ``whole_s``."""
    return min(whole_s, max(limit_s / _SHORTER, whole_s / _SHORTEST, _SHORTEST_S))


class Rules(Struct, frozen=True):
    """The settings of the policy.

    Attributes:
        limit_s: how long a call may take (``DB_STATEMENT_TIMEOUT``).
        retry_timeout_s: how long a call is repeated (``DB_PATIENCE_MS``).
    """

    limit_s: float
    retry_timeout_s: float


def search_s(rules: Rules) -> float:
    """How long the requests at fault are searched for by halving."""
    return _SEARCH * rules.limit_s


class Repeats:
    """One call that is repeated while PostgreSQL is unreachable.

    Args:
        rules: the settings.
        now: when it begins.
        alone: whether it is the call of one request, so that it may wait for locks too.
        idempotent: whether it may be executed twice, so that an unknown outcome does not matter.

    Attributes:
        again: whether an earlier attempt may have been committed although its answer was lost.
    """

    def __init__(self, rules: Rules, now: float, *, alone: bool = False, idempotent: bool = False) -> None:
        self._alone, self._idempotent = alone, idempotent
        self.again = False
        self._until = now + rules.retry_timeout_s
        self._pause_ms = 0.0

    def after(self, problem: QueenError, now: float, *, waits: bool) -> float | QueenError:
        """Seconds until the next attempt, or the final error; ``waits``: whether another attempt is allowed."""
        if self._idempotent and isinstance(problem, OutcomeUnknownError):
            problem = DatabaseUnavailableError(str(problem))
        if isinstance(problem, TooSlowError) and not self.again and not (self._alone and problem.lock):
            return problem
        self.again = self.again or isinstance(problem, OutcomeUnknownError)
        self._pause_ms = doubled(self._pause_ms, PAUSE_FIRST_MS, PAUSE_LIMIT_MS)
        if waits and now + self._pause_ms / 1000 <= self._until:
            return self._pause_ms / 1000
        if self.again and not isinstance(problem, OutcomeUnknownError):
            return OutcomeUnknownError(str(problem))
        return problem


class Pace:
    """Whether the calls of one kind succeed in time at the moment, as one worker sees it.

    Attributes:
        pause_s: how long each call waits before it begins.
    """

    def __init__(self) -> None:
        self.pause_s = 0.0
        self._through = self._slow = -inf

    def got_through(self, begun: float) -> None:
        """Notes that a call which began then succeeded in time."""
        self._through = max(self._through, begun)
        self.pause_s = 0.0

    def too_slow(self, now: float) -> None:
        """Notes that a request alone was too slow under the whole limit."""
        self._slow = now

    def back_off(self) -> None:
        """Makes the pause longer, because PostgreSQL is slow."""
        self.pause_s = doubled(self.pause_s * 1000, _SLOW_FIRST_MS, _SLOW_LIMIT_MS) / 1000

    def through_since(self, begin: float) -> bool:
        """Whether a call that began since then succeeded in time."""
        return self._through >= begin

    def too_slow_since(self, begin: float) -> bool:
        """Whether a request alone was too slow since then."""
        return self._slow >= begin


class Part(Struct, Generic[R], frozen=True):
    """Requests that share the next call.

    Attributes:
        limit_s: the time limit of the call; ``None``: the default.
        pause_s: how long to wait before the call.
        again: whether the requests have met a lock before, although other transactions hold none that they are known to
            need; then a lock that they meet is an ``UnknownLock``.
        wait_s: how long the call waits for a lock; ``None``: the default.
    """

    requests: Sequence[R]
    limit_s: float | None = None
    pause_s: float = 0.0
    again: bool = False
    wait_s: float | None = None


class Locked(Struct, frozen=True):
    """The outcome of a request that needs a lock of another transaction: it joins the lock queue of its kind.

    Attributes:
        locks: the locks that it waits for; an ``UnknownLock`` if they cannot be named.
    """

    locks: frozenset[Hashable]


class UnknownLock:
    """A lock that cannot be named.

    Attributes:
        alone: whether one request has met it alone; otherwise halving finds out which of several requests needs it.
    """

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone


class Bisection(Generic[R]):
    """The requests of a batch until each has its answer; a failed call is halved. Times are in seconds, by one clock.

    Args:
        requests: the batch.
        rules: the settings.
        pace: of their kind.
        now: when it begins.
        repeats: whether requests may be called again; if not, a request ends with the first failure of its call.
        wait_s: how long the first call waits for locks, if its requests come from a lock queue. Then it has a shorter
            limit, and shares its transaction with no other kind, like every call after a failed one.
    """

    def __init__(
        self,
        requests: Sequence[R],
        rules: Rules,
        pace: Pace,
        now: float,
        *,
        repeats: bool = True,
        wait_s: float | None = None,
    ) -> None:
        self._rules, self._pace, self._repeats = rules, pace, repeats
        self._begun = self._called = now
        limit_s = shorter_limit_s(rules.limit_s, rules.limit_s) if wait_s is not None else None
        self._parts = deque([Part(requests, limit_s, pace.pause_s, wait_s=wait_s)])
        #: Requests that were too slow alone: to be called with a longer limit, and those that had the whole limit.
        self._to_retry: list[Part[R]] = []
        self._timed_out: list[R] = []
        self._searches = True
        self._until = now + rules.limit_s + max(_SEARCH * rules.limit_s, _SEARCH_S)

    def next(self, now: float) -> Part[R] | None:
        """The requests of the next call, which begins now; ``None`` if all are answered."""
        self._called = now
        return self._parts.popleft() if self._parts else None

    def settle(
        self,
        part: Part[R],
        outcomes: Sequence[tuple[R, Any]],
        now: float,
        locks: Mapping[R, frozenset[Hashable]] | None = None,
    ) -> Sequence[tuple[R, Any]]:
        """The requests that are answered after a call, with their answers; ``Locked`` for those that wait for locks.

        Args:
            part: that was called last.
            outcomes: its requests without those whose sender has gone, each with its result or the error of its call;
                requests of the same call have the same error.
            now: when the call ended.
            locks: if the call met a lock, by request: the locks that it needs and other transactions hold now.
        """
        if not any([isinstance(result, Exception) for _, result in outcomes]):  # nearly always
            if outcomes:
                self._pace.got_through(self._called)
            return [*outcomes, *self._judge(now)] if self._pending else outcomes
        answers: list[tuple[R, Any]] = []
        failed: dict[int, tuple[TooSlowError | DataRejectedError, list[R]]] = {}
        for request, result in outcomes:
            if isinstance(result, TooSlowError | DataRejectedError):
                failed.setdefault(id(result), (result, []))[1].append(request)
            else:
                answers.append((request, result))
        if any([not isinstance(result, Exception) for _, result in answers]):
            self._pace.got_through(self._called)
        for problem, requests in failed.values():
            if isinstance(problem, DataRejectedError):
                answers += self._after_refusal(part, problem, requests, now - self._called)
            else:
                answers += self._after_timeout(part, problem, requests, locks or {})
        return answers + self._judge(now)

    @property
    def _pending(self) -> bool:
        return bool(self._parts or self._to_retry or self._timed_out)

    def _after_refusal(
        self, part: Part[R], problem: DataRejectedError, requests: list[R], took_s: float
    ) -> list[tuple[R, Any]]:
        if len(requests) == 1:
            return [(requests[0], problem)]
        # Otherwise a slow request would be executed again in vain for each refused request beside it.
        shorter_s = shorter_limit_s(part.limit_s or self._rules.limit_s, self._rules.limit_s)
        self._halve(requests, shorter_s if took_s > shorter_s else part.limit_s)
        return []

    def _after_timeout(
        self, part: Part[R], problem: TooSlowError, requests: list[R], locks: Mapping[R, frozenset[Hashable]]
    ) -> list[tuple[R, Any]]:
        whole_s = self._rules.limit_s
        limit_s = part.limit_s or problem.limit_s or whole_s
        if not self._repeats and len(requests) > 1:
            return [(request, problem) for request in requests]
        if problem.lock:
            return self._after_lock(part, requests, locks)
        if len(requests) > 1:
            self._halve(requests, shorter_limit_s(limit_s, whole_s))
        elif limit_s >= whole_s or not self._repeats:
            self._timed_out += requests
        else:
            longer = Part(requests, min(limit_s * _SHORTER, whole_s))
            (self._to_retry if self._searches else self._parts).append(longer)
        return []

    def _halve(self, requests: list[R], limit_s: float | None) -> None:
        self._parts += [Part(half, limit_s) for half in _halves(requests)]

    def _after_lock(
        self, part: Part[R], requests: list[R], locks: Mapping[R, frozenset[Hashable]]
    ) -> list[tuple[R, Any]]:
        if not self._repeats:
            return [(request, locked_error()) for request in requests]
        rest = [request for request in requests if request not in locks]
        if rest and not part.again:
            self._parts.appendleft(Part(rest, part.limit_s or self._rules.limit_s, again=True))
            rest = []
        met = {**locks}
        for half in _halves(rest):
            met |= dict.fromkeys(half, frozenset([UnknownLock(alone=len(rest) == 1)]))
        return [(request, Locked(met[request])) for request in requests if request in met]

    def _judge(self, now: float) -> list[tuple[R, Any]]:
        """Answers requests that were too slow alone, once it is clear why, and requests whose time is over."""
        through = self._pace.through_since(self._begun)
        answers: list[tuple[R, Any]] = []
        late = self._parts and now >= self._until
        if through:
            answers += self._answer_timed_out()
        elif late or self._postgres_is_slow():
            return self._give_up(now)
        if late:
            answers += [(request, DatabaseSlowError(_NO_TIME)) for request in self._drop()]
        if self._parts:
            return answers
        if self._to_retry:
            self._searches, self._until = False, now + _LONGER_TRIES * self._rules.limit_s
            self._parts += sorted(self._to_retry, key=lambda part: part.limit_s or inf)
            self._to_retry = []
        elif self._timed_out:
            self._pace.too_slow(now)
            answers += self._answer_timed_out()
        return answers

    def _postgres_is_slow(self) -> bool:
        """Whether more than one request is too slow alone."""
        return len(self._timed_out) > 1 or (bool(self._timed_out) and self._pace.too_slow_since(self._begun))

    def _give_up(self, now: float) -> list[tuple[R, Any]]:
        """Answers all requests: PostgreSQL is slow, no request is at fault, and all calls of the kind back off."""
        self._pace.too_slow(now)
        self._pace.back_off()
        self._parts += self._to_retry
        slow = [*self._timed_out, *self._drop()]
        self._timed_out, self._to_retry = [], []
        return [(request, DatabaseSlowError(_SLOW)) for request in slow]

    def _drop(self) -> list[R]:
        dropped = [request for part in self._parts for request in part.requests]
        self._parts.clear()
        return dropped

    def _answer_timed_out(self) -> list[tuple[R, Any]]:
        timed_out, self._timed_out = self._timed_out, []
        text = _TOO_SLOW.format(self._rules.limit_s) + (_IN_PARTS if self._repeats else "")
        return [(request, TooSlowError(text)) for request in timed_out]


def _halves(requests: list[R]) -> tuple[list[R], list[R]]:
    middle = len(requests) // 2
    return requests[:middle], requests[middle:]


def locked_error() -> LockedError:
    """The answer to a request that has waited too long for a lock."""
    return LockedError(_LOCKED)
