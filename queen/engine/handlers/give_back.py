"""Releases leases whose messages never reached a consumer, as if they had never been delivered."""

from uuid import UUID

from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.engine.context import Context
from queen.engine.ports import Notification
from queen.log.requests import Popped


async def give_back(context: Context, popped: Popped, group: str) -> None:
    """Releases the lease of a pop, and notifies long polls of its partitions."""
    lease = popped.lease
    if lease is None:
        return
    at = [context.of_partition(claim.part_id) for claim in popped.claims] or [context]
    homes = {id(home): home for home in at}
    try:
        for home in homes.values():
            await _release(home, lease)
    finally:
        for claim in popped.claims:
            context.notify(Notification(claim.queue, 1, group))


async def _release(home: Context, lease: UUID) -> None:
    await home.with_retries(lambda _again: home.past_locks(lambda: home.database.release_leases([lease])))


async def give_back_orphans(context: Context) -> None:
    """Releases orphaned leases; if PostgreSQL is too slow, they are kept for another time.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unavailable; they are kept for another time.
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
    # Pops that name no queue find the released messages by themselves.
    for queue, group in {(orphan.queue, orphan.group) for orphan in orphans if orphan.queue}:
        context.notify(Notification(queue, 1, group))
