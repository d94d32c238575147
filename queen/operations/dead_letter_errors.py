"""Counts dead letters by error: ``GET /api/v1/dlq/errors``."""

import falcon.asgi
from msgspec import Struct

from queen.core.administration import ERROR_CHARS, DeadLetterFilter, ErrorRow
from queen.http import parameters, queries
from queen.http.access import READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import parse_integer
from queen.http.request import QueenRequest
from queen.operations.server import Server

_LIMIT = 50
_SLOTS = 24


class ErrorElement(Struct, rename="camel"):
    """The dead letters with one error text; ``counts``: how many failed in each slot, oldest first."""

    error: str
    count: int
    first_failed_at: str
    last_failed_at: str
    counts: list[int]


class ErrorList(Struct, rename="camel"):
    """The commonest errors; the slots are of equal length, from ``begunAt`` to ``endsAt``."""

    errors: list[ErrorElement]
    begun_at: str | None
    ends_at: str | None


@operation(
    "GET",
    "/api/v1/dlq/errors",
    "listDeadLetterErrors",
    "Count dead letters by error",
    access=READ_ONLY,
    answers=[Answer("The commonest errors first", ErrorList)],
    errors=(400, 503),
    description=f"Counts the newest 10,000 that match, by the first {ERROR_CHARS} characters of their error.",
    parameters=[
        parameters.QUEUE,
        parameters.GROUP,
        parameters.PARTITION,
        Parameter("from", "Only failures at or after this time", parameters.TIME),
        Parameter("to", "Only failures before this time", parameters.TIME),
        parameters.limit(_LIMIT, _LIMIT),
    ],
)
async def list_dead_letter_errors(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """By error, with the times of the failures."""
    wanted = DeadLetterFilter(
        queries.name(req, "queue"), queries.name(req, "consumerGroup"), queries.name(req, "partition"), None,
        queries.moment(req, "from"), queries.moment(req, "to"),
    )  # fmt: skip
    limit = parse_integer(req.get_param("limit"), "limit", _LIMIT, 1, _LIMIT)
    rows = await server.ask(lambda context: context.reads.dead_letters.errors(wanted, _SLOTS, limit))
    begun_at, ends_at = (text(rows[0].begun_at), text(rows[0].ends_at)) if rows else (None, None)
    answer(resp, ErrorList([_element(row) for row in rows], begun_at, ends_at))


def _element(row: ErrorRow) -> ErrorElement:
    return ErrorElement(
        row.error, row.number, text(row.first_failed_at), text(row.last_failed_at), list(row.counts)
    )  # fmt: skip
