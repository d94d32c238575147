"""A request that keeps how it began, so that bodies are read without a stream between, and a client's end is heard."""

import re
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any
from uuid import uuid4

import falcon.asgi

from queen.core.errors import BadRequestError, BodyTooLargeError
from queen.http.query_shown import query_shown
from queen.http.room import Room
from queen.security.tokens import Identity

Event = dict[str, Any]

REQUEST_ID = "X-Request-Id"
#: What an id of a client may be, so that it can be searched for, and breaks no line of a log.
_SANE_ID = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)
#: Characters of a path or query that a log line keeps: more than the longest names of a group, a queue and a partition.
_LOGGED_CHARS_MAX = 1000
#: A body that is no longer is worked on at once, whatever is in it.
_SHORT_BYTES = 1024


class QueenRequest(falcon.asgi.Request):
    """falcon's request, and the events that ASGI brings for it.

    Attributes:
        opening: the first event, with the whole body if that was short.
        next_event: the way to all others.
        body: what was read of it.
        began: when it came, by ``time.perf_counter``.
        identity: who sends it; ``None`` where nobody has to say.
        room: where large requests wait for each other.
        size: what it has taken there.
    """

    __slots__ = ("_request_id", "began", "body", "identity", "next_event", "opening", "room", "size")

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
        self.opening = first_event or {}
        self.next_event = receive
        self.body = b""
        self.began = perf_counter()
        self.identity: Identity | None = None
        self.room = room or Room()
        self.size = 0
        self._request_id: str | None = None

    @property
    def remote_addr(self) -> str:
        """The address of the client, as the server has it, which knows which proxies to believe.

        falcon's own is what any client says in ``Forwarded``, and an error where that cannot be understood.
        """
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def request_id(self) -> str:
        """What the request is called in log lines and in its answer: as ``X-Request-Id`` says, else a new UUID."""
        if self._request_id is None:
            given = self.get_header(REQUEST_ID)
            self._request_id = given if given is not None and _SANE_ID.fullmatch(given) else str(uuid4())
        return self._request_id

    @property
    def log_fields(self) -> dict[str, str]:
        """Who wants what from where: the fields of each log line that belongs to the request."""
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
        """Who sends it, as the token says: what messages have as ``producerSub``."""
        return self.identity.subject if self.identity is not None else None

    def leave_room(self) -> None:
        """The work on it is done."""
        if self.size:
            size, self.size = self.size, 0
            self.room.leave(size)

    def forget_body(self) -> None:
        """The work on its body is done, and what it asks for besides may take long."""
        self.body = self.opening["body"] = b""
        self.leave_room()

    async def gone(self) -> None:
        """Returns when the client has closed the connection. Read the body first."""
        while (await self.next_event())["type"] != "http.disconnect":
            pass


async def read_body(req: QueenRequest, bytes_max: int, limit: str = "MAX_BODY_SIZE") -> bytes:
    """The whole body, when the request has its turn; ``limit`` is what ``bytes_max`` is called in the error.

    Raises:
        OverloadedError: it had no turn in time.
        BodyTooLargeError: it is larger than ``bytes_max``; it is not read to its end.
        BadRequestError: it is empty, or the connection ended in the middle of it.
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
            raise BadRequestError("The connection ended before the body did")
        chunks.append(event.get("body", b""))
        size += len(chunks[-1])
        more = event.get("more_body", False)
    if size > bytes_max:
        raise _too_large(bytes_max, limit)
    return b"".join(chunks)


def _too_large(bytes_max: int, limit: str) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is larger than {bytes_max} bytes ({limit})")
