"""Pushes messages: ``POST /api/v1/push``."""

from collections.abc import Sequence
from typing import Annotated

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from queen.core.job_type import JobType
from queen.http.access import READ_WRITE
from queen.http.answers import stamp
from queen.http.operation import Answer, operation
from queen.http.parsing import HEADERS_TEXT, PushItem, decode, may_wait, to_push, to_timers
from queen.http.rendering import render_buffered, render_push
from queen.http.request import QueenRequest, read_body
from queen.log.requests import Buffered, TimerChange, TimerVerdict
from queen.operations.server import Server


class PushBody(Struct):
    """The body of a push.

    Attributes:
        items: stored all or none, in this order.
    """

    items: list[PushItem]


class PushedItem(Struct):
    """The result of an item of a push.

    Attributes:
        index: its position in the request.
        transaction_id: the given one, or the id of the message.
        status: `queued`; `duplicate`: the transaction id is already stored, `message_id` is that message; `buffered`:
            in the spool, to be stored when PostgreSQL is available again; `failed`: `error` has the reason;
            `scheduled`: it waits for its time, as the timer `timerKey`.
        message_id: id of the message; `null` if it is buffered or scheduled.
        partition_id: its partition; only if queued.
        trace_id: as given; only if queued or scheduled.
        deliverAt: when it is due; only if scheduled.
    """

    index: int
    transaction_id: str | None
    status: Annotated[str, Meta(extra_json_schema={"enum": ["queued", "duplicate", "buffered", "failed", "scheduled"]})]
    queueName: str  # noqa: N815 - the interface's names
    message_id: str | UnsetType | None = UNSET
    partition_id: str | UnsetType = UNSET
    trace_id: str | UnsetType | None = UNSET
    error: str | UnsetType = UNSET
    transactionId: str | UnsetType | None = UNSET  # noqa: N815
    queue: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    timerKey: str | UnsetType = UNSET  # noqa: N815
    deliverAt: str | UnsetType | None = UNSET  # noqa: N815


_decoder = msgspec.json.Decoder(PushBody)
_PUSH_TEXTS = {
    "items": "items array is required",
    "items.queue": "Queue must be a string",
    "items.partition": "Partition must be a string",
    "items.transactionId": "TransactionId must be a string",
    "items.traceId": "TraceId must be a string",
    "items.headers": HEADERS_TEXT,
}


def parse_push_items(body: bytes) -> list[PushItem]:
    """The items of a push; names are not checked yet."""
    return decode(_decoder, body, _PUSH_TEXTS).items


def _scheduled(index: int, item: PushItem, timer: TimerChange, verdict: TimerVerdict) -> PushedItem:
    return PushedItem(
        index, timer.transaction_id, verdict.status, item.queue, None, trace_id=item.traceId or None,
        timerKey=timer.key, deliverAt=stamp(verdict.deliver_at),
    )  # fmt: skip


@operation(
    "POST",
    "/api/v1/push",
    "push",
    "Push messages",
    access=READ_WRITE,
    answers=[Answer("One element per item, in the same order; an empty list for no items", list[PushedItem], 201)],
    errors=(400, 413, 422, 429, 503),
    description="Stores all items or none. The first message creates its queue and partition. An item whose "
    "`transactionId` is already stored in its partition is a duplicate and is not stored again. Items with "
    "`delaySeconds` or `deliverAt` become timers.",
    body=PushBody,
)
async def push(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Stores all items of the request or none; in the spool while PostgreSQL is unavailable."""
    body = await read_body(req, server.body_bytes_max)
    req.room.check(_decoder, body)
    items = parse_push_items(body)
    resp.status = 201
    resp.content_type = falcon.MEDIA_JSON
    if not items:
        resp.data = b"[]"
        return
    if may_wait(body) and any(item.waits for item in items):
        timers = to_timers(items, req.subject)
        verdicts: Sequence[TimerVerdict] = await server.engine.submit(JobType.TIMER, timers).future
        resp.data = msgspec.json.encode([*map(_scheduled, range(len(items)), items, timers, verdicts)])
        return
    request = to_push(items, req.subject)
    pushed = await server.engine.submit(JobType.PUSH, request).future
    resp.data = render_buffered(items) if isinstance(pushed, Buffered) else render_push(items, request.batches, pushed)
