"""uvicorn's HTTP/1.1 protocol, with one write per response, and with limits.

uvicorn writes the head of a response and its body separately: two system calls, two packets, and two wake-ups of the
client. Here the head waits for the body, or for the end of the loop's iteration if that comes first.

uvicorn limits only idle connections, with a timer per response. Here heads, bodies, time and memory have limits, too
(``queen.server.connections``). They cost a few additions per chunk that is read, and nothing per header line.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from math import inf
from typing import Any

import httptools
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from queen.core import limits
from queen.http import problems
from queen.server.connections import Connection, Connections, Stage

#: Maximum of pipelined requests of a connection.
_PIPELINED_MAX = 100
#: After a refusal, data of the client is discarded for this time, so that it can read the answer.
_LAST_WORD_S = 5.0

#: Larger chunks are not copied to join them with the previous one.
_JOINED_BYTES_MAX = 64 << 10

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]


class Refusal(Struct, frozen=True):
    """An answer to an invalid or incomplete request."""

    status: int
    code: str
    detail: str

    def answer(self) -> bytes:
        """The bytes to send."""
        body = problems.unread(self.status, self.detail, self.code)
        later = f"Retry-After: {problems.RETRY_AFTER_S}\r\n" if self.status == HTTPStatus.SERVICE_UNAVAILABLE else ""
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\nContent-Type: {problems.PROBLEM_JSON}\r\n"
            f"Content-Length: {len(body)}\r\n{later}Connection: close\r\n\r\n"
        )
        return head.encode() + body


_NOT_HTTP = Refusal(400, "http_error", "Invalid HTTP request received.")
_HEAD_TOO_LARGE = Refusal(
    431, "head_too_large", f"The head of the request has more than {limits.HEAD_BYTES_MAX} bytes, or more than "
    f"{limits.HEADERS_MAX} header lines"
)  # fmt: skip
_URL_TOO_LONG = Refusal(414, "url_too_long", f"The URL has more than {limits.URL_BYTES_MAX} bytes")
_TOO_SLOW = Refusal(408, "request_timeout", "The request took longer to arrive than QUEEN_REQUEST_TIMEOUT")
_NO_ROOM = Refusal(
    503, "overloaded", "The server's memory for requests and answers is used up (QUEEN_MAX_HELD_BYTES). Try again later"
)
_NO_CONNECTION = Refusal(
    503, "overloaded", "The server has reached its limit of connections (QUEEN_MAX_CONNECTIONS). Try again later"
)


#: Headers, and words of the header `Connection`, that ask for another protocol.
_OF_UPGRADES = frozenset({b"upgrade", b"http2-settings"})


class _RefusedError(Exception):
    """Stops the parser."""


class OneWriteTransport:
    """A transport that joins two writes of one iteration of the loop.

    Args:
        transport: the real one.
        loop: the event loop.
        close: closes the connection when everything is written.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]
    ) -> None:
        self._transport, self._loop, self._close = transport, loop, close
        self._held = b""
        self._closing = False

    def write(self, data: bytes) -> None:
        """Holds the first write back, and sends it with the second; drops data after the end of the connection."""
        if self._transport.is_closing():
            self._held = b""
        elif self._held:
            held, self._held = self._held, b""
            if len(data) > _JOINED_BYTES_MAX:
                self._transport.writelines((held, data))
            else:
                self._transport.write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        """Sends held data, then closes."""
        self._flush()
        self._closing = True
        self._close()

    def write_eof(self) -> None:
        """Sends held data, then closes the sending side."""
        self._flush()
        self._transport.write_eof()

    def detach(self) -> None:
        """Called after the end of the connection."""
        self._close = self._transport.close

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else is the transport's
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol over this transport, within the limits of the worker."""

    # Not for their memory: CPython is slower with all attributes of an object that has more than thirty in its dict.
    __slots__ = (
        "_body_seen",
        "_bounds",
        "_came",
        "_declined",
        "_judged_at",
        "_keep_alive",
        "_of_head",
        "_of_head_and_read",
        "_real",
        "_refused",
        "_shared",
        "_unread",
        "deadline",
        "held",
        "since",
        "unfinished",
    )

    transport: OneWriteTransport  # type: ignore[assignment]
    connections: set[Connection]  # type: ignore[assignment]
    #: ``None`` before the first request, unlike uvicorn's type.
    cycle: Any

    def __init__(self, shared: Connections, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **options)
        self._shared, self._bounds = shared, shared.bounds
        self.deadline = inf
        self.since = 0.0
        #: Bytes of unanswered requests, and how many of them belong to an incomplete request.
        self.held = self.unfinished = 0
        #: Bytes of an answer that the client has not read.
        self._unread = 0
        #: Bytes of an incomplete head or trailers; the chunk being read; and the body at the last check, with its
        #: length then.
        self._of_head = self._of_head_and_read = 0
        self._body_seen: tuple[bytes | bytearray, int] = (b"", 0)
        #: The end of the period over which the speed of the client is measured, and the bytes received in it.
        self._judged_at = 0.0
        self._came = 0
        #: State after the end of the current request.
        self._keep_alive: bool | None = None
        #: Received data is discarded.
        self._refused = False
        #: The request asks for another protocol, which there is not: it is read again without that.
        self._declined = False

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._real = transport
        self.transport = OneWriteTransport(transport, self.loop, self._close)
        self.since = self.loop.time()
        self.deadline = self.since + self._bounds.request_timeout_s
        if not self._shared.make_room(self.connections):
            self._shared.count_refusal(_NO_CONNECTION.status)
            transport.write(_NO_CONNECTION.answer())
            self._refused = True
            self.connections.discard(self)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        super().connection_lost(exc)
        self._let_go()
        self.transport.detach()

    def shutdown(self) -> None:
        """At shutdown: the next answer is the last one, and incomplete requests are dropped."""
        self._keep_alive = False
        if self.stage is Stage.CLOSING or self.cycle is None or self.cycle.response_complete:
            self._real.close()
        else:
            super().shutdown()

    def _close(self) -> None:
        """Closes the connection, but not at once while the client is sending: it would not get the answer."""
        if not (self.unfinished or self._refused) or self._real.is_closing():
            self._real.close()
            return
        self._refused = True
        self._let_go()
        self._real.resume_reading()
        if self._real.can_write_eof():
            self._real.write_eof()
        self.since = self.loop.time()
        self.deadline = self.since + _LAST_WORD_S

    def _let_go(self) -> None:
        """Releases all its bytes."""
        self._shared.forget(self)
        self._shared.unfinished -= self.unfinished
        held, self.held, self.unfinished, self._unread = self.held, 0, 0, 0
        self._shared.release(held)

    # ------------------------------------------------------------------ what comes

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request, a whole one, or several."""
        if self._refused:
            return
        size = len(data)
        self._of_head_and_read = self._of_head + size
        self.held += size
        self._shared.bytes += size
        if not self._unread:
            self.deadline = inf
        try:
            if not self._read(data):
                return
        except httptools.HttpParserError:
            if not self._refused:
                self._refuse(_NOT_HTTP)
            return
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.scope is not self.scope:
            self._expect_more(size)
        elif self.unfinished:
            self._is_complete()

    def _read(self, data: bytes) -> bool:
        """Feeds the parser; false if the connection became a WebSocket.

        The parser ends a request that asks for any other protocol at its head, and would take its body, or the next
        request, for something else. A server may ignore such a wish, and has to read on: Java's client begins so.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as found:
                if not self._declined:
                    if not self._should_upgrade():
                        return True
                    self.handle_websocket_upgrade()
                    return False
                data = self._head_without_upgrade() + data[found.args[0] :]
                self._declined = False
                self.parser = httptools.HttpRequestParser(self)
            else:
                return True

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            kept = value
            if name == b"connection":
                kept = b",".join(word for word in value.split(b",") if word.strip().lower() not in _OF_UPGRADES)
            if name not in _OF_UPGRADES and (kept or not value):
                lines.append(b"%b: %b" % (name, kept))
        return b"\r\n".join([*lines, b"", b""])

    def on_message_complete(self) -> None:
        """The end of a request."""
        if not self._declined:
            super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Starts to handle a request.

        Raises:
            _RefusedError: it is refused; stops the parser.
        """
        # A CONNECT is one whatever its headers are: it is answered like any method that there is not.
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT" and not self._should_upgrade():
            self._declined = True
            return
        shared, bounds = self._shared, self._bounds
        if (
            len(self.headers) > bounds.headers_max
            or len(self.url) > bounds.url_bytes_max
            or self._of_head_and_read > bounds.head_bytes_max
            or shared.bytes > bounds.held_bytes_max
            or self.pipeline
        ):
            self._judge_head()
        if self.unfinished:
            self._of_head, self._judged_at = 0, 0.0
        if self.expect_100_continue:
            self._begin_before_the_body()
        else:
            super().on_headers_complete()

    def _judge_head(self) -> None:
        """Checks a head that may exceed a limit."""
        shared, bounds = self._shared, self._bounds
        if len(self.headers) > bounds.headers_max or self._size_of_head() > bounds.head_bytes_max:
            self._refuse(_HEAD_TOO_LARGE)
        elif len(self.url) > bounds.url_bytes_max:
            self._refuse(_URL_TOO_LONG)
        elif shared.is_overloaded(self.connections):
            self._refuse(_NO_ROOM)
        elif len(self.pipeline) >= _PIPELINED_MAX:
            self._end_after_answers()
        else:
            return
        raise _RefusedError

    def handle_websocket_upgrade(self) -> None:
        """Hands the connection over."""
        self._let_go()
        super().handle_websocket_upgrade()

    def _begin_before_the_body(self) -> None:
        application, self.app = self.app, _before_the_body(self.app)
        super().on_headers_complete()
        self.app = application

    def _size_of_head(self) -> int:
        """The size of the head, computed from its parts: the data read may contain more than a head."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _expect_more(self, size: int) -> None:
        """After a chunk that does not complete a request."""
        shared, bounds = self._shared, self._bounds
        self._of_head = 0 if self._has_more_of_body() else self._of_head + size
        if self._of_head > bounds.head_bytes_max:
            self._refuse(_URL_TOO_LONG if len(self.url) > bounds.url_bytes_max else _HEAD_TOO_LARGE)
            return
        self.since = self.loop.time()
        if not self._judged_at:
            self._judge_anew()
        self._came += size
        unfinished = self.held - self._unread
        shared.unfinished += unfinished - self.unfinished
        self.unfinished = unfinished
        if self._keep_alive is None and self._is_in_body():
            # An answer before the end of the request closes the connection.
            self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.deadline = self._judged_at
        if shared.is_held_back(self, self.connections):
            self.deadline = self.since + self._bounds.request_timeout_s

    def _is_complete(self) -> None:
        """After a request in several chunks is complete."""
        self._of_head, self._judged_at, self._body_seen = 0, 0.0, (b"", 0)
        self._shared.unfinished -= self.unfinished
        self.unfinished = 0
        if self._keep_alive is not None and not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        self._keep_alive = None

    def _has_more_of_body(self) -> bool:
        """Whether a chunk of a body has arrived since the last call; the application may have taken earlier ones."""
        if not self._is_in_body():
            return False
        before, self._body_seen = self._body_seen, (self.cycle.body, len(self.cycle.body))
        return len(self.cycle.body) > (before[1] if before[0] is self.cycle.body else 0)

    def _judge_anew(self) -> None:
        self._came = 0
        self._judged_at = self.loop.time() + self._bounds.request_timeout_s

    def _is_in_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete

    def _unset_keepalive_if_required(self) -> None:
        """Does nothing: there is no timer."""

    # ------------------------------------------------------------------ what goes

    def on_response_complete(self) -> None:
        """Continues with a pipelined request, or becomes idle."""
        self.server_state.total_requests += 1
        shared, kept = self._shared, self.unfinished + self._unread
        shared.bytes -= self.held - kept
        self.held = kept
        if shared.is_crowded:
            shared.step_aside(self)
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif not kept:
            self.since = self.loop.time()
            self.deadline = self.since + self.timeout_keep_alive

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        super().pause_writing()
        self._count_unread()
        self.since = self.loop.time()
        self.deadline = self.since + self._bounds.request_timeout_s
        if self._shared.bytes > self._bounds.shed_above:
            # Not now: a write of the transport is in progress.
            self.loop.call_soon(self._shared.is_overloaded, self.connections)

    def resume_writing(self) -> None:
        """The client has read the data."""
        super().resume_writing()
        self._count_unread()
        self.since = self.loop.time()
        match self.stage:
            case Stage.IDLE:
                self.deadline = self.since + self.timeout_keep_alive
            case Stage.BUSY:
                self.deadline = inf

    def _count_unread(self) -> int:
        unread = self._real.get_write_buffer_size() if self.flow.write_paused else 0
        change, self._unread = unread - self._unread, unread
        self.held += change
        self._shared.release(-change)
        return unread

    # ------------------------------------------------------------------ bounds

    @property
    def stage(self) -> Stage:
        """The state of the connection."""
        if self.transport.is_closing():
            return Stage.CLOSING
        if self.flow.write_paused:
            return Stage.ANSWER_UNREAD
        if self._refused:
            return Stage.BUSY  # with earlier requests
        if self.unfinished:
            return Stage.BODY if self._is_in_body() else Stage.HEAD
        if self.cycle is None:
            return Stage.HEAD
        return Stage.IDLE if self.cycle.response_complete else Stage.BUSY

    def measure(self) -> None:
        """A client that reads a large answer is not idle: ``resume_writing`` comes only at the end."""
        before = self._unread
        if self.flow.write_paused and self._count_unread() < before:
            self.since = self.loop.time()

    def postpone(self, seconds: float) -> None:
        """Moves the deadline, and the end of the time over which the speed of a body is measured."""
        self.deadline += seconds
        self._judged_at += seconds if self._judged_at else 0.0

    def end(self, now: float) -> None:
        """Ends a connection that has taken too long."""
        match self.stage:
            case Stage.CLOSING:
                self._real.abort()
            case Stage.ANSWER_UNREAD:
                self._expect_reading(now)
            case Stage.IDLE:
                self.transport.close()
            case Stage.HEAD if not self.unfinished:
                self.transport.close()  # without a request there is nothing to answer
            case Stage.BODY if self._shared.waits(self):
                self._refuse(_NO_ROOM)
            case Stage.BODY if self.flow.read_paused or self._came >= self._bounds.timeout_bytes_min:
                self._judge_anew()
                self.deadline = self._judged_at
            case Stage.HEAD | Stage.BODY:
                self._refuse(_TOO_SLOW)
            case Stage.BUSY:
                self.deadline = inf

    def give_way(self) -> None:
        """Closes the connection to make room."""
        self.connections.discard(self)
        if self.stage in (Stage.HEAD, Stage.BODY) and self.unfinished:
            self._refuse(_NO_ROOM)
        self._let_go()
        self._real.abort() if self.stage is Stage.ANSWER_UNREAD else self._real.close()

    def stop_reading(self) -> None:
        """Pauses reading until ``read_on``."""
        # uvicorn does not know about it, and so does not resume when the application reads.
        self.flow.read_paused = False
        self._real.pause_reading()

    def read_on(self) -> None:
        """Resumes reading."""
        self._real.resume_reading()
        self._judge_anew()
        self.deadline = self._judged_at

    def _expect_reading(self, now: float) -> None:
        before = self._unread
        if before - self._count_unread() < self._bounds.timeout_bytes_min:
            self._shared.count_refusal(_TOO_SLOW.status)
            self._real.abort()
        self.deadline = now + self._bounds.request_timeout_s

    def _refuse(self, refusal: Refusal) -> None:
        """Answers, and ends the connection."""
        self._shared.count_refusal(refusal.status)
        if self._is_in_body():
            self._abandon_request()
        elif self.cycle is not None and not self.cycle.response_complete:
            # The client would take an answer for that of an earlier request.
            self._end_after_answers()
            return
        self.transport.write(refusal.answer())
        self._refused = True
        self.transport.close()

    def _abandon_request(self) -> None:
        """Tells the application that the client has disconnected; an answer that has started cannot be replaced."""
        if self.pipeline or self.cycle.response_started:
            self._real.abort()
        self.cycle.disconnected = True
        self.cycle.message_event.set()

    def _end_after_answers(self) -> None:
        self._refused = True
        self.cycle.keep_alive = False
        self.deadline = inf


def _before_the_body(application: Callable[[Event, Receive, Any], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The application for a request with ``Expect: 100-continue``, which is answered when the body is needed.

    falcon always requests the first chunk of a body, and uvicorn would take that for such a need.
    """

    async def call(scope: Event, receive: Receive, send: Any) -> None:  # noqa: ANN401 - ASGI
        opening: list[Event] = [{"type": "http.request", "body": b"", "more_body": True}]

        async def next_event() -> Event:
            return opening.pop() if opening else await receive()

        await application(scope, next_event, send)

    return call
