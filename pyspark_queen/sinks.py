"""Where messages are written to: a server over HTTP, or PostgreSQL with SQL."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx
import msgspec

from .database import connected
from .errors import SourceError, UnreachableError
from .options import WriteOptions

if TYPE_CHECKING:
    from .write import Message

_LATER = frozenset({429, 502, 503, 504})
_PAUSE_S, _PAUSE_MAX_S = 0.1, 2.0
_PUSH_MANY = "SELECT queen.push_many($1, $2::jsonb [], $3::text [], $4::text [])"


class HttpSink:
    """``POST /api/v1/push``. A call that may have been lost is repeated: the transaction ids make that safe."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        headers = {"Content-Type": "application/json"}
        if options.token:
            headers["Authorization"] = f"Bearer {options.token}"
        self._client = httpx.Client(base_url=options.url or "", headers=headers, timeout=options.timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def push(self, messages: "Sequence[Message]") -> None:
        """Pushes all of them or none.

        Raises:
            SourceError: the server refuses them.
            UnreachableError: no answer in time.
        """
        body = msgspec.json.encode({"items": messages})
        deadline, pause = time.monotonic() + self._options.timeout_seconds, _PAUSE_S
        while True:
            said = self._try(body)
            if said is None:
                return
            if time.monotonic() + pause > deadline:
                raise UnreachableError(
                    f"{self._options.url} did not store messages in {self._options.timeout_seconds} s: {said}. Those "
                    "before are stored; the same write again stores none twice"
                )
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)

    def _try(self, body: bytes) -> str | None:
        """Why they are not stored now; None if they are."""
        try:
            answer = self._client.post("/api/v1/push", content=body)
        except httpx.TransportError as problem:
            return str(problem) or type(problem).__name__
        if answer.status_code in _LATER:
            return f"{answer.status_code} {_error(answer)}"
        if answer.status_code != 201:
            hint = ". Give a token, option token" if answer.status_code == 401 else ""
            raise SourceError(f"{self._options.url} refuses messages: {answer.status_code} {_error(answer)}{hint}")
        for each in msgspec.json.decode(answer.content):
            if each["status"] == "failed":
                raise SourceError(f"{self._options.url} refuses a message: {each.get('error')}")
        return None


def _error(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]


class SqlSink:
    """``queen.push_many``: a worker of the servers moves the messages into the log."""

    def __init__(self, options: WriteOptions) -> None:
        self._runner, self._stack, self._options = asyncio.Runner(), AsyncExitStack(), options

    def __enter__(self) -> Self:
        entering = self._stack.enter_async_context(connected(self._options.dsn or ""))
        self._connection = self._runner.run(entering)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._stack.__aexit__(kind, problem, trace))
        finally:
            self._runner.close()

    def push(self, messages: "Sequence[Message]") -> None:
        """Pushes all of them or none."""
        self._runner.run(self._push(messages))

    async def _push(self, messages: "Sequence[Message]") -> None:
        by_queue: dict[str, list[Message]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        async with self._connection.transaction():
            for queue, some in by_queue.items():
                columns: list[list[Any]] = [
                    [bytes(each.payload).decode() for each in some],
                    [each.partition for each in some],
                    [each.transactionId for each in some],
                ]
                await self._connection.execute(_PUSH_MANY, queue, *columns)
