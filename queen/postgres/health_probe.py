"""The health probe: queries PostgreSQL several times per second, so that no request waits for a call that never ends.

A connection that was refused or reset fails at once. One that hangs, because a network or a machine failed, stays
silent for minutes, and calls for messages may take long for good reasons. So the probe has a connection of its own, a
trivial query, and a short timeout.

While PostgreSQL is down, the timeout of the query grows. Otherwise PostgreSQL would stay down for the probe as long as
connecting takes longer than the short timeout, because the machine is busy or the network slow.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg

from queen.postgres.dsn import Target, connect
from queen.postgres.sqlstate import reason_of

log = logging.getLogger("queen.probe")

INTERVAL_S = 0.15
ANSWER_S = 0.6
#: PostgreSQL counts as down after this time without an answer, and this many failed queries: if only this process was
#: suspended, one query fails.
_SILENCE_S, _SILENCES = 1.1, 2
#: Enough for every possible timeout.
_DOUBLINGS_MAX = 20


class Silence:
    """Decides from the times of its answers whether PostgreSQL is down. Pure; times in seconds.

    Args:
        now: counts as the time of the last answer.
        patience_max_s: maximum timeout of a query.
    """

    def __init__(self, now: float, patience_max_s: float = ANSWER_S) -> None:
        self._answered_at, self._silences = now, 0
        self._patience_max_s = max(patience_max_s, ANSWER_S)

    @property
    def retry_timeout_s(self) -> float:
        """The timeout of the next query; it doubles with each query while PostgreSQL is down."""
        doublings = min(max(self._silences - _SILENCES + 1, 0), _DOUBLINGS_MAX)
        return min(ANSWER_S * 2.0**doublings, self._patience_max_s)

    def after(self, answered: bool, now: float, answered_at: float = float("-inf")) -> bool:
        """Whether it is down, after one more query; ``answered_at``: when it last answered a call of the pools."""
        if answered:
            self._answered_at, self._silences = now, 0
        else:
            self._answered_at = max(self._answered_at, answered_at)
            self._silences += 1
        return self._silences >= _SILENCES and now - self._answered_at >= _SILENCE_S


class HealthProbe:
    """Probes one database, in one event loop.

    Args:
        target: the database.
        lost: called with the reason when it goes down.
        found: called when it is available again.
        answered_at: when the database last answered a call of the pools: on a busy machine, this distinguishes slow
            from down.
    """

    def __init__(
        self, target: Target, lost: Callable[[str], None], found: Callable[[], None], answered_at: Callable[[], float]
    ) -> None:
        self._target = target
        self._lost, self._found, self._last_answer_at = lost, found, answered_at
        self._connection: asyncpg.Connection[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._probing = asyncio.Lock()
        self.unavailable = False

    def start(self) -> None:
        """Starts the probe."""
        loop = asyncio.get_running_loop()
        self._silence = Silence(loop.time(), self._target.connect_timeout_s)
        self._task = loop.create_task(self._keep_probing())

    async def stop(self) -> None:
        """Ends the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop()

    async def answers(self) -> bool:
        """Probes now, until it has answered or is down; whether it answers."""
        while not self.unavailable:
            if await self._probe():
                return True
            await asyncio.sleep(INTERVAL_S)
        return False

    async def _keep_probing(self) -> None:
        while True:
            try:
                await self._probe()
            except Exception:
                # Without a probe, the state would never change again.
                log.exception("The health probe continues after an unexpected error")
            await asyncio.sleep(INTERVAL_S)

    async def _probe(self) -> bool:
        """Whether it answered. One query at a time, so that no older one is in flight when this one is answered."""
        async with self._probing:
            reason = await self._ask()
            if self._silence.after(not reason, asyncio.get_running_loop().time(), self._last_answer_at()):
                self._set_unavailable(reason)
            elif not reason:
                self._set_unavailable("")
            return not reason

    def _set_unavailable(self, reason: str) -> None:
        if self.unavailable == bool(reason):
            return
        self.unavailable = bool(reason)
        if reason:
            log.error("PostgreSQL at %s is unavailable: %s", self._target.place, reason)
            self._lost(f"PostgreSQL at {self._target.place} is unavailable: {reason}")
        else:
            log.warning("PostgreSQL at %s is available again", self._target.place)
            self._found()

    async def _ask(self) -> str:
        """Empty if it answers, else the reason."""
        try:
            async with asyncio.timeout(self._silence.retry_timeout_s):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await connect(self._target)
                await self._connection.fetchval("SELECT 1")
        except asyncpg.TooManyConnectionsError:
            return ""
        except Exception as problem:  # uvloop has errors of its own, and each of them means that there was no answer
            self._drop()
            return reason_of(problem)
        return ""

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # as above: uvloop has errors of its own
                connection.terminate()
