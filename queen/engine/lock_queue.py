"""Requests of one kind that wait for locks of other transactions in PostgreSQL. No I/O, no clock."""

from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from itertools import chain, takewhile
from math import inf
from typing import Any, Generic, TypeVar

from queen.core.backoff import doubled
from queen.core.errors import LockedError
from queen.core.limits import LOCK_WAIT_S
from queen.engine.failures import PAUSE_FIRST_MS, PAUSE_LIMIT_MS, R, Rules, UnknownLock, search_s

L = TypeVar("L", bound=Hashable)

#: A request that waits alone for a lock waits for a fraction of the timeout, so that this many others get a turn.
_TURNS = 3


class Round(Generic[R]):
    """Calls for requests of a lock queue, one after another, with pauses while no request makes progress.

    Attributes:
        under_way: whether a call, or the pause after it, is under way.
    """

    def __init__(self) -> None:
        self.under_way = False
        self._pause_ms = 0.0
        self._moves = False

    def move(self) -> None:
        """A request of the call has made progress."""
        self._moves = True

    def pause_s(self) -> float:
        """The pause before the next call; called at the end of one."""
        self._pause_ms = 0.0 if self._moves else doubled(self._pause_ms, PAUSE_FIRST_MS, PAUSE_LIMIT_MS)
        self._moves = False
        return self._pause_ms / 1000


class LockQueue(Generic[R, L]):
    """Requests of one kind that need locks which other transactions hold. Other requests do not wait with them.

    At most two calls are under way, and so at most two connections are used, for any number of requests. One call
    (``free``) is for requests whose locks are free now. The other (``turn``) waits for the locks of one group of
    requests that need the same; groups take turns. It is needed because a lock may never be free: it may go from one
    waiting transaction directly to the next.

    Attributes:
        free, turn: the rounds of these two.
    """

    def __init__(self, rules: Rules) -> None:
        self._timeout_s, self._search_s = rules.retry_timeout_s, search_s(rules)
        #: The locks that each request waits for, and until when; the oldest first.
        self._waiting: dict[R, tuple[frozenset[L | UnknownLock], float]] = {}
        #: Requests that wait for the same locks; the next turn first.
        self._groups: dict[frozenset[L | UnknownLock], dict[R, None]] = {}
        #: Requests that are in a call.
        self._called: dict[R, Round[R]] = {}
        self.free, self.turn = Round[R](), Round[R]()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request: object) -> bool:
        return request in self._waiting

    @property
    def due(self) -> Round[R] | None:
        """A round that may make its next call."""
        if not self._waiting:
            return None
        return next((each for each in (self.free, self.turn) if not each.under_way), None)

    @property
    def locks(self) -> frozenset[L]:
        """The known locks that requests wait for. A new request that needs one of them joins the queue."""
        locks = frozenset[L | UnknownLock]().union(*self._groups)
        return frozenset([lock for lock in locks if not isinstance(lock, UnknownLock)])

    def locks_of(self, request: R) -> frozenset[L | UnknownLock]:
        """The locks that a request waits for."""
        return self._waiting[request][0]

    def join(self, request: R, locks: frozenset[L | UnknownLock], now: float) -> bool:
        """Adds a request that waits for these locks; false if its time is over.

        A request that joins again keeps its position and its time.
        """
        known, until = self._waiting.get(request, (None, now + self._timeout_s))
        searches = any(isinstance(lock, UnknownLock) and not lock.alone for lock in locks)
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
        """Removes a request that has its answer."""
        locks, _ = self._waiting.pop(request)
        self._take_out(request, locks)
        called = self._called.pop(request, None)
        if called is not None and not isinstance(answer, LockedError):
            called.move()

    def late(self, locked: AbstractSet[L], now: float) -> list[R]:
        """Requests that are not in a call, and whose time is over: those that need a lock in ``locked``.

        After the time for a search, all of them.
        """
        over = takewhile(lambda each: each[1][1] <= now, self._waiting.items())
        end = now - self._search_s
        late = [request for request, (locks, until) in over if until <= end or not locks.isdisjoint(locked)]
        return [request for request in late if request not in self._called]

    def take_free(self, locked: AbstractSet[L], fit: Callable[[Iterable[R]], int]) -> list[R]:
        """The requests of the next call of ``free``.

        Args:
            locked: which of ``locks`` other transactions hold now.
            fit: how many of these requests, in this order, may share a call.
        """
        known = self.locks
        free = [group for locks, group in self._groups.items() if locks <= known and locks.isdisjoint(locked)]
        return self._take(chain.from_iterable(free), fit, self.free)

    def take_turn(self, fit: Callable[[Iterable[R]], int]) -> list[R]:
        """The requests of the next call of ``turn``: those of the group whose turn it is."""
        for locks, group in list(self._groups.items()):
            if requests := self._take(group, fit, self.turn):
                self._groups[locks] = self._groups.pop(locks)
                return requests
        return []

    def called(self, round_: Round[R]) -> list[R]:
        """The requests of the call of a round that have no answer yet."""
        return [request for request, called in self._called.items() if called is round_]

    def end(self, round_: Round[R], now: float, *, called: bool) -> float:
        """Notes that a round has ended, in which a call was made or not; returns the pause before the next, in seconds.

        There is no pause while the time of other requests is over: each of them gets one more call, and pauses would
        delay them all.
        """
        for request in self.called(round_):
            del self._called[request]
        pause_s = round_.pause_s()
        _, oldest = next(iter(self._waiting.values()), (None, inf))
        return 0.0 if called and oldest <= now else pause_s

    def wait_s(self) -> float:
        """How long a call may wait for a lock if its requests hold no other lock meanwhile."""
        return max(LOCK_WAIT_S, self._timeout_s / (len(self._groups) + _TURNS))

    def _take(self, requests: Iterable[R], fit: Callable[[Iterable[R]], int], round_: Round[R]) -> list[R]:
        waiting = [request for request in requests if request not in self._called]
        taken = waiting[: fit(waiting)]
        self._called |= dict.fromkeys(taken, round_)
        return taken

    def _take_out(self, request: R, locks: frozenset[L | UnknownLock]) -> None:
        group = self._groups[locks]
        del group[request]
        if not group:
            del self._groups[locks]
