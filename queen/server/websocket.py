"""uvicorn's WebSocket, which lets go of a client that reads nothing."""

from math import inf

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from queen.server.connections import Stage

#: The close frame gets that long to leave.
_LAST_WORD_S = 1.0


class QueenWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose keep-alive cuts off.

    When a ping is not answered, uvicorn closes the transport, which first waits until everything is written: for ever,
    if the client does not read, and the application is not told.

    Among the connections of a worker (``queen.server.connections``) it counts, and lasts as long as it answers pings.
    """

    deadline, since, held, unfinished, stage = inf, 0.0, 0, 0, Stage.BUSY

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        super().keepalive_timeout()
        self.loop.call_later(_LAST_WORD_S, self.transport.abort)
