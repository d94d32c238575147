"""Long polls that wait in the worker where messages are pushed, although their clients are connected to another one.

A push serves the long polls of its own worker, from memory (``queen.engine.offer``). When a worker is notified that a
sibling has stored messages that no long poll there took, it lends some of its long polls to that sibling for a short
time: they wait there, the next push serves them, and the messages come back in a datagram. A long poll that is not
served returns and waits here. A worker recalls what it has lent when messages are stored in it.

A long poll returns by itself when a datagram is lost or the sibling has been killed. Then it releases
the lease that it may have got there, so that other consumers get the messages.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from math import inf
from typing import Protocol
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from queen.log.requests import Pop, Popped

#: How long a long poll waits in a sibling.
LENT_S = 0.1
#: How much longer its worker waits for the answer.
_GRACE_S = 0.1
#: The longest time from the lending of a long poll to an answer that is taken.
LENT_ANSWER_S = LENT_S + _GRACE_S
#: A sibling gets long polls for this long after a push there.
_WANTED_S = 0.2
#: How long the groups are remembered that have enough long polls of their own in a sibling.
_KNOWN_S = 1.0
#: The half-life of the message count of a worker, which says how many long polls it can use.
_HALF_S = 0.1
#: The most long polls that are lent: per wait key, and per worker. Each loan costs two datagrams.
_LENT_PER_KEY_MAX, _LENT_MAX = 16, 1000
#: The most queues, workers per queue, and late answers that are remembered.
_QUEUES_MAX, _WORKERS_MAX, _LATE_MAX = 1000, 100, 1000
#: The largest push that serves borrowed long polls: its messages must fit into a datagram.
BORROWED_BYTES_MAX = 32 << 10
_DATAGRAM_BYTES_MAX = 60_000


class Ask(Struct, frozen=True, array_like=True, tag=1):
    """A long poll that is lent, and the lease under which it gets messages."""

    number: int
    pop: Pop
    lease: UUID


class Answer(Struct, frozen=True, array_like=True, tag=2):
    """The messages that a long poll got; no claims if none."""

    number: int
    popped: Popped


class Recall(Struct, frozen=True, array_like=True, tag=3):
    """Asks for a long poll back."""

    number: int


class Siblings(Protocol):
    """Datagrams to sibling workers, by the origin of their notifications."""

    def post(self, origin: str, datagram: bytes) -> bool:
        """Sends one; false if there is no such sibling, or it is too busy to read."""
        ...


class _Wanted(Struct, frozen=True):
    """A worker that stores messages of a queue.

    Attributes:
        at: when it stored the last ones.
        messages: recent messages, decayed to ``at``: the number of long polls that it can use.
        since: when the messages began of which ``served`` says something.
        served: groups whose own long polls there have taken all messages since then.
    """

    at: float
    messages: float
    since: float
    served: frozenset[str]

    def recent(self, now: float) -> float:
        """The decayed number of recent messages; 0 some time after the last one."""
        return self.messages * 0.5 ** ((now - self.at) / _HALF_S) if now < self.at + _WANTED_S else 0.0

    def uses(self, group: str, borrowed: int, now: float) -> bool:
        """Whether it can use a long poll of a group, beside those that it has borrowed."""
        return borrowed < self.recent(now) and group not in self.served


_NOTHING = _Wanted(-inf, 0, -inf, frozenset())


class _Lent(Struct):
    pop: Pop
    origin: str
    answer: "asyncio.Future[Popped]"
    recalled: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Ask | Answer | Recall)


class Lending:
    """The long polls that a worker has lent to siblings, and those that it has borrowed.

    Args:
        siblings: sends datagrams to them.
        now: a clock in seconds.
        borrow: parks a long poll of a sibling, given the pop, its lease, and a function that answers it and returns
            whether the answer was sent. Returns a function that ends its stay, or ``None`` if there is no room.
        release: releases a lease that a pop may have, but whose messages no consumer gets.
        new_lease: makes leases.
    """

    def __init__(
        self,
        siblings: Siblings,
        now: Callable[[], float],
        borrow: Callable[[Pop, UUID, Callable[[Popped], bool]], Callable[[], None] | None],
        release: Callable[[Pop, UUID], None],
        new_lease: Callable[[], UUID] = uuid4,
    ) -> None:
        self._new_lease = new_lease
        self._siblings, self._now, self._borrow, self._release = siblings, now, borrow, release
        self._numbers = count(1)
        #: By queue and origin; the origin of this worker is empty.
        self._wanted: OrderedDict[str, dict[str, _Wanted]] = OrderedDict()
        self._lent: dict[int, _Lent] = {}
        #: The same by wait key.
        self._by_wait_key: dict[Hashable, dict[int, _Lent]] = {}
        self._late: OrderedDict[int, Pop] = OrderedDict()
        self._borrowed: dict[tuple[str, int], Callable[[], None]] = {}

    def want(self, queue: str, origin: str, messages: int, served: tuple[str, ...] = ()) -> None:
        """Notes that a worker has stored messages, and which groups had long polls there that took them."""
        now, workers = self._now(), self._wanted.setdefault(queue, {})
        since, groups = now, frozenset(served)
        known = workers.get(origin)
        recent = known.recent(now) if known is not None else 0.0
        if known is not None and recent and now < known.since + _KNOWN_S:
            since, groups = known.since, groups & known.served
        if known is None and len(workers) >= _WORKERS_MAX:
            workers.clear()
        workers[origin] = _Wanted(now, recent + messages, since, groups)
        self._wanted.move_to_end(queue)
        if len(self._wanted) > _QUEUES_MAX:
            self._wanted.popitem(last=False)

    def wanted_by(self, pop: Pop, parked: int) -> str | None:
        """The sibling to lend a pop to: one that stores more messages than it has borrowed pops with this wait key.

        If messages are stored in this worker too, half of the pops stay. ``parked``: the number that wait here.
        """
        workers = self._wanted.get(pop.queue)
        if workers is None or pop.auto_ack or pop.partition is not None or len(self._lent) >= _LENT_MAX:
            return None
        now, lent = self._now(), self._by_wait_key.get(pop.wait_key, {})
        if len(lent) >= _LENT_PER_KEY_MAX or (len(lent) >= parked and workers.get("", _NOTHING).recent(now)):
            return None
        held = Counter([each.origin for each in lent.values()])
        siblings = [
            origin for origin, wanted in workers.items() if origin and wanted.uses(pop.group, held[origin], now)
        ]
        return min(siblings, key=held.__getitem__, default=None)

    async def lend(self, pop: Pop, origin: str) -> tuple[Popped | None, bool]:
        """The messages that a pop got in a sibling, and whether it needs a check: it was recalled, or got no answer."""
        number, lease = next(self._numbers), self._new_lease()
        lent = self._lent[number] = _Lent(pop, origin, asyncio.get_running_loop().create_future())
        self._by_wait_key.setdefault(pop.wait_key, {})[number] = lent
        try:
            if not self._siblings.post(origin, _encoder.encode(Ask(number, pop, lease))):
                self._wanted.get(pop.queue, {}).pop(origin, None)
                return None, False
            async with asyncio.timeout(LENT_ANSWER_S):
                popped = await lent.answer
        except TimeoutError:
            self._release(pop, lease)
            self._late[number] = pop
            if len(self._late) > _LATE_MAX:
                self._late.popitem(last=False)
            self._wanted.get(pop.queue, {}).pop(origin, None)
            return None, True
        finally:
            self._forget(number, pop)
        return popped, lent.recalled

    def _forget(self, number: int, pop: Pop) -> None:
        del self._lent[number]
        of_wait_key = self._by_wait_key[pop.wait_key]
        del of_wait_key[number]
        if not of_wait_key:
            del self._by_wait_key[pop.wait_key]

    def recall(self, wait_key: Hashable, number: int) -> None:
        """Asks for a number of pops with this wait key back."""
        to_recall = [(key, lent) for key, lent in self._by_wait_key.get(wait_key, {}).items() if not lent.recalled]
        for key, lent in to_recall[:number]:
            lent.recalled = True
            self._siblings.post(lent.origin, _encoder.encode(Recall(key)))

    def recall_all(self) -> None:
        """Asks for all pops back, because the worker stops."""
        for wait_key in list(self._by_wait_key):
            self.recall(wait_key, _LENT_PER_KEY_MAX)

    def receive(self, origin: str, datagram: bytes) -> None:
        """Takes a datagram of a sibling; ignores an invalid one."""
        try:
            message = _decoder.decode(datagram)
        except msgspec.DecodeError:
            return
        match message:
            case Ask(number, pop, lease):
                end = self._borrow(pop, lease, lambda popped: self._answer(origin, number, popped))
                if end is None:
                    self._answer(origin, number, Popped())
                else:
                    self._borrowed[origin, number] = end
            case Answer(number, popped):
                if (lent := self._lent.get(number)) is not None and not lent.answer.done():
                    lent.answer.set_result(popped)
                elif (late := self._late.pop(number, None)) is not None and popped.lease is not None:
                    self._release(late, popped.lease)
            case Recall(number):
                if (end := self._borrowed.get((origin, number))) is not None:
                    end()

    def _answer(self, origin: str, number: int, popped: Popped) -> bool:
        self._borrowed.pop((origin, number), None)
        datagram = _encoder.encode(Answer(number, popped))
        if len(datagram) > _DATAGRAM_BYTES_MAX:
            return False
        return self._siblings.post(origin, datagram)
