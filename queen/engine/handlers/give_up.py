"""Moves a message to the dead letters, on request of a person."""

from queen.core.administration import GivenUp, MessageKey
from queen.core.errors import OutcomeUnknownError
from queen.engine.context import Context
from queen.log.requests import QUEUE_MODE


async def give_up(context: Context, key: MessageKey, group: str | None, error: str) -> GivenUp:
    """Makes a message a dead letter of a group; ``None``: of all groups that have not acknowledged it.

    Raises:
        OutcomeUnknownError: no group is left to move it for, but an attempt whose answer was lost may have moved it.
    """
    context = context.at(key.part_id)
    await context.with_retries(lambda _again: ensure_cursors(context, key))
    moved, lost = await context.tried(lambda _again: context.administration.messages.give_up(key, group, error))
    if lost and moved.known and not moved.groups:
        raise OutcomeUnknownError(
            "The message may have been moved to the dead letters: look there before you try again"
        )
    await context.outlive_prefetched(lambda: context.database.prefetched_for(None, group, key.part_id))
    return moved


async def ensure_cursors(context: Context, key: MessageKey) -> None:
    """Creates the missing cursors of groups in the partition of a message, so that it can become their dead letter.

    A queue that was never popped has no group: then the group is queue mode.
    """
    names = await context.database.describe_partitions([key.part_id])
    if not names:
        return
    queue = names[0].queue
    for group in await context.administration.consumer_groups.without_cursor(key.part_id):
        made = await context.past_locks(
            lambda group=group: context.database.subscribe(  # type: ignore[misc]
                queue, group, "all", None, create_queue=False, create_group=group == QUEUE_MODE, part=key.part_id
            )
        )
        if made.unfinished:
            context.unfinished.add((queue, group))
