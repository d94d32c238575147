"""One HTTP request on its own connection, with limits on everything: the server may be broken in any way."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import urlsplit

_HEAD_BYTES_MAX = 65_536
_BODY_BYTES_MAX = 64 * 1024 * 1024
_JSON: Mapping[str, str] = MappingProxyType({"Content-Type": "application/json"})


class NoAnswerError(Exception):
    """The server did not answer, or not in HTTP: the outcome of the request is unknown."""


class BadAnswerError(Exception):
    """The answer is HTTP, but violates the interface."""


class _Object(dict[str, Any]):
    """An object of JSON, of which a check may ask for more than a broken server told."""

    def __missing__(self, name: str) -> NoReturn:
        raise BadAnswerError(f"an answer without {name}: {str(self)[:120]}")


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body; and where else to ask, if it says so."""

    status: int
    body: bytes
    location: str = ""

    def __str__(self) -> str:
        """As a report shows it."""
        elsewhere = f" (go to {self.location[:200]})" if self.location else ""
        return f"{self.status}{elsewhere}: {self.body[:200]!r}"

    def json(self) -> object:
        """The decoded body; its objects raise a BadAnswerError for a field that they do not have.

        Raises:
            BadAnswerError: it is not JSON.
        """
        try:
            return json.loads(self.body, object_hook=_Object)
        except (ValueError, RecursionError):
            raise BadAnswerError(f"{self.status} with a body that is not JSON: {self.body[:80]!r}") from None


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server is, and the token that it wants; and the requests that have no answer yet."""

    host: str
    port: int
    path: str = ""
    tls: bool = False
    token: str | None = None
    _unanswered: set[asyncio.Task[Answer]] = field(default_factory=set, init=False, repr=False, compare=False)

    @classmethod
    def at(cls, url: str, token: str | None = None) -> Server:
        """The server of a URL.

        Raises:
            ValueError: it is no URL of HTTP.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"not a URL such as http://127.0.0.1:6632: {url}")
        tls = parts.scheme == "https"
        host = parts.hostname.encode("idna").decode()
        return cls(host, parts.port or (443 if tls else 80), parts.path.rstrip("/"), tls, token)

    @property
    def url(self) -> str:
        """Its address, without the token."""
        return f"http{'s' if self.tls else ''}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Its name, as requests have it in `Host`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = _JSON,
    ) -> Answer:
        """The answer to one request; one that may make something goes on when its sender is cancelled.

        `headers` are those of a request with a body.

        Raises:
            NoAnswerError: there was none within the time, or none in HTTP.
        """
        exchange = asyncio.create_task(self._exchange(self._head(method, path, body, headers), body or b""))
        self._unanswered.add(exchange)
        exchange.add_done_callback(self._unanswered.discard)
        try:
            async with asyncio.timeout(timeout_s):
                return await (exchange if method == "GET" else asyncio.shield(exchange))
        except TimeoutError:
            exchange.cancel()
            raise NoAnswerError(f"{method} {path}: no answer within {timeout_s:g} s") from None
        except asyncio.IncompleteReadError:
            raise NoAnswerError(f"{method} {path}: the connection ended before the answer did") from None
        except asyncio.LimitOverrunError:
            raise NoAnswerError(f"{method} {path}: a head of more than {_HEAD_BYTES_MAX} bytes") from None
        except (OSError, ValueError) as problem:
            raise NoAnswerError(f"{method} {path}: {str(problem) or type(problem).__name__}") from problem

    async def settle(self, *, timeout_s: float) -> None:
        """Returns when every request is answered, or after a time: then their queues can be deleted."""
        if self._unanswered:
            await asyncio.wait(self._unanswered, timeout=timeout_s)

    async def connect(self, *, timeout_s: float) -> None:
        """Open a connection and close it.

        Raises:
            OSError: no server listens.
        """
        async with asyncio.timeout(timeout_s):
            _, writer = await self._open()
            writer.close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self.tls else None
        return await asyncio.open_connection(self.host, self.port, ssl=context, limit=_HEAD_BYTES_MAX)

    async def _exchange(self, head: bytes, body: bytes) -> Answer:
        reader, writer = await self._open()
        try:
            writer.write(head + body)
            await writer.drain()
            return await _read_answer(reader)
        finally:
            writer.transport.abort()

    def _head(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        lines = [
            f"{method} {self.path}{path} HTTP/1.1",
            f"Host: {self.authority}",
            "Accept: application/json",
            "Connection: close",
        ]
        if body is not None:
            lines += [*(f"{name}: {value}" for name, value in headers.items()), f"Content-Length: {len(body)}"]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join([*lines, "", ""]).encode()


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    status, fields = await _read_head(reader)
    while 100 <= status < 200:  # the answer is still to come
        status, fields = await _read_head(reader)
    body = b"" if status in {204, 304} else await _read_body(reader, fields)
    return Answer(status, body, fields.get("location", ""))


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status, and the fields by their names in lower case."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    protocol, _, rest = first.partition(" ")
    if not protocol.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError(f"not an HTTP answer: {first[:80]!r}")
    fields = (line.partition(":") for line in lines)
    return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in fields}


async def _read_body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    if "content-length" in fields:
        return await reader.readexactly(_length(fields["content-length"], 10))
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(_HEAD_BYTES_MAX):
        size += len(part)
        _length(str(size), 10)
        parts.append(part)
    return b"".join(parts)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        line = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
        length = _length(line.decode("latin-1"), 16)
        size += length
        _length(str(size), 10)
        if not length:
            return b"".join(parts)
        parts.append(await reader.readexactly(length))
        await reader.readexactly(2)


def _length(text: str, base: int) -> int:
    length = int(text, base)
    if not 0 <= length <= _BODY_BYTES_MAX:
        raise ValueError(f"a body of {length} bytes")
    return length
