"""uvicorn's WebSocket protocol; it drops clients that do not read, and frees their memory if room is needed.

Received data is parsed in small chunks, one per iteration of the loop: a hundred sockets with 40,000 frames each would
otherwise block the worker for a minute. Data to send never waits in the application, where it is not counted: it is
written at the end of the iteration, and the application learns when the client has read it (``DRAINED``).
"""

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State

from queen.http.socket.session import DRAINED, GIVEN_UP, WRITE
from queen.server.connections import Connection, Connections, Stage
from queen.server.protocol import OneWriteTransport

#: Frames up to this total size are written together: each write is a system call, and wakes the client.
_TOGETHER_BYTES = 64 << 10
#: Timeout to send the close frame.
_LAST_WORD_S = 1.0
#: Bytes to parse per iteration of the loop. Chunks up to this size are parsed when they arrive.
_PIECE_BYTES = 16 << 10
#: Maximum of fragments of one message.
_FRAGMENTS_MAX = 4096
#: Memory of a waiting message, besides its text.
_EVENT_BYTES = 300
_WHOLE_TEXT = 0x80 | Opcode.TEXT


class OneTurnTransport(OneWriteTransport):
    """A transport that joins small writes of one iteration of the loop."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport, loop, transport.close)
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Sends the data at the end of the iteration."""
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _TOGETHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.writelines(pieces)


class QueenWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose keep-alive disconnects, and whose incomplete frames and unread batches count as memory.

    If a ping is not answered, uvicorn closes the transport, which first waits until everything is written. If the
    client does not read, that takes forever, and the application does not learn of it.
    """

    connections: set[Connection]  # type: ignore[assignment]
    #: It has no deadline: it stays open as long as it answers pings.
    deadline = inf

    def __init__(self, shared: Connections, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **options)
        self._shared = shared
        self.since = 0.0
        self.held = self.unfinished = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._given_up = asyncio.Event()
        #: Received data that is not parsed yet; whether the next iteration will parse it; and the message that the
        #: application is handling.
        self._coming = bytearray()
        self._goes_on = False
        self._queued = 0
        #: After an invalid frame, received data is discarded.
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is upgraded."""
        super().connection_made(OneTurnTransport(transport, self.loop))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.connections.add(self)  # it may be removed already, and uvicorn removes it again
        super().connection_lost(exc)
        self._drained.set()
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """Reads a part of a frame, a whole one, or several."""
        if self._refused:
            return
        if not self._coming and len(data) <= _PIECE_BYTES:
            super().data_received(data)
            self._count()
            return
        self._coming += data
        self._go_on()

    def _go_on(self) -> None:
        """Parses the next chunk in the next iteration, or resumes reading, after the application has taken messages."""
        if self._refused or self.transport.is_closing():
            self._coming.clear()
        elif not self._coming:
            if not self.read_paused:
                self.transport.resume_reading()
        else:
            self.transport.pause_reading()
            if not (self._goes_on or self.read_paused):
                self._goes_on = True
                self._shared.take_turn(self.look_at_piece, self.loop.call_soon)

    def look_at_piece(self) -> None:
        """Parses the next chunk."""
        self._goes_on = False
        if not (self._refused or self.transport.is_closing()):
            piece = bytes(self._coming[:_PIECE_BYTES])
            del self._coming[:_PIECE_BYTES]
            super().data_received(piece)
            self._count()
        self._go_on()

    async def receive(self) -> Any:  # noqa: ANN401 - ASGI
        """The next message; the previous one is finished only now."""
        if self._queued and self.queue.empty():
            self._queued = 0
            self._count()
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._go_on()
        return message

    def send_receive_event_to_app(self) -> None:
        """A message is complete."""
        self._queued += self._size_of_fragments() + _EVENT_BYTES
        super().send_receive_event_to_app()

    def handle_connect(self, event: Request) -> None:
        """A client has sent its handshake."""
        super().handle_connect(event)
        if not self.close_sent:
            own: Any = {DRAINED: self._drained, GIVEN_UP: self._given_up, WRITE: self.write_texts}
            self.scope["extensions"] |= own

    def handle_text(self, event: Frame) -> None:
        """A message, or its first fragment."""
        super().handle_text(event)
        event.data = b""  # the parser keeps its last frame

    def handle_bytes(self, event: Frame) -> None:
        """The same in binary."""
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """A continuation fragment of a message."""
        if self.close_sent:
            return
        if len(self.frames) >= _FRAGMENTS_MAX:
            self.frames.clear()
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"more than {_FRAGMENTS_MAX} fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)
        event.data = b""

    def handle_parser_exception(self) -> None:
        """Handles an invalid frame. If the client is still sending, a disconnect at once would lose the close frame."""
        assert self.conn.close_sent is not None  # noqa: S101 - for the type checker
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._refused = True
        self._let_go()
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # If there is a timer, uvicorn does not close after the end of the application.
        self.close_timer = self.loop.call_later(_LAST_WORD_S, self.transport.abort)

    def handle_ping(self) -> None:
        """Answers a ping, unless the client does not read."""
        if self._drained.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    async def send(self, message: Any) -> None:  # noqa: ANN401 - ASGI
        """Sends without waiting for the client to read earlier data."""
        await super().send(message)
        if not self._drained.is_set():
            self._count()

    def write_texts(self, texts: Iterable[bytes]) -> None:
        """Sends several texts at once, without one ASGI event per text.

        Raises:
            ClientDisconnected: the client has disconnected.
        """
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self.transport.write(b"".join([part for text in texts for part in (head_of(text), text)]))
        if not self._drained.is_set():
            self._count()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        self._drained.clear()
        self._count()

    def resume_writing(self) -> None:
        """The client has read the data."""
        self._drained.set()
        self._count()

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        super().keepalive_timeout()
        self.loop.call_later(_LAST_WORD_S, self.transport.abort)

    @property
    def stage(self) -> Stage:
        """Its state, for the limits of connections."""
        if self.unfinished:
            return Stage.BODY
        return Stage.ANSWER_UNREAD if self.held else Stage.BUSY

    def measure(self) -> None:
        """A client that reads a large batch is not idle."""
        before = self.held
        self._measure()
        if self.held < before:
            self.since = self.loop.time()

    def postpone(self, seconds: float) -> None:
        """Does nothing: it has no deadline."""

    def end(self, now: float) -> None:
        """Never called: it has no deadline."""

    def give_way(self) -> None:
        """Closes the connection to make room."""
        self.connections.discard(self)
        self._given_up.set()
        self._let_go()
        self.transport.abort()

    def read_on(self) -> None:
        """Never called: it is not held back."""

    def stop_reading(self) -> None:
        """Never called: it is not held back."""

    def _let_go(self) -> None:
        # Parser and connection refer to each other, so that only garbage collection would free their data.
        self.conn.reader.buffer.clear()
        self.frames.clear()
        self._coming.clear()
        self._queued = 0
        self._hold(0, 0)

    def _count(self) -> None:
        if self._measure():
            self.since = self.loop.time()
            self._shared.is_overloaded(self.connections)

    def _measure(self) -> bool:
        """Updates its bytes."""
        unfinished = len(self.conn.reader.buffer) + len(self._coming) + self._size_of_fragments() + self._queued
        unread = 0 if self._drained.is_set() else self.transport.get_write_buffer_size()
        if not (unfinished or unread or self.held):
            return False
        self._hold(unfinished, unread)
        return True

    def _size_of_fragments(self) -> int:
        return sum(map(len, self.frames))

    def _hold(self, unfinished: int, unread: int) -> None:
        change, self.held = unfinished + unread - self.held, unfinished + unread
        self._shared.unfinished += unfinished - self.unfinished
        self.unfinished = unfinished
        self._shared.release(-change)


def head_of(text: bytes) -> bytes:
    """The header of an unfragmented text frame of a server, without a mask."""
    size = len(text)
    if size < 126:
        return bytes((_WHOLE_TEXT, size))
    if size < 1 << 16:
        return bytes((_WHOLE_TEXT, 126)) + size.to_bytes(2)
    return bytes((_WHOLE_TEXT, 127)) + size.to_bytes(8)
