"""Administration of queues of SQS. Every function is safe to repeat, and repeated after a broken connection."""

from collections.abc import Mapping, Sequence
from itertools import chain, count
from uuid import UUID, uuid4

from queen.core.errors import DatabaseUnavailableError
from queen.core.placement import queue_on, slot_of_queue
from queen.engine.context import Context
from queen.simple_mq.handlers import announce
from queen.simple_mq.interface import SimpleMq, Sqs, home_of
from queen.simple_mq.sqs_handlers import announce_dead, opened
from queen.simple_mq.sqs_requests import PeekedMessage, SqsFigures, SqsMove, SqsOverview, SqsQueue

_MOVES_MAX = 10
#: Steps of move tasks without a message before the next pause, also for other tasks that wait.
_IDLE_STEPS_MAX = 20
#: Long polls to wake when nothing is as it was.
_ALL = 1_000_000


def group_of(name: str) -> str:
    """Queues of one group are in one database: those whose names are equal up to ``--``, as orders and orders--dlq."""
    first, separator, rest = name.partition("--")
    return f"{first}.fifo" if separator and rest.endswith(".fifo") else first


def dead_letter_name_for(name: str) -> str:
    """A name in the group of a queue."""
    first, fifo = group_of(name).removesuffix(".fifo"), ".fifo" if name.endswith(".fifo") else ""
    return f"{first}--dlq{fifo}"


async def create_queue(
    context: Context, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], *, fifo: bool
) -> tuple[SqsQueue, bool]:
    """The queue of the name, and whether this call has created it."""
    slot, here = await _place_of(context, name)
    queues, id_ = Sqs.of(here).administration, queue_on(uuid4(), slot)
    for other, elsewhere in context.places(group_of(name)):
        if other != slot and (found := await _find_on(elsewhere, name)) is not None:
            return found, False
    queue = await here.with_retries(lambda _again: queues.create_queue(id_, name, attributes, tags, fifo=fifo))
    return queue, queue.queue_id == id_


async def _place_of(context: Context, name: str) -> tuple[int, Context]:
    """The database of a queue of the name, or that of a new one: beside the others of its group, if there are any."""
    group = group_of(name)
    places = context.places(group)
    for slot, here in places if len(places) > 1 else ():
        if await _has_group(here, group):
            return slot, here
    return places[0]


async def _has_group(context: Context, group: str) -> bool:
    """Whether a database has queues of a group."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.has_group(group))


async def are_together(context: Context, name: str, other: SqsQueue) -> bool:
    """Whether a queue of the name, perhaps a new one, is in the database of another one."""
    if len(context.named()) == 1:
        return True
    slot, _ = await _place_of(context, name)
    return slot == slot_of_queue(other.queue_id)


async def find_queue(context: Context, name: str) -> SqsQueue | None:
    """The queue of the name."""
    for _, here in context.places(group_of(name)):
        if (found := await _find_on(here, name)) is not None:
            return found
    return None


async def _find_on(context: Context, name: str, *, waits: bool = True) -> SqsQueue | None:
    """The queue of the name in a database; ``waits``: for PostgreSQL, while it is known to be unavailable."""
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.find_queue(name), retries_during_outage=waits)


async def used_queue(context: Context, name: str) -> SqsQueue | None:
    """The queue of the name, for its messages; while PostgreSQL is unavailable as this instance knew it last."""
    for _, here in context.places(group_of(name)):
        if (found := await _used_on(here, name)) is not None:
            return found
    return None


async def _used_on(context: Context, name: str) -> SqsQueue | None:
    used, failover = Sqs.of(context).used, context.failover
    if failover is None:
        return await _find_on(context, name)
    try:
        found = await _find_on(context, name, waits=False)
    except DatabaseUnavailableError:
        return used.find(failover.spool, name) or await _find_on(context, name)
    used.note(failover.spool, name, found)
    return found


async def queue_names(context: Context, queues: Sequence[UUID]) -> Mapping[UUID, str]:
    """The names of those queues that there are."""
    by_slot: dict[int, list[UUID]] = {}
    for queue in queues:
        by_slot.setdefault(slot_of_queue(queue), []).append(queue)
    names: dict[UUID, str] = {}
    for some in by_slot.values():
        names |= await _names_on(home_of(context, some[0]), some)
    return names


async def _names_on(context: Context, queues: Sequence[UUID]) -> Mapping[UUID, str]:
    return await context.with_retries(lambda _again: Sqs.of(context).administration.names(queues))


async def list_queues(context: Context, prefix: str, after: str, limit: int) -> list[str]:
    """A page of names that begin so, sorted, behind ``after``."""

    async def of_database(each: Context) -> list[str]:
        queues = Sqs.of(each).administration
        return await each.with_retries(lambda _again: queues.list_queues(prefix, after, limit))

    return sorted(chain(*await context.everywhere(of_database)))[:limit]


async def dead_letter_sources(context: Context, queue: UUID, after: str, limit: int) -> list[str]:
    """A page of names of queues whose dead letters go to this one, sorted, behind ``after``."""
    context = home_of(context, queue)
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.dead_letter_sources(queue, after, limit))


async def set_attributes(context: Context, queue: UUID, attributes: Mapping[str, str]) -> bool:
    """Sets attributes, and removes those with an empty value; whether there is such a queue."""
    context = home_of(context, queue)
    queues = Sqs.of(context).administration
    known = await context.with_retries(lambda _again: queues.set_attributes(queue, attributes))
    announce(context, queue, _ALL)  # A shorter delay makes messages of a FIFO queue visible.
    return known


async def tag_queue(context: Context, queue: UUID, tags: Mapping[str, str], removed: Sequence[str] = ()) -> bool:
    """Sets and removes tags; whether there is such a queue."""
    context = home_of(context, queue)
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.tag_queue(queue, tags, removed))


async def figures(context: Context, queue: UUID) -> SqsFigures | None:
    """How many messages a queue has; ``None`` if there is no such queue."""
    context = home_of(context, queue)
    return await context.with_retries(lambda _again: Sqs.of(context).administration.figures(queue))


async def overview(context: Context, search: str, after: str, limit: int) -> list[SqsOverview]:
    """A page of queues whose names contain a text, sorted, behind ``after``."""

    async def of_database(each: Context) -> list[SqsOverview]:
        await SimpleMq.of(each).outcomes.flush()
        queues = Sqs.of(each).administration
        return await each.with_retries(lambda _again: queues.overview(search, after, limit))

    found = chain(*await context.everywhere(of_database))
    return sorted(found, key=lambda each: each.statistics.name)[:limit]


async def peek(context: Context, queue: UUID, after: UUID | None, limit: int, bytes_max: int) -> list[PeekedMessage]:
    """A page of messages in the order in which they were sent, without receiving them."""
    context = home_of(context, queue)
    queues = Sqs.of(context).administration
    found = await context.with_retries(lambda _again: queues.peek(queue, after, limit, bytes_max))
    return [PeekedMessage(opened(context, message), place, visible_at) for place, visible_at, message in found]


async def delete_queue(context: Context, queue: UUID) -> bool:
    """Deletes a queue and its messages; whether there was one."""
    context = home_of(context, queue)
    queues = Sqs.of(context).administration
    known, lost = await context.tried(lambda _again: queues.delete_queue(queue))
    await _forget_messages(context, queue)
    return known or lost


async def purge_queue(context: Context, queue: UUID) -> str:
    """Removes all messages of a queue: ``purged``, ``too_soon`` (less than a minute after another) or ``unknown``."""
    context = home_of(context, queue)
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
    context = home_of(context, source)
    queues, id_ = Sqs.of(context).administration, queue_on(uuid4(), slot_of_queue(source))
    return await context.with_retries(lambda _again: queues.start_move(id_, source, destination, per_s)), id_


async def list_moves(context: Context, source: UUID, limit: int = _MOVES_MAX) -> list[SqsMove]:
    """The latest tasks of a source, newest first."""
    context = home_of(context, source)
    queues = Sqs.of(context).administration
    return await context.with_retries(lambda _again: queues.list_moves(source, limit))


async def cancel_move(context: Context, move: UUID) -> tuple[bool, int] | None:
    """Whether the task is cancelled now, and how many messages it has moved; ``None`` if there is no such task."""
    context = home_of(context, move)
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
