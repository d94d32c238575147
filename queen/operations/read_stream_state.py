"""Reads the state of a stream: ``POST /streams/v1/state/get``."""

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.core.errors import BadRequestError
from queen.engine.handlers.streams import read_state
from queen.http.access import READ_ONLY
from queen.http.fields import Required, WithoutNul
from queen.http.operation import Answer, operation
from queen.http.reading import read_json
from queen.http.rendering import timestamp
from queen.http.request import QueenRequest
from queen.log.requests import StateRows
from queen.operations.server import Server
from queen.operations.stream_ids import ID_TEXTS, numbers_of, require_ids

_UNKNOWN_QUERY = "Unknown query_id: register the query first"
_TOO_MUCH = "The rows have more bytes than an answer may have (QUEEN_MAX_POP_BYTES): request fewer keys"


class StateBody(Struct):
    """A read of the state.

    Attributes:
        query_id: from the registration.
        partition_id: of the input.
        keys: only these.
        key_prefix: only rows whose key starts with it.
        ripe_at_or_before: only windows that have ended by then, in the unit of their `windowEnd`; of many the first,
            and the others when these are flushed.
    """

    query_id: Required
    partition_id: Required
    keys: list[str] | None = None
    key_prefix: WithoutNul | None = None
    ripe_at_or_before: float | None = None


class StateAnswerRow(Struct):
    """One row of the state."""

    key: str
    value: Raw
    updated_at: str


class StateAnswer(Struct):
    """The answer to a read of the state."""

    rows: list[StateAnswerRow]
    success: bool = True
    error: str | UnsetType = UNSET


_decoder = msgspec.json.Decoder(StateBody)


@operation(
    "POST",
    "/streams/v1/state/get",
    "readStreamState",
    "Read the state of a stream in one partition",
    access=READ_ONLY,
    answers=[Answer("Rows in the order of their keys; `success` is false for an unknown query", StateAnswer)],
    errors=(400, 413, 503),
    description="Without `keys` and `key_prefix`: all rows. With `ripe_at_or_before`: only windows that have "
    "ended by then.",
    body=StateBody,
)
async def read_stream_state(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The rows of one partition, in the order of their keys."""
    body = await read_json(req, _decoder, server.body_bytes_max, ID_TEXTS)
    require_ids(body.query_id, body.partition_id)
    stream, part_id = numbers_of(body.query_id, body.partition_id)
    keys = [key for key in body.keys or () if "\0" not in key] if body.keys else None
    prefix = _checked_prefix(body.key_prefix)
    rows = await server.ask(lambda context: read_state(context, stream, part_id, keys, prefix, body.ripe_at_or_before))
    if rows is not None and not rows.complete and body.ripe_at_or_before is None:
        raise BadRequestError(_TOO_MUCH, "keys")
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(_answer(rows))


def _checked_prefix(prefix: str | None) -> str | None:
    """The prefix of keys; ``""`` matches all keys."""
    if prefix and "\0" in prefix:
        raise BadRequestError("key_prefix must not contain NUL", "key_prefix")
    return prefix or None


def _answer(rows: StateRows | None) -> StateAnswer:
    if rows is None:
        return StateAnswer([], False, _UNKNOWN_QUERY)
    return StateAnswer(
        [StateAnswerRow(row.key, Raw(row.value.encode()), timestamp(row.updated_at)) for row in rows.rows]
    )
