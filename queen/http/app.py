"""The falcon application: routes, errors, start and stop of the engine."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import falcon
import falcon.asgi

from queen.config import Settings
from queen.core.errors import QueenError
from queen.core.rate_limit import RateLimit
from queen.engine.handle import EngineHandle
from queen.http import problems
from queen.http.access import Levels
from queen.http.gate import Gate, SkippedPaths
from queen.http.metrics_publisher import MetricsPublisher
from queen.http.origins import EVERY, allowed_origins, pages_of
from queen.http.request import REQUEST_ID, QueenRequest
from queen.http.request_counters import RequestCounters
from queen.http.request_log import RequestLog
from queen.http.room import LeaveRoom, Room
from queen.http.routes import Route, add_routes
from queen.http.socket.sockets import Sockets
from queen.security.authentication import role_names, verifier_of


class _Lifespan:
    """Starts and stops the engine with the worker."""

    def __init__(self, engine: EngineHandle) -> None:
        self._engine = engine

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        await self._engine.start()

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        await self._engine.stop()


class QueenApp:
    """The ASGI application, with methods for the shutdown beyond ASGI."""

    def __init__(
        self, app: "falcon.asgi.App[Any, Any]", engine: EngineHandle, sockets: Sockets, log: RequestLog
    ) -> None:
        self._app, self._engine, self._sockets, self._log = app, engine, sockets, log

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Handles one ASGI scope; an unknown version of HTTP is a client error."""
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
            body = problems.unread(400, "The request must use HTTP/1.0 or newer")
            headers = [(b"content-type", problems.PROBLEM_JSON.encode()), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def begin_stop(self) -> None:
        """From now on answers all long polls as empty. May be called from a signal handler."""
        self._engine.begin_stop()

    async def close_sockets(self) -> None:
        """Closes all WebSockets after their pending requests, and refuses new ones."""
        await self._sockets.stop()


def create_app(
    settings: Settings,
    engine: EngineHandle,
    routes: Callable[[Settings, EngineHandle, Sockets], Sequence[Route]],
    around: Sequence[object] = (),
) -> QueenApp:
    """The application with an engine that ASGI's lifespan starts and stops.

    Args:
        settings: of the server.
        engine: handles the requests.
        routes: what it answers.
        around: the outermost middleware.
    """
    sockets = Sockets(settings.delivery.sockets_max)
    counters = RequestCounters()
    table = routes(settings, engine, sockets)
    middleware: list[Any] = [*around, _Lifespan(engine), MetricsPublisher(engine, sockets, counters), counters]
    log = RequestLog(table, of_all=settings.server.request_log)
    middleware += [log, LeaveRoom()]
    if origins := allowed_origins(settings):
        whose = "*" if origins == EVERY else origins
        middleware.append(falcon.CORSMiddleware(whose, expose_headers=["Retry-After", REQUEST_ID]))
    middleware += _gate(settings, table)
    room = Room(settings.requests.items_max, 2 * settings.requests.held_bytes_max, settings.requests.timeout_s)
    request: Any = partial(QueenRequest, room=room)
    app = falcon.asgi.App(middleware=middleware, request_type=request)
    app.req_options.auto_parse_qs_csv = False
    # The server has a queue of its own and counts its bytes.
    app.ws_options.max_receive_queue = 0
    app.add_error_handler(Exception, problems.on_unexpected)
    app.add_error_handler(falcon.HTTPError, problems.on_http_error)
    app.add_error_handler(QueenError, problems.on_queen_error)
    add_routes(app, table)
    return QueenApp(app, engine, sockets, log)


def _gate(settings: Settings, table: Sequence[Route]) -> Sequence[Gate]:
    """The gate, if there are access rules."""
    verifier, pages = verifier_of(settings), pages_of(settings)
    rate_limit = RateLimit(settings.requests.per_s_max) if settings.requests.per_s_max else None
    if verifier is None and pages is None and rate_limit is None:
        return []
    levels, skipped = Levels(role_names(settings)), SkippedPaths(settings.jwt.skip_paths)
    return [Gate(table, verifier, levels, skipped, pages, rate_limit)]
