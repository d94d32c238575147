"""Computing the statistics of all queues and groups."""

from queen.core.administration import Refreshed
from queen.engine.context import Context


async def refresh_all(context: Context) -> Refreshed:
    """Page by page, so that repeating one page does not repeat the others; waits if another server is doing it."""
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
