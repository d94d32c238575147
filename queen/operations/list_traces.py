"""Lists traces of a message or of a name, and trace names: ``GET /api/v1/traces…``."""

import falcon.asgi
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from queen.core.administration import TraceRow
from queen.core.errors import NotFoundError
from queen.engine.context import Context
from queen.http import queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, shown, text
from queen.http.operation import Answer, operation
from queen.http.parameters import LARGE, OFFSET, PARTITION_ID, SEARCH, TRANSACTION_ID, limit, page, path
from queen.http.parsing import check_name
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.server import Server
from queen.security.keyring import Keyring

_TRACES, _NAMES = 100, 50


class TraceElement(Struct):
    """A trace; the fields from ``transaction_id`` on are only in lists over many messages."""

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
    """A page of the traces of a name; ``total`` is their number, up to 100,000."""

    traces: list[TraceElement]
    total: int
    pagination: queries.Pagination


class TraceNameElement(Struct):
    """A trace name with the numbers of its traces and messages, up to 10,000."""

    trace_name: str
    trace_count: int
    message_count: int
    last_seen: str


class TraceNames(Struct):
    """A page of the names of the newest 100,000 traces; ``total`` is the number of names."""

    trace_names: list[TraceNameElement]
    total: int
    pagination: queries.Pagination


@operation(
    "GET",
    "/api/v1/traces/names",
    "listTraceNames",
    "List trace names",
    access=READ_ONLY,
    answers=[Answer("A page, latest first", TraceNames)],
    errors=(400, 503),
    description="Covers the newest 100,000 traces; traces of a name are counted up to 10,000.",
    parameters=[
        replace(SEARCH, description="Only names that contain this text, case-insensitive"),
        limit(_NAMES, queries.LIMIT),
        OFFSET,
    ],
)
async def list_trace_names(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Latest first."""
    search = queries.name(req, "search")
    asked = queries.page(req, _NAMES, limit_max=queries.LIMIT)

    async def look(context: Context) -> TraceNames:
        traces = context.reads.traces
        rows = await traces.names(search, asked.limit, asked.offset)
        elements = [TraceNameElement(row.name, row.traces, row.messages, text(row.last_seen)) for row in rows]
        return TraceNames(elements, await traces.count_names(search), asked)

    answer(resp, await server.ask(look))


@operation(
    "GET",
    "/api/v1/traces/by-name/{traceName}",
    "listTracesByName",
    "List traces of one name, over all messages",
    access=READ_ONLY,
    answers=[Answer("A page, oldest first; `total` counts up to 100,000", NamedTraces)],
    errors=(400, 503),
    description=LARGE,
    parameters=[path("traceName", "Trace name", slashes=True), *page(_TRACES)],
)
async def list_traces_by_name(server: Server, req: QueenRequest, resp: falcon.asgi.Response, trace_name: str) -> None:
    """Oldest first."""
    name = check_name(trace_name, "traceName")
    asked = queries.page(req, _TRACES)

    async def look(context: Context) -> NamedTraces:
        traces = context.reads.traces
        rows = await traces.of_name(name, asked.limit, asked.offset)
        return NamedTraces([_element_with_message(row, server.keys) for row in rows], await traces.count(name), asked)

    answer(resp, await server.ask(look))


@operation(
    "GET",
    "/api/v1/traces/{partitionId}/{transactionId}",
    "listTracesOfMessage",
    "List traces of one message",
    access=READ_ONLY,
    answers=[Answer("A page, oldest first; empty for an unknown message", MessageTraces)],
    errors=(400, 503),
    parameters=[PARTITION_ID, TRANSACTION_ID, *page(queries.LIMIT)],
)
async def list_traces_of_message(
    server: Server, req: QueenRequest, resp: falcon.asgi.Response, partition_id: str, transaction_id: str
) -> None:
    """Oldest first; an unknown message has none."""
    try:
        key = queries.message_key(partition_id, transaction_id)
    except NotFoundError:
        answer(resp, MessageTraces([]))
        return
    asked = queries.page(req, queries.LIMIT)
    rows = await server.ask(lambda context: context.reads.traces.of_message(key, asked.limit, asked.offset))
    answer(resp, MessageTraces([_element(row) for row in rows]))


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
    return replace(
        _element(row),
        transaction_id=row.transaction_id,
        partition_id=ids.partition_id(row.part_id),
        queue_name=row.queue,
        partition_name=row.partition,
        message_payload=opened.payload if row.payload is not None else None,
        error=opened.error,
        error_code=opened.code,
    )
