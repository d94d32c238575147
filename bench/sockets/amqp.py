"""A minimal client for AMQP 0-9-1: declare, publish with confirms, consume, ack.

One channel per connection. Frames, methods and their numbers are those of the standard.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from msgspec import Struct

_METHOD, _HEADER, _BODY, _HEARTBEAT, _END = 1, 2, 3, 8, b"\xce"
_FRAME = struct.Struct(">BHI")
_NAME = struct.Struct(">HH")
_GREETING = b"AMQP\x00\x00\x09\x01"
_CHANNEL = 1

START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = (10, 10), (10, 11), (10, 30), (10, 31), (10, 40), (10, 41)
CLOSE, CLOSE_OK = (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 10), (20, 11), (20, 40), (20, 41)
DECLARE, DECLARE_OK, DELETE, DELETE_OK = (50, 10), (50, 11), (50, 40), (50, 41)
QOS, QOS_OK, CONSUME, CONSUME_OK, CANCEL, CANCEL_OK = (60, 10), (60, 11), (60, 20), (60, 21), (60, 30), (60, 31)
PUBLISH, DELIVER, ACK, NACK = (60, 40), (60, 60), (60, 80), (60, 120)
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)

_DURABLE, _PASSIVE, _PERSISTENT = 2, 1, 2
#: Class, no weight, size; the only property: delivery mode.
_CONTENT = struct.Struct(">HHQHB")
_DELIVERY_MODE = 0x1000
_ACK = struct.Struct(">BHIHHQBB")
_NOTHING = b"\0\0"

#: Called with bodies and delivery tags that arrived together, and the time.
OnMessages = Callable[[Sequence[tuple[int, bytes]], int], None]
#: Called with a delivery tag, whether it includes all before it, whether the broker accepted them, and the time.
OnConfirm = Callable[[int, bool, bool, int], None]


class Address(Struct, frozen=True):
    """The address of a broker."""

    host: str
    port: int
    user: str
    password: str
    vhost: str


def address_of(url: str) -> Address:
    """The parts of ``amqp://user:password@host:port/vhost``; the default user is guest."""
    parts = urlsplit(url)
    vhost = unquote(parts.path[1:]) or "/"
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    return Address(parts.hostname or "127.0.0.1", parts.port or 5672, user, password, vhost)


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


def _long(text: bytes) -> bytes:
    return len(text).to_bytes(4) + text


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _method(name: tuple[int, int], arguments: bytes, channel: int = _CHANNEL) -> bytes:
    return _frame(_METHOD, channel, _NAME.pack(*name) + arguments)


def publication(queue: str, body: bytes) -> bytes:
    """The frames of a persistent message for a queue."""
    return (
        _method(PUBLISH, _NOTHING + _short("") + _short(queue) + b"\0")
        + _frame(_HEADER, _CHANNEL, _CONTENT.pack(60, 0, len(body), _DELIVERY_MODE, _PERSISTENT))
        + _frame(_BODY, _CHANNEL, body)
    )


def ack(tag: int) -> bytes:
    """The frame of an ack of one message."""
    return _ACK.pack(_METHOD, _CHANNEL, 13, *ACK, tag, 0, _END[0])


class AmqpError(Exception):
    """The broker has closed the channel or the connection; the text has its reason."""


class Amqp(asyncio.Protocol):
    """One connection with one channel."""

    def __init__(self, on_messages: OnMessages | None = None, on_confirm: OnConfirm | None = None) -> None:
        self._on_messages, self._on_confirm = on_messages, on_confirm
        self._transport: asyncio.Transport | None = None
        self._rest, self._is_closing = b"", False
        self._expected: tuple[int, int] | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._tag, self._left, self._parts = 0, 0, b""
        self._came: list[tuple[int, bytes]] = []
        self.version = ""

    # ------------------------------------------------------------ calls

    async def open(self, address: Address) -> None:
        """Connects, and opens the channel.

        Raises:
            OSError: the broker is unreachable.
            AmqpError: the broker refuses.
        """
        await asyncio.get_running_loop().create_connection(lambda: self, address.host, address.port)
        self.version = _version_of(await self._call(_GREETING, START))
        login = f"\0{address.user}\0{address.password}".encode()
        start = _long(b"") + _short("PLAIN") + _long(login) + _short("en_US")
        tune = await self._call(_method(START_OK, start, 0), TUNE)
        self.write(_method(TUNE_OK, tune[:6] + b"\0\0", 0))  # as the broker proposes, without heartbeats
        await self._call(_method(OPEN, _short(address.vhost) + b"\0\0", 0), OPEN_OK)
        await self._call(_method(CHANNEL_OPEN, b"\0"), CHANNEL_OPEN_OK)

    async def declare(self, queue: str, *, passive: bool = False) -> int:
        """Declares a quorum queue, possibly passively; returns its number of ready messages."""
        arguments = _short("x-queue-type") + b"S" + _long(b"quorum")
        bits = bytes((_DURABLE | (_PASSIVE if passive else 0),))
        asked = _NOTHING + _short(queue) + bits + _long(arguments)
        answer = await self._call(_method(DECLARE, asked), DECLARE_OK)
        return int.from_bytes(answer[1 + answer[0] :][:4])

    async def delete(self, queue: str) -> None:
        """Deletes a queue."""
        await self._call(_method(DELETE, _NOTHING + _short(queue) + b"\0"), DELETE_OK)

    async def confirm(self) -> None:
        """Enables publisher confirms."""
        await self._call(_method(CONFIRM, b"\0"), CONFIRM_OK)

    async def consume(self, queue: str, prefetch: int) -> None:
        """Starts to consume, with at most ``prefetch`` unacked messages."""
        await self._call(_method(QOS, struct.pack(">IHB", 0, prefetch, 0)), QOS_OK)
        await self._call(_method(CONSUME, _NOTHING + _short(queue) + _short("c") + b"\0" + _long(b"")), CONSUME_OK)

    async def cancel(self) -> None:
        """Stops to consume; no message comes after the answer."""
        await self._call(_method(CANCEL, _short("c") + b"\0"), CANCEL_OK)

    async def close(self) -> None:
        """Closes channel and connection, after earlier frames have been processed."""
        reason = struct.pack(">H", 200) + _short("") + struct.pack(">HH", 0, 0)
        await self._call(_method(CHANNEL_CLOSE, reason), CHANNEL_CLOSE_OK)
        await self._call(_method(CLOSE, reason, 0), CLOSE_OK)
        assert self._transport is not None
        self._is_closing = True
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Sends complete frames."""
        assert self._transport is not None
        self._transport.write(data)

    async def _call(self, request: bytes, expected: tuple[int, int]) -> bytes:
        """The arguments of the method that answers."""
        self._expected, self._answer = expected, asyncio.get_running_loop().create_future()
        self.write(request)
        return await self._answer

    # ------------------------------------------------------------ what comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        problem = exc or AmqpError("The broker has ended the connection")
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(problem)
        elif not self._is_closing:
            raise problem

    def data_received(self, data: bytes) -> None:
        """Called by the loop: several frames, or a part of one."""
        now = time.perf_counter_ns()
        data = self._rest + data if self._rest else data
        position, end = 0, len(data)
        while end - position >= 8:
            kind, _, size = _FRAME.unpack_from(data, position)
            begin = position + 7
            if begin + size >= end:
                break
            position = begin + size + 1
            if kind == _METHOD:
                self._method(data, begin, begin + size, now)
            elif kind == _HEADER:
                self._left = int.from_bytes(data[begin + 4 : begin + 12])
            elif kind == _BODY:
                self._body(data[begin : begin + size])
        self._rest = data[position:]
        if self._came:
            came, self._came = self._came, []
            assert self._on_messages is not None
            self._on_messages(came, now)

    def _body(self, part: bytes) -> None:
        """The body of a message, or a part of it."""
        self._left -= len(part)
        if self._left:
            self._parts += part
        else:
            self._came.append((self._tag, self._parts + part if self._parts else part))
            self._parts = b""

    def _method(self, data: bytes, begin: int, end: int, now: int) -> None:
        name = _NAME.unpack_from(data, begin)
        begin += 4
        if name == DELIVER:
            begin += 1 + data[begin]
            self._tag = int.from_bytes(data[begin : begin + 8])
        elif name in (ACK, NACK):
            assert self._on_confirm is not None
            self._on_confirm(int.from_bytes(data[begin : begin + 8]), bool(data[begin + 8] & 1), name == ACK, now)
        elif name == self._expected and self._answer is not None:
            self._expected = None
            self._answer.set_result(data[begin:end])
        else:
            self._refused(name, data[begin:end])

    def _refused(self, name: tuple[int, int], arguments: bytes) -> None:
        text = arguments[3 : 3 + arguments[2]].decode() if name in (CLOSE, CHANNEL_CLOSE) else f"method {name}"
        problem = AmqpError(f"The broker says: {text}")
        if self._answer is None or self._answer.done():
            raise problem
        self._answer.set_exception(problem)


def _version_of(start: bytes) -> str:
    """Product and version, from the properties of the server."""

    def value(name: bytes) -> str:
        _, _, rest = start.partition(bytes((len(name),)) + name + b"S")
        return rest[4 : 4 + int.from_bytes(rest[:4])].decode()

    return f"{value(b'product')} {value(b'version')}"
