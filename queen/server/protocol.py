"""HTTP/1.1 as uvicorn speaks it, with one write a response and one timer a connection.

uvicorn writes the head of a response and its body apart: two system calls, two packets, and two wake-ups of the client.
Here the head waits for the body, or for the end of the loop's turn if that comes first.

uvicorn also sets a timer for the end of an idle connection after each response, and takes it back with each request.
Here a timer runs on, and looks at its end whether the connection has been idle for so long.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OneWriteTransport:
    """A transport that joins what is written in one turn of the loop, two pieces at a time."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Holds the first piece back, and sends it with the second."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Sends what is held back, then closes."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is the transport's
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol over such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.transport = OneWriteTransport(transport, self.loop)  # type: ignore[assignment]
        self._idle_since: float | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def on_response_complete(self) -> None:
        """Goes on with a request that came meanwhile, or begins to be idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection if it has been idle for long enough, else looks again when it could have been."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_in(left)
        else:
            super().timeout_keep_alive_handler()

    def _look_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None
