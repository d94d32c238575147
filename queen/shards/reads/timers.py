"""Timers and schedules on all databases; each is on that of its partition."""

from queen.core.administration import ScheduleRow, TimerRow
from queen.engine.context import Context
from queen.shards.merging import cut, in_order, merged


class TimersOfAll:
    """Implements ``queen.engine.administration.TimerReads``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def page(self, queue: str, after: str | None, limit: int) -> list[TimerRow]:
        """A page of the timers of a queue, by key."""
        rows = merged(await self._context.everywhere(lambda each: each.administration.timers.page(queue, after, limit)))
        return cut(in_order(rows, (lambda row: row.key, False)), limit, 0)

    async def find(self, queue: str, key: str) -> TimerRow | None:
        """One timer."""
        found = await self._context.everywhere(lambda each: each.administration.timers.find(queue, key))
        return next((row for row in found if row is not None), None)

    async def schedules(self, queue: str | None, limit: int, offset: int) -> list[ScheduleRow]:
        """A page of schedules, by queue and name."""
        rows = merged(
            await self._context.everywhere(lambda each: each.administration.timers.schedules(queue, limit + offset, 0))
        )
        return cut(in_order(rows, (lambda row: row.queue, False), (lambda row: row.name, False)), limit, offset)
