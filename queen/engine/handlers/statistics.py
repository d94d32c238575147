"""Computing the statistics of all queues and groups."""

from queen.core.administration import Refreshed
from queen.engine.context import Context


async def refresh_all(context: Context) -> Refreshed:
    """Page by page, so that repeating one page does not repeat the others; waits if another server is doing it.

    Returns how many rows were computed and removed, of all databases.
    """
    done = await context.everywhere(_refresh)
    queues, groups = sum([each.queues or 0 for each in done]), sum([each.groups or 0 for each in done])
    return Refreshed(queues, groups, sum([each.removed or 0 for each in done]), False, None)


async def _refresh(context: Context) -> Refreshed:
    queues = groups = removed = 0
    after: int | None = 0
    while after is not None:
        place: int = after
        page = await context.with_retries(
            lambda _again, place=place: context.administration.statistics.refresh_page(place, wait=True)  # type: ignore[misc]
        )
        after = page.last
        queues, groups = queues + (page.queues or 0), groups + (page.groups or 0)
        removed += page.removed or 0
    return Refreshed(queues, groups, removed, False, None)
