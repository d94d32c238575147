"""Notices over PostgreSQL's NOTIFY (PostgreSQL manual, NOTIFY): the way that needs no setting.

A NOTIFY inside the push transaction would make commits queue up behind one another, because it takes a lock of the
whole cluster. So each worker sends what it has to say on a connection of its own, at most once an interval. A notice
that is lost costs its waiters a back-off, nothing else.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from queen.core.backoff import doubled
from queen.db.dsn import Target, connect
from queen.db.sqlstate import reason_of

log = logging.getLogger("queen.notices")

_CHANNEL = "queen_messages"
_NOTIFY = "SELECT pg_notify($1, sheet) FROM unnest($2::text[]) AS sheet"
_RECONNECT_FIRST_MS, _RECONNECT_LIMIT_MS = 100.0, 5000.0
#: What could not be sent for so many sheets is out of date.
_KEPT_SHEETS = 100
#: A connection whose other end went away without a word says nothing for ever: after so long a quiet one is tried, and
#: one that does not answer so soon is made anew.
_QUIET_S, _ANSWER_S = 10.0, 5.0


class PostgresTransport:
    """Implements ``queen.engine.ports.Transport`` with one connection a worker."""

    name = "notify"

    def __init__(self, target: Target, interval_s: float) -> None:
        self._target, self.interval_s = target, interval_s
        self._sheets: list[str] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._receive: Callable[[bytes], None] = lambda _sheet: None
        self._missed: Callable[[], None] = lambda: None

    def send(self, sheets: Sequence[bytes]) -> None:
        """Sends the sheets as soon as the connection is free."""
        self._sheets = [*self._sheets, *[sheet.decode() for sheet in sheets]][-_KEPT_SHEETS:]
        self._news.set()

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:
        """Begins to listen, now and whenever the connection has to be made anew."""
        self._receive, self._missed = receive, missed
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
            except Exception as problem:  # uvloop has errors of its own, and this must never end
                log.warning("No notices for the moment: %s", reason_of(problem))
            pause_ms = doubled(pause_ms, _RECONNECT_FIRST_MS, _RECONNECT_LIMIT_MS)
            await asyncio.sleep(pause_ms / 1000 * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _talk(self, connection: "asyncpg.Connection[Any]") -> None:
        connection.add_termination_listener(lambda _connection: self._news.set())
        await connection.add_listener(_CHANNEL, self._hear)
        self._missed()
        while not connection.is_closed():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _QUIET_S)
            self._news.clear()
            sheets, self._sheets = self._sheets, []
            await connection.execute(_NOTIFY, _CHANNEL, sheets, timeout=_ANSWER_S)

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._receive(str(payload).encode())
