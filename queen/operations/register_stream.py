"""Registers a stream query: ``POST /streams/v1/queries``."""

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.administration import Registration
from queen.core.errors import BadRequestError
from queen.engine.handlers.streams import register_stream as register
from queen.http.access import READ_WRITE
from queen.http.fields import Label, Name
from queen.http.operation import Answer, operation
from queen.http.parsing import check_name
from queen.http.reading import read_json
from queen.http.request import QueenRequest
from queen.log import ids
from queen.operations.server import Server
from queen.operations.stream_ids import NO_OBJECT


class QueryBody(Struct):
    """A stream query.

    Attributes:
        name: what the client calls its query id.
        source_queue: the queue that it reads.
        config_hash: hash of the operators; a registration with another hash is refused.
        sink_queue: the queue that it writes.
        reset: whether to delete the state.
    """

    name: Name
    source_queue: Name
    config_hash: Name
    sink_queue: Label | None = None
    reset: bool = False


class QueryAnswer(Struct):
    """The answer to a registration."""

    query_id: str
    name: str
    config_hash: str
    fresh: bool
    reset: bool
    success: bool = True


class QueryConflict(Struct):
    """The answer to a registration with other operators: a problem document with the query."""

    query_id: str
    name: str
    detail: str
    error: str
    success: bool = False
    status: int = 409
    title: str = "Conflict"
    code: str = "config_hash_mismatch"
    type: str = "about:blank"


_decoder = msgspec.json.Decoder(QueryBody)
_NAMES = ("name", "source_queue", "config_hash")
_TEXTS = {"": NO_OBJECT} | {name: f"{name} is required" for name in _NAMES}


@operation(
    "POST",
    "/streams/v1/queries",
    "registerStream",
    "Register a stream query",
    access=READ_WRITE,
    answers=[
        Answer("The query is registered, newly (`fresh`) or already", QueryAnswer),
        Answer("The query exists with other operators, and `reset` was not given", QueryConflict, 409),
    ],
    errors=(400, 413, 503),
    body=QueryBody,
)
async def register_stream(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Creates the query or finds it; 409 for other operators without a reset."""
    body = await read_json(req, _decoder, server.body_bytes_max, _TEXTS)
    registration = _registration(body)
    registered = await server.run(lambda context: register(context, registration))
    query_id = ids.stream_id(registered.stream)
    resp.content_type = falcon.MEDIA_JSON
    if registered.conflict:
        resp.status = 409
        text = (
            f"config_hash mismatch: operator chain changed for queryId {body.name!r}. "
            "Pass reset:true to wipe existing state, or use a new queryId."
        )
        resp.data = msgspec.json.encode(QueryConflict(query_id, body.name, text, text))
        return
    resp.data = msgspec.json.encode(
        QueryAnswer(query_id, body.name, body.config_hash, registered.fresh, body.reset and not registered.fresh)
    )


def _registration(body: QueryBody) -> Registration:
    for field in _NAMES:
        value = getattr(body, field)
        if not value:
            raise BadRequestError(_TEXTS[field], field)
        check_name(value, field)
    if body.sink_queue:
        check_name(body.sink_queue, "sink_queue")
    return Registration(body.name, body.source_queue, body.config_hash, body.sink_queue or None, body.reset)
