"""Where a consumer group begins on a shard that does not have it: where it began on the others.

The first pop of a group decides where it begins, in all partitions. It may have asked one shard only, because that had
messages, or because another was down.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, structs

from queen.core.administration import GroupFilter, GroupOrder, Page
from queen.core.errors import QueenError
from queen.engine.context import Context
from queen.log.requests import QUEUE_MODE, Pop

#: Groups of a queue whose names contain the one that is looked for.
_ALIKE_MAX = 1000


class Beginning(Struct, frozen=True):
    """Where a group begins: with all messages, or with those from a time on."""

    mode: str
    since: datetime | None = None


def is_known(context: Context, pop: Pop) -> bool:
    """Whether the group of a pop is known to have begun on a shard, or needs no beginning."""
    return pop.group == QUEUE_MODE or not pop.queue or context.cache.known_group(pop.queue, None, pop.group) is not None


async def begun(contexts: Mapping[int, Context], slot: int, pop: Pop) -> Pop:
    """A pop for one shard, whose group begins there as on the others."""
    if is_known(contexts[slot], pop):
        return pop
    others = [context for other, context in contexts.items() if other != slot]
    found = await asyncio.gather(*[_beginning(context, pop.queue, pop.group) for context in others])
    beginnings = [each for each in found if each is not None]
    if not beginnings:
        return pop
    first = min(beginnings, key=lambda each: (each.since is not None, each.since))
    return structs.replace(pop, mode=first.mode, since=first.since)


async def _beginning(context: Context, queue: str, group: str) -> Beginning | None:
    """Where a group began on a shard; ``None``: it has not, or the shard cannot tell."""
    if context.unavailable:
        return None
    try:
        rows = await context.administration.consumer_groups.groups(
            GroupFilter([queue], group), Page(GroupOrder.NAME, _ALIKE_MAX)
        )
    except QueenError:
        return None
    row = next((row for row in rows if row.name == group), None)
    if row is None:
        return None
    return Beginning("all") if row.subscription_mode == "all" else Beginning("timestamp", row.since)
