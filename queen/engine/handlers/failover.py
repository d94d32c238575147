"""PUSH, POP, TRANSACTION and CYCLE with the spool: what they do while PostgreSQL is unavailable, and right after.

The order of a partition holds when pushes change to the spool and when they change back. To the spool: its flag is set
before the first spooled push is answered, so every later push of any worker sees it. Back: the flag is removed under
the lock of all appends when no messages are left; an append that finds the flag removed goes to PostgreSQL. A push
whose call broke off goes to the spool with the id of its append, by which the replay finds out whether it was
committed.

A push to a partition that is held back goes to the spool, too; other pushes of the same batch do not.

Spooled payloads are encrypted as they would be in PostgreSQL, because files outlive an outage and may be copied.
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
from queen.engine.context import Context
from queen.engine.failover import Failover
from queen.engine.handlers.cycle import cycle
from queen.engine.handlers.pop import pop
from queen.engine.handlers.push import PushAttempt, partitions_of, push
from queen.engine.handlers.transaction import transaction
from queen.engine.push_options import options_for_spool
from queen.log.requests import Buffered, Cycle, CycleResult, Pop, Popped, Push, Pushed, Transaction, TransactionResult
from queen.spool.format import spool_request

_POLL_S = 0.05
#: How long a transaction or cycle waits for the end of the spool.
_DRAIN_TIMEOUT_S = 5.0


async def push_or_spool(context: Context, pushes: Sequence[Push]) -> Sequence[Pushed | Buffered | QueenError]:
    """Stores the messages of all requests, or spools them; one answer each, or the error of one that is refused.

    Raises:
        DatabaseUnavailableError: PostgreSQL is unavailable, and it is not known which queues are encrypted.
        SpoolError: they could be neither stored nor spooled.
        OutcomeUnknownError: the same, but PostgreSQL may have stored them.
        TooSlowError: the call was too slow; that is no outage, and nothing is stored or spooled.
    """
    failover, push_attempt = context.failover, PushAttempt(pushes)
    if failover is None:
        return await push(context, push_attempt)
    lost: OutcomeUnknownError | None = None
    while True:
        insist, spooled = failover.unavailable, _spooled(failover, pushes)
        if any(spooled) and not all(spooled):
            return await _push_separately(context, pushes, spooled)
        if not any(spooled):
            try:
                return await push(context, push_attempt)
            except DatabaseUnavailableError as problem:
                insist, lost = True, problem if isinstance(problem, OutcomeUnknownError) else None
        if await _spool(context, failover, push_attempt, lost, insist=insist):
            return push_attempt.answer([Buffered()] * len(push_attempt.waiting))


async def _spool(
    context: Context, failover: Failover, push_attempt: PushAttempt, lost: OutcomeUnknownError | None, *, insist: bool
) -> bool:
    """Spools the requests without an answer; false if the spool has ended. ``lost``: they may be stored already."""
    try:
        push_attempt.seal(context, await options_for_spool(context))
        requests = list(push_attempt.waiting.values())
        return not requests or await failover.append(
            push_attempt.flush_id, [spool_request(push) for push in requests], push_attempt.sent_at, insist=insist
        )
    except (DatabaseUnavailableError, SpoolError) as problem:
        if lost is None:
            raise
        raise OutcomeUnknownError(f"{lost}; writing the push to the spool failed, too: {problem}") from problem


async def _push_separately(
    context: Context, pushes: Sequence[Push], behind: Sequence[bool]
) -> Sequence[Pushed | Buffered | QueenError]:
    """Pushes requests to held-back partitions separately from the others."""
    free = [push for push, held in zip(pushes, behind, strict=True) if not held]
    waiting = [push for push, held in zip(pushes, behind, strict=True) if held]
    # First these: if they fail, all are sent again, and nothing must be spooled twice.
    stored = iter(await push_or_spool(context, free))
    spooled: Sequence[Pushed | Buffered | QueenError]
    try:
        spooled = await push_or_spool(context, waiting)
    except QueenError as problem:
        spooled = [problem] * len(waiting)
    rest = iter(spooled)
    return [next(rest) if held else next(stored) for held in behind]


def _spooled(failover: Failover, pushes: Sequence[Push]) -> Sequence[bool]:
    """Which of these go to the spool: all of them, or those to held-back partitions; nothing if none does."""
    if failover.unavailable or failover.spooling:
        return [True] * len(pushes)
    return _to_held(failover, pushes)


def _to_held(failover: Failover, pushes: Sequence[Push]) -> Sequence[bool]:
    """Which of these push to a held-back partition; nothing if there is none. Read ``spooling`` before."""
    held = failover.held_back
    return [not held.keys().isdisjoint(partitions_of([push])) for push in pushes] if held else ()


def _behind_held(failover: Failover, pushes: Sequence[Push]) -> Sequence[bool]:
    """Which of these push to a held-back partition; none while all pushes are spooled."""
    spools = failover.unavailable or failover.spooling
    return (() if spools else _to_held(failover, pushes)) or [False] * len(pushes)


async def pop_unless_paused(context: Context, pops: Sequence[Pop]) -> Sequence[Any]:
    """Serves all pops; in pop maintenance they are answered at once, without messages."""
    if context.pop_maintenance:
        return [Popped()] * len(pops)
    return await pop(context, pops)


async def transaction_behind_spool(
    context: Context, requests: Sequence[Transaction]
) -> Sequence[TransactionResult | QueenError]:
    """Executes the requests; those that push wait for the end of the spool, so that they overtake no spooled push.

    In maintenance they do not wait, because the spool may not end. They are refused if the spool does not end soon, or
    if they push to a held-back partition.
    """
    overtaking = await _overtaking(context, [request.push for request in requests])
    if not any(overtaking):
        return await transaction(context, requests)
    harmless = [request for request, overtakes in zip(requests, overtaking, strict=True) if not overtakes]
    executed = iter(await transaction(context, harmless) if harmless else ())
    refusal = SpoolDrainingError(
        "Earlier pushes are still in the spool, and a transaction must not overtake them. Try again later"
    )
    return [refusal if overtakes else next(executed) for overtakes in overtaking]


async def cycle_behind_spool(context: Context, requests: Sequence[Cycle]) -> Sequence[CycleResult | QueenError]:
    """Commits the cycles; those that push wait for the end of the spool, as transactions do."""
    overtaking = await _overtaking(context, [request.push for request in requests])
    if not any(overtaking):
        return await cycle(context, requests)
    refusal = SpoolDrainingError(
        "Earlier pushes are still in the spool, and a cycle must not overtake them. Try again later"
    )
    return [
        refusal if overtakes else (await cycle(context, [request]))[0]
        for request, overtakes in zip(requests, overtaking, strict=True)
    ]


async def _overtaking(context: Context, pushes: Sequence[Push]) -> Sequence[bool]:
    """Waits for the end of the spool; returns which of these would still overtake spooled pushes."""
    pushing = [bool(push.batches) for push in pushes]
    failover, loop = context.failover, asyncio.get_running_loop()
    if failover is None or not any(pushing) or not (failover.spooling or failover.held_back):
        return [False] * len(pushes)
    give_up_at = loop.time() + _DRAIN_TIMEOUT_S
    while failover.spooling and not failover.maintenance:
        if loop.time() > give_up_at:
            return pushing
        await asyncio.sleep(_POLL_S)
    return _behind_held(failover, pushes) if not failover.maintenance else [False] * len(pushes)
