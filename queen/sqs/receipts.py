"""The actions that take receipt handles: to delete messages, and to change how long they stay hidden."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from queen.core.job_type import JobType
from queen.simple_mq.metrics import OPERATION_SECONDS
from queen.simple_mq.sqs_requests import VISIBILITY_SECONDS_MAX, ChangeVisibility, DeleteMessages, SqsOutcomes, SqsQueue
from queen.sqs.batches import batch_answer, check_entries
from queen.sqs.errors import SqsError, invalid_parameter, missing
from queen.sqs.handles import Delivery, Handles
from queen.sqs.worker import Call

Result = dict[str, Any]
#: The error of each entry; ``None`` for one without.
Errors = list[SqsError | None]

_EXPIRED = "The receipt handle has expired."
_NOT_AVAILABLE = "Message does not exist or is not available for visibility timeout change."


async def delete_message(call: Call) -> None:
    """Deletes a received message."""
    _raise(await call.on_queue(lambda queue: _delete(call, queue, [call.given])))


async def delete_message_batch(call: Call) -> Result:
    """Deletes up to ten received messages."""
    entries = call.given.Entries
    check_entries(entries, "DeleteMessageBatchRequestEntry")
    return _answer(entries, await call.on_queue(lambda queue: _delete(call, queue, entries)))


async def change_message_visibility(call: Call) -> None:
    """Changes how long a received message stays hidden."""
    _raise(await call.on_queue(lambda queue: _hide(call, queue, [call.given])))


async def change_message_visibility_batch(call: Call) -> Result:
    """Changes how long up to ten received messages stay hidden."""
    entries = call.given.Entries
    check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
    return _answer(entries, await call.on_queue(lambda queue: _hide(call, queue, entries)))


def _raise(errors: Errors) -> None:
    if errors[0] is not None:
        raise errors[0]


def _answer(entries: Sequence[Any], errors: Errors) -> Result:
    failed = {entry.Id: error for entry, error in zip(entries, errors, strict=True) if error is not None}
    return batch_answer([{"Id": entry.Id} for entry in entries if entry.Id not in failed], failed)


async def _delete(call: Call, queue: SqsQueue, entries: Sequence[Any]) -> Errors | None:
    handles = await call.sqs.handles()

    async def work(deliveries: Mapping[int, Delivery]) -> Sequence[str]:
        ids = [(each.message_id, each.receive_count) for each in deliveries.values()]
        with OPERATION_SECONDS.labels("ack").time():
            request = DeleteMessages(queue.queue_id, ids)
            done: SqsOutcomes = await call.sqs.server.engine.submit(JobType.SQS_DELETE, request).future
        return done.outcomes

    def error_of(outcome: str, handle: str) -> SqsError | None:
        # A repeated delete is no error, and neither is one with an earlier handle, which deletes nothing. In a FIFO
        # queue the next consumer of the group may have begun.
        late = outcome == "expired" or (queue.fifo and outcome == "stale")
        return invalid_parameter("ReceiptHandle", handle, _EXPIRED) if late else None

    return await _each(entries, lambda entry: _opened(handles, queue, entry), work, error_of)


async def _hide(call: Call, queue: SqsQueue, entries: Sequence[Any]) -> Errors | None:
    handles = await call.sqs.handles()

    def opened(entry: Any) -> Delivery:  # noqa: ANN401 - a struct made from the model
        _check_seconds(entry.VisibilityTimeout)
        delivery = _opened(handles, queue, entry)
        _check_total(delivery, entry.VisibilityTimeout)
        return delivery

    async def work(deliveries: Mapping[int, Delivery]) -> Sequence[str]:
        changes = [
            (each.message_id, each.receive_count, entries[number].VisibilityTimeout)
            for number, each in deliveries.items()
        ]
        request = ChangeVisibility(queue.queue_id, changes)
        done: SqsOutcomes = await call.sqs.server.engine.submit(JobType.SQS_CHANGE_VISIBILITY, request).future
        return done.outcomes

    def error_of(outcome: str, handle: str) -> SqsError | None:
        if outcome == "not_in_flight":
            return SqsError("MessageNotInflight", "The message is not in flight.")
        return None if outcome == "changed" else invalid_parameter("ReceiptHandle", handle, _NOT_AVAILABLE)

    return await _each(entries, opened, work, error_of)


def _opened(handles: Handles, queue: SqsQueue, entry: Any) -> Delivery:  # noqa: ANN401
    if not entry.ReceiptHandle:
        raise missing("ReceiptHandle")
    return handles.open(queue.queue_id, entry.ReceiptHandle)


def _check_seconds(seconds: int | None) -> None:
    if seconds is None:
        raise missing("VisibilityTimeout")
    if not 0 <= seconds <= VISIBILITY_SECONDS_MAX:
        reason = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_SECONDS_MAX}"
        raise invalid_parameter("VisibilityTimeout", seconds, reason)


def _check_total(delivery: Delivery, seconds: int) -> None:
    """A delivery is hidden for twelve hours at most, however often that is changed."""
    elapsed = max(0, int(time.time() - delivery.received_ms / 1000))
    if elapsed + seconds > VISIBILITY_SECONDS_MAX:
        reason = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_SECONDS_MAX} seconds]"
        raise invalid_parameter("VisibilityTimeout", seconds, reason)


async def _each(
    entries: Sequence[Any],
    opened: Callable[[Any], Delivery],
    work: Callable[[Mapping[int, Delivery]], Awaitable[Sequence[str]]],
    error_of: Callable[[str, str], SqsError | None],
) -> Errors | None:
    """The errors of entries; ``None``: the queue is gone."""
    errors: Errors = [None] * len(entries)
    deliveries: dict[int, Delivery] = {}
    for number, entry in enumerate(entries):
        try:
            deliveries[number] = opened(entry)
        except SqsError as problem:
            errors[number] = problem
    outcomes = await work(deliveries) if deliveries else []
    if "unknown" in outcomes:
        return None
    for number, outcome in zip(deliveries, outcomes, strict=True):
        errors[number] = error_of(outcome, entries[number].ReceiptHandle)
    return errors
