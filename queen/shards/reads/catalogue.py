"""Queues, partitions and labels of all databases.

The rows of all queues that match are read and combined: so sums, orders and numbers of distinct names are exact.
"""

import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import structs

from queen.core.administration import (
    Configured,
    Depth,
    LabelRow,
    Page,
    PartitionFilter,
    PartitionOrder,
    PartitionRow,
    QueueFilter,
    QueueOptions,
    QueueOrder,
    QueueRow,
    QueuesSummary,
    UsedQueueRow,
)
from queen.engine.context import Context
from queen.shards.merging import (
    ROWS_MAX,
    Rule,
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

_ALL = QueueFilter()
_QUEUE: dict[str, Rule] = {
    **each_of(smallest, "created_at", "oldest_at"),
    **each_of(total, "partitions", "total", "pending", "processing", "completed", "failed", "dead_letter"),
    "offset_lag": largest,
    "computed_at": oldest,
    "paused": any_of,
}
_USED = each_of(total, "consumed")
_OPTIONS: dict[str, Rule] = {"created_at": smallest, "paused": any_of}
_DEPTH: dict[str, Rule] = {
    **each_of(total, "pending", "processing", "partitions_pending", "ready", "partitions_ready"),
    "computed_at": oldest,
}
#: The orders of queues and partitions by a number, and the fields of these.
_QUEUES_BY = {
    QueueOrder.PARTITIONS: "partitions",
    QueueOrder.TOTAL: "total",
    QueueOrder.PENDING: "pending",
    QueueOrder.PROCESSING: "processing",
}
_PARTITIONS_BY = {
    PartitionOrder.TOTAL: "total",
    PartitionOrder.PENDING: "pending",
    PartitionOrder.PROCESSING: "processing",
    PartitionOrder.DEAD_LETTER: "dead_letter",
}


def queues_of_all(parts: Iterable[Sequence[QueueRow]]) -> list[QueueRow]:
    """Each queue once; its number is that on the first database that has it."""
    return combined(parts, ["name"], _QUEUE)


def sorted_queues(rows: Iterable[QueueRow], page: Page[QueueOrder]) -> list[QueueRow]:
    """A page of queues; the newest is the one that was made last, by the clock of its first database."""
    if page.order is QueueOrder.NAME:
        found = in_order(rows, (lambda row: row.name, page.reverse))
    else:
        newest = (lambda row: row.created_at, not page.reverse), (lambda row: row.name, page.reverse)
        field = _QUEUES_BY.get(page.order)
        number = [(lambda row: getattr(row, field) or 0, not page.reverse)] if field is not None else []
        found = in_order(rows, *number, *newest)
    return cut(found, page.limit, page.offset)


def summary_of(rows: Sequence[QueueRow], now: datetime) -> QueuesSummary:
    """The statistics of queues, added up; ages by the given clock."""
    ages = [max((now - row.oldest_at).total_seconds() // 1, 0.0) if row.oldest_at else 0.0 for row in rows] or [0.0]
    lags = [float(row.offset_lag or 0) for row in rows] or [0.0]

    def added(name: str) -> int:
        return sum([getattr(row, name) or 0 for row in rows])

    return QueuesSummary(
        len(rows), added("partitions"), len({row.namespace for row in rows} - {""}),
        len({row.task for row in rows} - {""}), added("total"), added("pending"), added("processing"),
        added("completed"), added("failed"), added("dead_letter"), oldest(rows, "computed_at"),
        statistics.fmean(ages), statistics.median(ages), min(ages), max(ages),
        statistics.fmean(lags), statistics.median(lags), min(lags), max(lags),
    )  # fmt: skip


def labels_of(rows: Iterable[QueueRow], name: str) -> list[LabelRow]:
    """The labels of queues with the sums of these, in the order of the alphabet."""
    each = [
        LabelRow(getattr(row, name), 1, row.partitions or 0, row.total or 0, row.pending or 0)
        for row in rows
        if getattr(row, name)
    ]
    found = combined([each], ["label"], each_of(total, "queues", "partitions", "total", "pending"))
    return in_order(found, (lambda row: row.label, False))


def sorted_partitions(
    parts: Sequence[Sequence[PartitionRow]], page: Page[PartitionOrder], *, of_one_queue: bool
) -> list[PartitionRow]:
    """A page of partitions. By name, those of several queues come database by database."""
    rows = merged(reversed(parts) if page.reverse else parts)
    name = (lambda row: row.name, page.reverse) if of_one_queue else (lambda _row: 0, False)
    if page.order is PartitionOrder.NAME:
        found = in_order(rows, name)
    elif page.order is PartitionOrder.NEWEST:
        found = in_order(
            rows, (lambda row: row.newest_at.timestamp() if row.newest_at else 0.0, not page.reverse), name
        )
    else:
        field = _PARTITIONS_BY[page.order]
        found = in_order(rows, (lambda row: getattr(row, field), not page.reverse), name)
    return cut(found, page.limit, page.offset)


def number_of_matches(parts: Iterable[Sequence[PartitionRow]]) -> int | None:
    """How many partitions match on all databases together."""
    known = [part[0].matches for part in parts if part]
    return sum([each for each in known if each is not None]) if any(each is not None for each in known) else None


class CatalogueOfAll:
    """Implements ``queen.engine.administration.Catalogue``."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def _queues(self, wanted: QueueFilter) -> list[QueueRow]:
        page = Page(QueueOrder.NAME, ROWS_MAX)
        return queues_of_all(
            await self._context.everywhere(lambda each: each.administration.catalogue.queues(wanted, page))
        )

    async def queues(self, wanted: QueueFilter, page: Page[QueueOrder]) -> list[QueueRow]:
        """A page of queues."""
        return sorted_queues(await self._queues(wanted), page)

    async def names(self, wanted: QueueFilter) -> list[str]:
        """The names of the queues that match."""
        return [row.name for row in await self._queues(wanted)]

    async def used_queues(self, wanted: QueueFilter, limit: int, offset: int) -> list[UsedQueueRow]:
        """A page of the queues that hold or held messages, newest first."""
        parts = await self._context.everywhere(
            lambda each: each.administration.catalogue.used_queues(wanted, ROWS_MAX, 0)
        )
        used = {row.name: row for row in combined(parts, ["name"], _USED)}
        newest = await self.queues(wanted, Page(QueueOrder.NEWEST, ROWS_MAX))
        rows = [structs.replace(used[row.name], partitions=row.partitions or 0) for row in newest if row.name in used]
        return cut(rows, limit, offset)

    async def summary(self, wanted: QueueFilter = _ALL) -> QueuesSummary:
        """Statistics of queues, added up."""
        return summary_of(await self._queues(wanted), await self._context.database.now())

    async def queue(self, queue: str) -> QueueOptions | None:
        """One queue; ``None`` if no database has it."""
        found = await self._context.everywhere(lambda each: each.administration.catalogue.queue(queue))
        known = [options for options in found if options is not None]
        return as_one(known, _OPTIONS) if known else None

    async def configuration(self, queue: str) -> Configured | None:
        """The configuration of a queue, which all databases have alike."""
        found = await self._context.everywhere(lambda each: each.administration.catalogue.configuration(queue))
        return next((configured for configured in found if configured is not None), None)

    async def partitions(
        self, wanted: PartitionFilter, page: Page[PartitionOrder], group: str | None = None
    ) -> list[PartitionRow]:
        """A page of partitions."""
        begin = Page(page.order, page.limit + page.offset, 0, page.reverse)
        parts = await self._context.everywhere(
            lambda each: each.administration.catalogue.partitions(wanted, begin, group)
        )
        rows = sorted_partitions(parts, page, of_one_queue=wanted.queue is not None)
        matches = number_of_matches(parts)
        return [structs.replace(row, matches=matches) for row in rows]

    async def namespaces(self, limit: int, offset: int) -> list[LabelRow]:
        """A page of the namespaces of queues."""
        return cut(labels_of(await self._queues(_ALL), "namespace"), limit, offset)

    async def tasks(self, limit: int, offset: int) -> list[LabelRow]:
        """A page of the tasks of queues."""
        return cut(labels_of(await self._queues(_ALL), "task"), limit, offset)

    async def ready(self, queue: str, partitions: Sequence[str], group: str | None) -> dict[str, int]:
        """What pops would deliver now of these partitions."""
        parts = await self._context.everywhere(
            lambda each: each.administration.catalogue.ready(queue, partitions, group)
        )
        return {name: number for part in parts for name, number in part.items()}

    async def depth(self, queue: str, group: str | None) -> Depth | None:
        """The backlog of a group, or of the slowest one of each database."""
        found = await self._context.everywhere(lambda each: each.administration.catalogue.depth(queue, group))
        known = [depth for depth in found if depth is not None]
        return as_one(known, _DEPTH) if known else None
