"""Administration of queues of SQS. Every function is safe to repeat, and repeated after a broken connection."""

from collections.abc import Mapping, Sequence
from itertools import count
from uuid import UUID, uuid4

from queen.core.errors import DatabaseUnavailableError
from queen.engine.context import Context
from queen.simple_mq.handlers import announce
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.sqs_handlers import announce_dead, opened
from queen.simple_mq.sqs_requests import PeekedMessage, SqsFigures, SqsMove, SqsOverview, SqsQueue

_MOVES_MAX = 10
#: Steps of move tasks without a message before the next pause, also for other tasks that wait.
_IDLE_STEPS_MAX = 20
#: Long polls to wake when nothing is as it was.
_ALL = 1_000_000


async def create_queue(
    context: Context, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], *, fifo: bool
) -> tuple[SqsQueue, bool]:
    """The queue of the name, and whether this call has created it."""
    queues, id_ = Sqs.of(context).administration, uuid4()
    queue = await context.with_retries(lambda _again: queues.create_queue(id_, name, attributes, tags, fifo=fifo))
    return queue, queue.queue_id == id_


async def find_queue(context: Context, name: str, *, waits: bool = True) -> SqsQueue | None:
    """The queue of the name; ``waits``: for PostgreSQL, while it is known to be unavailable."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.find_queue(name), retries_during_outage=waits)


async def used_queue(context: Context, name: str) -> SqsQueue | None:
    """The queue of the name, for its messages; while PostgreSQL is unavailable as this instance knew it last."""
    used, failover = Sqs.of(context).used, context.failover
    if failover is None:
        return await find_queue(context, name)
    try:
        found = await find_queue(context, name, waits=False)
    except DatabaseUnavailableError:
        return used.find(failover.spool, name) or await find_queue(context, name)
    used.note(failover.spool, name, found)
    return found


async def queue_names(context: Context, queues: Sequence[UUID]) -> Mapping[UUID, str]:
    """The names of those queues that there are."""
    return await context.with_retries(lambda _again: Sqs.of(context).administration.names(queues))


async def list_queues(context: Context, prefix: str, after: str, limit: int) -> list[str]:
    """A page of names that begin so, sorted, behind ``after``."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.list_queues(prefix, after, limit))


async def dead_letter_sources(context: Context, queue: UUID, after: str, limit: int) -> list[str]:
    """A page of names of queues whose dead letters go to this one, sorted, behind ``after``."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.dead_letter_sources(queue, after, limit))


async def set_attributes(context: Context, queue: UUID, attributes: Mapping[str, str]) -> bool:
    """Sets attributes, and removes those with an empty value; whether there is such a queue."""
    queues = Sqs.of(context).administration
    known = await context.with_retries(lambda _again: queues.set_attributes(queue, attributes))
    announce(context, queue, _ALL)  # A shorter delay makes messages of a FIFO queue visible.
    return known


async def tag_queue(context: Context, queue: UUID, tags: Mapping[str, str], removed: Sequence[str] = ()) -> bool:
    """Sets and removes tags; whether there is such a queue."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.tag_queue(queue, tags, removed))


async def figures(context: Context, queue: UUID) -> SqsFigures | None:
    """How many messages a queue has; ``None`` if there is no such queue."""
    return await context.with_retries(lambda _again: Sqs.of(context).administration.figures(queue))


async def overview(context: Context, search: str, after: str, limit: int) -> list[SqsOverview]:
    """A page of queues whose names contain a text, sorted, behind ``after``."""
    await SimpleMq.of(context).outcomes.flush()
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.overview(search, after, limit))


async def peek(context: Context, queue: UUID, after: UUID | None, limit: int, bytes_max: int) -> list[PeekedMessage]:
    """A page of messages in the order in which they were sent, without receiving them."""
    queues = Sqs.of(context).administration
    found = await context.with_retries(lambda _again: queues.peek(queue, after, limit, bytes_max))
    return [PeekedMessage(opened(context, message), place, visible_at) for place, visible_at, message in found]


async def delete_queue(context: Context, queue: UUID) -> bool:
    """Deletes a queue and its messages; whether there was one."""
    queues = Sqs.of(context).administration
    known, lost = await context.tried(lambda _again: queues.delete_queue(queue))
    await _forget_messages(context, queue)
    return known or lost


async def purge_queue(context: Context, queue: UUID) -> str:
    """Removes all messages of a queue: ``purged``, ``too_soon`` (less than a minute after another) or ``unknown``."""
    queues, store = Sqs.of(context).administration, uuid4()
    outcome = await context.with_retries(lambda _again: queues.purge_queue(queue, store))
    if outcome == "purged":
        await _forget_messages(context, queue)
    return outcome


async def _forget_messages(context: Context, queue: UUID) -> None:
    announce(context, queue, _ALL)
    # Deletes a part of the rows now, enough for small queues; a background job deletes the rest.
    await context.with_retries(lambda _again: SimpleMq.of(context).administration.purge())


async def start_move(context: Context, source: UUID, destination: UUID | None, per_s: int | None) -> tuple[str, UUID]:
    """Starts a task: ``started``, ``running`` (this source has one) or ``unknown``, and the id of the new task."""
    queues, id_ = Sqs.of(context).administration, uuid4()
    return await context.with_retries(lambda _again: queues.start_move(id_, source, destination, per_s)), id_


async def list_moves(context: Context, source: UUID, limit: int = _MOVES_MAX) -> list[SqsMove]:
    """The latest tasks of a source, newest first."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.list_moves(source, limit))


async def cancel_move(context: Context, move: UUID) -> tuple[bool, int] | None:
    """Whether the task is cancelled now, and how many messages it has moved; ``None`` if there is no such task."""
    return await context.with_retries(lambda _again: Sqs.of(context).administration.cancel_move(move))


async def move_on(context: Context) -> None:
    """Carries out move tasks as far as their rates allow, with other work between the steps.

    It ends when steps move nothing: in the source of a task timeouts may end all the time.
    """
    queues, idle = Sqs.of(context).administration, 0
    for number in count():
        step = await queues.move(routes=number % 2 == 0)
        if step is None:
            return
        moved, destinations = step
        for queue in destinations:
            announce(context, queue, moved)
        idle = 0 if moved else idle + 1
        if idle >= _IDLE_STEPS_MAX:
            return


async def sweep(context: Context) -> None:
    """Does what time has brought about in queues that nobody receives from."""
    announce_dead(context, await Sqs.of(context).administration.sweep())
