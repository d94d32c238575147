"""Opens a WebSocket: ``/api/v1/subscribe``."""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import falcon
from falcon.asgi import WebSocket

from queen.config import Settings
from queen.core import limits
from queen.core.errors import OverloadedError, QueenError, ShuttingDownError
from queen.http import problems
from queen.http.access import READ_WRITE
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.http.socket.frames import PROTOCOL, ErrorFrame, SocketLimits, render_frame
from queen.http.socket.session import GOING_AWAY, TRY_AGAIN_LATER, Session, SessionSettings
from queen.operations.server import Server
from queen.security.identity import Identity

_UNSUPPORTED_DATA = 1003
#: "Unauthorized" in IANA's registry of close codes.
_UNAUTHORIZED = 3000
#: Timers of an event loop are limited to some weeks; no socket lives that long.
_LONGEST_S = 86_400 * 30.0


@operation(
    "GET",
    "/api/v1/subscribe",
    "subscribe",
    "Consume over a WebSocket",
    access=READ_WRITE,
    answers=[Answer("The protocol is now `queen.v1`", status=101)],
    errors=(426, 503),
    description="The server sends messages, never more than the credit of the consumer, and takes acks on the "
    "same socket; also in windows by number or time. `docs/websocket.md` describes the frames.",
    websocket=True,
)
async def subscribe(server: Server, req: QueenRequest, ws: WebSocket) -> None:
    """Serves one socket until it closes."""
    if ws.subprotocols and PROTOCOL not in ws.subprotocols:
        await ws.accept()
        await ws.close(_UNSUPPORTED_DATA, f"unknown protocol; this server speaks {PROTOCOL}")
        return
    await ws.accept(PROTOCOL if ws.subprotocols else None)
    if server.sockets.is_stopping:
        await _turn_away(req, ws, ShuttingDownError("The server is shutting down"), GOING_AWAY)
    elif server.sockets.is_full:
        problem = OverloadedError(
            "This worker has reached its limit of WebSockets (QUEEN_WS_MAX_SOCKETS). Try again later"
        )
        await _turn_away(req, ws, problem, TRY_AGAIN_LATER)
    else:
        session = Session(server.engine, req, ws, _session_settings(server.settings), server.keys)
        with _ended_with_its_token(session, req.identity):
            await server.sockets.run(session)


def _session_settings(settings: Settings) -> SessionSettings:
    delivery = settings.delivery
    return SessionSettings(
        SocketLimits(limits.SOCKET_CREDIT_MAX, limits.SOCKET_FRAME_BYTES_MAX, delivery.socket_ping_s),
        delivery.default_subscription_mode,
        delivery.stream_poll_initial_ms / 1000,
        delivery.stream_poll_max_ms / 1000,
    )


@contextmanager
def _ended_with_its_token(session: Session, identity: Identity | None) -> Iterator[None]:
    """Ends the session when its token expires."""
    if identity is None or math.isinf(identity.expires_at):
        yield
        return
    left_s = min(max(identity.expires_at - time.time(), 0), _LONGEST_S)
    timer = asyncio.get_running_loop().call_later(left_s, session.end, _UNAUTHORIZED)
    try:
        yield
    finally:
        timer.cancel()


async def _turn_away(req: QueenRequest, ws: WebSocket, problem: QueenError, code: int) -> None:
    try:
        await ws.send_text(render_frame(ErrorFrame(None, problems.describe(problem, req))).decode())
        await ws.close(code)
    except falcon.WebSocketDisconnected:
        return
