"""The requests of a worker to a server."""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Raw, Struct

DEFAULT_URL = "http://127.0.0.1:6632"
#: More than a server needs for any request except long polls.
_ANSWER_S = 60.0
_NOT_FOUND = 404
#: Statuses that another attempt may not have.
_PASSING = frozenset({429, 502, 503, 504})


class RefusedError(Exception):
    """The server refused a request; another attempt would not help. ``str()`` is one line for people."""


class UnavailableError(Exception):
    """The server did not answer, or is overloaded: another attempt may succeed."""


class Popped(Struct, rename="camel", frozen=True):
    """A delivered message, as the server sends it."""

    id: str
    transaction_id: str
    partition_id: str
    partition: str
    lease_id: str
    consumer_group: str
    delivery_attempt: int
    created_at: str
    data: Raw
    headers: dict[str, str] = {}
    traceparent: str = ""
    error: str = ""


class _Acked(Struct):
    success: bool
    dlq: bool = False


class Batch(Struct):
    """An answer with messages."""

    messages: list[Popped]


def passes(status: int) -> bool:
    """Whether another attempt may not have this status."""
    return status in _PASSING


class Client:
    """A connection to a server.

    Args:
        url: of the server; by default QUEEN_URL.
        token: to send; by default QUEEN_TOKEN.
        connections: how many requests may be under way.
    """

    def __init__(self, url: str | None = None, token: str | None = None, connections: int = 10) -> None:
        secret = token or os.environ.get("QUEEN_TOKEN")
        self.url = url or os.environ.get("QUEEN_URL") or DEFAULT_URL
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=self.headers,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def pop(self, queue: str, group: str | None, batch: int, lease_s: int, wait_s: float) -> list[Popped]:
        """The next messages of one partition; waits for them."""
        query = {"batch": batch, "leaseSeconds": lease_s, "wait": "true", "timeout": round(wait_s * 1000)}
        answer = await self._send(
            "GET", f"/api/v1/pop/queue/{_quoted(queue)}", query | ({"consumerGroup": group} if group else {}), wait_s
        )
        return msgspec.json.decode(answer.content, type=Batch).messages if answer.content else []

    async def ack(self, message: Popped, status: str, error: str | None = None) -> bool:
        """Says what has become of a message; whether its lease goes on, so that the next one may be worked on."""
        item = {
            "transactionId": message.transaction_id, "partitionId": message.partition_id, "status": status,
            "leaseId": message.lease_id, "consumerGroup": message.consumer_group,
        }  # fmt: skip
        answer = await self._send("POST", "/api/v1/ack", body=item | ({} if error is None else {"error": error}))
        [done] = msgspec.json.decode(answer.content, type=list[_Acked])
        return done.success and (status in ("completed", "dlq") or done.dlq)

    async def extend(self, lease_id: str, seconds: int) -> None:
        """Extends a lease."""
        await self._send("POST", f"/api/v1/lease/{_quoted(lease_id)}/extend", body={"seconds": seconds})

    async def push(self, queue: str, payload: object, **item: object) -> None:
        """Pushes a message; ``item`` has its other fields, by their names in the HTTP interface."""
        given = {name: value for name, value in item.items() if value is not None}
        await self._send("POST", "/api/v1/push", body={"items": [{"queue": queue, "payload": payload, **given}]})

    async def set_retry_limit(self, queue: str, limit: int) -> None:
        """Sets the retry limit of a queue, and leaves its other options as they are; creates the queue if need be."""
        answer = await self._send("GET", "/api/v1/configure", {"queue": queue}, also=_NOT_FOUND)
        now = answer.json() if answer.is_success else {"options": {}}
        if now["options"].get("retryLimit") == limit:
            return
        labels = {name: now[name] for name in ("namespace", "task") if name in now}
        await self._send(
            "POST",
            "/api/v1/configure",
            body={"queue": queue, "options": now["options"] | labels | {"retryLimit": limit}},
        )

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        body: object = None,
        also: int = 0,
    ) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = await self._http.request(
                method, path, params=query, content=content, timeout=httpx.Timeout(_ANSWER_S + wait_s, connect=10)
            )
        except httpx.TransportError as problem:
            raise UnavailableError(f"{self.url} sent no answer: {str(problem) or type(problem).__name__}") from None
        if answer.is_success or answer.status_code == also:
            return answer
        text = f"{self.url}{path} answered {answer.status_code}: {answer.text[:200]}"
        raise UnavailableError(text) if passes(answer.status_code) else RefusedError(text)


def _quoted(name: str) -> str:
    # HTTP clients resolve a segment of dots.
    return quote(name, safe="").replace(".", "%2E")
