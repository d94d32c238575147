"""PUSH, POP and TRANSACTION where PostgreSQL may be away: the handlers of a quiet day, and the way around them.

The order of a partition holds through the change-over in both directions. To the spool: its flag is set before the
first spooled push is answered, so whatever comes later sees it, in every worker. Back: the flag goes when nothing
waits, under the lock of all appends, and an append that finds it gone goes to PostgreSQL. A push whose call broke off
goes to the spool with the id of its flush, by which the replay finds out whether it was committed.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from queen.core.errors import DatabaseUnavailableError, SpoolDrainingError
from queen.core.operations import Buffered, Executed, Pop, Popped, Push, Pushed, Transaction
from queen.engine.context import Context
from queen.engine.handlers.pop import pop
from queen.engine.handlers.push import push
from queen.engine.handlers.transaction import transaction

_LOOK_S = 0.05
#: How long a transaction waits for the end of the spool.
_PATIENCE_S = 5.0


async def push_or_spool(context: Context, pushes: Sequence[Push]) -> Sequence[Pushed | Buffered]:
    """Stores the messages of all requests, or spools them; one answer each.

    Raises:
        SpoolError: neither is possible.
    """
    failover = context.failover
    if failover is None:
        return await push(context, pushes)
    flush_id, sent_at = uuid4(), None
    while True:
        insist = failover.away
        if not insist and not failover.spooling:
            try:
                began_at = time.time()
                return await push(context, pushes, flush_id)
            except DatabaseUnavailableError:
                insist, sent_at = True, sent_at or began_at
        if await failover.append(flush_id, pushes, sent_at, insist=insist):
            return [Buffered()] * len(pushes)


async def pop_unless_paused(context: Context, pops: Sequence[Pop]) -> Sequence[Any]:
    """Serves all pops; in pop maintenance they get nothing, at once."""
    if context.failover is not None and context.failover.pop_maintenance:
        return [Popped()] * len(pops)
    return await pop(context, pops)


async def transaction_behind_spool(
    context: Context, requests: Sequence[Transaction]
) -> Sequence[Executed | SpoolDrainingError]:
    """Executes the requests; those that push wait for the end of the spool, so that they overtake nothing.

    In maintenance there may be no end: there they go at once. If the end does not come soon they are refused.
    """
    if not any(request.push.lots for request in requests) or await _spool_ends(context):
        return await transaction(context, requests)
    harmless = [request for request in requests if not request.push.lots]
    executed = iter(await transaction(context, harmless) if harmless else ())
    refusal = SpoolDrainingError("Earlier pushes still wait in the spool, and a transaction may not overtake them")
    return [refusal if request.push.lots else next(executed) for request in requests]


async def _spool_ends(context: Context) -> bool:
    failover, loop = context.failover, asyncio.get_running_loop()
    give_up_at = loop.time() + _PATIENCE_S
    while failover is not None and failover.spooling and not failover.maintenance:
        if loop.time() > give_up_at:
            return False
        await asyncio.sleep(_LOOK_S)
    return True
