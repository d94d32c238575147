"""``/api/v1/traces…``: what consumers record about messages on their way."""

import os
from typing import Annotated

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queen.core import ids
from queen.core.administration import Trace, TraceRow
from queen.core.errors import BadRequestError, NotFoundError
from queen.core.limits import TRANSACTION_ID_CHARS_MAX
from queen.core.operations import QUEUE_MODE
from queen.engine.context import Context
from queen.engine.thread import EngineThread
from queen.http import queries
from queen.http.answers import Administrative, answer, shown, text
from queen.http.fields import GroupName, Label, Name, Required, text_of
from queen.http.parsing import check_group, check_name
from queen.http.paths import cut
from queen.http.reading import read_json
from queen.http.request import QueenRequest
from queen.http.resources.messages import MESSAGE_NOT_FOUND
from queen.security.keyring import Keyring

_NAMES_MAX = 100


class TraceBody(Struct, rename="camel"):
    """A trace as it comes.

    Attributes:
        transaction_id: of the message.
        partition_id: of the message.
        data: any JSON.
        trace_names: names under which it is found, over many messages.
        event_type: `info` by default.
        consumer_group: who recorded it.
    """

    transaction_id: Annotated[str, Meta(extra_json_schema=text_of(1, TRANSACTION_ID_CHARS_MAX))]
    partition_id: Required
    data: Raw
    trace_names: Annotated[list[Name], Meta(extra_json_schema={"maxItems": _NAMES_MAX})] | Name | None = None
    event_type: Label | None = None
    consumer_group: GroupName | None = None


class RecordedAnswer(Struct, rename="camel"):
    """A trace that is stored."""

    success: bool
    trace_id: str


class TraceElement(Struct):
    """A trace; the fields from ``transaction_id`` on only where traces of many messages stand together."""

    id: str
    event_type: str
    data: Raw
    consumer_group: str
    worker_id: str
    created_at: str
    trace_names: list[str]
    transaction_id: str | UnsetType = UNSET
    partition_id: str | UnsetType = UNSET
    queue_name: str | UnsetType = UNSET
    partition_name: str | UnsetType = UNSET
    message_payload: Raw | UnsetType | None = UNSET
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


class MessageTraces(Struct):
    """The traces of a message."""

    traces: list[TraceElement]


class NamedTraces(Struct):
    """A page of the traces of a name; ``total`` counts all, up to 100,000."""

    traces: list[TraceElement]
    total: int
    pagination: queries.Pagination


class TraceNameElement(Struct):
    """A name with its traces and messages, counted up to 10,000."""

    trace_name: str
    trace_count: int
    message_count: int
    last_seen: str


class TraceNames(Struct):
    """A page of the names of the newest 100,000 traces; ``total`` counts these names."""

    trace_names: list[TraceNameElement]
    total: int
    pagination: queries.Pagination


_decoder = msgspec.json.Decoder(TraceBody)
_IDS_MISSING = "transactionId and partitionId are required"
_TEXTS = {"transactionId": _IDS_MISSING, "partitionId": _IDS_MISSING, "data": "data is required"}


def _element(row: TraceRow) -> TraceElement:
    return TraceElement(
        ids.trace_id(row.id),
        row.event,
        Raw(row.data),
        row.group,
        row.worker,
        text(row.created_at),
        list(row.names or ()),
    )


def _element_with_message(row: TraceRow, keys: Keyring | None) -> TraceElement:
    opened = shown(row.payload or "null", row.key_id, row.queue, row.partition, keys)
    return msgspec.structs.replace(
        _element(row),
        transaction_id=row.transaction_id,
        partition_id=ids.partition_id(row.part_id),
        queue_name=row.queue,
        partition_name=row.partition,
        message_payload=opened.payload if row.payload is not None else None,
        error=opened.error,
        error_code=opened.code,
    )


def _names(given: list[str] | str | None) -> list[str]:
    names = [given] if isinstance(given, str) else given or []
    if len(names) > _NAMES_MAX:
        raise BadRequestError(f"traceNames has {len(names)} names, more than {_NAMES_MAX}", "traceNames")
    return list(dict.fromkeys(check_name(name, f"traceNames[{n}]") for n, name in enumerate(names)))


class TraceRecordResource(Administrative):
    """Records traces."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        super().__init__(engine)
        self._body_bytes_max = body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Stores a trace of a message that exists."""
        body = await read_json(req, _decoder, self._body_bytes_max, _TEXTS)
        if not body.transaction_id or not body.partition_id:
            raise BadRequestError(_IDS_MISSING, "partitionId" if body.transaction_id else "transactionId")
        trace = Trace(
            queries.message_key(body.partition_id, body.transaction_id),
            check_group(body.consumer_group, "consumerGroup", QUEUE_MODE),
            check_name(body.event_type or "info", "eventType"),
            bytes(body.data).decode(),
            str(os.getpid()),
            _names(body.trace_names),
        )
        number = await self.ask(lambda context: context.administration.traces.record(trace))
        if number is None:
            raise NotFoundError(MESSAGE_NOT_FOUND)
        answer(resp, RecordedAnswer(True, ids.trace_id(number)), 201)


class MessageTracesResource(Administrative):
    """Traces of one message: ``…/traces/<partition id>/<transaction id>``."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """Oldest first; an unknown message has none."""
        partition_id, _, transaction_id = (cut(req, "/api/v1/traces") or ("",))[0].partition("/")
        if not transaction_id:
            raise NotFoundError("A message is named by its partition id and its transaction id")
        try:
            key = queries.message_key(partition_id, transaction_id)
        except NotFoundError:
            answer(resp, MessageTraces([]))
            return
        page = queries.page(req, queries.LIMIT)
        rows = await self.ask(lambda context: context.administration.traces.of_message(key, page.limit, page.offset))
        answer(resp, MessageTraces([_element(row) for row in rows]))


class NamedTracesResource(Administrative):
    """Traces of one name, over all messages."""

    def __init__(self, engine: EngineThread, keys: Keyring | None) -> None:
        super().__init__(engine)
        self._keys = keys

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, place: str) -> None:  # noqa: ARG002
        """Oldest first."""
        name = check_name((cut(req, "/api/v1/traces/by-name") or ("",))[0], "traceName")
        page = queries.page(req, 100)

        async def look(context: Context) -> NamedTraces:
            traces = context.administration.traces
            rows = await traces.of_name(name, page.limit, page.offset)
            return NamedTraces([_element_with_message(row, self._keys) for row in rows], await traces.count(name), page)

        answer(resp, await self.ask(look))


class TraceNamesResource(Administrative):
    """All names of traces."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Latest first."""
        page = queries.page(req, 50, limit_max=queries.LIMIT)

        async def look(context: Context) -> TraceNames:
            traces = context.administration.traces
            rows = await traces.names(page.limit, page.offset)
            elements = [TraceNameElement(row.name, row.traces, row.messages, text(row.last_seen)) for row in rows]
            return TraceNames(elements, await traces.count(), page)

        answer(resp, await self.ask(look))
