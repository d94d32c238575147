"""Notices between workers and instances over PostgreSQL's NOTIFY (PostgreSQL manual, NOTIFY).

A NOTIFY inside the push transaction would make commits queue up behind one another, because it takes a lock of the
whole cluster. So each worker gathers what it has to say and sends it on a connection of its own, at most once an
interval. A notice that is lost costs its waiters a back-off, nothing else.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec

from queen.core.backoff import doubled
from queen.core.errors import QueenError
from queen.db.dsn import Target, connect
from queen.db.sqlstate import reason_of
from queen.engine.ports import Notice

log = logging.getLogger("queen.notices")

_CHANNEL = "queen_messages"
_PAYLOAD_BYTES_MAX = 7900
_RECONNECT_FIRST_MS, _RECONNECT_LIMIT_MS = 100.0, 5000.0


class Sheet(msgspec.Struct, frozen=True, array_like=True):
    """What one worker says at one time."""

    origin: str
    notices: list[Notice]


def encode(origin: str, notices: Sequence[Notice]) -> list[str]:
    """The payloads that say this, each short enough for NOTIFY."""
    payloads: list[str] = []
    sheet: list[Notice] = []
    for notice in notices:
        if sheet and len(msgspec.json.encode(Sheet(origin, [*sheet, notice]))) > _PAYLOAD_BYTES_MAX:
            payloads.append(msgspec.json.encode(Sheet(origin, sheet)).decode())
            sheet = []
        sheet.append(notice)
    return [*payloads, msgspec.json.encode(Sheet(origin, sheet)).decode()]


class PostgresNotices:
    """Implements ``queen.engine.ports.Notices`` with one connection a worker."""

    def __init__(self, target: Target, interval_s: float) -> None:
        self._target, self._interval_s = target, interval_s
        self._origin = uuid4().hex
        self._messages: Counter[tuple[str, str | None]] = Counter()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._receive: Callable[[Notice], None] = lambda _notice: None

    def publish(self, notice: Notice) -> None:
        """Says that messages came to a queue, or came free in it; sent soon."""
        self._messages[notice.queue, notice.group] += notice.messages
        self._news.set()

    async def start(self, receive: Callable[[Notice], None]) -> None:
        """Begins to listen; ``receive`` is called with what others say."""
        self._receive = receive
        self._task = asyncio.get_running_loop().create_task(self._keep_talking())

    async def stop(self) -> None:
        """Ends the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_talking(self) -> None:
        pause_ms = 0.0
        while True:
            try:
                connection = await connect(self._target)
                pause_ms = 0.0
                try:
                    await self._talk(connection)
                finally:
                    connection.terminate()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, QueenError) as problem:
                log.warning("No notices for the moment: %s", reason_of(problem))
            pause_ms = doubled(pause_ms, _RECONNECT_FIRST_MS, _RECONNECT_LIMIT_MS)
            await asyncio.sleep(pause_ms / 1000)

    async def _talk(self, connection: "asyncpg.Connection[Any]") -> None:
        await connection.add_listener(_CHANNEL, self._hear)
        while not connection.is_closed():
            await self._news.wait()
            self._news.clear()
            messages, self._messages = self._messages, Counter()
            notices = [Notice(queue, number, group) for (queue, group), number in messages.items()]
            for payload in encode(self._origin, notices):
                await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, payload)
            await asyncio.sleep(self._interval_s)

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        try:
            sheet = msgspec.json.decode(str(payload), type=Sheet)
        except msgspec.DecodeError:
            log.warning("A notice that is none was heard on channel %s", _CHANNEL)
            return
        if sheet.origin != self._origin:
            for notice in sheet.notices:
                self._receive(notice)
