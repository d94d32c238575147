"""The state of a partition, and the violations in new data: pure, and of bounded size.

``LogWindow`` is for one partition of the log, ``CallWindow`` for one partition and group of the journals. Data that has
left a window is no longer compared: the audit of the whole log, afterwards, compares everything.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice, pairwise, takewhile
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..times import utc

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

MESSAGES = 1_000
"""Maximum of kept messages per partition (and group)."""

_FORGET_AT = 2
"""A batch may be long: then what is remembered above this many times ``MESSAGES`` is forgotten meanwhile."""

CALLS = 200
"""Maximum of kept calls per partition and group."""


class Finding(Struct, frozen=True):
    """A violation: guarantee, location and text."""

    guarantee: str
    queue: str
    partition: str
    group: str
    offset: int | None
    text: str


class Segment(Struct, frozen=True):
    """Messages ``first`` to ``last`` of a partition; ``ids`` are their hashes, 0 for one that the server made.

    ``part`` is the number of the partition: of those of one name, that of a later one is higher. ``since`` is where the
    reader went on, and ``oldest`` the oldest offset of the partition at the time: what lies below that was removed.
    ``deleted`` are runs of offsets, the end not among them, whose messages somebody deleted.
    """

    part: int
    first: int
    last: int
    created_at: int
    since: int
    oldest: int
    ids: list[int]
    deleted: list[tuple[int, int]] = []


Flaw: TypeAlias = tuple[str, int | None, str]
"""A violation that one answer shows by itself: guarantee, offset and text."""


class Order(Struct, frozen=True):
    """An order of offsets: its guarantee, and the text for a lower one behind a higher one."""

    guarantee: str
    text: str

    def flaw(self, offset: int, behind: int) -> Flaw:
        """The lower one came behind the higher one."""
        return self.guarantee, offset, self.text.format(offset, behind)


_IN_A_POP = Order("G-ORD-1", "offset {} comes after offset {} in the answer to a pop")
_BETWEEN_POPS = Order("G-ORD-1", "offset {} was first delivered after offset {}")
_IN_A_PUSH = Order("G-ORD-4", "offset {} comes after offset {} in its request")
_BETWEEN_PUSHES = Order("G-ORD-3", "offset {} was pushed after the answer to the push of offset {}")


class Said(Struct, frozen=True):
    """What one call says of one partition and group: what it delivered, finished, or pushed.

    ``first`` are the offsets of deliveries that the server called the first, in the order of the answer. Messages are
    transaction ids, with their offset as far as it was told: retention may free an id for another message. ``part`` is
    the number of the partition, if a message id told it, and ``head`` its log end when the call was read, if there was
    one. ``named`` are the messages that answers to duplicates name, ``tried`` those that were delivered, with their
    attempt.
    """

    agent: str
    number: int
    sent: int
    answered: int | None
    first: list[int]
    given: list[tuple[str, int | None]]
    finished: list[tuple[str, int | None]]
    queued: list[tuple[str, int | None]]
    part: int | None = None
    head: int | None = None
    named: list[tuple[str, int | None]] = []
    tried: list[tuple[str, int | None, int]] = []
    flaws: list[Flaw] = []

    def stored(self) -> "Iterator[Stored]":
        """What must be in the log, if it was looked at."""
        if self.part is not None and self.head is not None:
            for guarantee, told in (("G-DUR-1", self.queued), ("G-IDEM-2", self.named)):
                for name, offset in told:
                    if offset is not None:
                        yield Stored(self.part, offset, hash_of(name), self.head, guarantee)


class Stored(Struct, frozen=True):
    """A message that a push was answered to be stored, and where the log of its partition ended later.

    ``guarantee``: the one that is broken if it is not there; a duplicate names the message that was stored before.
    """

    part: int
    offset: int
    id: int
    head: int
    guarantee: str = "G-DUR-1"


def hash_of(name: str) -> int:
    """The first 60 bits of the hash of a transaction id."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 4


class Place(Struct, frozen=True):
    """The key of a window."""

    queue: str
    partition: str
    group: str = ""


class LogWindow(Struct):
    """Checks that offsets have no gaps, times never fall, transaction ids are unique, and no message is lost.

    ``known_from`` is the offset from which on it has seen all ids.
    """

    part: int = 0
    known_from: int = 0
    oldest: int = 0
    next: int | None = None
    created_at: int = 0
    seen: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, place: Place, segments: Iterable[Segment], stored: Iterable[Stored] = ()) -> Iterator[Finding]:
        """Adds new segments in any order, and looks for what was answered as stored."""
        waiting = sorted(stored, key=lambda each: (each.part, each.offset), reverse=True)
        for segment in sorted(segments, key=lambda each: (each.part, each.first)):
            if segment.part > self.part:
                self.part, self.next, self.created_at, self.seen = segment.part, None, 0, {}
                self.known_from = segment.since
            self._remove(segment)
            yield from self._look(place, segment)
            self.next, self.created_at = segment.last + 1, max(self.created_at, segment.created_at)
            self.oldest = segment.oldest
            for place_, id_ in enumerate(segment.ids):
                if id_:
                    self.seen.setdefault(id_, segment.first + place_)
            while waiting and (waiting[-1].part, waiting[-1].offset) <= (segment.part, segment.last):
                yield from self._find(place, waiting.pop())
            if len(self.seen) > _FORGET_AT * MESSAGES:
                self._forget()
        for each in reversed(waiting):
            yield from self._find(place, each)
        self._forget()

    def _forget(self) -> None:
        if _forget(self.seen, MESSAGES):
            self.known_from = next(iter(self.seen.values()), self.known_from)

    def _find(self, place: Place, stored: Stored) -> Iterator[Finding]:
        """Whether a message is where its push was answered to have stored it."""
        text = "was answered as stored, but the log has another message there"
        known = stored.part == self.part and max(self.known_from, self.oldest) <= stored.offset < (self.next or 0)
        lost = known and stored.id not in self.seen
        if stored.offset >= stored.head:
            lost, text = True, f"was answered as stored, but its log ends before offset {stored.head}"
        if lost:
            yield Finding(stored.guarantee, place.queue, place.partition, "", stored.offset, text)

    def _remove(self, new: Segment) -> None:
        """Frees the transaction ids of messages that retention has removed, or that were deleted."""
        gone = [id_ for id_, _ in takewhile(lambda item: item[1] < new.oldest, self.seen.items())]
        if new.deleted:
            gone += [id_ for id_ in new.ids if _is_in(self.seen.get(id_), new.deleted)]
        for id_ in gone:
            self.seen.pop(id_, None)

    def _look(self, place: Place, new: Segment) -> Iterator[Finding]:
        def finding(guarantee: str, offset: int, text: str) -> Finding:
            return Finding(guarantee, place.queue, place.partition, "", offset, text)

        expected = new.since if self.next is None else self.next
        if new.first != expected and new.first > new.oldest:
            yield finding("G-ORD-2", new.first, _missing(expected, new.first))
        if new.created_at < self.created_at:
            yield finding("G-ORD-5", new.first, _earlier(new.created_at, self.created_at))
        within: dict[int, int] = {}
        for offset, id_ in enumerate(new.ids, new.first):
            earlier = self.seen.get(id_, within.setdefault(id_, offset)) if id_ else offset
            if earlier != offset:
                yield finding("G-IDEM-1", offset, f"has the transaction id of offset {earlier}")


def _missing(first: int, after: int) -> str:
    if after < first:
        return f"offset {after} is in the log again, after offset {first - 1}"
    return f"offset {first} not in the log" if after == first + 1 else f"offsets {first} to {after - 1} not in the log"


def _earlier(now: int, then: int) -> str:
    return f"its createdAt, {utc(now)}, is earlier than that of a lower offset, {utc(then)}"


class Moment(Struct, frozen=True):
    """The last time of a message, and its offset, if known."""

    at: int
    offset: int | None


class Try(Struct, frozen=True):
    """The last known delivery of a message: its call, its offset, if known, and its attempt."""

    sent: int
    at: int
    offset: int | None
    attempt: int


class Bounds(Struct, frozen=True):
    """A call, and the range of offsets that it first delivered, or stored; ``told``: it was reported as late."""

    agent: str
    number: int
    sent: int
    answered: int
    lowest: int
    highest: int
    told: bool = False


class CallWindow(Struct):
    """Checks that pushes and first deliveries are in order, attempts rise, and messages are queued and done once.

    Journals arrive in any order, so each pair of calls is compared when the second one arrives. For a partition that
    was deleted and created again, only calls count that are known to belong to the new one.
    """

    part: int | None = None
    renewed: bool = False
    calls: list[Bounds] = msgspec.field(default_factory=list)
    given: dict[str, Moment] = msgspec.field(default_factory=dict)
    done: dict[str, Moment] = msgspec.field(default_factory=dict)
    queued: dict[str, int | None] = msgspec.field(default_factory=dict)
    tried: dict[str, Try] = msgspec.field(default_factory=dict)

    def add(
        self, place: Place, calls: Iterable[Said], clock_bound: int, *, beside_log: bool = False
    ) -> Iterator[Finding]:
        """Adds calls.

        Args:
            place: where.
            calls: the new ones, in any order.
            clock_bound: maximum difference between the clocks of two agents, in microseconds.
            beside_log: a ``LogWindow`` checks the log of this partition, too. It knows when a transaction id is free
                again, because its message was removed.
        """
        for call in sorted(calls, key=lambda each: (each.sent, each.agent, each.number)):
            counts = self._is_of_partition(call)
            found = self._look(call, clock_bound, beside_log=beside_log) if counts else ()
            for guarantee, offset, text in (*call.flaws, *found):
                where = f"{text} ({call.agent} {call.number})"
                yield Finding(guarantee, place.queue, place.partition, place.group, offset, where)
            if counts:
                self._remember(call)
        del self.calls[:-CALLS]
        _forget(self.given, MESSAGES)
        _forget(self.done, MESSAGES)
        _forget(self.queued, MESSAGES)
        _forget(self.tried, MESSAGES)

    def _is_of_partition(self, call: Said) -> bool:
        """Whether it counts; the first call of a new partition of the name resets the window."""
        if call.part is None:
            return not self.renewed
        if self.part == call.part:
            return True
        # Calls without a number may belong to another partition.
        if self.part is None or call.part > self.part or not self.renewed:
            self.calls, self.given, self.done, self.queued, self.tried = [], {}, {}, {}, {}
        self.renewed = self.part is not None
        self.part = max(call.part, self.part or 0)
        return self.part == call.part

    def _look(self, call: Said, clock_bound: int, *, beside_log: bool) -> Iterator[Flaw]:
        yield from self._orders(call, clock_bound)
        yield from self._again(call, clock_bound)
        if call.answered is not None:
            yield from self._attempts(call, call.answered, clock_bound)
        for name, stored_at in call.queued:
            same = stored_at is not None and stored_at == self.queued.get(name)
            if same or (name in self.queued and not beside_log):
                yield "G-IDEM-1", None, f"{name} was answered as queued more than once"

    def _orders(self, call: Said, clock_bound: int) -> Iterator[Flaw]:
        """Pushes and first deliveries out of order."""
        stored = [offset for _, offset in call.queued if offset is not None]
        for offsets, within, between in ((call.first, _IN_A_POP, _BETWEEN_POPS), (stored, _IN_A_PUSH, _BETWEEN_PUSHES)):
            for above, offset in pairwise(offsets):
                if offset <= above:
                    yield within.flaw(offset, above)
            if offsets and call.answered is not None:
                bounds = Bounds(call.agent, call.number, call.sent, call.answered, min(offsets), max(offsets))
                yield from self._order(bounds, clock_bound, between)

    def _again(self, call: Said, clock_bound: int) -> Iterator[Flaw]:
        """Deliveries after the answer to an ack, whichever of both came first."""
        for name, given_at in call.given:
            done = self.done.get(name)
            if done is not None and _may_be(done, given_at) and call.sent - clock_bound > done.at:
                yield "G-ACK-2", given_at, f"{name} was delivered after its ack had been answered"
        if call.answered is not None:
            for name, finished_at in call.finished:
                given = self.given.get(name)
                if given is not None and _may_be(given, finished_at) and given.at - clock_bound > call.answered:
                    yield "G-ACK-2", given.offset, f"{name} was delivered after its ack had been answered"

    def _attempts(self, call: Said, answered: int, clock_bound: int) -> Iterator[Flaw]:
        """Attempts that do not rise, between deliveries of which one certainly came after the other."""
        for name, offset, attempt in call.tried:
            known = self.tried.get(name)
            if known is None or not _may_be(known, offset):
                continue
            text = f"{name} has attempt {{}} after attempt {{}}"
            if call.sent - clock_bound > known.at and attempt <= known.attempt:
                yield "G-LEASE-5", offset, text.format(attempt, known.attempt)
            elif known.sent - clock_bound > answered and known.attempt <= attempt:
                yield "G-LEASE-5", offset, text.format(known.attempt, attempt)

    def _order(self, call: Bounds, clock_bound: int, order: Order) -> Iterator[Flaw]:
        """Each late call is reported once."""
        for place, other in enumerate(self.calls):
            if _late(other, call, clock_bound) and not other.told:
                self.calls[place] = replace(other, told=True)
                yield order.flaw(other.lowest, call.highest)
        highest = max((each.highest for each in self.calls if _late(call, each, clock_bound)), default=None)
        if highest is not None:
            yield order.flaw(call.lowest, highest)
        self.calls.append(replace(call, told=highest is not None))

    def _remember(self, call: Said) -> None:
        for name, offset in call.given:
            given = self.given.get(name)
            if given is None or not _may_be(given, offset) or call.sent > given.at:
                self.given[name] = Moment(call.sent, offset)
        if call.answered is not None:
            self._remember_tries(call, call.answered)
            for name, offset in call.finished:
                done = self.done.get(name)
                if done is None or not _may_be(done, offset) or call.answered < done.at:
                    self.done[name] = Moment(call.answered, offset)
        self.queued.update(call.queued)

    def _remember_tries(self, call: Said, answered: int) -> None:
        for name, offset, attempt in call.tried:
            known = self.tried.get(name)
            if known is None or not _may_be(known, offset) or call.sent > known.sent:
                self.tried[name] = Try(call.sent, answered, offset, attempt)


def _is_in(offset: int | None, runs: Iterable[tuple[int, int]]) -> bool:
    return offset is not None and any(first <= offset < end for first, end in runs)


def _may_be(known: Moment | Try, offset: int | None) -> bool:
    """Whether an id belongs to the same message as before, as far as is known."""
    return known.offset is None or offset is None or known.offset == offset


def _late(call: Bounds, behind: Bounds, clock_bound: int) -> bool:
    """Whether a call was certainly sent after the answer to the other, and delivered earlier messages."""
    apart = 0 if call.agent == behind.agent else clock_bound
    return behind.answered + apart < call.sent and behind.highest > call.lowest


def _forget(remembered: dict[_Key, _Value], most: int) -> bool:
    """Removes the oldest entries above a maximum; whether there were any."""
    too_many = list(islice(remembered, max(0, len(remembered) - most)))
    for key in too_many:
        del remembered[key]
    return bool(too_many)
