"""A request that reads its body directly from ASGI events, and notices when its client disconnects."""

import re
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any
from uuid import uuid4

import falcon.asgi

from queen.core.errors import BadRequestError, BodyTooLargeError
from queen.http.query_shown import query_shown
from queen.http.room import Room
from queen.security.identity import Identity

Event = dict[str, Any]

REQUEST_ID = "X-Request-Id"
#: Form of request ids that clients may choose: searchable, and safe in a log line.
_SANE_ID = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)
#: Characters of a path or query in a log line: more than the longest names of a group, a queue and a partition.
_LOGGED_CHARS_MAX = 1000
#: Bodies up to this size are processed at once.
_SHORT_BYTES = 1024


class QueenRequest(falcon.asgi.Request):
    """falcon's request, with its ASGI events.

    Attributes:
        action: of SQS; empty for an operation with a route of its own.
        queue: that the action is on.
        about: what it is changing, for the log of administrative changes: one line for each, or one if there is none.
        opening: the first event, with the whole body if it is short.
        next_event: receives the next event.
        body: the part that was read.
        began: time of arrival, by ``time.perf_counter``.
        identity: the caller; ``None`` without authentication.
        room: limits the memory of large requests.
        size: bytes that it holds in ``room``.
    """

    __slots__ = (
        "_request_id", "about", "action", "began", "body", "identity", "next_event", "opening", "queue", "room", "size",
    )  # fmt: skip

    def __init__(
        self,
        scope: Event,
        receive: Callable[[], Awaitable[Event]],
        first_event: Event | None = None,
        options: Any = None,  # noqa: ANN401
        *,
        room: Room | None = None,
    ) -> None:
        super().__init__(scope, receive, first_event=first_event, options=options)
        self.about: list[dict[str, object]] = []
        self.action = self.queue = ""
        self.opening = first_event or {}
        self.next_event = receive
        self.body = b""
        self.began = perf_counter()
        self.identity: Identity | None = None
        self.room = room or Room()
        self.size = 0
        self._request_id: str | None = None

    @property
    def sent_headers(self) -> Mapping[bytes, bytes]:
        """The headers by name, in lower case. ``get_header`` raises an exception for each that is missing."""
        headers: Mapping[bytes, bytes] = self._asgi_headers
        return headers

    @property
    def remote_addr(self) -> str:
        """The address of the client. The HTTP server determines it, because it knows the trusted proxies.

        falcon's own trusts the header ``Forwarded`` of any client, and fails if it is malformed.
        """
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def request_id(self) -> str:
        """The id of the request in log lines and in its answer: that of ``X-Request-Id``, else a new UUID."""
        if self._request_id is None:
            given = self.get_header(REQUEST_ID)
            self._request_id = given if given is not None and _SANE_ID.fullmatch(given) else str(uuid4())
        return self._request_id

    @property
    def log_fields(self) -> dict[str, str]:
        """The fields of log lines about the request."""
        fields = {
            "request_id": self.request_id,
            "client": self.remote_addr,
            "subject": self.subject or "anonymous",
            "method": self.method,
            "path": self.path[:_LOGGED_CHARS_MAX],
        }
        if self.query_string:
            fields["query"] = query_shown(self.query_string)[:_LOGGED_CHARS_MAX]
        return fields

    @property
    def subject(self) -> str | None:
        """The subject of the token, which messages store as ``producerSub``."""
        return self.identity.subject if self.identity is not None else None

    def leave_room(self) -> None:
        """Releases its memory in ``room``."""
        if self.size:
            size, self.size = self.size, 0
            self.room.leave(size)

    def forget_body(self) -> None:
        """Releases the memory of its body, before other work that may take long."""
        self.body = self.opening["body"] = b""
        self.leave_room()

    async def gone(self) -> None:
        """Returns when the client has disconnected. Read the body first."""
        while (await self.next_event())["type"] != "http.disconnect":
            pass


async def read_body(req: QueenRequest, bytes_max: int, limit: str = "MAX_BODY_SIZE") -> bytes:
    """The whole body, as soon as there is room for it; ``limit`` is the name of ``bytes_max`` in the error.

    Raises:
        OverloadedError: there was no room in time.
        BodyTooLargeError: it is larger than ``bytes_max``; the rest is not read.
        BadRequestError: it is empty, or the connection was closed before its end.
    """
    event = req.opening
    body: bytes = event.get("body", b"")
    if event.get("more_body") or len(body) > bytes_max:
        body = await _read_on(req, body, bytes_max, limit)
    if not body:
        raise BadRequestError("Empty request body")
    req.body = body
    if len(body) > _SHORT_BYTES:
        req.size = await req.room.enter(body)
    return body


async def _read_on(req: QueenRequest, body: bytes, bytes_max: int, limit: str) -> bytes:
    if (req.content_length or 0) > bytes_max:
        raise _too_large(bytes_max, limit)
    chunks, size, more = [body], len(body), True
    while more and size <= bytes_max:
        event = await req.next_event()
        if event["type"] == "http.disconnect":
            raise BadRequestError("The connection was closed before the whole body arrived")
        chunks.append(event.get("body", b""))
        size += len(chunks[-1])
        more = event.get("more_body", False)
    if size > bytes_max:
        raise _too_large(bytes_max, limit)
    return b"".join(chunks)


def _too_large(bytes_max: int, limit: str) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is larger than {bytes_max} bytes ({limit})")
