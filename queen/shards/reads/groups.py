"""Consumer groups and their cursors on all databases."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

from msgspec import structs

from queen.core.administration import (
    ConnectedRow,
    Consumers,
    CursorFilter,
    CursorOrder,
    CursorRow,
    GroupFilter,
    GroupLagRow,
    GroupOrder,
    GroupRow,
    GroupsSummary,
    LaggingRow,
    Page,
    Period,
    QueueFilter,
    QueuesOfGroup,
    Seek,
    SeekPreview,
)
from queen.engine.context import Context
from queen.log.requests import QUEUE_MODE
from queen.shards.merging import (
    ROWS_MAX,
    Rule,
    all_of,
    any_of,
    as_one,
    combined,
    cut,
    each_of,
    in_order,
    largest,
    merged,
    oldest,
    smallest,
    total,
)
from queen.shards.reads.catalogue import CatalogueOfAll

_GROUP: dict[str, Rule] = {
    **each_of(smallest, "since", "created_at", "oldest_at"),
    **each_of(total, "members", "partitions_with_lag", "total_lag", "leases", "leased_messages", "consumed"),
    "untouched": all_of,
    "computed_at": oldest,
    "paused": any_of,
}
_PREVIEW = each_of(total, "partitions", "skipped", "repeated")
_CONNECTED: dict[str, Rule] = {"since": smallest, "in_flight": largest}
#: The largest lags of a bucket need not have been at the same moment: their sum is the most that it can have been.
_LAG: dict[str, Rule] = {"lag": total, "oldest_s": largest}


def groups_of_all(parts: Iterable[Sequence[GroupRow]]) -> list[GroupRow]:
    """Each group of a queue once."""
    return combined(parts, ["queue", "name"], _GROUP)


def sorted_groups(rows: Iterable[GroupRow], page: Page[GroupOrder]) -> list[GroupRow]:
    """A page of groups."""
    names = (lambda row: row.queue, page.reverse), (lambda row: row.name, page.reverse)
    match page.order:
        case GroupOrder.LAG:
            found = in_order(rows, (lambda row: row.total_lag or 0, not page.reverse), *names)
        case GroupOrder.AGE:
            found = in_order(rows, (lambda row: _age(row.oldest_at), not page.reverse), *names)
        case _:
            found = in_order(rows, *names)
    return cut(found, page.limit, page.offset)


def _age(since: datetime | None) -> tuple[bool, float]:
    """Sorts by age: nothing is younger than what has none."""
    return (False, 0.0) if since is None else (True, -since.timestamp())


def sorted_cursors(
    parts: Sequence[Sequence[CursorRow]], page: Page[CursorOrder], *, of_one_queue: bool
) -> list[CursorRow]:
    """A page of cursors. By name, those of several queues come database by database."""
    rows = merged(reversed(parts) if page.reverse else parts)
    name = (lambda row: row.partition, page.reverse) if of_one_queue else (lambda _row: 0, False)
    match page.order:
        case CursorOrder.LAG:
            found = in_order(rows, (lambda row: row.undone, not page.reverse), name)
        case CursorOrder.ACKNOWLEDGED:
            found = in_order(rows, (lambda row: row.consumed, not page.reverse), name)
        case CursorOrder.AGE:
            found = in_order(rows, (lambda row: _age(row.oldest_at), not page.reverse), name)
        case _:
            found = in_order(rows, name)
    totals = totals_of(parts)
    return [structs.replace(row, total=totals.get(row.queue)) for row in cut(found, page.limit, page.offset)]


def totals_of(parts: Iterable[Sequence[CursorRow]]) -> dict[str, int | None]:
    """How many cursors of each queue match on all databases together; ``None``: one of them does not know it yet."""
    totals: dict[str, int | None] = {}
    for part in parts:
        for queue, number in {row.queue: row.total for row in part}.items():
            before = totals.get(queue, 0)
            totals[queue] = None if before is None or number is None else before + number
    return totals


def connected_of_all(parts: Iterable[Sequence[ConnectedRow]]) -> list[ConnectedRow]:
    """Each consumer once, although its worker reports it to every database."""
    found = combined(parts, ["kind", "address", "worker", "namespace", "task"], _CONNECTED)
    rows = in_order(found, (lambda row: row.since, False), (lambda row: row.worker, False))
    return [structs.replace(row, total=len(rows)) for row in rows]


def consumers_of_groups(rows: Iterable[GroupRow]) -> Consumers:
    """How queues with these groups are consumed."""
    names = {row.name for row in rows}
    return Consumers(QUEUE_MODE in names, len(names - {QUEUE_MODE}))


class GroupsOfAll:
    """Implements ``queen.engine.administration.GroupReads``."""

    def __init__(self, context: Context, catalogue: CatalogueOfAll) -> None:
        self._context, self._catalogue = context, catalogue

    async def _groups(self, wanted: GroupFilter) -> list[GroupRow]:
        # What is behind is known when the lags of all databases are added up.
        asked, page = structs.replace(wanted, behind=False), Page(GroupOrder.NAME, ROWS_MAX)
        rows = groups_of_all(
            await self._context.everywhere(lambda each: each.administration.consumer_groups.groups(asked, page))
        )
        return [row for row in rows if row.total_lag] if wanted.behind else rows

    async def groups(self, wanted: GroupFilter, page: Page[GroupOrder]) -> list[GroupRow]:
        """A page of groups."""
        return sorted_groups(await self._groups(wanted), page)

    async def count(self, wanted: GroupFilter) -> int:
        """How many groups match."""
        return len(await self._groups(wanted))

    async def on_queues(self, wanted: QueuesOfGroup, page: Page[GroupOrder]) -> tuple[list[GroupRow], int]:
        """A page of the queues of a group, and how many there are."""
        asked, all_ = structs.replace(wanted, behind=False), Page(GroupOrder.NAME, ROWS_MAX)
        parts = await self._context.everywhere(lambda each: each.administration.consumer_groups.on_queues(asked, all_))
        rows = groups_of_all([rows for rows, _ in parts])
        found = [row for row in rows if row.total_lag] if wanted.behind else rows
        shown = sorted_groups(found, page)
        return shown, len(found) if shown else 0

    async def summary(self, wanted: QueueFilter) -> GroupsSummary:
        """Statistics of groups, added up."""
        rows = await self._groups(GroupFilter(await self._catalogue.names(wanted)))
        sums = [sum([getattr(row, name) or 0 for row in rows]) for name in ("leases", "leased_messages", "consumed")]
        return GroupsSummary(len(rows), *sums)

    async def consumers_of(self, queues: Sequence[str]) -> Consumers:
        """How some queues are consumed."""
        return consumers_of_groups(await self._groups(GroupFilter(queues)))

    async def cursors(self, wanted: CursorFilter, page: Page[CursorOrder]) -> list[CursorRow]:
        """A page of the cursors of a group."""
        begin = Page(page.order, page.limit + page.offset, 0, page.reverse)
        parts = await self._context.everywhere(lambda each: each.administration.consumer_groups.cursors(wanted, begin))
        return sorted_cursors(parts, page, of_one_queue=wanted.queue is not None)

    async def lagging(self, seconds: int, limit: int) -> list[LaggingRow]:
        """Partitions whose oldest undone message waits for long."""
        rows = merged(
            await self._context.everywhere(lambda each: each.administration.consumer_groups.lagging(seconds, limit))
        )
        found = in_order(
            rows,
            (lambda row: row.oldest_at, False),
            (lambda row: row.consumer_group, False),
            (lambda row: row.part_id, False),
        )
        return cut(found, limit, 0)

    async def preview(self, seek: Seek) -> SeekPreview:
        """What a seek would do."""
        return as_one(
            await self._context.everywhere(lambda each: each.administration.consumer_groups.preview(seek)), _PREVIEW
        )

    async def queues_of(self, group: str) -> list[str]:
        """The queues that have a group of that name."""
        return await self._names(lambda each: each.administration.consumer_groups.queues_of(group))

    async def paused_on(self, group: str) -> list[str]:
        """The queues on which a group is paused."""
        return await self._names(lambda each: each.administration.consumer_groups.paused_on(group))

    async def _names(self, ask: Callable[[Context], Awaitable[list[str]]]) -> list[str]:
        parts = await self._context.everywhere(ask)
        return list(dict.fromkeys(name for part in parts for name in part))

    async def connected(self, queue: str, group: str, limit: int, offset: int) -> list[ConnectedRow]:
        """Connected consumers, the longest connected first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.consumer_groups.connected(queue, group, ROWS_MAX, 0)
        )
        return cut(connected_of_all(parts), limit, offset)

    async def lag(self, queue: str, group: str, period: Period, minutes: int) -> list[GroupLagRow]:
        """The lag of a group over time, newest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.consumer_groups.lag(queue, group, period, minutes)
        )
        return in_order(combined(parts, ["bucket"], _LAG), (lambda row: row.bucket, True))
