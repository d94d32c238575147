"""Rows of queues and partitions: how operations look them up, and their message counts."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from queen.core.administration import (
    Page,
    PartitionFilter,
    PartitionOrder,
    PartitionRow,
    QueueFilter,
    QueueOrder,
    QueueRow,
    QueuesSummary,
)
from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import answers
from queen.http.answers import age_s

#: Default number of partitions of a queue in an answer.
PARTITIONS_LIMIT = 1000
QUEUE_NOT_FOUND = "Queue not found"


class MessageCounts(Struct, rename="camel"):
    """Message counts by state; if groups differ, the state for the slowest group."""

    total: int = 0
    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0


def counts(row: QueueRow | PartitionRow | QueuesSummary) -> MessageCounts:
    """The counts of a queue or partition, or of several queues."""
    return MessageCounts(
        row.total or 0, row.pending or 0, row.processing or 0, row.completed or 0, row.failed or 0, row.dead_letter or 0
    )


def oldest_age(rows: Iterable[QueueRow]) -> int:
    """Age of the oldest statistics of some queues in seconds; -1 if some were never computed; 0 for no queues."""
    return max((age_s(row.computed_at) for row in rows), key=lambda age: (age < 0, age), default=0)


def summary_age(summary: QueuesSummary) -> int:
    """As ``oldest_age``, from the summary of queues."""
    return age_s(summary.computed_at) if summary.queues else 0


async def find_queue(
    context: Context, queue: str, wanted: PartitionFilter, page: Page[PartitionOrder]
) -> tuple[QueueRow, list[PartitionRow]]:
    """The rows of a queue and of a page of its partitions; raises NotFoundError."""
    await answers.refresh(context)
    rows = await _queue_rows(context, queue)
    if not rows:
        raise NotFoundError(QUEUE_NOT_FOUND)
    return rows[0], await context.reads.catalogue.partitions(wanted, page)


async def check_queue(context: Context, queue: str) -> None:
    """Returns if there is a queue of this name; raises NotFoundError."""
    if not await _queue_rows(context, queue):
        raise NotFoundError(f"{QUEUE_NOT_FOUND}: {queue}")


async def check_group_of(context: Context, queue: str, group: str) -> None:
    """Returns if there is a queue and it has a group of this name; raises NotFoundError."""
    await check_queue(context, queue)
    if queue not in await context.reads.consumer_groups.queues_of(group):
        raise NotFoundError(f"Consumer group not found on this queue: {group}")


async def _queue_rows(context: Context, queue: str) -> list[QueueRow]:
    return await context.reads.catalogue.queues(QueueFilter(names=[queue]), Page(QueueOrder.NEWEST, 1))


def matching(queue: QueueRow, rows: Sequence[PartitionRow], wanted: PartitionFilter) -> int:
    """The number of partitions of the queue that match; without a filter as the statistics know it."""
    if wanted.partition is not None or (wanted.search is not None and not rows):
        return len(rows)
    return (rows[0].matches if rows else None) or queue.partitions or 0
