"""Notifications between workers and instances: collected in packets, sent by every transport, received once.

A *packet* has the notifications of one worker at one time. Fast transports (datagrams) send each packet at once; slow
ones (NOTIFY, HTTP) send one packet per interval, which repeats the notifications of several. So packets have numbers: a
packet says which numbers it contains, and a receiver that has all of them from another transport ignores it. Otherwise
one push would wake two long polls.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from uuid import uuid4

import msgspec
from msgspec import Struct

from queen.engine.ports import Notification, Transport

#: Fits into a NOTIFY (8,000 bytes), and into a datagram on loopback. On a network most packets fit into one datagram.
PACKET_BYTES_MAX = 7600
_NOTIFICATIONS_BYTES_MAX = PACKET_BYTES_MAX - 150
#: The most packets per sender, and senders, that are remembered.
_PACKETS_MAX, _SENDERS_MAX = 1000, 1000


class Packet(Struct, frozen=True, omit_defaults=True):
    """The notifications of one worker at one time.

    Attributes:
        origin: the unique id of the worker.
        first, last: the numbers that it contains; a packet of a fast transport has one.
        page: distinguishes several packets with the same numbers.
        notifications: the notifications.
    """

    origin: str
    first: int
    last: int
    notifications: Sequence[Notification]
    page: int = 0


_decoder = msgspec.json.Decoder(Packet)
_encode = msgspec.json.encode


def new_origin() -> str:
    """A unique id for a worker."""
    return uuid4().hex[:16]


def packet_of(notification: Notification) -> bytes:
    """A packet with one notification, from an origin of its own."""
    return _encode(Packet(new_origin(), 1, 1, [notification]))


class PendingNotifications:
    """Notifications that are not sent yet; those that differ only in the number of messages are merged."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str | None, bool, tuple[str, ...]], int] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, notification: Notification) -> bool:
        """Adds a notification; returns whether it is the first one."""
        key = (notification.queue, notification.group, notification.changed, notification.served)
        first = not self._messages
        self._messages[key] = self._messages.get(key, 0) + notification.messages
        return first

    def take(self) -> list[Notification]:
        """Removes and returns all notifications."""
        messages, self._messages = self._messages, {}
        return [
            Notification(queue, number, group, changed, served)
            for (queue, group, changed, served), number in messages.items()
        ]


def cut(notifications: Sequence[Notification]) -> list[Sequence[Notification]]:
    """Splits notifications into parts that each fit into a packet."""
    parts: list[Sequence[Notification]] = []
    begin = size = 0
    for index, notification in enumerate(notifications):
        length = len(_encode(notification)) + 1
        if index > begin and size + length > _NOTIFICATIONS_BYTES_MAX:
            parts.append(notifications[begin:index])
            begin, size = index, 0
        size += length
    return [*parts, notifications[begin:]]


class SeenPackets:
    """The packets that were received, by sender."""

    def __init__(self) -> None:
        self._by_origin: OrderedDict[str, OrderedDict[tuple[int, int, int], None]] = OrderedDict()

    def is_new(self, packet: Packet) -> bool:
        """Notes a packet; false if it, or all packets whose numbers it contains, were received before."""
        known = self._by_origin.setdefault(packet.origin, OrderedDict())
        self._by_origin.move_to_end(packet.origin)
        if len(self._by_origin) > _SENDERS_MAX:
            self._by_origin.popitem(last=False)
        key = (packet.first, packet.last, packet.page)
        if key in known or (packet.last - packet.first < len(known) and self._knows_each(known, packet)):
            return False
        known[key] = None
        if len(known) > _PACKETS_MAX:
            known.popitem(last=False)
        return True

    def _knows_each(self, known: Container[tuple[int, int, int]], packet: Packet) -> bool:
        return all((number, number, 0) in known for number in range(packet.first, packet.last + 1))


class _Outbox:
    """A transport with the notifications that it has to send."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.pending = PendingNotifications()
        self.first = 0
        self.timer: asyncio.TimerHandle | None = None


def _only_messages(notifications: Iterable[Notification]) -> bool:
    """Whether they say only that messages have come, which concerns long polls alone."""
    return not any([notification.changed for notification in notifications])


class NotificationHub:
    """Sends notifications to other workers and instances. A lost notification costs only time.

    Args:
        transports: all transports.
        relays: those to workers that do not receive the packets of other transports; they get each such packet.
        origin: the id of this worker.
    """

    def __init__(self, transports: Sequence[Transport], relays: Sequence[Transport] = (), origin: str = "") -> None:
        self._origin = origin or new_origin()
        self._outboxes = [_Outbox(transport) for transport in transports]
        self._relays = relays
        self._seen = SeenPackets()
        self._fresh = PendingNotifications()
        self._number = 0
        self._receive: Callable[[Notification, str], None] = lambda _notification, _origin: None
        self._loop: asyncio.AbstractEventLoop | None = None

    def publish(self, notification: Notification) -> None:
        """Sends a notification soon by every transport; those of one turn of the loop share a packet."""
        if self._loop is None:
            return
        if self._fresh.add(notification):
            self._loop.call_soon(self._send_fresh)

    async def start(self, receive: Callable[[Notification, str], None], missed: Callable[[], None]) -> None:
        """Starts all transports. ``receive`` gets each notification, and the origin of its worker."""
        self._loop, self._receive = asyncio.get_running_loop(), receive
        for outbox in self._outboxes:

            def receive_packet(payload: bytes, relay: bool = not outbox.transport.reaches_all) -> None:
                self.receive_packet(payload, relay=relay)

            await outbox.transport.start(receive_packet, missed)

    async def stop(self) -> None:
        """Sends what is left, and stops all transports."""
        self._loop = None
        self._send_fresh()
        for outbox in self._outboxes:
            if outbox.timer is not None:
                outbox.timer.cancel()
                self._send_pending(outbox)
            await outbox.transport.stop()

    def receive_packet(self, payload: bytes, *, relay: bool) -> None:
        """Takes a packet; ignores an invalid one and one that was received before."""
        try:
            packet = _decoder.decode(payload)
        except msgspec.DecodeError:
            return
        if packet.origin == self._origin or not self._seen.is_new(packet):
            return
        if relay:
            for transport in self._relays:
                transport.send([payload], waiting_only=_only_messages(packet.notifications))
        for notification in packet.notifications:
            self._receive(notification, packet.origin)

    def _send_fresh(self) -> None:
        if not self._fresh:
            return
        notifications = self._fresh.take()
        first = self._number + 1
        packets = self._packets(notifications)
        waiting_only = _only_messages(notifications)
        for outbox in self._outboxes:
            if outbox.transport.interval_s == 0:
                outbox.transport.send(packets, waiting_only=waiting_only)
            else:
                self._enqueue(outbox, notifications, first)

    def _packets(self, notifications: Sequence[Notification]) -> list[bytes]:
        """The packets with these notifications, each with a number: one, if they fit."""
        packet = _encode(Packet(self._origin, self._number + 1, self._number + 1, notifications))
        if len(packet) <= PACKET_BYTES_MAX:
            self._number += 1
            return [packet]
        packets = []
        for part in cut(notifications):
            self._number += 1
            packets.append(_encode(Packet(self._origin, self._number, self._number, part)))
        return packets

    def _enqueue(self, outbox: _Outbox, notifications: Sequence[Notification], first: int) -> None:
        """Sends by a slow transport at once if it was idle for its interval, else at the end of that."""
        outbox.first = outbox.first or first
        for notification in notifications:
            outbox.pending.add(notification)
        if outbox.timer is None:
            self._send_pending(outbox)

    def _send_pending(self, outbox: _Outbox) -> None:
        outbox.timer = None
        if not outbox.pending:
            return
        parts = cut(outbox.pending.take())
        packets = [Packet(self._origin, outbox.first, self._number, part, page) for page, part in enumerate(parts)]
        outbox.transport.send([_encode(packet) for packet in packets])
        outbox.first = 0
        if self._loop is not None:
            outbox.timer = self._loop.call_later(outbox.transport.interval_s, self._send_pending, outbox)
