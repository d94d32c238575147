"""The routes of falcon, from the operations: path, responders, and access level per method."""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import falcon.asgi
from msgspec import Struct

from queen.core.errors import NotFoundError
from queen.http import problems
from queen.http.access import PUBLIC, READ_ONLY, Access
from queen.http.operation import Handler, Operation, Signatures
from queen.http.paths import Template
from queen.http.request import QueenRequest

#: Levels whose GET changes nothing; a pop changes something.
_READING = (PUBLIC, READ_ONLY)
#: The entry for a WebSocket among the methods of a route.
WEBSOCKET = "WEBSOCKET"


class Route(Struct, frozen=True):
    """One path.

    Attributes:
        path: falcon's URI template.
        resource: answers it.
        access: the access level per method; exactly the methods that the resource has here, including ``WEBSOCKET``.
        audited: whether changes are administrative: the log names the caller.
        signatures: those that requests may have instead of a token.
    """

    path: str
    resource: SimpleNamespace
    access: Mapping[str, Access]
    audited: bool = False
    signatures: Signatures | None = None


def routes_of(declared: Sequence[Operation], server: object) -> Sequence[Route]:
    """The routes of operations.

    Args:
        declared: the operations.
        server: what their handlers get first.

    Raises:
        ValueError: operations of the same route and method have different access levels.
    """
    by_route: dict[str, dict[str, list[Operation]]] = {}
    for each in declared:
        methods = by_route.setdefault(each.template.route, {})
        methods.setdefault(WEBSOCKET if each.websocket else each.method, []).append(each)
    return [_route(path, methods, server) for path, methods in by_route.items()]


def _route(path: str, methods: Mapping[str, Sequence[Operation]], server: object) -> Route:
    access: dict[str, Access] = {}
    for method, candidates in methods.items():
        levels = {each.access for each in candidates}
        if len(levels) > 1:
            raise ValueError(f"{method} {path} has operations with different access levels: {candidates}")
        access[method] = levels.pop()
    resource = SimpleNamespace(
        **{f"on_{method.lower()}": _responder(candidates, server) for method, candidates in methods.items()}
    )
    if WEBSOCKET in methods:
        resource.on_get, access["GET"] = _upgrade_required, PUBLIC
    operations = [each for candidates in methods.values() for each in candidates]
    audited = any(each.audited for each in operations)
    return Route(path, resource, access, audited=audited, signatures=operations[0].signatures)


def _responder(candidates: Sequence[Operation], server: object) -> Handler:
    """Calls the handler of the operation that a path means."""
    if len(candidates) == 1 and not candidates[0].template.slashes:
        return partial(candidates[0].handler, server)
    templates = [(each.template, each.handler) for each in candidates]
    templates.sort(key=lambda each: -each[0].literal_chars)
    return partial(_by_path, templates, server)


def _by_path(
    templates: Sequence[tuple[Template, Handler]],
    server: object,
    req: QueenRequest,
    resp: falcon.asgi.Response,
    path: str,  # noqa: ARG001 - falcon passes it decoded
) -> Awaitable[None]:
    sent: bytes = req.scope["raw_path"].partition(b"?")[0]
    for template, handler in templates:
        if (names := template.match(sent)) is not None:
            return handler(server, req, resp, **names)
    known = ", ".join(template.path for template, _ in templates)
    raise NotFoundError(f"No such operation at {req.path}. The paths of a {req.method} are {known}")


async def _upgrade_required(req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """426 for plain requests, and for worker classes without WebSockets."""
    detail = (
        "This path is a WebSocket. Connect with ws:// or wss://. It needs the worker class "
        "queen.server.worker.QueenWorker, and proxies must forward Upgrade"
    )
    problems.answer(resp, problems.problem(req, 426, detail, "upgrade_required"))
    resp.set_header("Upgrade", "websocket")


def add_routes(app: "falcon.asgi.App[Any, Any]", table: Sequence[Route]) -> None:
    """Adds all routes to an application; HEAD is supported wherever GET only reads."""
    for route in table:
        if route.access.get("GET") in _READING:
            route.resource.on_head = route.resource.on_get
        app.add_route(route.path, route.resource)
