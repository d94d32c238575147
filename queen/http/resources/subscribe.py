"""``/api/v1/subscribe``: the WebSocket."""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import falcon
import falcon.asgi
from falcon.asgi import WebSocket

from queen.core.errors import OverloadedError, QueenError, ShuttingDownError
from queen.engine.thread import EngineThread
from queen.http import problems
from queen.http.request import QueenRequest
from queen.http.socket.frames import PROTOCOL, ErrorFrame, render_frame
from queen.http.socket.session import GOING_AWAY, TRY_AGAIN_LATER, Session, SessionSettings
from queen.http.socket.sockets import Sockets
from queen.security.keyring import Keyring
from queen.security.tokens import Identity

_UNSUPPORTED_DATA = 1003
#: "Unauthorized" in IANA's registry of close codes.
_UNAUTHORIZED = 3000
#: Timers of a loop do not reach further than some weeks, and a socket does not live that long.
_LONGEST_S = 86_400 * 30.0


class SubscribeResource:
    """Delivers messages over a WebSocket."""

    def __init__(self, engine: EngineThread, sockets: Sockets, settings: SessionSettings, keys: Keyring | None) -> None:
        self._engine, self._sockets, self._settings, self._keys = engine, sockets, settings, keys

    async def on_get(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """426 for whoever does not ask for a WebSocket, and under worker classes that cannot carry one."""
        detail = (
            "This path is a WebSocket. Connect with ws:// or wss://; it needs the worker class "
            "queen.server.worker.QueenWorker, and a proxy in between that passes Upgrade on"
        )
        problems.answer(resp, problems.problem(req, 426, detail, "upgrade_required"))
        resp.set_header("Upgrade", "websocket")

    async def on_websocket(self, req: QueenRequest, ws: WebSocket) -> None:
        """Serves one socket to its end."""
        if ws.subprotocols and PROTOCOL not in ws.subprotocols:
            await ws.accept()
            await ws.close(_UNSUPPORTED_DATA, f"unknown protocol; this server speaks {PROTOCOL}")
            return
        await ws.accept(PROTOCOL if ws.subprotocols else None)
        if self._sockets.is_stopping:
            await _turn_away(req, ws, ShuttingDownError("The server stops"), GOING_AWAY)
        elif self._sockets.is_full:
            problem = OverloadedError("This worker has as many WebSockets as it may (QUEEN_WS_MAX_SOCKETS); try again")
            await _turn_away(req, ws, problem, TRY_AGAIN_LATER)
        else:
            session = Session(self._engine, req, ws, self._settings, self._keys)
            with _ended_with_its_token(session, req.identity):
                await self._sockets.run(session)


@contextmanager
def _ended_with_its_token(session: Session, identity: Identity | None) -> Iterator[None]:
    """Ends the session when the token stops to be good that it began with."""
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
        await ws.send_text(render_frame(ErrorFrame(None, problems.describe(problem, req))))
        await ws.close(code)
    except falcon.WebSocketDisconnected:
        return
