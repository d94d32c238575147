"""Moves a message to the dead letters, on request of a person."""

from queen.core.administration import GivenUp, MessageKey
from queen.core.errors import OutcomeUnknownError
from queen.engine.context import Context
from queen.engine.handlers.configuration import begin_everywhere
from queen.log.requests import QUEUE_MODE


async def give_up(context: Context, key: MessageKey, group: str | None, error: str) -> GivenUp:
    """Makes a message a dead letter of a group; ``None``: of all groups that have not acknowledged it.

    Raises:
        OutcomeUnknownError: no group is left to move it for, but an attempt whose answer was lost may have moved it.
    """
    home = context.of_partition(key.part_id)
    for queue in await home.with_retries(lambda _again: ensure_cursors(home, key)):
        await begin_everywhere(context, queue, QUEUE_MODE)
    moved, lost = await home.tried(lambda _again: home.administration.messages.give_up(key, group, error))
    if lost and moved.known and not moved.groups:
        raise OutcomeUnknownError(
            "The message may have been moved to the dead letters: look there before you try again"
        )
    await home.outlive_prefetched(lambda: home.database.prefetched_for(None, group, key.part_id))
    return moved


async def ensure_cursors(context: Context, key: MessageKey) -> list[str]:
    """Creates the missing cursors of groups in the partition of a message, so that it can become their dead letter.

    A queue that was never popped has no group: then queue mode begins. Returns the queue of which this is so.
    """
    names = await context.database.describe_partitions([key.part_id])
    if not names:
        return []
    queue, begun = names[0].queue, []
    for group in await context.administration.consumer_groups.without_cursor(key.part_id):
        made = await context.past_locks(
            lambda group=group: context.database.subscribe(  # type: ignore[misc]
                queue, group, "all", None, create_queue=False, create_group=group == QUEUE_MODE, part=key.part_id
            )
        )
        if group == QUEUE_MODE:
            begun = [queue]
        if made.unfinished:
            context.unfinished.add((queue, group))
    return begun
