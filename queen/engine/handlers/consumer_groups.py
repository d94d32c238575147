"""Moving groups, and making their cursors: in pages, each a transaction of its own, so that nobody waits long for one.

`docs/semantics.md` says what others see between two pages.
"""

from datetime import datetime

from queen.core.administration import Seek, Sought
from queen.engine.context import Context
from queen.engine.ports import Notice


async def seek_group(context: Context, seek: Seek) -> Sought:
    """Moves all cursors, and wakes who waits for what they can get now."""
    groups, updated, moved_to = context.administration.consumer_groups, 0, None
    after: int | None = 0
    while after is not None:
        step: int = after
        sought, after = await context.patiently(lambda _again, step=step: groups.seek(seek, step))  # type: ignore[misc]
        updated, moved_to = updated + sought.updated, sought.moved_to
        if sought.updated:
            context.heard(Notice(seek.queue, sought.updated, seek.group))
    return Sought(updated, moved_to)


async def update_subscription(context: Context, queue: str, group: str, since: datetime) -> bool:
    """Changes the stored start of a group, when it has all its cursors; false if the queue has no such group."""
    groups = context.administration.consumer_groups
    while True:
        known, changed = await context.patiently(lambda _again: groups.update_subscription(queue, group, since))
        if changed or not known:
            return known


async def go_on(context: Context) -> None:
    """Makes a page of the cursors of each group that was seen without all of them.

    Raises:
        QueenError: not now; they stay noted.
    """
    for queue, group in list(context.unfinished):
        if not await context.administration.consumer_groups.go_on(queue, group):
            context.unfinished.discard((queue, group))
