"""Servers of a few lines that answer as a test wants it, and proxies before a real one."""

import http.client
import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Stub(BaseHTTPRequestHandler):
    """Answers everything in one way; ``seen`` is shared by the requests to one server."""

    protocol_version = "HTTP/1.1"
    seen: dict[str, Any]

    def log_message(self, *_arguments: object) -> None:
        pass

    def answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        raise NotImplementedError

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True


class Proxy(Stub):
    """Stands before a real server, whose port is ``upstream``."""

    def do_GET(self) -> None:
        self.answer(*self.forward(self.rfile.read(int(self.headers.get("Content-Length", 0)))))

    def forward(self, body: bytes) -> tuple[bytes, int]:
        """Body and status of the real answer; it leaves the server as soon as its client leaves."""
        connection = http.client.HTTPConnection("127.0.0.1", self.seen["upstream"])
        try:
            connection.request(self.command, self.path, body)
            heard, _, _ = select.select([connection.sock, self.connection], [], [])
            if connection.sock not in heard:  # a client that waits for its answer says nothing but its end
                raise ConnectionAbortedError("The client has gone")
            response = connection.getresponse()
            return response.read(), response.status
        finally:
            connection.close()


@contextmanager
def stub(kind: type[Stub], **shared: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL of such a server, and what its requests share."""
    seen: dict[str, Any] = {"end": threading.Event(), **shared}
    running = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (kind,), {"seen": seen}))
    running.handle_error = lambda *_arguments: None  # type: ignore[method-assign]
    running.daemon_threads = True
    running.block_on_close = False
    thread = threading.Thread(target=running.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", seen
    finally:
        seen["end"].set()
        running.shutdown()
        running.server_close()
        thread.join()
