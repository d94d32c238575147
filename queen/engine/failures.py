"""The one policy for failures: what follows when a call to PostgreSQL has failed. No I/O, no clock.

    what happened, and its error    what is known        what follows
    ----------------------------    -----------------    -----------------------------------------------------------
    unreachable                     nothing was sent     A push is spooled, a long poll stays parked. Any other call
      DatabaseUnavailableError                           is repeated, with pauses, until DB_PATIENCE_MS is over:
                                                         503 database_unavailable.
    outcome unknown                 committed, or not    The same; it is sent again under the same id, so that it
      OutcomeUnknownError                                happens once. What nobody can tell in the end: 503
                                                         outcome_unknown.
    too slow                        nothing was changed  Never an outage, never spooled. The requests are halved, each
      TooSlowError                                       half under a shorter limit. One that is too slow alone is
                                                         tried again when the others are answered, each time with more,
                                                         in the end with the whole limit; then it is at fault: 504
                                                         too_slow. But if the next one alone is too slow as well, and
                                                         nothing else of the kind gets through, PostgreSQL is slow: 503
                                                         database_slow for all, and the next calls pause before they
                                                         begin.
    locked                          nothing was changed  Never at fault. A call waits 50 ms for a lock; then PostgreSQL
      TooSlowError, lock                                 is asked what others have locked now. Who needs that joins the
                                                         line of its kind; the rest is called again at once, together.
                                                         If that meets a lock that nobody can name, all join the line,
                                                         and are halved there. Who has been in it for DB_PATIENCE_MS:
                                                         503 locked.
    refused                         nothing was changed  The requests are halved, until the one at fault is alone and
      DataRejectedError                                  gets the error. If the call took longer than a shorter
                                                         limit, each half has that.

A call is halved between requests, never inside one. ``Repeats`` decides the first two rows, for one call; ``Trial`` the
others, for the requests of a batch; ``Line`` when those have calls that wait for locks. A call that was sent again
because its outcome is unknown stays unknown when it is too slow then: halves would have other ids.

How long others wait: after a call that was too slow under the limit T come halves under T/4, their halves under T/16,
and so on, but not below T/64 or 0.25 s. That goes on for 2T; then those that were too slow alone are tried for 3T, each
with four times the limit that it had, round by round. What had no turn by then is told to come again (503): it shared
its batch with dozens that were at fault, or takes more than T/4 itself and shared it with two others that do.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from itertools import chain, takewhile
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
from queen.core.limits import LOCK_WAIT_S

R = TypeVar("R", bound=Hashable)
L = TypeVar("L", bound=Hashable)

#: The time limit in seconds of the calls that are made in this context; ``None``: that of the connection.
call_limit_s: ContextVar[float | None] = ContextVar("call_limit_s", default=None)
#: And how long one of them waits for a lock, if it has a time limit of its own.
lock_wait_s: ContextVar[float | None] = ContextVar("lock_wait_s", default=None)

_PAUSE_FIRST_MS, _PAUSE_LIMIT_MS = 20.0, 500.0
#: How long the calls of a kind pause before the next one when PostgreSQL is slow.
_SLOW_FIRST_MS, _SLOW_LIMIT_MS = 100.0, 2000.0
_SHORTER, _SHORTEST, _SHORTEST_S = 4, 64, 0.25
#: How long a batch is halved: in whole limits, and at least so many seconds.
_SEARCH, _SEARCH_S = 2, 10.0
#: For how many whole limits those that were too slow alone are tried afterwards.
_LONGER_TRIES = 3
#: Who waits alone for a lock waits for a part of the patience at a time: so many others may have their turns.
_TURNS = 3

# Consumers of the published client end when a pop fails, unless the text has the word "timeout".
_TOO_SLOW = "PostgreSQL did not complete this request alone within {:g} s (DB_STATEMENT_TIMEOUT)"
_IN_PARTS = "; nothing of it was stored. Send it in smaller parts"
_SLOW = "PostgreSQL is too slow at the moment: all requests meet DB_STATEMENT_TIMEOUT. Try again later"
_NO_TIME = "PostgreSQL had no time for this request beside others that met DB_STATEMENT_TIMEOUT. Try again"
_LOCKED = "Another transaction in PostgreSQL holds a lock that this request needs (lock timeout). Try again later"


def shorter_limit_s(limit_s: float, whole_s: float) -> float:
    """The limit of the parts of a call that was too slow under ``limit_s``, where the first had ``whole_s``."""
    return min(whole_s, max(limit_s / _SHORTER, whole_s / _SHORTEST, _SHORTEST_S))


class Rules(Struct, frozen=True):
    """What may be set of the policy.

    Attributes:
        limit_s: how long a call may take (``DB_STATEMENT_TIMEOUT``).
        patience_s: how long a call is repeated (``DB_PATIENCE_MS``).
    """

    limit_s: float
    patience_s: float


class Repeats:
    """One call that is repeated while PostgreSQL cannot be reached.

    Args:
        rules: the settings.
        now: when it begins.
        alone: whether it is one request's, so that it may wait for locks too.
        harmless: whether it may be carried out twice, so that nothing of it is unknown.

    Attributes:
        again: whether an earlier try may have been committed although its answer was lost.
    """

    def __init__(self, rules: Rules, now: float, *, alone: bool = False, harmless: bool = False) -> None:
        self._alone, self._harmless = alone, harmless
        self.again = False
        self._until = now + rules.patience_s
        self._pause_ms = 0.0

    def after(self, problem: QueenError, now: float, *, waits: bool) -> float | QueenError:
        """Seconds until the next try, or the error with which the call ends; ``waits``: whether there may be one."""
        if self._harmless and isinstance(problem, OutcomeUnknownError):
            problem = DatabaseUnavailableError(str(problem))
        if isinstance(problem, TooSlowError) and not self.again and not (self._alone and problem.lock):
            return problem
        self.again = self.again or isinstance(problem, OutcomeUnknownError)
        self._pause_ms = doubled(self._pause_ms, _PAUSE_FIRST_MS, _PAUSE_LIMIT_MS)
        if waits and now + self._pause_ms / 1000 <= self._until:
            return self._pause_ms / 1000
        if self.again and not isinstance(problem, OutcomeUnknownError):
            return OutcomeUnknownError(str(problem))
        return problem


class Pace:
    """What a worker knows of the calls of one kind: whether they get through at the moment.

    Attributes:
        pause_s: how long each waits before it begins.
    """

    def __init__(self) -> None:
        self.pause_s = 0.0
        self._through = self._slow = -inf

    def got_through(self, begun: float) -> None:
        """A call that began then was carried out in time."""
        self._through = max(self._through, begun)
        self.pause_s = 0.0

    def too_slow(self, now: float) -> None:
        """A request alone was too slow, and had the whole limit."""
        self._slow = now

    def back_off(self) -> None:
        """PostgreSQL is slow."""
        self.pause_s = doubled(self.pause_s * 1000, _SLOW_FIRST_MS, _SLOW_LIMIT_MS) / 1000

    def through_since(self, begin: float) -> bool:
        """Whether a call that began since then was carried out in time."""
        return self._through >= begin

    def too_slow_since(self, begin: float) -> bool:
        """Whether a request that was alone has been too slow since then."""
        return self._slow >= begin


class Part(Struct, Generic[R], frozen=True):
    """Requests that go into a call together.

    Attributes:
        limit_s: the time limit of the call; ``None``: the usual one.
        pause_s: how long to wait before it.
        again: it has met a lock that nobody could name.
        wait_s: how long it waits for a lock; ``None``: as long as usual.
    """

    requests: Sequence[R]
    limit_s: float | None = None
    pause_s: float = 0.0
    again: bool = False
    wait_s: float | None = None


class Locked(Struct, frozen=True):
    """What becomes of a request that needs what others have locked: it joins the line of its kind.

    Attributes:
        locks: what of its needs that is; an ``Unnamed`` one where nobody can say.
    """

    locks: frozenset[Hashable]


class Unnamed:
    """A lock that nobody can name.

    Attributes:
        alone: whether one request has met it alone; else it is searched for who of several needs it.
    """

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone


class Round(Generic[R]):
    """Calls for those in a line, one after another, with pauses while nobody gets through.

    Attributes:
        under_way: whether there is a call, or a pause behind it.
    """

    def __init__(self) -> None:
        self.under_way = False
        self._pause_ms = 0.0
        self._moves = False

    def move(self) -> None:
        """Somebody of the call gets on."""
        self._moves = True

    def pause_s(self) -> float:
        """How long to wait before the next call, at the end of one."""
        self._pause_ms = 0.0 if self._moves else doubled(self._pause_ms, _PAUSE_FIRST_MS, _PAUSE_LIMIT_MS)
        self._moves = False
        return self._pause_ms / 1000


class Line(Generic[R, L]):
    """Requests of a kind that need what others have locked. They have calls of their own, and nobody waits with them.

    There are two at a time, however many they are, and so two connections. One is for those whose locks are free now.
    The other waits for the locks of a group that needs the same, each in turn: a lock may never be free, and only go
    from one who waits for it to the next.

    Attributes:
        free, turn: their rounds.
    """

    def __init__(self, rules: Rules) -> None:
        self._patience_s, self._search_s = rules.patience_s, _SEARCH * rules.limit_s
        #: What each waits for, and until when; the oldest first.
        self._waiting: dict[R, tuple[frozenset[L | Unnamed], float]] = {}
        #: Those that wait for the same, in the order of their turns.
        self._groups: dict[frozenset[L | Unnamed], dict[R, None]] = {}
        #: Those that are in a call.
        self._called: dict[R, Round[R]] = {}
        self.free, self.turn = Round[R](), Round[R]()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request: object) -> bool:
        return request in self._waiting

    @property
    def due(self) -> Round[R] | None:
        """A round that may go on."""
        if not self._waiting:
            return None
        return next((each for each in (self.free, self.turn) if not each.under_way), None)

    @property
    def locks(self) -> frozenset[L]:
        """What they wait for, as far as it has a name. Who needs something of that joins them."""
        locks = frozenset[L | Unnamed]().union(*self._groups)
        return frozenset([lock for lock in locks if not isinstance(lock, Unnamed)])

    def locks_of(self, request: R) -> frozenset[L | Unnamed]:
        """What one of them waits for."""
        return self._waiting[request][0]

    def join(self, request: R, locks: frozenset[L | Unnamed], now: float) -> bool:
        """A request waits for these locks, unless its patience is over. It keeps its place if it has done so before."""
        known, until = self._waiting.get(request, (None, now + self._patience_s))
        searches = any(isinstance(lock, Unnamed) and not lock.alone for lock in locks)
        if now >= until + searches * self._search_s:
            return False
        called = self._called.pop(request, None)
        if searches and called is not None:
            called.move()
        if known != locks:
            if known is not None:
                self._take_out(request, known)
            self._waiting[request] = locks, until
            self._groups.setdefault(locks, {})[request] = None
        return True

    def leave(self, request: R, answer: Any) -> None:  # noqa: ANN401 - a result or an exception
        """A request has its answer."""
        locks, _ = self._waiting.pop(request)
        self._take_out(request, locks)
        called = self._called.pop(request, None)
        if called is not None and not isinstance(answer, LockedError):
            called.move()

    def late(self, locked: AbstractSet[L], now: float) -> list[R]:
        """Those whose patience is over, where these are locked; in the end all. Not those that are in a call."""
        over = takewhile(lambda each: each[1][1] <= now, self._waiting.items())
        end = now - self._search_s
        late = [request for request, (locks, until) in over if until <= end or not locks.isdisjoint(locked)]
        return [request for request in late if request not in self._called]

    def take_free(self, locked: AbstractSet[L], fit: Callable[[Iterable[R]], int]) -> list[R]:
        """The requests of a call: those whose locks are free.

        Args:
            locked: what of ``locks`` is locked now.
            fit: how many of these requests, in this order, may share a call.
        """
        named = self.locks
        free = [group for locks, group in self._groups.items() if locks <= named and locks.isdisjoint(locked)]
        return self._take(chain.from_iterable(free), fit, self.free)

    def take_turn(self, fit: Callable[[Iterable[R]], int]) -> list[R]:
        """The requests of a call: those of the group whose turn it is."""
        for locks, group in list(self._groups.items()):
            if requests := self._take(group, fit, self.turn):
                self._groups[locks] = self._groups.pop(locks)
                return requests
        return []

    def end(self, round_: Round[R], requests: Iterable[R]) -> float:
        """The call of a round has ended; how long to wait before the next one."""
        for request in requests:
            if self._called.get(request) is round_:
                del self._called[request]
        return round_.pause_s()

    def wait_s(self) -> float:
        """How long a call may wait whose requests hold nothing else meanwhile."""
        return max(LOCK_WAIT_S, self._patience_s / (len(self._groups) + _TURNS))

    def _take(self, requests: Iterable[R], fit: Callable[[Iterable[R]], int], round_: Round[R]) -> list[R]:
        waiting = [request for request in requests if request not in self._called]
        taken = waiting[: fit(waiting)]
        self._called |= dict.fromkeys(taken, round_)
        return taken

    def _take_out(self, request: R, locks: frozenset[L | Unnamed]) -> None:
        group = self._groups[locks]
        del group[request]
        if not group:
            del self._groups[locks]


class Trial(Generic[R]):
    """The requests of a batch, until each has its answer. Times in seconds, by one clock.

    Args:
        requests: the batch.
        rules: the settings.
        pace: that of their kind.
        now: when it begins.
        repeats: whether calls may be made again; without, a request ends with the first failure of its call.
        wait_s: how long the first call waits for locks, if it is one of a line. Like all that follow one that has
            failed it has a shorter limit then, and shares its transaction with no other kind.
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
        #: Too slow alone: those that are to be tried for longer, and those that had the whole limit.
        self._suspects: list[Part[R]] = []
        self._convicts: list[R] = []
        self._searches = True
        self._until = now + rules.limit_s + max(_SEARCH * rules.limit_s, _SEARCH_S)

    def next(self, now: float) -> Part[R] | None:
        """The requests of the next call, which is made now; ``None``: all are answered."""
        self._called = now
        return self._parts.popleft() if self._parts else None

    def settle(
        self,
        part: Part[R],
        outcomes: Sequence[tuple[R, Any]],
        now: float,
        locks: Mapping[R, frozenset[Hashable]] | None = None,
    ) -> Sequence[tuple[R, Any]]:
        """Which requests are answered how, or have to wait for locks (``Locked``), after the call of a part.

        Args:
            part: that was called last.
            outcomes: its requests, or those that are still wanted, each with its result or with the error of its call:
                requests whose call was the same have the same error.
            now: when the call ended.
            locks: where the call met a lock: what others have locked now of what a request needs.
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
        return bool(self._parts or self._suspects or self._convicts)

    def _after_refusal(
        self, part: Part[R], problem: DataRejectedError, requests: list[R], took_s: float
    ) -> list[tuple[R, Any]]:
        if len(requests) == 1:
            return [(requests[0], problem)]
        # One that takes long would be carried out in vain again and again, for each that is refused beside it.
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
            self._convicts += requests
        else:
            longer = Part(requests, min(limit_s * _SHORTER, whole_s))
            (self._suspects if self._searches else self._parts).append(longer)
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
            met |= dict.fromkeys(half, frozenset([Unnamed(alone=len(rest) == 1)]))
        return [(request, Locked(met[request])) for request in requests if request in met]

    def _judge(self, now: float) -> list[tuple[R, Any]]:
        """Those that are too slow alone, when it is clear what that says; and those whose time is over."""
        through = self._pace.through_since(self._begun)
        answers: list[tuple[R, Any]] = []
        if through:
            answers += self._convict()
        elif len(self._convicts) > 1 or (self._convicts and self._pace.too_slow_since(self._begun)):
            return self._give_up(now)
        if self._parts and now >= self._until:
            if not through:
                return self._give_up(now)
            answers += [(request, DatabaseSlowError(_NO_TIME)) for request in self._drop()]
        if self._parts:
            return answers
        if self._suspects:
            self._searches, self._until = False, now + _LONGER_TRIES * self._rules.limit_s
            self._parts += sorted(self._suspects, key=lambda part: part.limit_s or inf)
            self._suspects = []
        elif self._convicts:
            self._pace.too_slow(now)
            answers += self._convict()
        return answers

    def _give_up(self, now: float) -> list[tuple[R, Any]]:
        """PostgreSQL is slow: nobody is at fault, and all calls of the kind back off."""
        self._pace.too_slow(now)
        self._pace.back_off()
        self._parts += self._suspects
        slow = [*self._convicts, *self._drop()]
        self._convicts, self._suspects = [], []
        return [(request, DatabaseSlowError(_SLOW)) for request in slow]

    def _drop(self) -> list[R]:
        dropped = [request for part in self._parts for request in part.requests]
        self._parts.clear()
        return dropped

    def _convict(self) -> list[tuple[R, Any]]:
        convicts, self._convicts = self._convicts, []
        text = _TOO_SLOW.format(self._rules.limit_s) + (_IN_PARTS if self._repeats else "")
        return [(request, TooSlowError(text)) for request in convicts]


def _halves(requests: list[R]) -> tuple[list[R], list[R]]:
    middle = len(requests) // 2
    return requests[:middle], requests[middle:]


def locked_error() -> LockedError:
    """For a request whose patience with a lock is over."""
    return LockedError(_LOCKED)
