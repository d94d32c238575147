"""Creates, lists and deletes queues of simple-mq, and requeues messages."""

from itertools import chain
from uuid import UUID

from msgspec import structs

from queen.core.placement import queue_on
from queen.engine.context import Context
from queen.simple_mq.handlers import announce
from queen.simple_mq.interface import SimpleMq, home_of
from queen.simple_mq.requests import NO_QUEUE, QUEUE_SIZE_MAX, ListedQueue, NewQueue, Requeued, RequeuedAll

_REQUEUED = {
    "requeued": "success",
    "repeated": "success",
    "full": "queue_full",
    "missing": "message_not_found",
    "unknown": "queue_not_found",
}


async def create_queue(context: Context, queue: NewQueue, queues_max: int) -> UUID | None:
    """The id of a new queue; ``None`` if there are too many."""
    slot, here = context.places(queue.name)[0]
    placed = structs.replace(queue, queue_id=queue_on(queue.queue_id, slot))
    made = await here.with_retries(lambda _again: SimpleMq.of(here).administration.create_queue(placed, queues_max))
    return placed.queue_id if made else None


async def list_queues(context: Context, search: str, after: UUID | None, limit: int) -> list[ListedQueue]:
    """A page of the queues of all databases, by their numbers."""

    async def of_database(each: Context) -> list[ListedQueue]:
        queues = SimpleMq.of(each).administration
        return await each.with_retries(lambda _again: queues.list_queues(search, after, limit))

    found = chain(*await context.everywhere(of_database))
    return sorted(found, key=lambda each: each.queue_id)[:limit]


async def delete_queue(context: Context, queue: UUID) -> str:
    """Deletes a queue and its messages: ``deleted``, ``unknown``, or the id of the queue whose dead letters it has."""
    context = home_of(context, queue)
    queues, outcomes = SimpleMq.of(context).administration, SimpleMq.of(context).outcomes
    outcome, lost = await context.tried(lambda _again: queues.delete_queue(queue))
    if outcome == "unknown" and lost:
        outcome = "deleted"  # Deleted by the call whose answer was lost, or by another client: the result is the same.
    if outcome == "unknown":
        outcomes.add(queue, "delete_queue", "queue_not_found")
    elif outcome == "deleted":
        outcomes.add(NO_QUEUE, "delete_queue", "success")
        announce(context, queue, QUEUE_SIZE_MAX)
        # Deletes a part of the rows now, enough for small queues; a background job deletes the rest.
        await context.with_retries(lambda _again: queues.purge())
    return outcome


async def requeue(context: Context, queue: UUID, message: UUID) -> Requeued:
    """Requeues a message: to the source queue of a dead-letter queue, or in its own queue."""
    context = home_of(context, queue)
    done = await context.with_retries(lambda _again: SimpleMq.of(context).administration.requeue(queue, message))
    # An unknown message has no destination: the queue may not exist.
    SimpleMq.of(context).outcomes.add(done.destination or NO_QUEUE, "requeue", _REQUEUED[done.outcome])
    # Also a repeated one: the call before it may have been an attempt of this very request.
    if done.outcome in {"requeued", "repeated"} and done.destination is not None:
        announce(context, done.destination, 1)
    return done


async def requeue_all(context: Context, queue: UUID) -> RequeuedAll:
    """Requeues all messages of a dead-letter queue for which the source queue has room."""
    context, total = home_of(context, queue), 0
    while True:
        done = await context.with_retries(lambda _again: SimpleMq.of(context).administration.requeue_all(queue))
        total += done.requeued
        if done.destination is not None and done.requeued:
            SimpleMq.of(context).outcomes.add(done.destination, "requeue", "success", done.requeued)
            announce(context, done.destination, done.requeued)
        if not done.requeued:
            return RequeuedAll(done.outcome, done.destination, total)
