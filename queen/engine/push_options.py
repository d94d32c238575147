"""Which queues are encrypted, for when PostgreSQL cannot be asked: a list beside the spool, which all workers see.

It is written before a queue's configuration is answered, and within a second of a change elsewhere. So no worker of the
instance spools in clear what was to be encrypted, not even one that was started while PostgreSQL is away.
"""

from queen.core.errors import DatabaseUnavailableError
from queen.engine.context import Context
from queen.engine.failover import uninterrupted
from queen.engine.ports import PushOptions


async def keep_for_spool(context: Context) -> None:
    """Makes the list of the instance what PostgreSQL says; read again under the lock, so that no older one comes later.

    Raises:
        DatabaseUnavailableError: PostgreSQL is away.
        SpoolError: the list cannot be written.
    """
    failover = context.failover
    if failover is None or failover.encrypted_queues() == (await context.directory.push_options()).encrypted:
        return
    async with failover.held():
        context.directory.forget_push_options()
        options = await context.directory.push_options()
        await uninterrupted(failover.note_encrypted_queues, options.encrypted)


async def options_for_spool(context: Context) -> PushOptions:
    """What the worker or the list knows: a queue that either takes for encrypted is. There are no limits in the spool.

    Raises:
        DatabaseUnavailableError: nothing is known.
    """
    noted = context.failover.encrypted_queues() if context.failover is not None else None
    try:
        known = (await context.directory.push_options()).encrypted
    except DatabaseUnavailableError:
        if noted is None:
            raise
        known = frozenset()
    return PushOptions(0, known | (noted or frozenset()), {})
