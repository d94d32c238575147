"""``/api/queues`` and ``/api/queues/:id``: making, showing and deleting queues."""

import secrets
import time
from typing import Annotated
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core import simple_mq as limits
from queen.core.errors import BadRequestError, CapacityError, ConflictError, NotFoundError
from queen.core.operations import JobType
from queen.core.simple_mq import NO_QUEUE, NewQueue, QueueInfo, RequeuedAll, uuid7
from queen.engine.context import Context
from queen.engine.handlers.simple_mq import announce
from queen.engine.thread import EngineThread
from queen.http.fields import between, text_of
from queen.http.request import QueenRequest
from queen.http.resources.simple_mq.parsing import Visibility, check_number, either, parse_id, read_json
from queen.http.resources.simple_mq.rendering import encode, queue_answer

_Name = Annotated[str, Meta(extra_json_schema=text_of(1, limits.NAME_CHARS_MAX))]
_Size = Annotated[int, between(1, limits.QUEUE_SIZE_MAX)]
_Deliveries = Annotated[int, between(1, limits.DELIVERIES_MAX)]
_Bytes = Annotated[int, Meta(extra_json_schema={"minimum": 1})]


class CreateBody(Struct):
    """A queue to make; each field in both spellings. All but `maxMessageBytes` are required, in one of them.

    Attributes:
        queueName: need not be unique.
        queueSize: most messages in it.
        visibilityTimeout: seconds that a polled message stays hidden.
        maxDeliveries: deliveries after which a message goes to the dead-letter queue.
        maxMessageBytes: most bytes of one message; at most and by default `QUEEN_SMQ_MAX_MESSAGE_BYTES`.
    """

    queueName: _Name | None = None  # noqa: N815 - the interface's names
    queueSize: _Size | None = None  # noqa: N815
    visibilityTimeout: Visibility | None = None  # noqa: N815
    maxDeliveries: _Deliveries | None = None  # noqa: N815
    maxMessageBytes: _Bytes | None = None  # noqa: N815
    queue_name: _Name | None = None
    queue_size: _Size | None = None
    visibility_timeout: Visibility | None = None
    max_deliveries: _Deliveries | None = None
    max_message_bytes: _Bytes | None = None


_decoder = msgspec.json.Decoder(CreateBody)


def unknown_queue(queue: object) -> NotFoundError:
    """What a request for a queue that does not exist is answered."""
    return NotFoundError(f"Queue not found with ID: {queue}")


def to_queue(body: CreateBody, message_bytes_max: int) -> NewQueue:
    """A queue with a new id; raises BadRequestError for what is missing or out of its limits."""
    name = either(body, "queueName", "queue_name")
    if not isinstance(name, str) or not name.strip():
        raise BadRequestError("Queue name is required", "queueName")
    if len(name) > limits.NAME_CHARS_MAX:
        raise BadRequestError("Queue name must be between 1 and 255 characters", "queueName")
    if "\0" in name:
        raise BadRequestError("Queue name contains U+0000, which cannot be stored", "queueName")
    own_limit = either(body, "maxMessageBytes", "max_message_bytes")
    bytes_text = f"maxMessageBytes must be from 1 to {message_bytes_max}"
    return NewQueue(
        queue_id=uuid7(time.time_ns() // 1_000_000, secrets.randbits(74)),
        name=name,
        size=check_number(
            either(body, "queueSize", "queue_size"), "queueSize", (1, "Queue size must be at least 1"),
            (limits.QUEUE_SIZE_MAX, "Queue size cannot exceed 1,000,000"),
        ),
        visibility_timeout=check_number(
            either(body, "visibilityTimeout", "visibility_timeout"), "visibilityTimeout",
            (0, "Visibility timeout cannot be negative"),
            (limits.VISIBILITY_SECONDS_MAX, "Visibility timeout cannot exceed 12 hours (43200 seconds)"),
        ),
        max_deliveries=check_number(
            either(body, "maxDeliveries", "max_deliveries"), "maxDeliveries", (1, "Max deliveries must be at least 1"),
            (limits.DELIVERIES_MAX, "Max deliveries cannot exceed 100"),
        ),
        max_message_bytes=own_limit if own_limit is None else check_number(
            own_limit, "maxMessageBytes", (1, bytes_text), (message_bytes_max, bytes_text)
        ),
    )  # fmt: skip


class QueuesResource:
    """All queues."""

    def __init__(self, engine: EngineThread, body_bytes_max: int, message_bytes_max: int, queues_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max
        self._message_bytes_max, self._queues_max = message_bytes_max, queues_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Makes a queue; names need not be unique."""
        queue = to_queue(await read_json(req, _decoder, self._body_bytes_max), self._message_bytes_max)

        async def create(context: Context) -> bool:
            queues = context.simple_mq.administration
            return await context.patiently(lambda _again: queues.create_queue(queue, self._queues_max))

        if not await self._engine.submit(JobType.CUSTOM, create).future:
            raise CapacityError(f"There are {self._queues_max} queues already (QUEEN_SMQ_MAX_QUEUES)")
        resp.status = 201
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode({"queue_id": queue.queue_id})


class QueueResource:
    """One queue."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Settings and message count."""
        queue = parse_id(queue_id, "queue_id")

        async def describe(context: Context) -> QueueInfo | None:
            queues = context.simple_mq.administration
            return await context.patiently(lambda _again: queues.describe_queue(queue))

        info: QueueInfo | None = await self._engine.submit(JobType.CUSTOM, describe).future
        if info is None:
            raise unknown_queue(queue)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode(queue_answer(queue, info))

    async def on_delete(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Deletes queue and messages; the dead-letter queue stays, and can only go when its parent has gone."""
        queue = parse_id(queue_id, "queue_id")
        outcome: str = await self._engine.submit(JobType.CUSTOM, lambda context: _delete(context, queue)).future
        if outcome == "unknown":
            raise unknown_queue(queue)
        if outcome != "deleted":
            raise ConflictError(f"The queue holds the dead letters of queue {outcome}: delete that one first")
        resp.content_type = falcon.MEDIA_TEXT  # the answer is empty, which is no JSON

    async def on_post_requeue(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Requeues all messages of a dead-letter queue for which the parent has room."""
        queue = parse_id(queue_id, "queue_id")
        done: RequeuedAll = await self._engine.submit(JobType.CUSTOM, lambda context: _requeue(context, queue)).future
        if done.outcome == "unknown":
            raise unknown_queue(queue)
        if done.outcome == "plain":
            raise ConflictError(f"Queue {queue} is not the dead-letter queue of any queue")
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode({"requeued": done.requeued, "requeued_to": done.destination})


async def _delete(context: Context, queue: UUID) -> str:
    queues, tally = context.simple_mq.administration, context.simple_mq.tally
    outcome, lost = await context.tried(lambda _again: queues.delete_queue(queue))
    if outcome == "unknown" and lost:
        outcome = "deleted"  # By the call whose answer was lost, or by somebody else: it is gone as was asked.
    if outcome == "unknown":
        tally.add(queue, "delete_queue", "queue_not_found")
    elif outcome == "deleted":
        tally.add(NO_QUEUE, "delete_queue", "success")
        announce(context, queue, limits.QUEUE_SIZE_MAX)
        # A part of the rows now, so that small queues leave nothing behind; the rest goes in the background.
        await context.patiently(lambda _again: queues.purge())
    return outcome


async def _requeue(context: Context, queue: UUID) -> RequeuedAll:
    total = 0
    while True:
        done = await context.patiently(lambda _again: context.simple_mq.administration.requeue_all(queue))
        total += done.requeued
        if done.destination is not None and done.requeued:
            context.simple_mq.tally.add(done.destination, "requeue", "success", done.requeued)
            announce(context, done.destination, done.requeued)
        if not done.requeued:
            return RequeuedAll(done.outcome, done.destination, total)
