"""Where messages are written to: a server over HTTP, or PostgreSQL with SQL."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import asyncpg
import msgspec

from .database import connected
from .errors import SourceError
from .http import Http
from .options import Log, WriteOptions

if TYPE_CHECKING:
    from .write import Message

_PUSH_MANY = "SELECT queen.push_many($1, $2::jsonb [], $3::text [], $4::text [])"

# What `queen.push_many` raises, and what PostgreSQL says of the data; all else is an outage.
_REFUSALS = (
    asyncpg.RaiseError, asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.UndefinedObjectError,
)  # fmt: skip


class HttpSink(Http):
    """``POST /api/v1/push``. A call that may have been lost is repeated: the transaction ids make that safe."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options.url or "", options.token, options.timeout_seconds)

    def push(self, messages: "Sequence[Message]") -> None:
        """Pushes all of them or none.

        Raises:
            SourceError: the server refuses them.
            UnreachableError: no answer in time.
        """
        then = "Those before are stored; the same write again stores none twice"
        answer = self.call("POST", "/api/v1/push", "store messages", then, msgspec.json.encode({"items": messages}))
        for each in msgspec.json.decode(answer.content):
            if each["status"] == "failed":
                raise SourceError(f"the server refuses a message: {each.get('error')}")


class SqlSink:
    """``queen.push_many``: a worker of the servers moves the messages into the log."""

    def __init__(self, options: WriteOptions) -> None:
        self._runner, self._stack, self._options = asyncio.Runner(), AsyncExitStack(), options

    def __enter__(self) -> Self:
        entering = self._stack.enter_async_context(connected(Log("", self._options.dsn or "")))
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
                try:
                    await self._connection.execute(_PUSH_MANY, queue, *columns)
                except _REFUSALS as problem:
                    raise SourceError(f"PostgreSQL refuses messages of {queue}: {problem}") from problem
