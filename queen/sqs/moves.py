"""The actions that concern move tasks, which take messages out of a dead-letter queue."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from queen.core.placement import slot_of_queue
from queen.simple_mq import sqs_administration as storage
from queen.simple_mq.sqs_requests import SqsMove, SqsQueue
from queen.sqs.addresses import name_of_arn
from queen.sqs.errors import SqsError, invalid_parameter, invalid_value
from queen.sqs.worker import Call

Result = dict[str, Any]

_PER_S_MAX, _TASKS_MAX = 500, 10


class _Handle(Struct, rename="camel"):
    """What the handle of a task says, with the names that AWS uses."""

    task_id: UUID
    source_arn: str


async def start_message_move_task(call: Call) -> Result:
    """Starts to move the messages of a dead-letter queue to a queue, or back to where they came from."""
    source_arn, destination_arn, per_s = _arguments(call)
    source = await _queue(call, source_arn, "SourceArn")
    destination = None if destination_arn is None else await _queue(call, destination_arn, "DestinationArn")
    if destination is not None and destination.fifo != source.fifo:
        raise invalid_value("Source and destination must be queues of the same type.")
    if destination is not None and destination.queue_id == source.queue_id:
        raise invalid_value("Source queue arn and destination queue arn cannot be the same.")
    if destination is not None and slot_of_queue(destination.queue_id) != slot_of_queue(source.queue_id):
        raise invalid_value(
            "Source and destination are on different databases. Queues whose names are equal up to -- are on one, as "
            "orders and orders--dlq."
        )
    if not await call.run(lambda context: storage.dead_letter_sources(context, source.queue_id, "", 1)):
        raise invalid_value("Source queue must be configured as a Dead Letter Queue.")
    target = None if destination is None else destination.queue_id
    outcome, task_id = await call.run(lambda context: storage.start_move(context, source.queue_id, target, per_s))
    if outcome == "running":
        raise invalid_value(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    return {"TaskHandle": _handle(task_id, source_arn)}


def _arguments(call: Call) -> tuple[str, str | None, int | None]:
    per_s: int | None = call.given.MaxNumberOfMessagesPerSecond
    if per_s is not None and not 1 <= per_s <= _PER_S_MAX:
        raise invalid_parameter(
            "MaxNumberOfMessagesPerSecond", per_s, f"Must be between 1 and {_PER_S_MAX}, if provided."
        )
    return call.given.SourceArn, call.given.DestinationArn or None, per_s


async def _queue(call: Call, arn: str, parameter: str) -> SqsQueue:
    found = await call.sqs.find(name_of_arn(arn, parameter))
    if found is None:
        message = f"The resource that you specified for the {parameter} parameter doesn't exist."
        raise SqsError("ResourceNotFoundException", message)
    return found


async def list_message_move_tasks(call: Call) -> Result:
    """The latest tasks of a source queue."""
    arn, limit = call.given.SourceArn, call.given.MaxResults
    if limit is None:
        limit = 1
    if not 1 <= limit <= _TASKS_MAX:
        raise invalid_parameter("MaxResults", limit, f"Must be between 1 and {_TASKS_MAX}, if provided.")
    source = await _queue(call, arn, "SourceArn")
    tasks = await call.run(lambda context: storage.list_moves(context, source.queue_id, limit))
    if not tasks:
        return {}
    names = await call.sqs.names_of(task.destination_id for task in tasks)
    return {"Results": [_shown(call, arn, task, names) for task in tasks]}


def _shown(call: Call, arn: str, task: SqsMove, names: Mapping[UUID, str]) -> Result:
    found: Result = {} if task.status != "RUNNING" else {"TaskHandle": _handle(task.move_id, arn)}
    found |= {"Status": task.status, "SourceArn": arn}
    if task.destination_id is not None and task.destination_id in names:
        found["DestinationArn"] = call.place.arn_of(names[task.destination_id])
    if task.per_s is not None:
        found["MaxNumberOfMessagesPerSecond"] = task.per_s
    found["ApproximateNumberOfMessagesMoved"] = task.moved
    found["ApproximateNumberOfMessagesToMove"] = task.to_move
    if task.failure:
        found["FailureReason"] = task.failure
    found["StartedTimestamp"] = int(task.started_at.timestamp() * 1000)
    return found


async def cancel_message_move_task(call: Call) -> Result:
    """Stops a task that is running; the messages that it has moved stay where they are."""
    try:
        handle = msgspec.json.decode(b64decode(call.given.TaskHandle, validate=True), type=_Handle)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise invalid_value("Value for parameter TaskHandle is invalid.") from None
    await _queue(call, handle.source_arn, "SourceArn")
    found = await call.run(lambda context: storage.cancel_move(context, handle.task_id))
    cancelled, moved = found or (False, 0)
    if not cancelled:
        raise SqsError("ResourceNotFoundException", "Task does not exist.")
    return {"ApproximateNumberOfMessagesMoved": moved}


def _handle(task_id: UUID, source_arn: str) -> str:
    return b64encode(msgspec.json.encode(_Handle(task_id, source_arn))).decode()
