"""uvicorn's WebSocket, which lets go of a client that reads nothing, and of what it holds when there is no room."""

from math import inf
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from queen.server.connections import Connection, Connections, Stage

#: The close frame gets that long to leave.
_LAST_WORD_S = 1.0


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

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.connections.add(self)  # may have given way, and uvicorn takes it out once more
        super().connection_lost(exc)
        self._let_go()

    def data_received(self, data: bytes) -> None:
        """Reads a piece of a frame, a whole one, or several."""
        super().data_received(data)
        self._count()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        super().pause_writing()
        self._count()

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
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

    def end(self, now: float) -> None:
        """Never called: it has no deadline."""

    def give_way(self) -> None:
        """Others need the room."""
        self.connections.discard(self)
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
        self._hold(0, 0)

    def _count(self) -> None:
        unfinished = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        unread = 0 if self.writable.is_set() else self.transport.get_write_buffer_size()
        if unfinished or unread or self.held:
            self._hold(unfinished, unread)
            self.since = self.loop.time()
            self._shared.is_overloaded(self.connections)

    def _hold(self, unfinished: int, unread: int) -> None:
        change, self.held = unfinished + unread - self.held, unfinished + unread
        self._shared.unfinished += unfinished - self.unfinished
        self.unfinished = unfinished
        self._shared.release(-change)
