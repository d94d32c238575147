"""Releases leases whose messages no consumer has, as soon as PostgreSQL is reachable."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from queen.core.errors import DatabaseUnavailableError
from queen.engine.context import Context
from queen.engine.handlers.give_back import give_back_orphans
from queen.engine.orphans import Orphan

#: The pause between two attempts.
_PAUSE_S = 0.5


class LeaseRelease:
    """Releases the orphaned leases of a worker in the background: there may never be a pop that does.

    Args:
        context: has the orphaned leases.
        start: runs a coroutine as a task of the engine.

    Attributes:
        stopping: ends the work after the current attempt.
    """

    def __init__(self, context: Context, start: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._context, self._start = context, start
        self._running = False
        self.stopping = False

    def release(self, orphans: Iterable[Orphan]) -> None:
        """Releases these leases, at once if possible."""
        self._context.orphans.add(orphans)
        self.run(0)

    def run(self, pause_s: float = _PAUSE_S) -> None:
        """Begins to release all orphaned leases, after a pause, unless that is under way."""
        if self._context.orphans and not self._running:
            self._running = True
            self._start(self._keep_releasing(pause_s))

    async def _keep_releasing(self, pause_s: float) -> None:
        try:
            while self._context.orphans and not self.stopping:
                await asyncio.sleep(pause_s)
                with contextlib.suppress(DatabaseUnavailableError):
                    await give_back_orphans(self._context)
                pause_s = _PAUSE_S
        finally:
            self._running = False
