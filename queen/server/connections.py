"""The connections of a worker: how many there may be, how long they may take, and how many bytes they may hold.

A connection says until when it may go on as it is (``deadline``); one look a second at all of them ends those whose
time is over. That is less work than a timer for each.

Bytes are counted from their arrival until the request is answered, and those of an answer while its client does not
read it. Beyond the limit a large body is not read on until there is room; only one may go on, so that there is always
progress. What still comes beyond that, in small pieces from many, is made room for: whoever has been silent the
longest in the middle of a request is refused. A complete request of another client therefore never waits for one that
is not.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from functools import partial
from typing import Protocol

from msgspec import Struct

from queen.core.limits import BYTES_PER_S_MIN

log = logging.getLogger("queen.server")

#: A body that is no larger is read while others wait for room.
_SMALL_BYTES = 64 << 10
#: Of all connections that are allowed, so many are closed at a time where there is no room for one more.
_CLOSED_AT_A_TIME = 1 / 16


class Bounds(Struct, frozen=True):
    """What one worker allows.

    Attributes:
        head_bytes_max: of a request: its first line, headers or trailers.
        headers_max: lines of a head.
        url_bytes_max: path and query of a request, as it was sent.
        request_timeout_s: how long a head may take, and the time over which the speed of a body is judged.
        connections_max: open connections.
        held_bytes_max: of requests that are not answered, and of answers that are not read.
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
        """What has to come, or to be read, in ``request_timeout_s``."""
        return int(self.request_timeout_s * BYTES_PER_S_MIN)

    @property
    def shed_above(self) -> int:
        """Bytes above which requests are refused: what may be held, one body that goes on, and small requests."""
        return self.held_bytes_max + self.body_bytes_max + self.held_bytes_max // 4


class Stage(Enum):
    """Where a connection is; ``HEAD`` is also one that has sent nothing yet."""

    CLOSING = 0
    HEAD = 1
    BODY = 2
    IDLE = 3
    ANSWER_UNREAD = 4
    BUSY = 5


#: The client owes the rest of a request, or of what it still sends after a refusal.
_UNFINISHED = frozenset({Stage.CLOSING, Stage.HEAD, Stage.BODY})


class Connection(Protocol):
    """What there is to know of a connection. Times are those of the loop.

    Attributes:
        deadline: until when it may go on as it is.
        since: when it last sent something, or began to be idle.
        held: the bytes of it that count.
        unfinished: those of them that belong to a request which has not come to its end.
    """

    deadline: float
    since: float
    held: int
    unfinished: int

    @property
    def stage(self) -> Stage:
        """Where it is."""

    def measure(self) -> None:
        """Looks how much of its answer the client has read."""

    def end(self, now: float) -> None:
        """Its deadline is over."""

    def give_way(self) -> None:
        """Ends it, because there is no room."""

    def read_on(self) -> None:
        """Reads again."""

    def stop_reading(self) -> None:
        """Reads nothing until ``read_on``."""


class Connections:
    """What the connections of a worker share.

    Attributes:
        bounds: what is allowed.
        bytes: that all of them hold.
        unfinished: those of them in requests that have not come to their ends.
        is_crowded: some wait for room, or one goes on beyond the limit.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.bytes = 0
        self.unfinished = 0
        self.is_crowded = False
        self._waiting: dict[Connection, None] = {}
        self._ahead: Connection | None = None
        self._refused: Counter[int] = Counter()
        self._turns: deque[Callable[[], None]] = deque()

    def count_refusal(self, status: int) -> None:
        """For the log: one line a look, not one a request."""
        self._refused[status] += 1

    # ------------------------------------------------------------------ turns

    def take_turn(self, work: Callable[[], None], call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Does a piece of work in a turn of the loop in which no other such piece is done."""
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

    def is_held_back(self, connection: Connection, everybody: Iterable[Connection]) -> bool:
        """Judges a connection of which a part of a request has come: whether it has to wait for room."""
        if self.bytes <= self.bounds.held_bytes_max:
            return False
        if self.bytes > self.bounds.shed_above:
            self.shed(everybody)
        if connection.held <= _SMALL_BYTES or connection.stage is not Stage.BODY or self._may_go_ahead(connection):
            return False
        self._waiting[connection] = None
        self.is_crowded = True
        connection.stop_reading()
        return True

    def is_overloaded(self, everybody: Iterable[Connection]) -> bool:
        """Whether there is no room for one more request, not even if those that are not complete are refused."""
        if self.bytes <= self.bounds.shed_above:
            return False
        self.shed(everybody)
        return self.bytes > self.bounds.shed_above

    def shed(self, everybody: Iterable[Connection]) -> None:
        """Refuses what is not complete, and gives up what is not read, until no more is held than may be."""
        holding = [each for each in everybody if each.held]
        for each in holding:
            each.measure()
        holding = _longest_silent_first(holding)
        # Not one whose request has just come whole: it is being looked at.
        unfinished = [each for each in holding if each.unfinished and each.stage in _UNFINISHED]
        unread = [each for each in holding if each.stage is Stage.ANSWER_UNREAD]
        self._end_some(unfinished + unread, lambda: self.bytes <= self.bounds.held_bytes_max)

    def release(self, count: int) -> None:
        """So many bytes are not held any more."""
        self.bytes -= count
        if self._waiting:
            self._admit()

    def forget(self, connection: Connection) -> None:
        """A request is answered or over: it is not ahead of others, and waits for nothing."""
        self._waiting.pop(connection, None)
        if self._ahead is connection:
            self._ahead = None
        self.is_crowded = bool(self._waiting) or self._ahead is not None

    def step_aside(self, connection: Connection) -> None:
        """A request is answered: others may go on, unless the connection has begun with one more."""
        if not connection.unfinished:
            self.forget(connection)
        self.release(0)

    def waits(self, connection: Connection) -> bool:
        """Whether a connection waits for room."""
        return connection in self._waiting

    def _may_go_ahead(self, connection: Connection) -> bool:
        """One body goes on beyond the limit, unless complete requests hold what will soon be free."""
        if self._ahead is None and self.bytes - self.unfinished <= self.bounds.held_bytes_max // 4:
            self._ahead, self.is_crowded = connection, True
        return self._ahead is connection

    def _admit(self) -> None:
        first = next(iter(self._waiting))
        if self.bytes <= self.bounds.held_bytes_max or self._may_go_ahead(first):
            del self._waiting[first]
            first.read_on()

    # ------------------------------------------------------------------ connections and time

    def make_room(self, everybody: Collection[Connection]) -> bool:
        """Whether one more connection may stay; if there are too many, some are closed that are not being served."""
        bound = self.bounds.connections_max
        if len(everybody) <= bound:
            return True
        some = max(1, int(bound * _CLOSED_AT_A_TIME))
        unfinished = _longest_silent_first(each for each in everybody if each.stage in _UNFINISHED)
        idle = _longest_silent_first(each for each in everybody if each.stage is Stage.IDLE)
        # The last that came are probably about to go on; where they are many, most of them are not.
        self._end_some(unfinished[:-some] + idle + unfinished[-some:-1], lambda: len(everybody) <= bound - some)
        return len(everybody) <= bound

    def look(self, everybody: Iterable[Connection], now: float) -> None:
        """To be called every second: ends what has taken too long."""
        for connection in [each for each in everybody if each.deadline < now]:
            connection.end(now)
        for _ in range(len(self._waiting)):
            self.release(0)
        if self._refused:
            log.warning("connections were ended or requests refused", extra={"by_status": dict(self._refused)})
            self._refused.clear()

    @staticmethod
    def _end_some(some: Iterable[Connection], is_enough: Callable[[], bool]) -> None:
        for connection in some:
            if is_enough():
                return
            connection.give_way()


def _longest_silent_first(some: Iterable[Connection]) -> list[Connection]:
    return sorted(some, key=lambda each: each.since)
