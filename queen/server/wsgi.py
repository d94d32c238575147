"""Adapter of the ASGI application for WSGI workers: one thread with an event loop serves all requests of a worker.

Not a2wsgi, the usual adapter: it has no raw path (queue names may have encoded slashes), treats a chunked body as
empty, and does not notice disconnected clients, which would leave leases behind (docs/adr/0009).

A request is passed to the loop and waits for its answer on an eventfd, because both threads (``poll``) and greenlets
(meinheld's own loop) can wait for one.
"""

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, quote_from_bytes

import msgspec
import uvloop

from queen.http.app import QueenApp

Environ = Mapping[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]

_NOT_IMPLEMENTED = msgspec.json.encode(
    {
        "type": "about:blank",
        "status": 501,
        "title": "Not implemented",
        "detail": "This worker has reached its limit of long polls: send the pop without wait=true, or use a server "
        "with the worker class uvicorn",
        "error": "Long polls are not possible on this worker at the moment: send the pop without wait=true",
        "code": "no_waiting",
    }
)
_HANG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class Wait(Protocol):
    """Waits until the descriptor is readable; false if the client disconnects first."""

    def __call__(self, descriptor: int, environ: Environ) -> bool:
        """True when it is readable."""


def wait_in_thread(descriptor: int, environ: Environ) -> bool:
    """Waits for the answer or for the client to disconnect, in a thread of gunicorn's worker ``gthread``."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    client: socket.socket | None = environ.get("gunicorn.socket")
    if client is not None:
        poll.register(client.fileno(), _HANG_UP)
    return any(ready == descriptor for ready, _ in poll.poll())


def scope_of(environ: Environ) -> dict[str, Any]:
    """The ASGI scope of a request."""
    path: bytes = environ["PATH_INFO"].encode("latin-1")
    raw = environ.get("RAW_URI", "").partition("?")[0] or quote_from_bytes(path)
    headers = [
        (name[5:].replace("_", "-").lower().encode(), value.encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    headers += [
        (name.replace("_", "-").lower().encode(), value.encode("latin-1"))
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if (value := environ.get(name))
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": environ.get("SERVER_PROTOCOL", "HTTP/1.1").partition("/")[2],
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": path.decode("utf-8", "replace"),
        "raw_path": raw.encode("latin-1"),
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "client": (environ.get("REMOTE_ADDR", ""), int(environ.get("REMOTE_PORT") or 0)),
        "server": (environ.get("SERVER_NAME", ""), int(environ.get("SERVER_PORT") or 0)),
    }


class Exchange:
    """One request and its answer, for the application: ASGI's ``receive`` and ``send``."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self.scope = scope
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.descriptor = os.eventfd(0)
        self._body: bytes | None = body
        self._gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        """The whole body; then waits until the client disconnects."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Stores the answer."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.parts.append(message.get("body", b""))

    def hang_up(self) -> None:
        """Notes that the client has disconnected. Called in the loop."""
        self._gone.set()

    async def run(self, app: QueenApp) -> None:
        """Serves the request, and wakes the thread that waits for the answer."""
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            os.eventfd_write(self.descriptor, 1)


class WsgiApp:
    """The WSGI application of a worker.

    Args:
        app: the ASGI application. It is started at once, so create this object in the worker's process.
        wait: waits for the answer.
        waits_max: maximum of long polls; more are answered 501.
        body_bytes_max: maximum of body bytes to read; the application refuses longer bodies.

    Raises:
        RuntimeError: the application does not start.
    """

    def __init__(self, app: QueenApp, wait: Wait, waits_max: int, body_bytes_max: int) -> None:
        self._app, self._wait, self._waits_max, self._body_bytes_max = app, wait, waits_max, body_bytes_max
        self._waits = 0
        self._lock = threading.Lock()
        self._lifespan: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="queen-http", daemon=True)
        self._thread.start()
        self._done: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._life = asyncio.run_coroutine_threadsafe(self._live(), self._loop)
        self._expect("startup")

    def begin_stop(self) -> None:
        """From now on answers all long polls as empty. May be called from a signal handler."""
        self._app.begin_stop()

    def stop(self) -> None:
        """Stops the application, after the last request in flight."""
        self._expect("shutdown")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serves one request."""
        body: bytes = environ["wsgi.input"].read(self._body_bytes_max + 1)
        if not _wants_to_wait(environ, body):
            return self._serve(environ, body, start_response)
        if not self._take_wait():
            start_response("501 Not Implemented", [("Content-Type", "application/problem+json")])
            return [_NOT_IMPLEMENTED]
        try:
            return self._serve(environ, body, start_response)
        finally:
            with self._lock:
                self._waits -= 1

    def _take_wait(self) -> bool:
        with self._lock:
            free = self._waits < self._waits_max
            self._waits += free
        return free

    def _serve(self, environ: Environ, body: bytes, start_response: StartResponse) -> Sequence[bytes]:
        exchange = Exchange(scope_of(environ), body)
        served = asyncio.run_coroutine_threadsafe(exchange.run(self._app), self._loop)
        try:
            if not self._wait(exchange.descriptor, environ):
                self._loop.call_soon_threadsafe(exchange.hang_up)
            served.result()  # soon: the answer is there, or the client has disconnected
        finally:
            os.close(exchange.descriptor)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in exchange.headers]
        start_response(f"{exchange.status} {_phrase(exchange.status)}", headers)
        return exchange.parts

    async def _live(self) -> None:
        async def send(message: Mapping[str, Any]) -> None:
            await self._done.put(message)

        await self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._lifespan.get, send)

    def _expect(self, event: str) -> None:
        self._loop.call_soon_threadsafe(self._lifespan.put_nowait, {"type": f"lifespan.{event}"})
        message = asyncio.run_coroutine_threadsafe(self._done.get(), self._loop).result()
        if message["type"] != f"lifespan.{event}.complete":
            raise RuntimeError(message.get("message") or f"The application does not support {event}")


class _Pop(msgspec.Struct):
    wait: bool = False
    timeout: int | None = None


class _AckAndPop(msgspec.Struct):
    """The part of an ack body that says whether it waits."""

    pop: _Pop | None = None


def _wants_to_wait(environ: Environ, body: bytes) -> bool:
    path: str = environ["PATH_INFO"]
    if path == "/api/v1/ack/batch":
        try:
            pop = _ack_and_pop.decode(body).pop
        except (msgspec.DecodeError, RecursionError):
            return False  # the application reports the error
        return pop is not None and pop.wait and pop.timeout != 0
    if not path.startswith(("/api/v1/pop", "/api/queues/")):
        return False
    asked = parse_qs(environ.get("QUERY_STRING", ""))
    wait = asked.get("wait", [""])[-1]
    if path.startswith("/api/queues/"):
        return path.endswith("/messages") and wait.strip("0.") != ""  # simple-mq uses seconds
    return wait in ("true", "1") and asked.get("timeout") != ["0"]


_ack_and_pop = msgspec.json.Decoder(_AckAndPop)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
