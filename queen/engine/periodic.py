"""Work that comes round by itself, in the engine's loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from queen.core.errors import QueenError

log = logging.getLogger("queen.periodic")


class Periodic:
    """Does something again and again, with a pause between. A failure is logged, and is no reason to stop.

    Args:
        work: safe to be done by several servers at once.
        pause_s: from the end of one turn to the beginning of the next.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], pause_s: float) -> None:
        self._work, self._pause_s = work, pause_s
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends it, also in the middle of a turn."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self._work()
            except QueenError as problem:
                log.info("Put off: %s", problem)
            except Exception:
                log.exception("Periodic work failed")
