"""A consumer group begins on all shards at once, in the same place, whichever of them its first pop asks.

Otherwise a shard would not know the group until a pop asks it: retention would not wait for it, and what an operator
does to the group would not reach its partitions there. A shard that is down gets the group when it is back.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import compress

from msgspec import Struct

from queen.core.administration import GroupFilter, GroupOrder, Page
from queen.core.errors import QueenError
from queen.engine.context import Context
from queen.engine.ports import Subscription
from queen.log.requests import QUEUE_MODE, Pop

#: Groups of a queue whose names contain the one that is looked for.
_ALIKE_MAX = 1000


class Beginning(Struct, frozen=True):
    """Where a group begins: as of ``queen.log.requests.Pop``."""

    mode: str
    since: datetime | None = None


def is_known(context: Context, pop: Pop) -> bool:
    """Whether the group of a pop of one queue is known to have begun on a shard."""
    return context.cache.known_group(pop.queue, None, pop.group) is not None


async def begin(contexts: Mapping[int, Context], pop: Pop) -> Sequence[Context]:
    """Lets the group of a pop begin on all shards that are available, on each queue of the pop.

    Returns:
        Of a pop of one queue: the shards on which the group has begun. A pop that makes the group itself would begin
        there at the time at which that shard is back.
    """
    available = [context for context in contexts.values() if not context.unavailable]
    if pop.queue:
        return await _begin(available, pop.queue, pop)
    await asyncio.gather(*[_begin(available, queue, pop) for queue in await _matching(available, pop)])
    return available


async def _matching(contexts: Sequence[Context], pop: Pop) -> list[str]:
    """The queues of a namespace and task, on any shard."""
    found = await asyncio.gather(
        *[context.database.find_queues(pop.namespace, pop.task) for context in contexts], return_exceptions=True
    )
    return sorted({queue for queues in found if not isinstance(queues, BaseException) for queue, _ in queues})


async def _begin(contexts: Sequence[Context], queue: str, pop: Pop) -> Sequence[Context]:
    if all(context.cache.known_group(queue, None, pop.group) is not None for context in contexts):
        return contexts
    found = await _look_at_all(contexts, queue, pop.group)
    if pop.group == QUEUE_MODE and not any(each.queue_id for _, each in found):
        return contexts  # a pop of an unknown queue leaves no trace
    have = [context for context, each in found if each.grp_id is not None]
    beginning = await _beginning(have, queue, pop)
    lack = [context for context, each in found if each.grp_id is None]
    made = await asyncio.gather(*[_subscribe(context, queue, pop.group, beginning) for context in lack])
    return [*have, *compress(lack, made)]


async def _look_at_all(contexts: Sequence[Context], queue: str, group: str) -> list[tuple[Context, Subscription]]:
    """What the shards that answer know of a group."""
    found = await asyncio.gather(*[_look(context, queue, group) for context in contexts])
    return [(context, each) for context, each in zip(contexts, found, strict=True) if each is not None]


async def _look(context: Context, queue: str, group: str) -> Subscription | None:
    """What a shard knows of a group; ``None``: it does not answer."""
    try:
        return await context.past_locks(
            lambda: context.database.subscribe(queue, group, "all", None, create_queue=False, create_group=False)
        )
    except QueenError:
        return None


async def _beginning(have: Sequence[Context], queue: str, pop: Pop) -> Beginning:
    """Where the group began on the shards that have it, or else where the pop says."""
    if pop.group == QUEUE_MODE:
        return Beginning("all")
    wanted, page = GroupFilter([queue], pop.group), Page(GroupOrder.NAME, _ALIKE_MAX)
    for context in have:
        try:
            rows = await context.administration.consumer_groups.groups(wanted, page)
        except QueenError:
            continue
        for row in rows:
            if row.name == pop.group:
                return Beginning("all") if row.subscription_mode == "all" else Beginning("timestamp", row.since)
    return Beginning(pop.mode, pop.since)


async def _subscribe(context: Context, queue: str, group: str, beginning: Beginning) -> bool:
    """Makes a group, and its queue; ``False``: that failed, and the next pop will try it."""
    try:
        made = await context.past_locks(
            lambda: context.database.subscribe(
                queue, group, beginning.mode, beginning.since, create_queue=True, create_group=True
            )
        )
    except QueenError:
        return False
    if made.unfinished:
        context.unfinished.add((queue, group))
    return True
