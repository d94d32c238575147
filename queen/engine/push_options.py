"""The encrypted queues, as a list beside the spool for all workers, for use while PostgreSQL is unavailable.

It is written before a queue's configuration is answered, and within a second after a change in another instance. So no
worker spools payloads of encrypted queues in clear, not even one that was started while PostgreSQL is unavailable.
"""

from queen.core.errors import DatabaseUnavailableError
from queen.engine.context import Context
from queen.engine.failover import uninterrupted
from queen.engine.ports import PushOptions


async def keep_for_spool(context: Context) -> None:
    """Updates the list from PostgreSQL, which is asked under the lock, so that an older list cannot overwrite it.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unavailable.
        SpoolError: the list cannot be written.
    """
    failover = context.failover
    if failover is None or failover.encrypted_queues() == (await context.cache.push_options()).encrypted:
        return
    async with failover.held():
        context.cache.forget_push_options()
        options = await context.cache.push_options()
        await uninterrupted(failover.note_encrypted_queues, options.encrypted)


async def options_for_spool(context: Context) -> PushOptions:
    """The options for spooled pushes: queues that are encrypted by the cache or by the list, and no size limits.

    Raises:
        DatabaseUnavailableError: there is neither.
    """
    noted = context.failover.encrypted_queues() if context.failover is not None else None
    try:
        known = (await context.cache.push_options()).encrypted
    except DatabaseUnavailableError:
        if noted is None:
            raise
        known = frozenset()
    return PushOptions(0, known | (noted or frozenset()), {})
