"""The falcon application: its routes, its errors, and the life of the engine."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import falcon
import falcon.asgi

from queen.config import Settings
from queen.core.errors import QueenError
from queen.core.rate_limit import RateLimit
from queen.engine.thread import EngineThread
from queen.http import problems
from queen.http.access import Levels
from queen.http.gate import Gate, SkippedPaths
from queen.http.measuring import MeasureRequests
from queen.http.origins import EVERY, allowed_origins, pages_of
from queen.http.publishing import Publisher
from queen.http.request import REQUEST_ID, QueenRequest
from queen.http.request_log import RequestLog
from queen.http.room import LeaveRoom, Room
from queen.http.routes import Route, add_routes, routes
from queen.http.socket.sockets import Sockets
from queen.metrics.http import RequestTally
from queen.security.authentication import role_names, verifier_of


class _Lifespan:
    """Starts and stops the engine with the worker; has no part in requests."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        await self._engine.start()

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        await self._engine.stop()


class QueenApp:
    """The ASGI application, and what a server says to it that ASGI has no word for."""

    def __init__(
        self, app: "falcon.asgi.App[Any, Any]", engine: EngineThread, sockets: Sockets, log: RequestLog
    ) -> None:
        self._app, self._engine, self._sockets, self._log = app, engine, sockets, log

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Handles one ASGI scope; a version of HTTP that falcon does not know is the client's error."""
        if scope["type"] == "websocket":
            send = problems.explained(scope, send)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            self._log.cut_off(scope)
            raise
        except falcon.errors.UnsupportedError:
            if scope["type"] != "http":
                raise
            body = problems.unread(400, "The request must be HTTP/1.0 or newer")
            headers = [(b"content-type", problems.PROBLEM_JSON.encode()), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def begin_stop(self) -> None:
        """Answers all long polls empty, from now on. May be called from a signal handler."""
        self._engine.begin_stop()

    async def close_sockets(self) -> None:
        """Ends all WebSockets, now and from now on, when what they asked for is answered."""
        await self._sockets.stop()


def create_app(settings: Settings, engine: EngineThread, around: Sequence[object] = ()) -> QueenApp:
    """The application over an engine that is not started yet; ASGI's lifespan starts and stops it.

    Args:
        settings: what the operator wants.
        engine: gets the requests.
        around: middleware before all other.
    """
    sockets = Sockets(settings.sockets_max)
    tally = RequestTally()
    table = routes(settings, engine, sockets)
    middleware: list[Any] = [*around, _Lifespan(engine), Publisher(engine, sockets, tally), MeasureRequests(tally)]
    log = RequestLog(table, of_all=settings.request_log)
    middleware += [log, LeaveRoom()]
    if origins := allowed_origins(settings):
        whose = "*" if origins == EVERY else origins
        middleware.append(falcon.CORSMiddleware(whose, expose_headers=["Retry-After", REQUEST_ID]))
    middleware += _gate(settings, table)
    room = Room(settings.items_max, 2 * settings.held_bytes_max, settings.request_timeout_s)
    request: Any = partial(QueenRequest, room=room)
    app = falcon.asgi.App(middleware=middleware, request_type=request)
    app.req_options.auto_parse_qs_csv = False
    # The server has a queue of its own, whose bytes it counts.
    app.ws_options.max_receive_queue = 0
    app.add_error_handler(Exception, problems.on_unexpected)
    app.add_error_handler(falcon.HTTPError, problems.on_http_error)
    app.add_error_handler(QueenError, problems.on_queen_error)
    add_routes(app, table)
    return QueenApp(app, engine, sockets, log)


def _gate(settings: Settings, table: Sequence[Route]) -> Sequence[Gate]:
    """The gate, if there is anything to refuse."""
    verifier, pages = verifier_of(settings), pages_of(settings)
    rate_limit = RateLimit(settings.requests_per_s) if settings.requests_per_s else None
    if verifier is None and pages is None and rate_limit is None:
        return []
    levels, skipped = Levels(role_names(settings)), SkippedPaths(settings.jwt_skip_paths)
    return [Gate(table, verifier, levels, skipped, pages, rate_limit)]
