"""Records a trace of a message: ``POST /api/v1/traces``."""

import os
from typing import Annotated

import falcon.asgi
import msgspec
from msgspec import Meta, Raw, Struct

from queen.core.administration import Trace
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.limits import TRANSACTION_ID_CHARS_MAX
from queen.http.access import READ_WRITE
from queen.http.answers import answer
from queen.http.fields import GroupName, Label, Name, Required, text_of
from queen.http.operation import Answer, operation
from queen.http.parsing import check_group, check_name
from queen.http.queries import MESSAGE_NOT_FOUND, message_key
from queen.http.reading import read_json
from queen.http.request import QueenRequest
from queen.log import ids
from queen.log.requests import QUEUE_MODE
from queen.operations.server import Server

_NAMES_MAX = 100


class TraceBody(Struct, rename="camel"):
    """A trace to record.

    Attributes:
        transaction_id: of the message.
        partition_id: of the message.
        data: any JSON.
        trace_names: names by which traces of many messages are found.
        event_type: `info` by default.
        consumer_group: the group that recorded it.
    """

    transaction_id: Annotated[str, Meta(extra_json_schema=text_of(1, TRANSACTION_ID_CHARS_MAX))]
    partition_id: Required
    data: Raw
    trace_names: Annotated[list[Name], Meta(extra_json_schema={"maxItems": _NAMES_MAX})] | Name | None = None
    event_type: Label | None = None
    consumer_group: GroupName | None = None


class RecordedAnswer(Struct, rename="camel"):
    """A stored trace."""

    success: bool
    trace_id: str


_decoder = msgspec.json.Decoder(TraceBody)
_IDS_MISSING = "transactionId and partitionId are required"
_TEXTS = {"transactionId": _IDS_MISSING, "partitionId": _IDS_MISSING, "data": "data is required"}


@operation(
    "POST",
    "/api/v1/traces",
    "recordTrace",
    "Record a trace of a message",
    access=READ_WRITE,
    answers=[Answer("The trace is stored", RecordedAnswer, 201)],
    errors=(400, 404, 413, 422, 503),
    description="If the connection to PostgreSQL breaks meanwhile, the trace may be stored twice.",
    body=TraceBody,
)
async def record_trace(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Stores a trace of a message that exists."""
    body = await read_json(req, _decoder, server.body_bytes_max, _TEXTS)
    if not body.transaction_id or not body.partition_id:
        raise BadRequestError(_IDS_MISSING, "partitionId" if body.transaction_id else "transactionId")
    trace = Trace(
        message_key(body.partition_id, body.transaction_id),
        check_group(body.consumer_group, "consumerGroup", QUEUE_MODE),
        check_name(body.event_type or "info", "eventType"),
        bytes(body.data).decode(),
        str(os.getpid()),
        _names(body.trace_names),
    )
    number = await server.ask(
        lambda context: context.at_partition(trace.key.part_id, lambda home: home.administration.traces.record(trace))
    )
    if number is None:
        raise NotFoundError(MESSAGE_NOT_FOUND)
    answer(resp, RecordedAnswer(True, ids.trace_id(number)), 201)


def _names(given: list[str] | str | None) -> list[str]:
    names = [given] if isinstance(given, str) else given or []
    if len(names) > _NAMES_MAX:
        raise BadRequestError(f"traceNames has {len(names)} names, at most {_NAMES_MAX} are allowed", "traceNames")
    return list(dict.fromkeys(check_name(name, f"traceNames[{n}]") for n, name in enumerate(names)))
