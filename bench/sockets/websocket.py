"""A minimal WebSocket client: texts in and out, one write for all that leave together.

Its frames are masked with a key of zeros, which is valid in form and costs the server as much as any other: only
browsers need unpredictable keys.
"""

import asyncio
import base64
import os
import struct
import time
from collections.abc import Callable, Sequence

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
_FIN = 0x80
_HEAD = struct.Struct(">BBH4x")
_LONG_HEAD = struct.Struct(">BBQ4x")

#: Called with texts that arrived together, and the time.
OnTexts = Callable[[Sequence[bytes], int], None]


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """A frame of a client."""
    size = len(payload)
    if size < 126:
        return bytes((_FIN | opcode, 0x80 | size, 0, 0, 0, 0)) + payload
    if size < 1 << 16:
        return _HEAD.pack(_FIN | opcode, 0xFE, size) + payload
    return _LONG_HEAD.pack(_FIN | opcode, 0xFF, size) + payload


class WebSocket(asyncio.Protocol):
    """One connection.

    Args:
        on_texts: called with texts that arrived together.
    """

    def __init__(self, on_texts: OnTexts) -> None:
        self._on_texts = on_texts
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_open = self._is_closing = False

    async def open(self, host: str, port: int, path: str, protocol: str, token: str) -> None:
        """Connects; raises ConnectionError if the server does not agree."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        key = base64.b64encode(os.urandom(16)).decode()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {protocol}\r\n"
        )
        self._write(f"{head}Authorization: Bearer {token}\r\n\r\n" if token else f"{head}\r\n")
        await self._opened

    def send(self, texts: Sequence[bytes]) -> None:
        """Sends them with one write."""
        assert self._transport is not None
        self._transport.write(b"".join(map(frame, texts)))

    def close(self) -> None:
        """Sends a close frame, and closes the connection."""
        assert self._transport is not None
        self._is_closing = True
        self._transport.write(frame((1000).to_bytes(2), CLOSE))
        self._transport.close()

    def _write(self, text: str) -> None:
        assert self._transport is not None
        self._transport.write(text.encode())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        if not self._opened.done():
            self._opened.set_exception(ConnectionError(f"The WebSocket was not opened: {exc or 'closed'}"))
        elif self._is_open and not self._is_closing:
            raise ConnectionError(f"The server has ended a WebSocket: {exc or 'closed'}")

    def data_received(self, data: bytes) -> None:
        """Called by the loop: several frames, or a part of one."""
        now = time.perf_counter_ns()
        data = self._rest + data if self._rest else data
        if not self._is_open:
            data = self._shake_hands(data)
        texts, self._rest = self._cut(data) if self._is_open else ([], data)
        if texts:
            self._on_texts(texts, now)

    def _shake_hands(self, data: bytes) -> bytes:
        """The data after the answer to the handshake; all data, if that is incomplete."""
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            return data
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            self._opened.set_exception(ConnectionError(f"The WebSocket was refused: {data.decode(errors='replace')}"))
            return b""
        self._is_open = True
        self._opened.set_result(None)
        return rest

    def _cut(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The texts of all complete frames, and the remaining data."""
        texts, position, end = [], 0, len(data)
        while end - position >= 2:
            first, size, head = data[position], data[position + 1], position + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                head += width
                if head > end:
                    break
                size = int.from_bytes(data[head - width : head])
            if head + size > end:
                break
            position = head + size
            if first == _FIN | TEXT:
                texts.append(data[head:position])
            else:
                self._control(first & 0x0F, data[head:position])
        return texts, data[position:]

    def _control(self, opcode: int, payload: bytes) -> None:
        assert self._transport is not None
        if opcode == PING:
            self._transport.write(frame(payload, PONG))
        elif opcode == CLOSE:
            if not self._is_closing:
                raise ConnectionError(f"The server has closed a WebSocket: {int.from_bytes(payload[:2])}")
        else:
            raise ConnectionError(f"A frame of opcode {opcode}: only unfragmented texts are expected")
