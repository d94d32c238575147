"""The routes of a server that does not run."""

from typing import Any

from queen.catalogue import routes
from queen.config import Settings
from queen.engine.handle import EngineHandle
from queen.http.access import Access
from queen.http.routes import WEBSOCKET, Route
from queen.http.socket.sockets import Sockets


def route_table() -> list[Route]:
    """All of them, without a server."""

    async def assemble(_answer: Any) -> Any:
        raise AssertionError("not started")

    return list(routes(Settings(), EngineHandle(assemble, None), Sockets(1)))


def requests_of_all_routes() -> list[tuple[str, str, Access]]:
    """Method, a path that fits, and level of everything but WebSockets."""
    fillings = {"{place:path}": "a/b", "{path:path}": "a/b", "{": "", "}": ""}
    found = []
    for route in route_table():
        path = route.path
        for blank, filling in fillings.items():
            path = path.replace(blank, filling)
        found += [(method, path, level) for method, level in route.access.items() if method != WEBSOCKET]
    return found
