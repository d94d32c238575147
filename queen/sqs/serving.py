"""Answers a request in the protocol in which it came: JSON, or a query with XML."""

import logging
from typing import Any
from uuid import uuid4

import falcon.asgi
import msgspec

from queen.core.errors import QueenError
from queen.http import problems
from queen.http.request import QueenRequest, read_body
from queen.http.request_log import changes
from queen.operations.server import Server
from queen.sqs import query
from queen.sqs.access import caller_of
from queen.sqs.actions import ACTIONS
from queen.sqs.addresses import ROOT, Place
from queen.sqs.errors import SqsError
from queen.sqs.model import Action, actions
from queen.sqs.worker import Call, worker_of

log = logging.getLogger("queen.http")

JSON = "application/x-amz-json-1.0"
XML = "text/xml"
#: A batch of a mebibyte, with every character escaped.
BODY_BYTES_MAX = 8 << 20

_TARGET = "AmazonSQS."
_LOGGED_CHARS_MAX = 1000
#: Errors of AWS for the statuses of the server's own errors.
_BY_STATUS = {
    400: "InvalidParameterValueException",
    401: "MissingAuthenticationTokenException",
    403: "AccessDeniedException",
    413: "RequestEntityTooLarge",
    422: "InvalidMessageContents",
    429: "RequestThrottled",
    503: "ServiceUnavailable",
    504: "ServiceUnavailable",
}


class _NoActionError(Exception):
    """A query without an action."""


async def serve(server: Server, req: QueenRequest, resp: falcon.asgi.Response, queue: str = "") -> None:
    """Answers a request; ``queue`` is the rest of its path, which names one."""
    try:
        await _serve(server, req, resp, queue)
    except SqsError as problem:
        _refuse(req, resp, problem)
    except _NoActionError:
        resp.status, resp.content_type, resp.data = 404, XML, b"<UnknownOperationException/>"
    except QueenError as problem:
        refuse(req, resp, problem)
    except Exception as problem:
        _refuse(req, resp, SqsError("InternalFailure", problems.mistake(problem, req).detail))


async def _serve(server: Server, req: QueenRequest, resp: falcon.asgi.Response, path: str) -> None:
    body = await _body(req, min(server.body_bytes_max, BODY_BYTES_MAX))
    caller = caller_of(server, req, body)
    action, given = _parse(req, body, path)
    req.action, served = action.name, ACTIONS[action.name]
    if not caller.access.includes(served.access):
        raise SqsError("AccessDeniedException", f"{action.name} requires the access level {served.access.value}.")
    action.check_required(given)
    place = Place(_base(req), server.settings.sqs.account, caller.region)
    result = await served.handler(Call(worker_of(server), req, place, path, given))
    _answer(req, resp, action, result)
    if served.audited:
        _audit(req, action, body)


async def _body(req: QueenRequest, bytes_max: int) -> bytes:
    if not req.opening.get("body") and not req.opening.get("more_body"):
        return b""
    return await read_body(req, bytes_max)


def _is_json(req: QueenRequest) -> bool:
    return req.method == "POST" and (
        req.get_header("X-Amz-Target") is not None or (req.content_type or "").startswith("application/x-amz-json")
    )


def _parse(req: QueenRequest, body: bytes, path: str) -> tuple[Action, Any]:
    """The action of a request, and its parameters."""
    if _is_json(req):
        target = req.get_header("X-Amz-Target") or ""
        action = _action(target.removeprefix(_TARGET), of_queue=False)
        req.room.check(action.decoder, body)
        return action, action.from_json(body)
    try:
        given = {**query.pairs(req.query_string), **query.pairs(body.decode())}
    except UnicodeDecodeError:
        raise SqsError("SerializationException", "The body is not UTF-8.") from None
    if "Action" not in given:
        raise _NoActionError
    action = _action(given["Action"], of_queue=bool(path.strip("/")))
    return action, action.from_texts(query.parameters(given, action.name))


def _action(name: str, *, of_queue: bool) -> Action:
    served = ACTIONS.get(name)
    if served is None or (of_queue and not served.of_queue):
        message = f"The action {name[:100]} is not valid for this endpoint."
        raise SqsError("UnknownOperationException", message)
    return actions()[name]


def _base(req: QueenRequest) -> str:
    host = req.get_header("Host") or "{}:{}".format(*req.scope["server"])
    return f"{req.scheme}://{host}{ROOT}"


def _answer(req: QueenRequest, resp: falcon.asgi.Response, action: Action, result: dict[str, Any] | None) -> None:
    request_id = _request_id(resp)
    if _is_json(req):
        resp.content_type, resp.data = JSON, b"{}" if not result else msgspec.json.encode(result)
    else:
        resp.content_type, resp.data = XML, query.answer(action.name, result, request_id)


def _request_id(resp: falcon.asgi.Response) -> str:
    request_id = str(uuid4())
    resp.set_header("x-amzn-RequestId", request_id)
    return request_id


def refuse(req: QueenRequest, resp: falcon.asgi.Response, error: QueenError) -> None:
    """Answers an error of the server."""
    found = problems.describe(error, req)
    name = _BY_STATUS.get(found.status, "InternalFailure")
    _refuse(req, resp, SqsError(name, found.detail))
    if found.status in (401, 429):
        resp.status = found.status


def _refuse(req: QueenRequest, resp: falcon.asgi.Response, problem: SqsError) -> None:
    kind, request_id = problem.kind, _request_id(resp)
    resp.status = kind.status
    if not _is_json(req):
        resp.content_type, resp.data = XML, query.error(problem, request_id)
        return
    resp.content_type = JSON
    resp.data = msgspec.json.encode({"__type": f"com.amazonaws.sqs#{kind.name}", "message": str(problem)})
    resp.set_header("x-amzn-query-error", f"{kind.code};{'Sender' if kind.sender else 'Receiver'}")


def _audit(req: QueenRequest, action: Action, body: bytes) -> None:
    """Logs an administrative change; bodies of these actions have no messages."""
    told = (body or req.query_string.encode())[:_LOGGED_CHARS_MAX].decode(errors="replace")
    changes.info("administrative change", extra={**req.log_fields, "action": action.name, "body": told, "status": 200})
