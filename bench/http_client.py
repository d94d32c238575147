"""An HTTP client for scenarios that send one request after the other."""

import http.client
import json
import socket
from typing import Any, Self
from urllib.parse import urlsplit

from queen.core.errors import QueenError

_PATIENCE_S = 120.0


class AnswerError(QueenError):
    """An unexpected answer of the server."""

    code = "bench_answer"


class Connection:
    """One connection that stays open during a block."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._http = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_PATIENCE_S)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Sends a request; returns status and body of the answer."""
        encoded = None if body is None else json.dumps(body)
        self._http.request(method, path, encoded, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        return answer.status, answer.read()

    def ask(self, method: str, path: str, body: object = None, status: int = 200) -> bytes:
        """The body of an answer; raises AnswerError if it has another status."""
        found, answer = self.request(method, path, body)
        if found != status:
            raise AnswerError(f"{method} {path} was answered {found}: {answer[:200]!r}")
        return answer

    def json(self, method: str, path: str, body: object = None, status: int = 200) -> Any:  # noqa: ANN401 - any JSON
        """The same, decoded."""
        return json.loads(self.ask(method, path, body, status))
