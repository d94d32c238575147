"""Leases whose messages never reached a consumer: given back as if they had never been given."""

from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.core.operations import Popped
from queen.engine.context import Context
from queen.engine.ports import Notice


async def give_back(context: Context, popped: Popped, group: str) -> None:
    """Takes the lease of a pop back and wakes who waits for its partitions."""
    lease = popped.lease
    if lease is None:
        return
    try:
        await context.patiently(lambda _again: context.past_locks(lambda: context.database.release_leases([lease])))
    finally:
        for claim in popped.claims:
            context.heard(Notice(claim.queue, 1, group))


async def give_back_orphans(context: Context) -> None:
    """The same for leases of which only PostgreSQL may know; where it is too slow for that, another time.

    Raises:
        DatabaseUnavailableError: it is not there; they are kept for another time.
    """
    orphans = context.orphans.take()
    if not orphans:
        return
    try:
        await context.database.release_leases([orphan.lease for orphan in orphans])
    except DatabaseUnavailableError:
        context.orphans.add(orphans)
        raise
    except TooSlowError:
        context.orphans.add(orphans)
        return
    # A pop that looks at many queues finds what is free by itself.
    for queue, group in {(orphan.queue, orphan.group) for orphan in orphans if orphan.queue}:
        context.heard(Notice(queue, 1, group))
