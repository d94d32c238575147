"""Notices to and from other workers and instances: gathered into sheets, sent on every way there is, heard once.

A *sheet* is what one worker says at one time. Ways that cost little (datagrams) take each sheet at once; slow ones
(NOTIFY, HTTP) one an interval, which repeats what the quick ones said in between. So sheets are numbered: a sheet says
which numbers it stands for, and whoever has heard all of them on another way passes over it. Otherwise one push would
wake two waiters.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Sequence
from uuid import uuid4

import msgspec
from msgspec import Struct

from queen.engine.ports import Notice, Transport

#: Fits a NOTIFY (8,000 bytes), and a datagram on loopback; on a network most sheets fit one packet anyway.
SHEET_BYTES_MAX = 7600
_NOTICES_BYTES_MAX = SHEET_BYTES_MAX - 150
#: Sheets that are remembered, by sender, and senders.
_HEARD_MAX, _SENDERS_MAX = 1000, 1000


class Sheet(Struct, frozen=True, omit_defaults=True):
    """What one worker says at one time.

    Attributes:
        origin: the worker, by an id that no other has.
        first, last: the numbers that it stands for; a sheet of a quick way has one.
        page: which of several sheets that stand for the same numbers.
        notices: what happened.
    """

    origin: str
    first: int
    last: int
    notices: Sequence[Notice]
    page: int = 0


_decoder = msgspec.json.Decoder(Sheet)
_encode = msgspec.json.encode


def sheet_of(notice: Notice) -> bytes:
    """A sheet of somebody who says one thing and nothing else."""
    return _encode(Sheet(uuid4().hex[:16], 1, 1, [notice]))


class Gathered:
    """Notices that have not been said yet; those of one queue and group are one."""

    def __init__(self) -> None:
        self._messages: Counter[tuple[str, str | None, bool]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, notice: Notice) -> None:
        """Adds what happened."""
        key = (notice.queue, notice.group, notice.changed)
        self._messages[key] += notice.messages

    def take(self) -> list[Notice]:
        """All of it, which is then said."""
        messages, self._messages = self._messages, Counter()
        return [Notice(queue, number, group, changed) for (queue, group, changed), number in messages.items()]


def cut(notices: Sequence[Notice]) -> list[Sequence[Notice]]:
    """The notices in parts, each of which fits a sheet."""
    parts: list[Sequence[Notice]] = []
    begin = size = 0
    for place, notice in enumerate(notices):
        length = len(_encode(notice)) + 1
        if place > begin and size + length > _NOTICES_BYTES_MAX:
            parts.append(notices[begin:place])
            begin, size = place, 0
        size += length
    return [*parts, notices[begin:]]


class Heard:
    """Which sheets of which senders have been heard."""

    def __init__(self) -> None:
        self._by_origin: OrderedDict[str, OrderedDict[tuple[int, int, int], None]] = OrderedDict()

    def is_news(self, sheet: Sheet) -> bool:
        """Whether this sheet was not heard before, nor every one of those that it stands for; remembers it."""
        known = self._by_origin.setdefault(sheet.origin, OrderedDict())
        self._by_origin.move_to_end(sheet.origin)
        if len(self._by_origin) > _SENDERS_MAX:
            self._by_origin.popitem(last=False)
        key = (sheet.first, sheet.last, sheet.page)
        if key in known or (sheet.last - sheet.first < len(known) and self._knows_each(known, sheet)):
            return False
        known[key] = None
        if len(known) > _HEARD_MAX:
            known.popitem(last=False)
        return True

    def _knows_each(self, known: Container[tuple[int, int, int]], sheet: Sheet) -> bool:
        return all((number, number, 0) in known for number in range(sheet.first, sheet.last + 1))


class _Way:
    """A transport with what waits for it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.gathered = Gathered()
        self.first = 0
        self.timer: asyncio.TimerHandle | None = None


class NoticesEverywhere:
    """Tells other workers and instances what may interest their waiters. Losing a notice costs time, nothing else.

    Args:
        transports: all ways; what came in on one is passed on to those of ``relays``.
        relays: ways to workers that hear nothing by themselves of what this one hears.
    """

    def __init__(self, transports: Sequence[Transport], relays: Sequence[Transport] = ()) -> None:
        self._origin = uuid4().hex[:16]
        self._ways = [_Way(transport) for transport in transports]
        self._relays = relays
        self._heard = Heard()
        self._fresh = Gathered()
        self._number = 0
        self._receive: Callable[[Notice], None] = lambda _notice: None
        self._loop: asyncio.AbstractEventLoop | None = None

    def publish(self, notice: Notice) -> None:
        """Says it on every way, soon; what comes in the same turn of the loop goes together."""
        if self._loop is None:
            return
        if not self._fresh:
            self._loop.call_soon(self._say)
        self._fresh.add(notice)

    async def start(self, receive: Callable[[Notice], None], missed: Callable[[], None]) -> None:
        """Begins to listen on every way."""
        self._loop, self._receive = asyncio.get_running_loop(), receive
        for way in self._ways:
            relayed = way.transport not in self._relays

            def hear(payload: bytes, relayed: bool = relayed) -> None:
                self.hear(payload, relay=relayed)

            await way.transport.start(hear, missed)

    async def stop(self) -> None:
        """Says what is left, and ends all ways."""
        self._loop = None
        self._say()
        for way in self._ways:
            if way.timer is not None:
                way.timer.cancel()
                self._send_gathered(way)
            await way.transport.stop()

    def hear(self, payload: bytes, *, relay: bool) -> None:
        """Takes a sheet that came in; one that cannot be read, or is no news, is passed over."""
        try:
            sheet = _decoder.decode(payload)
        except msgspec.DecodeError:
            return
        if sheet.origin == self._origin or not self._heard.is_news(sheet):
            return
        if relay:
            for transport in self._relays:
                transport.send([payload])
        for notice in sheet.notices:
            self._receive(notice)

    def _say(self) -> None:
        if not self._fresh:
            return
        notices = self._fresh.take()
        first = self._number + 1
        quick = []
        for part in cut(notices):
            self._number += 1
            quick.append(_encode(Sheet(self._origin, self._number, self._number, part)))
        for way in self._ways:
            if way.transport.interval_s == 0:
                way.transport.send(quick)
            else:
                self._gather(way, notices, first)

    def _gather(self, way: _Way, notices: Sequence[Notice], first: int) -> None:
        """A slow way gets it at once if it has been silent for its interval, else at the end of that."""
        way.first = way.first or first
        for notice in notices:
            way.gathered.add(notice)
        if way.timer is None:
            self._send_gathered(way)

    def _send_gathered(self, way: _Way) -> None:
        way.timer = None
        if not way.gathered:
            return
        parts = cut(way.gathered.take())
        sheets = [Sheet(self._origin, way.first, self._number, part, page) for page, part in enumerate(parts)]
        way.transport.send([_encode(sheet) for sheet in sheets])
        way.first = 0
        if self._loop is not None:
            way.timer = self._loop.call_later(way.transport.interval_s, self._send_gathered, way)
