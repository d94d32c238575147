"""uvicorn's WebSocket, which lets go of a client that reads nothing, and of what it holds when there is no room.

What sockets send is looked at in small pieces, one in a turn of the loop: a hundred sockets with 40,000 frames each
would stop the worker for a minute. What is sent to a socket never waits in the application, where nobody counts it:
it is written at once, and the application is told when the client has read it (``DRAINED``).
"""

import asyncio
from math import inf
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from queen.http.socket.session import DRAINED, GIVEN_UP
from queen.server.connections import Connection, Connections, Stage

#: The close frame gets that long to leave.
_LAST_WORD_S = 1.0
#: What is looked at in one turn of the loop. A piece that is no larger is looked at when it comes.
_PIECE_BYTES = 16 << 10
#: Pieces in which a client may send one message.
_FRAGMENTS_MAX = 4096
#: What a message takes while it waits for the application, besides its text.
_EVENT_BYTES = 300


class QueenWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose keep-alive cuts off, and whose unfinished frames and unread batches count.

    When a ping is not answered, uvicorn closes the transport, which first waits until everything is written: for ever,
    if the client does not read, and the application is not told.
    """

    connections: set[Connection]  # type: ignore[assignment]
    #: It lasts as long as it answers pings.
    deadline = inf

    def __init__(self, shared: Connections, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **options)
        self._shared = shared
        self.since = 0.0
        self.held = self.unfinished = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._given_up = asyncio.Event()
        #: Has come and is not looked at yet; whether it will be in the next turn; and what the application works on.
        self._coming = bytearray()
        self._goes_on = False
        self._queued = 0
        #: A frame was wrong: what still comes is thrown away.
        self._refused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.connections.add(self)  # may have given way, and uvicorn takes it out once more
        super().connection_lost(exc)
        self._drained.set()
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """Reads a piece of a frame, a whole one, or several."""
        if self._refused:
            return
        if not self._coming and len(data) <= _PIECE_BYTES:
            super().data_received(data)
            self._count()
            return
        self._coming += data
        self._go_on()

    def _go_on(self) -> None:
        """Looks at the next piece in the next turn, or reads on; not before the application has taken what is there."""
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
        """Its turn has come."""
        self._goes_on = False
        if not (self._refused or self.transport.is_closing()):
            piece = bytes(self._coming[:_PIECE_BYTES])
            del self._coming[:_PIECE_BYTES]
            super().data_received(piece)
            self._count()
        self._go_on()

    async def receive(self) -> Any:  # noqa: ANN401 - ASGI
        """The next message; the one before is done with only now."""
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
            self.scope["extensions"] |= {DRAINED: self._drained, GIVEN_UP: self._given_up}  # type: ignore[dict-item]

    def handle_text(self, event: Frame) -> None:
        """A message, or its first fragment."""
        super().handle_text(event)
        event.data = b""  # the parser keeps its last frame

    def handle_bytes(self, event: Frame) -> None:
        """The same in binary."""
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """A further fragment of a message."""
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
        """A frame was wrong. The client may be sending: cut off at once, it would not get the close frame."""
        assert self.conn.close_sent is not None  # noqa: S101 - for the type checker
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._refused = True
        self._let_go()
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # With a timer uvicorn does not close when the application has ended.
        self.close_timer = self.loop.call_later(_LAST_WORD_S, self.transport.abort)

    def handle_ping(self) -> None:
        """Answers; not where nobody reads the answers."""
        if self._drained.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    async def send(self, message: Any) -> None:  # noqa: ANN401 - ASGI
        """Sends without waiting for the client to read what came before."""
        await super().send(message)
        if not self._drained.is_set():
            self._count()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        self._drained.clear()
        self._count()

    def resume_writing(self) -> None:
        """It has read."""
        self._drained.set()
        self._count()

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        super().keepalive_timeout()
        self.loop.call_later(_LAST_WORD_S, self.transport.abort)

    @property
    def stage(self) -> Stage:
        """Where it is, as far as others need the room."""
        if self.unfinished:
            return Stage.BODY
        return Stage.ANSWER_UNREAD if self.held else Stage.BUSY

    def measure(self) -> None:
        """Whoever reads a large batch is not silent."""
        before = self.held
        self._measure()
        if self.held < before:
            self.since = self.loop.time()

    def end(self, now: float) -> None:
        """Never called: it has no deadline."""

    def give_way(self) -> None:
        """Others need the room."""
        self.connections.discard(self)
        self._given_up.set()
        self._let_go()
        self.transport.abort()

    def read_on(self) -> None:
        """Never called: it is not held back."""

    def stop_reading(self) -> None:
        """Never called: it is not held back."""

    def _let_go(self) -> None:
        # Parser and connection refer to each other, so that only a collection would free what they have read.
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
        """Whether it holds anything, or did."""
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
