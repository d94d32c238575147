"""Lists, seeks, pauses and deletes consumer groups."""

from collections.abc import Sequence
from datetime import datetime

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
    SeekResult,
)
from queen.core.limits import CURSORS_STEP
from queen.postgres.pool import Pool
from queen.postgres.statement import call

_LIST = call("list_groups_v1", 7)
_COUNT = call("count_groups_v1", 3)
_LIST_QUEUES = call("list_queues_of_group_v1", 8)
_SUMMARIZE = call("summarize_groups_v1", 3)
_CONSUMERS = call("describe_consumers_v1", 1)
_CURSORS = call("list_cursors_v1", 8)
_LAGGING = call("list_lagging_v1", 2)
_QUEUES_OF = call("find_group_queues_v1", 1)
_CONNECTED = call("list_consumers_v1", 4)
_LAG = call("list_group_lag_v1", 5)
_PAUSED = call("find_paused_v1", 1)
_WITHOUT_CURSOR = "SELECT * FROM queen.find_groups_without_cursor_v1($1) AS name"
_SEEK = call("seek_group_v1", 7)
_PREVIEW = call("preview_seek_v1", 5)
_UPDATE = call("update_subscription_v1", 4)
_CONTINUE = "SELECT complete FROM queen.subscribe_v1($1, $2, 'all', NULL, false, false, $3)"
_DELETE = call("delete_group_v1", 5)
_PAUSE = call("pause_v1", 3)

#: Maximum of cursors that one transaction of a deletion removes. It locks no partitions.
DELETE_STEP = 5000


class ConsumerGroupStore:
    """Implements ``queen.engine.administration.ConsumerGroups``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def groups(self, wanted: GroupFilter, page: Page[GroupOrder]) -> list[GroupRow]:
        """A page of the groups of queues."""
        w, p = wanted, page
        rows = await self._pool.fetch(
            _LIST, w.queues, w.search, p.order.value, p.reverse, w.behind, p.limit, p.offset
        )  # fmt: skip
        return [GroupRow(*row) for row in rows]

    async def count(self, wanted: GroupFilter) -> int:
        """How many groups of queues there are."""
        [row] = await self._pool.fetch(_COUNT, wanted.queues, wanted.search, wanted.behind)
        return int(row[0])

    async def on_queues(self, wanted: QueuesOfGroup, page: Page[GroupOrder]) -> tuple[list[GroupRow], int]:
        """A page of the queues of a group, and how many there are; 0 beyond the last page."""
        w, p = wanted, page
        rows = await self._pool.fetch(
            _LIST_QUEUES, w.group, w.queue, w.search, p.order.value, p.reverse, w.behind, p.limit, p.offset
        )  # fmt: skip
        return [GroupRow(*row[:-1]) for row in rows], rows[0]["total"] if rows else 0

    async def summary(self, wanted: QueueFilter) -> GroupsSummary:
        """Statistics of the groups of queues, added up."""
        [row] = await self._pool.fetch(_SUMMARIZE, wanted.namespace, wanted.task, wanted.names)
        return GroupsSummary(*row)

    async def consumers_of(self, queues: Sequence[str]) -> Consumers:
        """The consumers of some queues."""
        [row] = await self._pool.fetch(_CONSUMERS, queues)
        return Consumers(*row)

    async def cursors(self, wanted: CursorFilter, page: Page[CursorOrder]) -> list[CursorRow]:
        """A page of the cursors of a group. Only by name is it found without reading all of them."""
        w, p = wanted, page
        rows = await self._pool.fetch(
            _CURSORS, w.group, w.queue, w.search, p.order.value, p.reverse, w.behind, p.limit, p.offset
        )
        return [CursorRow(*row) for row in rows]

    async def lagging(self, seconds: int, limit: int) -> list[LaggingRow]:
        """Partitions whose oldest message in the backlog has waited for more than ``seconds``, longest first."""
        return [LaggingRow(*row) for row in await self._pool.fetch(_LAGGING, seconds, limit)]

    async def seek(self, seek: Seek, after: int) -> tuple[SeekResult, int | None]:
        """Moves cursors of partitions after ``after``; also returns where to continue; ``None``: done."""
        [row] = await self._pool.fetch(
            _SEEK, seek.queue, seek.group, seek.partition, seek.to_end, seek.since, after, CURSORS_STEP
        )
        return SeekResult(row["updated"], row["moved_to"]), row["last"]

    async def preview(self, seek: Seek) -> SeekPreview:
        """What a seek would do; it does nothing."""
        [row] = await self._pool.fetch(
            _PREVIEW, seek.queue, seek.group, seek.partition, seek.to_end, seek.since
        )  # fmt: skip
        return SeekPreview(*row)

    async def queues_of(self, group: str) -> list[str]:
        """The queues that have a group of that name."""
        return [row["queue"] for row in await self._pool.fetch(_QUEUES_OF, group)]

    async def connected(self, queue: str, group: str, limit: int, offset: int) -> list[ConnectedRow]:
        """A page of the consumers that get messages of a queue, as their workers reported them last."""
        return [ConnectedRow(*row) for row in await self._pool.fetch(_CONNECTED, queue, group, limit, offset)]

    async def lag(self, queue: str, group: str, period: Period, minutes: int) -> list[GroupLagRow]:
        """The lag of a group over time, newest bucket first; a bucket without a lag is left out."""
        rows = await self._pool.fetch(_LAG, queue, group, period.begin, period.end, minutes)
        return [GroupLagRow(*row) for row in rows]

    async def paused_on(self, group: str) -> list[str]:
        """The queues on which the group of that name is paused."""
        return [row["queue"] for row in await self._pool.fetch(_PAUSED, group)]

    async def without_cursor(self, part_id: int) -> list[str]:
        """Groups without a cursor in a partition that need one: queue mode, if its queue has no group."""
        return [row["name"] for row in await self._pool.fetch(_WITHOUT_CURSOR, part_id)]

    async def update_subscription(self, queue: str, group: str, since: datetime) -> tuple[bool, bool]:
        """Changes the stored start of a group: whether the queue has the group, and whether the change is done.

        A group that lacks cursors gets a page of them first, and needs another call.
        """
        [row] = await self._pool.fetch(_UPDATE, queue, group, since, CURSORS_STEP)
        return row["known"], row["changed"]

    async def go_on(self, queue: str, group: str) -> bool:
        """Creates a page of the missing cursors of a group; whether there are more."""
        [row] = await self._pool.fetch(_CONTINUE, queue, group, CURSORS_STEP)
        return row["complete"] is False

    async def pause(self, queue: str, group: str | None, *, paused: bool) -> tuple[bool, int]:
        """Pauses or resumes a queue, or a group of it: whether it exists; how many cursors are ready, if resumed."""
        [row] = await self._pool.fetch(_PAUSE, queue, group, paused)
        return row["known"], row["ready"]

    async def delete(self, queue: str, group: str, after: str, *, subscription: bool) -> tuple[int | None, str | None]:
        """Deletes a page of a group, or moves it back to its start.

        Returns the number of cursors, ``None`` if the queue has no such group; and where to continue, ``None``: done.
        """
        step = DELETE_STEP if subscription else CURSORS_STEP
        [row] = await self._pool.fetch(_DELETE, queue, group, subscription, after, step)
        return row["cursors"], row["last"]
