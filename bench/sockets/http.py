"""A minimal HTTP client: persistent connections, one request at a time on each, as many as needed."""

import asyncio
import time

_AT_ONCE = 300


class Http:
    """Requests to one server, over at most 300 connections."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._host, self._port = host, port
        self._head = f"Host: {host}:{port}\r\nContent-Type: application/json\r\n" + (
            f"Authorization: Bearer {token}\r\n" if token else ""
        )
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        async with self._room:
            connection = self._idle.pop() if self._idle else await self._connect()
            head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
            answer = await connection.ask(head.encode() + body)
            self._idle.append(connection)
        return answer

    async def _connect(self) -> "Connection":
        _, connection = await asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        return connection

    def close(self) -> None:
        """Ends all connections."""
        while self._idle:
            self._idle.pop().close()


class Connection(asyncio.Protocol):
    """One connection.

    Attributes:
        status, answered_ns: of the last answer, and when it was complete; 0 before the first.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._text = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.status = self.answered_ns = 0

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        """Sends a request; returns status and body of its answer."""
        self.status = self.answered_ns = 0
        self._answer = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Ends it."""
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Called by the loop: an answer comes in one piece, or in a few."""
        now = time.monotonic_ns()
        self._text += data
        head, separator, body = self._text.partition(b"\r\n\r\n")
        if not separator or self._answer is None:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(body) >= length:
            self._text = b""
            self.status, self.answered_ns = int(head[9:12]), now
            self._answer.set_result((self.status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("The server closed a connection without an answer"))
