"""Pauses and resumes queues, and groups of queues."""

import asyncio

from queen.engine.context import Context
from queen.engine.handlers.configuration import spread
from queen.engine.lending import LENT_ANSWER_S
from queen.engine.ports import Notification
from queen.engine.prefetch import PREFETCHED_S

#: Until then, workers may hand out what was leased before the pause: prefetched messages, and those of a long poll that
#: a sibling has served.
_HELD_S = max(PREFETCHED_S, LENT_ANSWER_S)


async def pause(context: Context, queue: str, group: str | None, *, paused: bool) -> bool:
    """Pauses or resumes a queue, or a group of it; false if it does not exist.

    When a pause returns, no worker holds messages any more that a pop could get. A resumption wakes long polls.
    """
    known = await context.everywhere(lambda each: _pause(each, queue, group, paused=paused))
    if paused and any(known) and not all(known):
        # A push may make the queue there, and a pop the group: they must be paused from the beginning.
        await spread(context, queue, group)
        await context.everywhere(lambda each: _pause(each, queue, group, paused=True))
    return any(known)


async def _pause(context: Context, queue: str, group: str | None, *, paused: bool) -> bool:
    groups = context.administration.consumer_groups
    known, ready = await context.idempotently(lambda: groups.pause(queue, group, paused=paused))
    if known and paused:
        await asyncio.sleep(_HELD_S)
    elif ready:
        context.notify(Notification(queue, ready, group))
    return known
