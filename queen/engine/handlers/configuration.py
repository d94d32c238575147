"""Configuring queues, and going on with what was begun in pages: options that change, and deletions of groups.

`docs/semantics.md` says what others see between two pages.
"""

from queen.core.operations import ConfiguredQueue, QueueConfiguration
from queen.engine.context import Context
from queen.engine.handlers.removal import delete_group
from queen.engine.ports import Notice, configuration_changed
from queen.engine.push_options import keep_for_spool


async def configure(context: Context, configuration: QueueConfiguration) -> ConfiguredQueue:
    """Makes or replaces a queue; when this returns the new options hold in all partitions."""
    configured = await context.patiently(lambda _again: context.administration.configure_queue(configuration))
    context.heard(configuration_changed(configuration.queue))
    if configured.more:
        await settle(context, configured.queue_id, configuration.queue)
    await keep_for_spool(context)
    return configured


async def settle(context: Context, queue_id: int, queue: str) -> None:
    """Brings new options to all partitions, and wakes who waits for what is visible now."""
    more = True
    while more:
        woken, more = await context.patiently(lambda _again: context.administration.settle_queue(queue_id))
        if woken:
            context.heard(Notice(queue, woken))


async def go_on_with_begun(context: Context) -> None:
    """Ends what was cut off, or still goes on: it is safe to be done by two at once."""
    for begun in await context.administration.begun():
        if begun.group is not None:
            await delete_group(context, begun.queue, begun.group, subscription=True, rest=True)
        else:
            await settle(context, begun.queue_id, begun.queue)
