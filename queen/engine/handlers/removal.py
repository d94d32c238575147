"""Deletes what may be large: in pages, each a transaction of its own, so that other calls wait briefly.

Repeating the request continues an interrupted deletion; `docs/semantics.md` says what clients see meanwhile.
"""

import asyncio
from contextlib import suppress

from queen.core.administration import DeadLetterFilter, MessageKey
from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.engine.context import Context
from queen.engine.ports import Notification, configuration_changed
from queen.engine.prefetch import PREFETCHED_S


async def delete_queue(context: Context, queue: str) -> bool:
    """Deletes a queue with everything in it; false if it does not exist."""
    existed = await context.everywhere(lambda each: _delete_queue(each, queue))
    context.forget_queue(queue)
    return any(existed)


async def _delete_queue(context: Context, queue: str) -> bool:
    existed, more = False, True
    while more:
        found, more = await context.with_retries(lambda _again: context.administration.delete_queue(queue))
        context.notify(configuration_changed(queue))
        existed = existed or found
    # Clients see the queue deleted now. An error in the rest is no failure: the clean-up continues it.
    with suppress(DatabaseUnavailableError, TooSlowError):
        while await context.administration.purge_partitions():
            pass
    if existed:
        await asyncio.sleep(PREFETCHED_S)  # the cursors are deleted, so PostgreSQL cannot tell what was prefetched
    return existed


async def delete_group(
    context: Context, queue: str, group: str, *, subscription: bool, rest: bool = False
) -> int | None:
    """Deletes a group, or resets it to its start; returns the number of its cursors, ``None`` if it does not exist.

    ``rest``: only continues a deletion that has begun.
    """
    groups, total = context.administration.consumer_groups, 0
    after: str | None = "rest" if rest else ""
    while after is not None:
        step: str = after
        cursors, after = await context.with_retries(
            lambda _again, step=step: groups.delete(queue, group, step, subscription=subscription)  # type: ignore[misc]
        )
        if cursors is None:
            # Another call has deleted the rest, or an earlier attempt of this one has, and its answer was lost.
            return total or None
        total += cursors
        context.notify(configuration_changed(queue))
        context.notify(Notification(queue, 1, group))
    if total:
        await asyncio.sleep(PREFETCHED_S)
    return total


async def delete_group_of_queues(context: Context, group: str, queue: str | None, *, subscription: bool) -> int | None:
    """Deletes a group on a queue, or on all its queues; its cursors, or ``None`` if there is no such group."""
    context.check_settled(queue)
    deleted = await context.everywhere(lambda each: _delete_group(each, group, queue, subscription=subscription))
    known = [cursors for cursors in deleted if cursors is not None]
    return sum(known) if known else None


async def _delete_group(context: Context, group: str, queue: str | None, *, subscription: bool) -> int | None:
    groups = context.administration.consumer_groups
    queues = await context.with_retries(lambda _again: groups.queues_of(group)) if queue is None else [queue]
    deleted = [await delete_group(context, each, group, subscription=subscription) for each in queues]
    known = [cursors for cursors in deleted if cursors is not None]
    return sum(known) if known else None


async def purge_dead_letters(context: Context, wanted: DeadLetterFilter) -> int:
    """Deletes the dead letters of a queue that match; those that are written meanwhile stay."""
    context.check_settled(wanted.queue)
    return sum(await context.everywhere(lambda each: _purge(each, wanted)))


async def _purge(context: Context, wanted: DeadLetterFilter) -> int:
    deleted, after = 0, None
    while True:
        page, after = await context.with_retries(
            lambda _again, after=after: context.administration.dead_letters.purge(wanted, after)  # type: ignore[misc]
        )
        deleted += page
        if after is None:
            return deleted


async def delete_dead_letter(context: Context, number: int) -> bool:
    """Deletes one dead letter; false if it does not exist."""
    context = context.at(number)
    deleted, lost = await context.tried(lambda _again: context.administration.dead_letters.delete(number))
    return deleted or lost  # by the attempt whose answer was lost


async def delete_message(context: Context, key: MessageKey) -> bool:
    """Deletes a message with its dead letters and traces; false if it does not exist."""
    context = context.of_partition(key.part_id)
    messages = context.administration.messages
    while await context.with_retries(lambda _again: messages.delete_traces(key)):
        pass
    deleted, lost = await context.tried(lambda _again: messages.delete(key))
    await context.outlive_prefetched(lambda: context.database.prefetched_for(None, None, key.part_id))
    return deleted or lost  # by the attempt whose answer was lost
