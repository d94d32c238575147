"""Counters of what became of requests, by queue: gathered here, added to those in the database a moment later.

In the database they are one for all workers and instances, never fall when a worker dies, and go with their queue. A
worker that is killed loses what it had not handed over yet, at most an interval's worth.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from queen.core.errors import QueenError
from queen.core.simple_mq import NO_QUEUE

log = logging.getLogger("queen.tally")

INTERVAL_S = 0.2


class Tally:
    """The counters of one worker; belongs to the engine's loop.

    Args:
        save: adds numbers to the counters in the database, by queue, operation and outcome.
    """

    def __init__(self, save: Callable[[Mapping[tuple[UUID, str, str], int]], Awaitable[None]]) -> None:
        self._save = save
        self._numbers: Counter[tuple[UUID, str, str]] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, queue: UUID, operation: str, outcome: str, number: int = 1) -> None:
        """Counts; ``outcome`` as the metric names it."""
        self._numbers[NO_QUEUE if outcome == "queue_not_found" else queue, operation, outcome] += number
        self._hand_over_later()

    async def flush(self) -> None:
        """Hands over what has been gathered; what cannot be handed over is kept for the next time."""
        async with self._saving:
            numbers, self._numbers = self._numbers, Counter()
            try:
                if numbers:
                    await self._save(numbers)
            except QueenError as problem:
                log.info("Counters are kept for later: %s", problem)
                self._numbers.update(numbers)
                self._hand_over_later()

    async def close(self) -> None:
        """Hands over what is left."""
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()

    def _hand_over_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self.flush())
