"""Limits for the connections of a worker: their number, time, and bytes.

Every connection has a ``deadline``; a check per second closes those that exceed it. That is less work than a timer per
connection.

Bytes of a request count from their arrival until the answer, bytes of an answer until its client has read them. Beyond
the limit, large bodies are not read until there is room; only one is, so that there is always progress. For bytes that
still arrive, in small pieces of many requests, room is made: the incomplete request that has been silent the longest is
refused. So a complete request never waits for an incomplete one.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from functools import partial
from math import inf
from typing import Protocol

from msgspec import Struct

from queen.core.limits import BYTES_PER_S_MIN

log = logging.getLogger("queen.server")

#: Bodies up to this size are read even while others wait for room.
_SMALL_BYTES = 64 << 10
#: The time between two checks of deadlines.
CHECK_S = 1.0
#: By how much a check must be late for deadlines to be postponed.
_LATE_S = 1.0
#: The share of connections to close if the limit is reached.
_CLOSED_AT_A_TIME = 1 / 16


class Bounds(Struct, frozen=True):
    """The limits of one worker.

    Attributes:
        head_bytes_max: of a request: its first line, headers or trailers.
        headers_max: lines of a head.
        url_bytes_max: path and query of a request, as it was sent.
        request_timeout_s: time limit of a head, and the period over which the speed of a body is measured.
        connections_max: open connections.
        held_bytes_max: bytes of unanswered requests, and of unread answers.
        body_bytes_max: the largest body.
    """

    head_bytes_max: int
    headers_max: int
    url_bytes_max: int
    request_timeout_s: float
    connections_max: int
    held_bytes_max: int
    body_bytes_max: int

    @property
    def timeout_bytes_min(self) -> int:
        """The bytes that a client must send or read in ``request_timeout_s``."""
        return int(self.request_timeout_s * BYTES_PER_S_MIN)

    @property
    def shed_above(self) -> int:
        """Bytes above which requests are refused: the limit, one large body, and small requests."""
        return self.held_bytes_max + self.body_bytes_max + self.held_bytes_max // 4


class Stage(Enum):
    """The state of a connection; ``HEAD`` also before its first byte."""

    CLOSING = 0
    HEAD = 1
    BODY = 2
    IDLE = 3
    ANSWER_UNREAD = 4
    BUSY = 5


#: The client still has to send the rest of a request, or is still sending after a refusal.
_UNFINISHED = frozenset({Stage.CLOSING, Stage.HEAD, Stage.BODY})


class Connection(Protocol):
    """A connection. Times are those of the event loop.

    Attributes:
        deadline: when it will be closed unless it progresses.
        since: when it last sent something, or became idle.
        held: its bytes that count.
        unfinished: those of them in an incomplete request.
    """

    deadline: float
    since: float
    held: int
    unfinished: int

    @property
    def stage(self) -> Stage:
        """Its state."""

    def measure(self) -> None:
        """Measures how much of its answer the client has read."""

    def postpone(self, seconds: float) -> None:
        """Moves the deadline."""

    def end(self, now: float) -> None:
        """Closes it after its deadline."""

    def give_way(self) -> None:
        """Closes it to make room."""

    def read_on(self) -> None:
        """Resumes reading."""

    def stop_reading(self) -> None:
        """Pauses reading until ``read_on``."""


class Connections:
    """The connections of a worker.

    Attributes:
        bounds: the limits.
        bytes: of all of them.
        unfinished: those of them in incomplete requests.
        is_crowded: some wait for room, or one is read beyond the limit.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.bytes = 0
        self.unfinished = 0
        self.is_crowded = False
        self._checked_at = inf
        self._waiting: dict[Connection, None] = {}
        self._ahead: Connection | None = None
        self._refused: Counter[int] = Counter()
        self._turns: deque[Callable[[], None]] = deque()

    def count_refusal(self, status: int) -> None:
        """Counts a refusal for the log, which gets one line per check, not one per request."""
        self._refused[status] += 1

    # ------------------------------------------------------------------ turns

    def take_turn(self, work: Callable[[], None], call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Runs a piece of work in an iteration of the loop of its own."""
        self._turns.append(work)
        if len(self._turns) == 1:
            call_soon(partial(self._do_next, call_soon))

    def _do_next(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        work = self._turns[0]
        try:
            work()
        finally:
            self._turns.popleft()
            if self._turns:
                call_soon(partial(self._do_next, call_soon))

    # ------------------------------------------------------------------ bytes

    def is_held_back(self, connection: Connection, connections: Iterable[Connection]) -> bool:
        """Whether a connection with an incomplete request has to wait for room."""
        if self.bytes <= self.bounds.held_bytes_max:
            return False
        if self.bytes > self.bounds.shed_above:
            self.shed(connections)
        if connection.held <= _SMALL_BYTES or connection.stage is not Stage.BODY or self._may_go_ahead(connection):
            return False
        self._waiting[connection] = None
        self.is_crowded = True
        connection.stop_reading()
        return True

    def is_overloaded(self, connections: Iterable[Connection]) -> bool:
        """Whether there is no room for another request, even if all incomplete ones are refused."""
        if self.bytes <= self.bounds.shed_above:
            return False
        self.shed(connections)
        return self.bytes > self.bounds.shed_above

    def shed(self, connections: Iterable[Connection]) -> None:
        """Refuses incomplete requests, and drops unread answers, until the limit is met.

        Small ones are last: they free little, and the rest of a small request is probably on its way.
        """
        holding = [each for each in connections if each.held]
        for each in holding:
            each.measure()
        holding = _longest_silent_first(holding)
        # Not a connection whose request has just become complete: it is being handled.
        unfinished = [each for each in holding if each.unfinished and each.stage in _UNFINISHED]
        unread = [each for each in holding if each.stage is Stage.ANSWER_UNREAD]
        small_last = sorted(unfinished + unread, key=lambda each: each.held <= _SMALL_BYTES)
        self._end_some(small_last, lambda: self.bytes <= self.bounds.held_bytes_max)

    def release(self, count: int) -> None:
        """Subtracts bytes that are no longer held."""
        self.bytes -= count
        if self._waiting:
            self._admit()

    def forget(self, connection: Connection) -> None:
        """Removes a finished connection from the waiting ones."""
        self._waiting.pop(connection, None)
        if self._ahead is connection:
            self._ahead = None
        self.is_crowded = bool(self._waiting) or self._ahead is not None

    def step_aside(self, connection: Connection) -> None:
        """After an answer: lets others continue, unless the connection has started another request."""
        if not connection.unfinished:
            self.forget(connection)
        self.release(0)

    def waits(self, connection: Connection) -> bool:
        """Whether a connection waits for room."""
        return connection in self._waiting

    def _may_go_ahead(self, connection: Connection) -> bool:
        """Whether this body may be read beyond the limit: one may, unless complete requests will soon make room."""
        if self._ahead is None and self.bytes - self.unfinished <= self.bounds.held_bytes_max // 4:
            self._ahead, self.is_crowded = connection, True
        return self._ahead is connection

    def _admit(self) -> None:
        first = next(iter(self._waiting))
        if self.bytes <= self.bounds.held_bytes_max or self._may_go_ahead(first):
            del self._waiting[first]
            first.read_on()

    # ------------------------------------------------------------------ connections and time

    def make_room(self, connections: Collection[Connection]) -> bool:
        """Whether another connection is accepted; at the limit, some that are not being served are closed."""
        bound = self.bounds.connections_max
        if len(connections) <= bound:
            return True
        some = max(1, int(bound * _CLOSED_AT_A_TIME))
        unfinished = _longest_silent_first(each for each in connections if each.stage in _UNFINISHED)
        idle = _longest_silent_first(each for each in connections if each.stage is Stage.IDLE)
        # The newest ones are probably about to send something; if there are many, most of them are not.
        self._end_some(unfinished[:-some] + idle + unfinished[-some:-1], lambda: len(connections) <= bound - some)
        return len(connections) <= bound

    def check(self, connections: Iterable[Connection], now: float) -> None:
        """Closes connections after their deadlines; called every ``CHECK_S``.

        Time in which the worker stood still does not count: what clients have sent meanwhile has not been read.
        """
        late_s, self._checked_at = now - self._checked_at - CHECK_S, now
        if late_s > _LATE_S:
            for connection in connections:
                connection.postpone(late_s)
        for connection in list(connections):
            if connection.deadline < now:  # still: the end of another one may just have made room for it
                connection.end(now)
        for _ in range(len(self._waiting)):
            self.release(0)
        if self._refused:
            log.warning("connections were closed or requests refused", extra={"by_status": dict(self._refused)})
            self._refused.clear()

    @staticmethod
    def _end_some(some: Iterable[Connection], is_enough: Callable[[], bool]) -> None:
        for connection in some:
            if is_enough():
                return
            connection.give_way()


def _longest_silent_first(some: Iterable[Connection]) -> list[Connection]:
    return sorted(some, key=lambda each: each.since)
