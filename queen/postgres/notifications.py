"""Notifications over PostgreSQL's NOTIFY (PostgreSQL manual, NOTIFY), which need no setting.

A NOTIFY inside the push transaction would serialise commits, because it takes a lock of the whole cluster. So each
worker sends its notifications on a connection of its own, at most once per interval. A lost notification only delays
its long polls, until the end of their back-off.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from queen.core.backoff import doubled
from queen.postgres.dsn import Target, connect
from queen.postgres.sqlstate import reason_of

log = logging.getLogger("queen.notifications")

CHANNEL = "queen_messages"
_NOTIFY = "SELECT pg_notify($1, packet) FROM unnest($2::text[]) AS packet"
_RECONNECT_FIRST_MS, _RECONNECT_LIMIT_MS = 100.0, 5000.0
#: Maximum of unsent packets; older ones are out of date.
_KEPT_PACKETS = 100
#: A connection whose other end disappeared stays silent forever. So a silent one is tested after this time, and
#: replaced if it does not answer within the timeout.
_QUIET_S, _ANSWER_S = 10.0, 5.0


class PostgresTransport:
    """Implements ``queen.engine.ports.Transport`` with one connection per worker."""

    name = "notify"
    reaches_all = True

    def __init__(self, target: Target, interval_s: float) -> None:
        self._target, self.interval_s = target, interval_s
        self._packets: list[str] = []
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._receive: Callable[[bytes], None] = lambda _packet: None
        self._missed: Callable[[], None] = lambda: None

    def send(self, packets: Sequence[bytes], *, waiting_only: bool = False) -> None:  # noqa: ARG002 - reaches all
        """Sends the packets as soon as the connection is free."""
        self._packets = [*self._packets, *[packet.decode() for packet in packets]][-_KEPT_PACKETS:]
        self._wakeup.set()

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:
        """Starts to listen, and reconnects whenever the connection breaks."""
        self._receive, self._missed = receive, missed
        self._task = asyncio.get_running_loop().create_task(self._keep_connected())

    async def stop(self) -> None:
        """Ends the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_connected(self) -> None:
        pause_ms = 0.0
        while True:
            try:
                connection = await connect(self._target)
                pause_ms = 0.0
                try:
                    await self._exchange(connection)
                finally:
                    connection.terminate()
            except Exception as problem:  # uvloop has errors of its own, and this task must never end
                log.warning("Notifications are interrupted: %s", reason_of(problem))
            pause_ms = doubled(pause_ms, _RECONNECT_FIRST_MS, _RECONNECT_LIMIT_MS)
            await asyncio.sleep(pause_ms / 1000 * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _exchange(self, connection: "asyncpg.Connection[Any]") -> None:
        connection.add_termination_listener(lambda _connection: self._wakeup.set())
        await connection.add_listener(CHANNEL, self._on_notify)
        self._missed()
        while not connection.is_closed():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wakeup.wait(), _QUIET_S)
            self._wakeup.clear()
            packets, self._packets = self._packets, []
            await connection.execute(_NOTIFY, CHANNEL, packets, timeout=_ANSWER_S)

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._receive(str(payload).encode())
