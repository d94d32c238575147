"""Configures queues, and continues work in pages that was interrupted: changes of options, and deletions of groups.

`docs/semantics.md` says what clients see between two pages.
"""

from queen.core.administration import ConfiguredQueue, GroupFilter, GroupOrder, GroupRow, Page, QueueConfiguration
from queen.engine.context import Context
from queen.engine.handlers.removal import delete_group
from queen.engine.ports import Notification, configuration_changed
from queen.engine.push_options import keep_for_spool

_DEFAULT = "Default"
#: Groups of a queue whose names contain the one that is looked for.
_ALIKE_MAX = 1000


async def configure(context: Context, configuration: QueueConfiguration) -> ConfiguredQueue:
    """Creates or reconfigures a queue; when this returns, the new options apply to all partitions."""
    configured = await context.everywhere(lambda each: _configure(each, configuration))
    part_id = next((each.part_id for each in configured if each.part_id), None)
    if part_id is None:
        part_id = await _make_default(context, configuration.queue)
    return ConfiguredQueue(configured[0].queue_id, part_id, more=any(each.more for each in configured))


async def begin_everywhere(context: Context, queue: str, group: str) -> None:
    """Lets a group that has begun on one of several databases begin on the others."""
    if len(context.named()) > 1:
        await spread(context, queue, group)


async def spread(context: Context, queue: str, group: str | None) -> None:
    """Makes a queue, and a group of it, in those of several databases that do not have it yet."""
    configured = await context.with_retries(lambda _again: context.reads.catalogue.configuration(queue))
    if configured is None:
        return
    known = await context.everywhere(lambda each: _knows(each, queue))
    for (_, each), knows in zip(context.named(), known, strict=True):
        if not knows:
            await _configure(each, configured.configuration)
    if group is not None:
        wanted, page = GroupFilter([queue], group), Page(GroupOrder.NAME, _ALIKE_MAX)
        rows = await context.with_retries(lambda _again: context.reads.consumer_groups.groups(wanted, page))
        found = next((row for row in rows if row.name == group), None)
        if found is not None:
            await context.everywhere(lambda each: _subscribe(each, found))


async def _knows(context: Context, queue: str) -> bool:
    catalogue = context.administration.catalogue
    return await context.with_retries(lambda _again: catalogue.configuration(queue)) is not None


async def _subscribe(context: Context, group: GroupRow) -> None:
    """Makes a group that begins where it began elsewhere; nothing if it is there."""
    mode, since = ("all", None) if group.subscription_mode == "all" else ("timestamp", group.since)
    await context.past_locks(
        lambda: context.database.subscribe(group.queue, group.name, mode, since, create_queue=False, create_group=True)
    )


async def _make_default(context: Context, queue: str) -> int:
    """Makes the partition ``Default`` in its database, one of several."""
    home, names = await context.home(queue, _DEFAULT), [(queue, _DEFAULT)]
    [(_, part_id)] = await home.idempotently(lambda: home.database.resolve_partitions(names, create=True))
    return part_id or 0


async def _configure(context: Context, configuration: QueueConfiguration) -> ConfiguredQueue:
    configured = await context.with_retries(lambda _again: context.administration.configure_queue(configuration))
    context.notify(configuration_changed(configuration.queue))
    if configured.more:
        await settle(context, configured.queue_id, configuration.queue)
    await keep_for_spool(context)
    await context.outlive_prefetched(lambda: context.database.prefetched_for(configuration.queue, None, None))
    return configured


async def settle(context: Context, queue_id: int, queue: str) -> None:
    """Applies new options to all partitions, and notifies long polls of messages that are visible now."""
    more = True
    while more:
        woken, more = await context.with_retries(lambda _again: context.administration.settle_queue(queue_id))
        if woken:
            context.notify(Notification(queue, woken))


async def go_on_with_begun(context: Context) -> None:
    """Continues all begun work. It may still be under way elsewhere: two may do the same work at once."""
    for begun in await context.administration.begun():
        if begun.group is not None:
            await delete_group(context, begun.queue, begun.group, subscription=True, rest=True)
        else:
            await settle(context, begun.queue_id, begun.queue)
