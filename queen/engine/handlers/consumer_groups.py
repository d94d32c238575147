"""Moves groups, and creates their cursors: in pages, each a transaction of its own, so that other calls wait briefly.

`docs/semantics.md` says what clients see between two pages.
"""

from datetime import datetime

from queen.core.administration import Seek, SeekResult
from queen.engine.context import Context
from queen.engine.ports import Notification


async def seek_group(context: Context, seek: Seek) -> SeekResult:
    """Moves all cursors, and notifies long polls of the messages that are ready now."""
    context.check_settled(seek.queue)
    if seek.partition is not None:
        return await _seek(await context.home(seek.queue, seek.partition), seek)
    sought = await context.everywhere(lambda each: _seek(each, seek))
    return SeekResult(sum([each.updated for each in sought]), sought[0].moved_to)


async def _seek(context: Context, seek: Seek) -> SeekResult:
    groups, updated, moved_to = context.administration.consumer_groups, 0, None
    after: int | None = 0
    while after is not None:
        step: int = after
        page, after = await context.with_retries(lambda _again, step=step: groups.seek(seek, step))  # type: ignore[misc]
        updated, moved_to = updated + page.updated, page.moved_to
        if page.updated:
            context.notify(Notification(seek.queue, page.updated, seek.group))
    await context.outlive_prefetched(lambda: context.database.prefetched_for(seek.queue, seek.group, None))
    return SeekResult(updated, moved_to)


async def update_subscription(context: Context, queue: str, group: str, since: datetime) -> bool:
    """Changes the stored start of a group as soon as it has all its cursors; false if the queue has no such group."""
    groups = context.administration.consumer_groups
    while True:
        known, changed = await context.with_retries(lambda _again: groups.update_subscription(queue, group, since))
        if changed or not known:
            return known


async def update_subscriptions(context: Context, group: str, since: datetime) -> int:
    """Changes the stored start of a group on all its queues; their number."""
    changed = await context.everywhere(lambda each: _update_subscriptions(each, group, since))
    return len({queue for queues in changed for queue in queues})


async def _update_subscriptions(context: Context, group: str, since: datetime) -> list[str]:
    groups = context.administration.consumer_groups
    queues = await context.with_retries(lambda _again: groups.queues_of(group))
    return [queue for queue in queues if await update_subscription(context, queue, group, since)]


async def go_on(context: Context) -> None:
    """Creates a page of cursors of each group that is known to lack some.

    Raises:
        QueenError: the call failed; the groups stay in ``context.unfinished``.
    """
    for queue, group in list(context.unfinished):
        if not await context.administration.consumer_groups.go_on(queue, group):
            context.unfinished.discard((queue, group))
