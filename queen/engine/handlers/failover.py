"""PUSH, POP, TRANSACTION and CYCLE where PostgreSQL may be away: the handlers of a quiet day, and the way around them.

The order of a partition holds through the change-over in both directions. To the spool: its flag is set before the
first spooled push is answered, so whatever comes later sees it, in every worker. Back: the flag goes when nothing
waits, under the lock of all appends, and an append that finds it gone goes to PostgreSQL. A push whose call broke off
goes to the spool with the id of its flush, by which the replay finds out whether it was committed.

A push to a partition that is held back goes to the spool too, alone: what stands beside it in a call goes its own way.

What goes to the spool is encrypted as it would be in PostgreSQL: files outlive an outage, and get copied.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from queen.core.errors import (
    DatabaseUnavailableError,
    OutcomeUnknownError,
    QueenError,
    SpoolDrainingError,
    SpoolError,
)
from queen.core.operations import Buffered, Cycle, Cycled, Executed, Pop, Popped, Push, Pushed, Transaction
from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.engine.handlers.cycle import cycle
from queen.engine.handlers.pop import pop
from queen.engine.handlers.push import Sending, places_of, push
from queen.engine.handlers.transaction import transaction
from queen.engine.push_options import options_for_spool

_LOOK_S = 0.05
#: How long a transaction waits for the end of the spool.
_PATIENCE_S = 5.0


async def push_or_spool(context: Context, pushes: Sequence[Push]) -> Sequence[Pushed | Buffered | QueenError]:
    """Stores the messages of all requests, or spools them; one answer each, or the error of one that is refused.

    Raises:
        DatabaseUnavailableError: PostgreSQL is away, and nobody here knows which queues are encrypted.
        SpoolError: neither is possible.
        OutcomeUnknownError: the same, but PostgreSQL may have stored them.
        TooSlowError: the call was too slow; that is no outage, and nothing is stored or spooled.
    """
    failover, sending = context.failover, Sending(pushes)
    if failover is None:
        return await push(context, sending)
    lost: OutcomeUnknownError | None = None
    while True:
        insist, behind = failover.away, _behind_held(failover, pushes)
        if any(behind) and not all(behind):
            return await _push_apart(context, pushes, behind)
        if not insist and not failover.spooling and not any(behind):
            try:
                return await push(context, sending)
            except DatabaseUnavailableError as problem:
                insist, lost = True, problem if isinstance(problem, OutcomeUnknownError) else None
        try:
            sending.seal(context, await options_for_spool(context))
            requests = list(sending.waiting.values())
            if not requests or await failover.append(sending.flush_id, requests, sending.sent_at, insist=insist):
                return sending.answer([Buffered()] * len(requests))
        except (DatabaseUnavailableError, SpoolError) as problem:
            if lost is None:
                raise
            raise OutcomeUnknownError(f"{lost}; and it could not be spooled: {problem}") from problem


async def _push_apart(
    context: Context, pushes: Sequence[Push], behind: Sequence[bool]
) -> Sequence[Pushed | Buffered | QueenError]:
    """Requests to partitions that are held back, and others."""
    free = [push for push, held in zip(pushes, behind, strict=True) if not held]
    waiting = [push for push, held in zip(pushes, behind, strict=True) if held]
    # First: if it fails all are sent again, and nothing may be spooled twice.
    stored = iter(await push_or_spool(context, free))
    spooled: Sequence[Pushed | Buffered | QueenError]
    try:
        spooled = await push_or_spool(context, waiting)
    except QueenError as problem:
        spooled = [problem] * len(waiting)
    rest = iter(spooled)
    return [next(rest) if held else next(stored) for held in behind]


def _behind_held(failover: Failover, pushes: Sequence[Push]) -> list[bool]:
    """Which of these have a partition that is held back; none while everything is spooled anyway."""
    if failover.away or failover.spooling or not (held := failover.held_back):
        return [False] * len(pushes)
    return [not held.keys().isdisjoint(places_of([push])) for push in pushes]


async def pop_unless_paused(context: Context, pops: Sequence[Pop]) -> Sequence[Any]:
    """Serves all pops; in pop maintenance they get nothing, at once."""
    if context.failover is not None and context.failover.pop_maintenance:
        return [Popped()] * len(pops)
    return await pop(context, pops)


async def transaction_behind_spool(
    context: Context, requests: Sequence[Transaction]
) -> Sequence[Executed | QueenError]:
    """Executes the requests; those that push wait for the end of the spool, so that they overtake nothing.

    In maintenance there may be no end: there they go at once. If the end does not come soon they are refused, and so
    are those to a partition that is held back.
    """
    overtaking = await _overtaking(context, [request.push for request in requests])
    if not any(overtaking):
        return await transaction(context, requests)
    harmless = [request for request, overtakes in zip(requests, overtaking, strict=True) if not overtakes]
    executed = iter(await transaction(context, harmless) if harmless else ())
    refusal = SpoolDrainingError("Earlier pushes still wait in the spool, and a transaction may not overtake them")
    return [refusal if overtakes else next(executed) for overtakes in overtaking]


async def cycle_behind_spool(context: Context, requests: Sequence[Cycle]) -> Sequence[Cycled | QueenError]:
    """Commits the cycles; those that push wait for the end of the spool, as transactions do."""
    overtaking = await _overtaking(context, [request.push for request in requests])
    if not any(overtaking):
        return await cycle(context, requests)
    refusal = SpoolDrainingError("Earlier pushes still wait in the spool, and a cycle may not overtake them")
    return [
        refusal if overtakes else (await cycle(context, [request]))[0]
        for request, overtakes in zip(requests, overtaking, strict=True)
    ]


async def _overtaking(context: Context, pushes: Sequence[Push]) -> list[bool]:
    """Which of these would overtake what is spooled; waits for the end of the spool before it says so."""
    pushing = [bool(push.lots) for push in pushes]
    failover, loop = context.failover, asyncio.get_running_loop()
    if failover is None or not any(pushing) or not (failover.spooling or failover.held_back):
        return [False] * len(pushes)
    give_up_at = loop.time() + _PATIENCE_S
    while failover.spooling and not failover.maintenance:
        if loop.time() > give_up_at:
            return pushing
        await asyncio.sleep(_LOOK_S)
    return _behind_held(failover, pushes) if not failover.maintenance else [False] * len(pushes)
