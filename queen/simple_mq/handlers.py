"""ENQUEUE, DEQUEUE, ACKNOWLEDGE and EXTEND_VISIBILITY: the requests of simple-mq, many of each kind per call."""

from collections import Counter
from collections.abc import Sequence
from math import inf
from uuid import UUID, uuid4

from queen.core.errors import OutcomeUnknownError
from queen.engine.context import Context
from queen.engine.fetch_result import FetchResult
from queen.engine.handlers.ack import unknown_outcome
from queen.engine.ports import SIMPLE_MQ_GROUP, Notification
from queen.simple_mq.interface import SimpleMq
from queen.simple_mq.requests import (
    Acknowledge,
    Acknowledged,
    Dequeue,
    Dequeued,
    Enqueue,
    Enqueued,
    Extended,
    ExtendVisibility,
    Routed,
)
from queen.simple_mq.storage import EnqueueColumns

_ENQUEUED = {
    "stored": "success",
    "full": "queue_full",
    "too_large": "message_too_large",
    "unknown": "queue_not_found",
}
_ACKNOWLEDGED = {"deleted": "success", "missing": "message_not_found", "unknown": "queue_not_found"}


def announce(context: Context, queue: UUID, messages: int) -> None:
    """Notifies polls of messages of a queue."""
    context.notify(Notification(str(queue), messages, SIMPLE_MQ_GROUP))


def announce_routed(context: Context, routed: Sequence[Routed]) -> None:
    """Counts dead letters, and notifies polls of dead-letter queues."""
    for each in routed:
        if each.dead:
            SimpleMq.of(context).outcomes.add(each.queue, "dlq_moved", "success", each.dead)
            if each.dlq_id is not None:
                announce(context, each.dlq_id, each.dead)
        if each.stuck:
            SimpleMq.of(context).outcomes.add(each.queue, "dlq_failed", "capacity_exceeded", each.stuck)


# ---------------------------------------------------------------- enqueue


async def enqueue(context: Context, requests: Sequence[Enqueue]) -> list[Enqueued]:
    """Stores the messages of all requests, each whole or not at all."""
    columns = EnqueueColumns(uuid4(), [request.queue for request in requests])
    for number, request in enumerate(requests, 1):
        columns.request += [number] * len(request.messages)
        columns.group += [message.group for message in request.messages]
        columns.data += [message.data for message in request.messages]
    if any([request.traceparent for request in requests]):
        columns.traceparent = [request.traceparent for request in requests for _ in request.messages]
    answers = await context.with_retries(lambda _again: SimpleMq.of(context).database.enqueue(columns))
    stored = _count_enqueued(context, requests, answers)
    context.counters.messages += stored.total()
    for queue, messages in stored.items():
        announce(context, queue, messages)
    return answers


def _count_enqueued(context: Context, requests: Sequence[Enqueue], answers: Sequence[Enqueued]) -> Counter[UUID]:
    """Counts the outcomes of requests; returns the number of stored messages by queue."""
    outcomes = SimpleMq.of(context).outcomes
    stored: Counter[UUID] = Counter()
    for request, answer in zip(requests, answers, strict=True):
        number = len(request.messages) if answer.outcome == "stored" else 1
        outcomes.add(request.queue, "enqueue", _ENQUEUED[answer.outcome], number)
        if answer.outcome == "stored":
            stored[request.queue] += number
    return stored


# ---------------------------------------------------------------- dequeue


class Outcome(FetchResult):
    """The messages of a poll; if there are none, seconds until one becomes visible by itself (``inf``: never)."""

    __slots__ = ("dequeued", "more", "prefetched", "ready_in")

    def __init__(self, dequeued: Dequeued, ready_in: float) -> None:
        self.dequeued, self.ready_in = dequeued, ready_in
        self.more, self.prefetched = True, False

    @property
    def found(self) -> bool:
        """Whether to answer now: there are messages, or the queue does not exist."""
        return bool(self.dequeued.messages) or not self.dequeued.known

    @property
    def result(self) -> Dequeued:
        """The answer."""
        return self.dequeued


async def dequeue(context: Context, polls: Sequence[Dequeue]) -> list[Outcome]:
    """Serves all polls; one outcome each.

    A call whose answer was lost may have taken messages that no consumer got: they are visible again at their timeout.
    """
    queues, limits = [poll.queue_id for poll in polls], [poll.limit for poll in polls]
    polled = await context.with_retries(lambda _again: SimpleMq.of(context).database.dequeue(queues, limits))
    announce_routed(context, polled.routed)
    return [
        Outcome(answer, inf if ready_in is None else ready_in)
        for answer, ready_in in zip(polled.answers, polled.ready_in, strict=True)
    ]


def count_dequeued(context: Context, poll: Dequeue, dequeued: Dequeued) -> None:
    """Counts the answer to a poll."""
    if dequeued.messages:
        context.counters.messages += len(dequeued.messages)
        SimpleMq.of(context).outcomes.add(poll.queue_id, "dequeue", "success", len(dequeued.messages))
    else:
        SimpleMq.of(context).outcomes.add(poll.queue_id, "dequeue", "empty" if dequeued.known else "queue_not_found")


async def give_back(context: Context, poll: Dequeue, dequeued: Dequeued) -> None:
    """Makes messages visible again whose consumer has gone: other consumers get them now, not at the timeout."""
    if not dequeued.messages:
        return
    await context.with_retries(
        lambda _again: context.past_locks(
            lambda: SimpleMq.of(context).database.give_back(poll.queue_id, dequeued.messages)
        )
    )
    announce(context, poll.queue_id, len(dequeued.messages))


# ---------------------------------------------------------------- acknowledge, extend visibility


async def acknowledge(context: Context, requests: Sequence[Acknowledge]) -> list[Acknowledged | OutcomeUnknownError]:
    """Removes the messages of all requests; one answer each, or an error where the outcome is unknown."""
    simple_mq = SimpleMq.of(context)
    queues = [request.queue for request in requests for _ in request.message_ids]
    messages = [message for request in requests for message in request.message_ids]
    found, lost = await context.tried(lambda _again: simple_mq.database.acknowledge(queues, messages))
    for queue, (outcome, freed) in zip(queues, found, strict=True):
        simple_mq.outcomes.add(queue, "ack", _ACKNOWLEDGED[outcome])
        if freed:
            announce(context, queue, 1)
    answers: list[Acknowledged | OutcomeUnknownError] = []
    begin = 0
    for request in requests:
        outcomes = [outcome for outcome, _ in found[begin : begin + len(request.message_ids)]]
        begin += len(outcomes)
        # The call whose answer was lost may have removed a missing message, or it was removed before.
        in_doubt = lost and "missing" in outcomes
        answers.append(unknown_outcome() if in_doubt else Acknowledged(outcomes))
    return answers


async def extend_visibility(context: Context, requests: Sequence[ExtendVisibility]) -> list[Extended]:
    """Changes how long messages in flight stay invisible; one answer each."""
    queues = [request.queue for request in requests]
    messages = [request.message_id for request in requests]
    seconds = [request.seconds for request in requests]
    answers = await context.with_retries(
        lambda _again: SimpleMq.of(context).database.extend_visibility(queues, messages, seconds)
    )
    for request, answer in zip(requests, answers, strict=True):
        if answer.outcome == "extended":
            # Waiting polls learn when to check again: now, if the message is visible at once.
            announce(context, request.queue, 1)
    return answers
