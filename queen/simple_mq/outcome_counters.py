"""Counts outcomes of requests by queue, and adds the counts to the database a moment later.

The database has one count for all workers and instances: it never falls when a worker dies, and is deleted with its
queue. A killed worker loses the counts of one interval at most.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from queen.core.errors import QueenError
from queen.simple_mq.requests import NO_QUEUE

log = logging.getLogger("queen.simple_mq")

INTERVAL_S = 0.2


class OutcomeCounters:
    """The counters of one worker, for use in the engine's loop.

    Args:
        save: adds numbers to the counters in the database, by queue, operation and outcome.
    """

    def __init__(self, save: Callable[[Mapping[tuple[UUID, str, str], int]], Awaitable[None]]) -> None:
        self._write = save
        self._numbers: Counter[tuple[UUID, str, str]] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, queue: UUID, operation: str, outcome: str, number: int = 1) -> None:
        """Counts an outcome, by its name in the metric."""
        self._numbers[NO_QUEUE if outcome == "queue_not_found" else queue, operation, outcome] += number
        self._save_later()

    async def flush(self) -> None:
        """Writes the counts to the database; keeps them for the next time if that fails."""
        async with self._saving:
            numbers, self._numbers = self._numbers, Counter()
            try:
                if numbers:
                    await self._write(numbers)
            except QueenError as problem:
                log.info("Storing counters is postponed: %s", problem)
                self._numbers.update(numbers)
                self._save_later()

    async def close(self) -> None:
        """Writes the remaining counts."""
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()

    def _save_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self.flush())
