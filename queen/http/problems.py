"""Error answers: RFC 9457 problem documents, which also have ``error`` for the published clients."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import (
    BadRequestError,
    BodyTooLargeError,
    CapacityError,
    ConflictError,
    DatabaseSlowError,
    DatabaseUnavailableError,
    DataRejectedError,
    DecryptionError,
    ForbiddenError,
    KeysUnavailableError,
    LockedError,
    NoEncryptionKeyError,
    NotFoundError,
    OverloadedError,
    PartlyStoredError,
    QueenError,
    RateLimitError,
    ShuttingDownError,
    SpoolDrainingError,
    SpoolError,
    TooSlowError,
    UnauthorizedError,
)
from queen.http import refusals
from queen.http.request import QueenRequest

Send = Callable[[dict[str, Any]], Awaitable[None]]

log = logging.getLogger("queen.http")

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = "1"
#: Statuses of requests refused for lack of rights.
_REFUSED = (401, 403)
#: Statuses with ``Retry-After``.
_LATER = (429, 503)
_SIMPLE_MQ = "/api/queues"
#: Key of the ASGI scope for the body of a refused handshake.
_REFUSAL = "queen.refusal"
_HTTP_ERROR = "http_error"

_STATUS: Mapping[type[QueenError], int] = {
    BadRequestError: 400,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    DecryptionError: 409,
    BodyTooLargeError: 413,
    DataRejectedError: 422,
    CapacityError: 429,
    RateLimitError: 429,
    KeysUnavailableError: 503,
    NoEncryptionKeyError: 503,
    OverloadedError: 503,
    PartlyStoredError: 503,
    DatabaseSlowError: 503,
    DatabaseUnavailableError: 503,
    LockedError: 503,
    ShuttingDownError: 503,
    SpoolDrainingError: 503,
    SpoolError: 503,
    TooSlowError: 504,
}
_TITLES = {
    400: "Bad request",
    401: "Authentication required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Request body too large",
    414: "URL too long",
    415: "Unsupported media type",
    422: "Data rejected",
    426: "Upgrade required",
    429: "Limit reached",
    431: "Request head too large",
    500: "Internal error",
    503: "Service unavailable",
    504: "Database too slow",
}


class Problem(Struct, omit_defaults=True):
    """The body of an error answer."""

    status: int
    title: str
    detail: str
    error: str
    code: str
    type: str = "about:blank"
    field: str = ""
    timestamp: str = ""
    path: str = ""
    requestId: str = ""  # noqa: N815 - the interface's names


def problem(req: QueenRequest, status: int, detail: str, code: str, field: str = "") -> Problem:
    """The problem of a request; for simple-mq with the fields that clients of the original read."""
    simple_mq = req.path.startswith(_SIMPLE_MQ)
    return Problem(
        status,
        _title(status),
        detail,
        detail,
        code,
        field=field,
        timestamp=datetime.now(UTC).strftime("%a %b %d %H:%M:%S UTC %Y") if simple_mq else "",
        path=req.path if simple_mq else "",
        requestId=req.request_id,
    )


def unread(status: int, detail: str, code: str = _HTTP_ERROR) -> bytes:
    """The error body for a request that did not reach falcon."""
    return msgspec.json.encode(Problem(status, _title(status), detail, detail, code))


def _title(status: int) -> str:
    return _TITLES.get(status, "Error")


def _status(error: QueenError) -> int:
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def answer(resp: falcon.asgi.Response, found: Problem) -> None:
    """Answers a problem document."""
    resp.status = found.status
    resp.content_type = PROBLEM_JSON
    resp.data = msgspec.json.encode(found)
    if found.status in _LATER:
        resp.set_header("Retry-After", RETRY_AFTER_S)
    if found.status == 401:
        resp.set_header("WWW-Authenticate", 'Bearer realm="queen"')


def describe(error: QueenError, req: QueenRequest) -> Problem:
    """An error as the client sees it; PostgreSQL's error about rejected data is only logged."""
    status = _status(error)
    detail = str(error)
    if isinstance(error, DataRejectedError):
        log.error("%s", error, extra=req.log_fields)
        detail = "PostgreSQL rejected the data of this request"
    elif isinstance(error, SpoolError):
        log.error("%s", error, extra=req.log_fields)
        detail = "The message could not be stored in the database, nor in the spool. Try again later"
    elif isinstance(error, DatabaseUnavailableError):
        log.warning("%s", error, extra=req.log_fields)
        # Consumers of the published client end when a pop fails, unless the text has the word "connection".
        which = f"the database {error.database}" if error.database else "the database"
        detail = f"There is no connection to {which} at the moment. Try again later"
    elif status == 504 or isinstance(error, DatabaseSlowError | LockedError):
        log.warning("%s", error, extra=req.log_fields)
    elif status in _REFUSED:
        refusals.log.warning("%s", error, extra={**req.log_fields, "status": status})
    return problem(req, status, detail, error.code, getattr(error, "field", ""))


async def _refuse(req: QueenRequest, ws: falcon.asgi.WebSocket | None, found: Problem) -> None:
    """Refuses a handshake with 403, with the problem as body if the HTTP server can send one (``explained``)."""
    if ws is not None:
        req.scope[_REFUSAL] = msgspec.json.encode(msgspec.structs.replace(found, status=403, title=_title(403)))
        await ws.close()


def explained(scope: Mapping[str, Any], send: Send) -> Send:
    """A ``send`` that answers a refused WebSocket handshake with a body, which falcon does not support.

    gunicorn's own worker class lacks the ASGI extension for it.
    """

    async def answer_refusal(event: dict[str, Any]) -> None:
        body = scope.get(_REFUSAL)
        if body is None or event["type"] != "websocket.close":
            await send(event)
            return
        headers = [(b"content-type", PROBLEM_JSON.encode())]
        await send({"type": "websocket.http.response.start", "status": 403, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})

    return answer_refusal if "websocket.http.response" in scope.get("extensions", ()) else send


async def on_queen_error(
    req: QueenRequest,
    resp: falcon.asgi.Response | None,
    error: QueenError,
    _params: Mapping[str, object],
    ws: falcon.asgi.WebSocket | None = None,
) -> None:
    """Answers a ``QueenError``; refuses the handshake of a WebSocket with 403."""
    found = describe(error, req)
    if resp is None:
        await _refuse(req, ws, found)
        return
    answer(resp, found)


async def on_http_error(
    req: QueenRequest,
    resp: falcon.asgi.Response | None,
    error: falcon.HTTPError,
    _params: Mapping[str, object],
    ws: falcon.asgi.WebSocket | None = None,
) -> None:
    """Answers an error of falcon, such as an unknown route; refuses the handshake of a WebSocket."""
    status = error.status_code
    detail = error.description or f"{_TITLES.get(status, error.title)}: {req.method} {req.path}"
    found = problem(req, status, detail, _HTTP_ERROR)
    if resp is None:
        await _refuse(req, ws, found)
        return
    resp.set_headers(error.headers or {})
    answer(resp, found)


async def on_unexpected(
    req: QueenRequest, resp: falcon.asgi.Response, error: Exception, _params: Mapping[str, object]
) -> None:
    """Answers an unexpected error; the details are only logged."""
    answer(resp, mistake(error, req))


def mistake(error: Exception, req: QueenRequest) -> Problem:
    """The problem of an unexpected error, which it logs."""
    log.error("%s %s failed", req.method, req.path, exc_info=error, extra=req.log_fields)
    return problem(req, 500, "Internal error. See the log of the server", "internal")
