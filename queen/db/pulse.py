"""Whether PostgreSQL answers: asked several times a second, so that nobody has to wait for a call that never ends.

A connection that was refused or reset says so at once. One that just hangs, because a network or a machine went away,
says nothing for minutes; calls of messages may rightly take long. So a connection of its own asks for nothing, and may
not take long.

Once PostgreSQL is away a question may take longer and longer. Else it would stay away where connecting takes more than
a short question may, for as long as that lasts: because the machine is busy, or the network far.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg

from queen.db.dsn import Target, connect
from queen.db.sqlstate import reason_of

log = logging.getLogger("queen.pulse")

INTERVAL_S = 0.15
ANSWER_S = 0.6
#: PostgreSQL is away when it has been silent for so long, and so often: a process that was not running itself for a
#: while must not blame others.
_SILENCE_S, _SILENCES = 1.1, 2
#: Enough for any limit of time that somebody sets.
_DOUBLINGS_MAX = 20


class Silence:
    """Decides whether PostgreSQL is away, from when it answered and when not. Pure; times in seconds.

    Args:
        now: it counts as having answered now.
        patience_max_s: how long a question may take at most.
    """

    def __init__(self, now: float, patience_max_s: float = ANSWER_S) -> None:
        self._answered_at, self._silences = now, 0
        self._patience_max_s = max(patience_max_s, ANSWER_S)

    @property
    def patience_s(self) -> float:
        """How long the next question may take: while it is away, twice as long each time."""
        doublings = min(max(self._silences - _SILENCES + 1, 0), _DOUBLINGS_MAX)
        return min(ANSWER_S * 2.0**doublings, self._patience_max_s)

    def after(self, answered: bool, now: float, heard_at: float = float("-inf")) -> bool:
        """Whether it is away, after it was asked once more; somebody else heard from it at ``heard_at``."""
        if answered:
            self._answered_at, self._silences = now, 0
        else:
            self._answered_at = max(self._answered_at, heard_at)
            self._silences += 1
        return self._silences >= _SILENCES and now - self._answered_at >= _SILENCE_S


class Pulse:
    """Feels one database's pulse, in one event loop.

    Args:
        target: the database.
        lost: called with the reason when it is found to be away.
        found: called when it is back.
        heard_at: when the database last answered anybody: where the machine is busy, that tells slow from away.
    """

    def __init__(
        self, target: Target, lost: Callable[[str], None], found: Callable[[], None], heard_at: Callable[[], float]
    ) -> None:
        self._target = target
        self._lost, self._found, self._heard_at = lost, found, heard_at
        self._connection: asyncpg.Connection[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._feeling = asyncio.Lock()
        self.away = False

    def start(self) -> None:
        """Begins to ask."""
        loop = asyncio.get_running_loop()
        self._silence = Silence(loop.time(), self._target.connect_timeout_s)
        self._task = loop.create_task(self._keep_asking())

    async def stop(self) -> None:
        """Ends the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop()

    async def answers(self) -> bool:
        """Whether it answers, from now on: it is asked until it has answered, or is known to be away."""
        while not self.away:
            if await self._feel():
                return True
            await asyncio.sleep(INTERVAL_S)
        return False

    async def _keep_asking(self) -> None:
        while True:
            try:
                await self._feel()
            except Exception:
                # Without a pulse PostgreSQL would stay as it was found last, for ever.
                log.exception("The pulse goes on in spite of this")
            await asyncio.sleep(INTERVAL_S)

    async def _feel(self) -> bool:
        """Whether it answered. One at a time: no older question is still on its way when this one is answered."""
        async with self._feeling:
            reason = await self._ask()
            if self._silence.after(not reason, asyncio.get_running_loop().time(), self._heard_at()):
                self._set_away(reason)
            elif not reason:
                self._set_away("")
            return not reason

    def _set_away(self, reason: str) -> None:
        if self.away == bool(reason):
            return
        self.away = bool(reason)
        if reason:
            log.error("PostgreSQL at %s does not answer: %s", self._target.place, reason)
            self._lost(f"PostgreSQL at {self._target.place} does not answer: {reason}")
        else:
            log.warning("PostgreSQL at %s answers again", self._target.place)
            self._found()

    async def _ask(self) -> str:
        """Empty when it answers, else why it does not."""
        try:
            async with asyncio.timeout(self._silence.patience_s):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await connect(self._target)
                await self._connection.fetchval("SELECT 1")
        except asyncpg.TooManyConnectionsError:
            return ""
        except Exception as problem:  # uvloop has errors of its own, and whatever it is, that was no answer
            self._drop()
            return reason_of(problem)
        return ""

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # as when asking: uvloop has errors of its own
                connection.terminate()
