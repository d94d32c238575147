"""``/api/queues/:id/messages…``: enqueue, poll, peek, ack, requeue, visibility."""

from typing import Annotated
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import Meta, Struct

from queen.core import simple_mq as limits
from queen.core.errors import BadRequestError, BodyTooLargeError, ConflictError, NotFoundError, QueueFullError
from queen.core.operations import JobType
from queen.core.simple_mq import (
    NO_QUEUE,
    Acknowledge,
    Acknowledged,
    Dequeue,
    Dequeued,
    Enqueued,
    Extended,
    ExtendVisibility,
    Message,
    Requeued,
)
from queen.engine.context import Context
from queen.engine.handlers.simple_mq import announce
from queen.engine.thread import EngineThread
from queen.http.disconnect import serve_or_abandon
from queen.http.fields import Uuid
from queen.http.request import QueenRequest
from queen.http.resources.simple_mq.parsing import (
    EnqueueBody,
    Visibility,
    check_number,
    either,
    parse_cursor,
    parse_id,
    parse_limit,
    parse_wait_ms,
    read_json,
    to_enqueue,
)
from queen.http.resources.simple_mq.queues import unknown_queue
from queen.http.resources.simple_mq.rendering import (
    MessagesAnswer,
    PageAnswer,
    PolledAnswer,
    encode,
    local_time,
    message_answer,
)
from queen.metrics.simple_mq import OPERATION_SECONDS

_MISSING = "Message not found"


_MessageIds = Annotated[list[Uuid], Meta(extra_json_schema={"minItems": 1, "maxItems": limits.BATCH_MESSAGES_MAX})]


class AckBody(Struct):
    """Messages that are done.

    Attributes:
        messageIds: up to 100; required, in one of its spellings.
        message_ids: the same.
    """

    messageIds: _MessageIds | None = None  # noqa: N815 - the interface's name
    message_ids: _MessageIds | None = None


class VisibilityBody(Struct):
    """How long a message shall stay hidden; the field is required, in one of its spellings.

    Attributes:
        visibilityTimeout: seconds from now.
        visibility_timeout: the same.
    """

    visibilityTimeout: Visibility | None = None  # noqa: N815 - the interface's name
    visibility_timeout: Visibility | None = None


_enqueue = msgspec.json.Decoder(EnqueueBody)
_ack = msgspec.json.Decoder(AckBody)
_visibility = msgspec.json.Decoder(VisibilityBody)


class MessagesResource:
    """The messages of a queue."""

    def __init__(self, engine: EngineThread, body_bytes_max: int, message_bytes_max: int) -> None:
        self._engine, self._body_bytes_max, self._message_bytes_max = engine, body_bytes_max, message_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Stores one message, or all of ``messages`` or none."""
        queue = parse_id(queue_id, "queue_id")
        body = await read_json(req, _enqueue, self._body_bytes_max)
        request = to_enqueue(queue, body, self._message_bytes_max)
        with OPERATION_SECONDS.labels("enqueue").time():
            enqueued: Enqueued = await self._engine.submit(JobType.ENQUEUE, request).future
        match enqueued.outcome:
            case "unknown":
                raise unknown_queue(queue)
            case "full":
                raise QueueFullError("Queue is full")
            case "too_large":
                raise BodyTooLargeError("A message is larger than the queue's maxMessageBytes")
        resp.status = 201
        resp.content_type = falcon.MEDIA_JSON
        single = body.messages is None
        ids = enqueued.message_ids
        resp.data = encode({"message_id": ids[0]} if single else {"message_ids": ids})

    async def on_get(self, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Takes the oldest message; with ``limit`` up to so many, with ``wait`` when there is one."""
        queue = parse_id(queue_id, "queue_id")
        limit = req.get_param("limit")
        number = 1 if limit is None else parse_limit(limit, limits.BATCH_MESSAGES_MAX)
        poll = Dequeue(queue, number, parse_wait_ms(req.get_param("wait")))
        job = self._engine.submit(JobType.DEQUEUE, poll)
        if poll.wait_ms:
            dequeued: Dequeued = await serve_or_abandon(req, self._engine, job, Dequeued())
        else:
            with OPERATION_SECONDS.labels("dequeue").time():
                dequeued = await job.future
        if not dequeued.known:
            raise unknown_queue(queue)
        messages = [message_answer(message) for message in dequeued.messages]
        resp.content_type = falcon.MEDIA_JSON
        if limit is None:
            resp.data = encode(PolledAnswer(messages[0] if messages else None))
        else:
            resp.data = encode(MessagesAnswer(messages))

    async def on_get_peek(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Shows messages, oldest first, and takes none."""
        queue = parse_id(queue_id, "queue_id")
        text = req.get_param("limit")
        if text is None:
            raise BadRequestError("Limit is required", "limit")
        limit = parse_limit(text, limits.PEEK_MESSAGES_MAX)
        after, after_id = parse_cursor(req.get_param("cursorCreatedAt"), req.get_param("cursorMessageId"))

        async def peek(context: Context) -> list[Message] | None:
            queues = context.simple_mq.administration
            found = await context.patiently(lambda _again: queues.peek(queue, after, after_id, limit + 1))
            return None if found is None else list(found)

        found: list[Message] | None = await self._engine.submit(JobType.CUSTOM, peek).future
        if found is None:
            raise unknown_queue(queue)
        last = found[limit - 1] if len(found) > limit else None
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode(
            PageAnswer(
                [message_answer(message) for message in found[:limit]],
                None if last is None else local_time(last.created_at),
                None if last is None else last.message_id,
            )
        )

    async def on_post_ack(self, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str) -> None:
        """Removes messages, each with a result of its own."""
        queue = parse_id(queue_id, "queue_id")
        body = await read_json(req, _ack, self._body_bytes_max)
        texts = either(body, "messageIds", "message_ids")
        if texts is None:
            raise BadRequestError("message_ids is required", "message_ids")
        if not 1 <= len(texts) <= limits.BATCH_MESSAGES_MAX:
            text = f"message_ids must be 1 to {limits.BATCH_MESSAGES_MAX}, not {len(texts)}"
            raise BadRequestError(text, "message_ids")
        ids = [parse_id(text, f"message_ids[{number}]") for number, text in enumerate(texts)]
        outcomes = await _acknowledge(self._engine, queue, ids)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode(
            {
                "results": [
                    {"message_id": id_, "deleted": True}
                    if outcome == "deleted"
                    else {"message_id": id_, "deleted": False, "error": _MISSING}
                    for id_, outcome in zip(ids, outcomes, strict=True)
                ]
            }
        )


async def _acknowledge(engine: EngineThread, queue: UUID, ids: list[UUID]) -> list[str]:
    with OPERATION_SECONDS.labels("ack").time():
        acknowledged: Acknowledged = await engine.submit(JobType.ACKNOWLEDGE, Acknowledge(queue, ids)).future
    if "unknown" in acknowledged.outcomes:
        raise unknown_queue(queue)
    return list(acknowledged.outcomes)


class MessageResource:
    """One message."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max

    async def on_delete(
        self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, queue_id: str, message_id: str
    ) -> None:
        """Acknowledges: the message is gone for good."""
        queue, message = parse_id(queue_id, "queue_id"), parse_id(message_id, "message_id")
        [outcome] = await _acknowledge(self._engine, queue, [message])
        if outcome == "missing":
            raise NotFoundError(_MISSING)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode({"message_id": message, "deleted": True})

    async def on_post_requeue(
        self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, queue_id: str, message_id: str
    ) -> None:
        """Gives the message a second chance, in the parent of a dead-letter queue or in the queue of the path."""
        queue, message = parse_id(queue_id, "queue_id"), parse_id(message_id, "message_id")
        done: Requeued = await self._engine.submit(
            JobType.CUSTOM, lambda context: _requeue(context, queue, message)
        ).future
        match done.outcome:
            case "missing":
                raise NotFoundError(_MISSING)
            case "unknown":
                raise unknown_queue(done.destination)
            case "full":
                raise QueueFullError(f"Destination queue is full (capacity: {done.size}, current: {done.messages})")
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode({"message_id": message, "requeued_to": done.destination})

    async def on_post_visibility(
        self, req: QueenRequest, resp: falcon.asgi.Response, queue_id: str, message_id: str
    ) -> None:
        """Sets anew how long a message in flight stays hidden."""
        queue, message = parse_id(queue_id, "queue_id"), parse_id(message_id, "message_id")
        body = await read_json(req, _visibility, self._body_bytes_max)
        seconds = check_number(
            either(body, "visibilityTimeout", "visibility_timeout"), "visibilityTimeout",
            (0, "Visibility timeout cannot be negative"),
            (limits.VISIBILITY_SECONDS_MAX, "Visibility timeout cannot exceed 12 hours (43200 seconds)"),
        )  # fmt: skip
        request = ExtendVisibility(queue, message, seconds)
        extended: Extended = await self._engine.submit(JobType.EXTEND_VISIBILITY, request).future
        match extended.outcome:
            case "unknown":
                raise unknown_queue(queue)
            case "missing":
                raise NotFoundError(_MISSING)
        if extended.visible_at is None:
            raise ConflictError("Message is not in flight: its visibility timeout is over, or nobody has polled it")
        resp.content_type = falcon.MEDIA_JSON
        resp.data = encode({"message_id": message, "invisible_until": local_time(extended.visible_at)})


async def _requeue(context: Context, queue: UUID, message: UUID) -> Requeued:
    done = await context.patiently(lambda _again: context.simple_mq.administration.requeue(queue, message))
    outcomes = {
        "requeued": "success",
        "full": "queue_full",
        "missing": "message_not_found",
        "unknown": "queue_not_found",
    }
    # A message that is nowhere has no destination: the queue of the path may not exist.
    context.simple_mq.tally.add(done.destination or NO_QUEUE, "requeue", outcomes[done.outcome])
    if done.outcome == "requeued" and done.destination is not None:
        announce(context, done.destination, 1)
    return done
