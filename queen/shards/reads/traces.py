"""Traces on all databases; each is on that of its message."""

from queen.core.administration import MessageKey, TraceNameRow, TraceRow
from queen.engine.context import Context
from queen.shards.merging import ROWS_MAX, Rule, combined, cut, each_of, in_order, largest, merged, total
from queen.shards.reads.pages import first_of_each, within

_NAME: dict[str, Rule] = {**each_of(total, "traces", "messages"), "last_seen": largest}


def _size(row: TraceRow) -> int:
    return len(row.data) + len(row.payload or "")


class TracesOfAll:
    """Implements ``queen.engine.administration.TraceReads``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def of_message(self, key: MessageKey, limit: int, offset: int) -> list[TraceRow]:
        """Traces of a message, oldest first."""
        return await self._context.at_partition(
            key.part_id, lambda home: home.administration.traces.of_message(key, limit, offset)
        )

    async def of_name(self, name: str, limit: int, offset: int) -> list[TraceRow]:
        """Traces of a name, oldest first."""
        rows = merged(
            await first_of_each(
                self._context,
                lambda each, number, begin: each.administration.traces.of_name(name, number, begin),
                limit + offset,
            )
        )
        oldest = in_order(rows, (lambda row: row.created_at, False), (lambda row: row.id, False))
        return within(cut(oldest, limit, offset), _size)

    async def names(self, search: str | None, limit: int, offset: int) -> list[TraceNameRow]:
        """A page of the names that contain a text, or of all, latest first."""
        parts = await self._context.everywhere(lambda each: each.administration.traces.names(search, ROWS_MAX, 0))
        found = combined(parts, ["name"], _NAME)
        return cut(in_order(found, (lambda row: row.last_seen, True), (lambda row: row.name, False)), limit, offset)

    async def count_names(self, search: str | None) -> int:
        """The number of names that contain a text, or of all."""
        return len(await self.names(search, ROWS_MAX, 0))

    async def count(self, name: str) -> int:
        """The number of traces of a name."""
        return sum(await self._context.everywhere(lambda each: each.administration.traces.count(name)))
