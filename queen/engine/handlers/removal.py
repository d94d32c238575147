"""Deleting what may be large: in pages, each a transaction of its own, so that nobody waits long for one.

One that was cut off is gone on with by asking again; `docs/semantics.md` says what others see meanwhile.
"""

from contextlib import suppress

from queen.core.administration import MessageKey
from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.engine.context import Context
from queen.engine.ports import Notice, configuration_changed


async def delete_queue(context: Context, queue: str) -> bool:
    """Deletes a queue with everything in it; false if there was none."""
    existed, more = False, True
    while more:
        found, more = await context.patiently(lambda _again: context.administration.delete_queue(queue))
        context.heard(configuration_changed(queue))
        existed = existed or found
    # It is gone for everybody. What is left of it does not make the answer a failure: the clean-up takes it up too.
    with suppress(DatabaseUnavailableError, TooSlowError):
        while await context.administration.purge_partitions():
            pass
    return existed


async def delete_group(
    context: Context, queue: str, group: str, *, subscription: bool, rest: bool = False
) -> int | None:
    """Deletes a group, or puts it back to its start; its cursors, or ``None`` if the queue has no such group.

    ``rest``: only if its deletion has begun.
    """
    groups, total = context.administration.consumer_groups, 0
    after: str | None = "rest" if rest else ""
    while after is not None:
        step: str = after
        cursors, after = await context.patiently(
            lambda _again, step=step: groups.delete(queue, group, step, subscription=subscription)  # type: ignore[misc]
        )
        if cursors is None:
            # Somebody else has deleted what was left of it, or this call, and its answer was lost.
            return total or None
        total += cursors
        context.heard(configuration_changed(queue))
        context.heard(Notice(queue, 1, group))
    return total


async def purge_dead_letters(context: Context, queue: str, group: str | None) -> int:
    """Deletes the dead letters of a queue, of one group if it is named; those that come meanwhile stay."""
    deleted, place = 0, None
    while True:
        page, place = await context.patiently(
            lambda _again, place=place: context.administration.dead_letters.purge(queue, group, place)  # type: ignore[misc]
        )
        deleted += page
        if place is None:
            return deleted


async def delete_message(context: Context, key: MessageKey) -> bool:
    """Deletes a message with its dead letters and traces; false if there was none."""
    messages = context.administration.messages
    while await context.patiently(lambda _again: messages.delete_traces(key)):
        pass
    deleted, lost = await context.tried(lambda _again: messages.delete(key))
    return deleted or lost  # by the sending whose answer was lost
