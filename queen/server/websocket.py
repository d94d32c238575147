"""uvicorn's WebSocket, which lets go of a client that reads nothing."""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

#: The close frame gets that long to leave.
_LAST_WORD_S = 1.0


class QueenWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose keep-alive cuts off.

    When a ping is not answered, uvicorn closes the transport, which first waits until everything is written: for ever,
    if the client does not read, and the application is not told.
    """

    def keepalive_timeout(self) -> None:
        """The client did not answer a ping in time."""
        super().keepalive_timeout()
        self.loop.call_later(_LAST_WORD_S, self.transport.abort)
