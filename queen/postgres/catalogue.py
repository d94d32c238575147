"""Lists queues, partitions, namespaces and tasks, with statistics."""

from collections.abc import Sequence

from queen.core.administration import (
    Configured,
    Depth,
    LabelRow,
    Page,
    PartitionFilter,
    PartitionOrder,
    PartitionRow,
    QueueConfiguration,
    QueueFilter,
    QueueOptions,
    QueueOrder,
    QueueRow,
    QueuesSummary,
    UsedQueueRow,
)
from queen.postgres.pool import Pool
from queen.postgres.statement import call

_LIST_QUEUES = call("list_queues_v1", 8)
_LIST_USED_QUEUES = call("list_used_queues_v1", 5)
_SUMMARIZE_QUEUES = call("summarize_queues_v1", 4)
_GET_QUEUE = call("get_queue_v1", 1)
_GET_CONFIGURATION = call("get_configuration_v1", 1)
_LIST_PARTITIONS = call("list_partitions_v1", 8)
_COUNT_LABELS = call("count_labels_v1", 3)
_GET_DEPTH = call("get_depth_v1", 2)
_LIST_READY = call("list_ready_v1", 3)
_ALL = QueueFilter()


class CatalogueStore:
    """Implements ``queen.engine.administration.Catalogue``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def queues(self, wanted: QueueFilter, page: Page[QueueOrder]) -> list[QueueRow]:
        """A page of queues."""
        w, p = wanted, page
        rows = await self._pool.fetch(
            _LIST_QUEUES, w.namespace, w.task, w.names, w.search, p.order.value, p.reverse, p.limit, p.offset
        )
        return [QueueRow(*row) for row in rows]

    async def used_queues(self, wanted: QueueFilter, limit: int, offset: int) -> list[UsedQueueRow]:
        """A page of the queues that hold or held messages, newest first."""
        rows = await self._pool.fetch(_LIST_USED_QUEUES, wanted.namespace, wanted.task, wanted.names, limit, offset)
        return [UsedQueueRow(*row) for row in rows]

    async def summary(self, wanted: QueueFilter = _ALL) -> QueuesSummary:
        """Statistics of queues, added up."""
        [row] = await self._pool.fetch(_SUMMARIZE_QUEUES, wanted.namespace, wanted.task, wanted.names, wanted.search)
        return QueuesSummary(*row)

    async def queue(self, queue: str) -> QueueOptions | None:
        """One queue; ``None`` if it does not exist."""
        rows = await self._pool.fetch(_GET_QUEUE, queue)
        return QueueOptions(*rows[0]) if rows else None

    async def configuration(self, queue: str) -> Configured | None:
        """The configuration of a queue; ``None`` if it does not exist."""
        rows = await self._pool.fetch(_GET_CONFIGURATION, queue)
        return Configured(rows[0][0], QueueConfiguration(*rows[0][1:])) if rows else None

    async def partitions(
        self, wanted: PartitionFilter, page: Page[PartitionOrder], group: str | None = None
    ) -> list[PartitionRow]:
        """A page of partitions with the progress of a group, or of the slowest one.

        Only by name is it found without reading all that match.
        """
        w, p = wanted, page
        rows = await self._pool.fetch(
            _LIST_PARTITIONS, w.queue, w.partition, w.search, group, p.order.value, p.reverse, p.limit, p.offset
        )
        return [PartitionRow(*row) for row in rows]

    async def namespaces(self, limit: int, offset: int) -> list[LabelRow]:
        """A page of the namespaces of queues."""
        return [LabelRow(*row) for row in await self._pool.fetch(_COUNT_LABELS, False, limit, offset)]

    async def tasks(self, limit: int, offset: int) -> list[LabelRow]:
        """A page of the tasks of queues."""
        return [LabelRow(*row) for row in await self._pool.fetch(_COUNT_LABELS, True, limit, offset)]

    async def ready(self, queue: str, partitions: Sequence[str], group: str | None) -> dict[str, int]:
        """What pops of a group, or of the slowest one, would deliver now of these partitions."""
        rows = await self._pool.fetch(_LIST_READY, queue, partitions, group)
        return {row["partition"]: row["ready"] for row in rows}

    async def depth(self, queue: str, group: str | None) -> Depth | None:
        """The backlog of a group, or of the slowest one, in a queue; ``None`` if there is no such queue."""
        rows = await self._pool.fetch(_GET_DEPTH, queue, group)
        return Depth(*rows[0]) if rows else None
