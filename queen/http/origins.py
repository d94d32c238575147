"""WebSockets of pages in a browser, which asks nobody whether a page may open one (RFC 6455, section 10.2)."""

from collections.abc import Collection
from urllib.parse import urlsplit

import falcon.asgi

from queen.core.errors import ForbiddenError
from queen.http.request import QueenRequest


class WebSocketOrigins:
    """Refuses the handshakes of pages that neither come from this host nor from one of the allowed origins.

    Who is no browser says no origin, and is let through.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed)

    async def process_request_ws(self, req: QueenRequest, _ws: falcon.asgi.WebSocket) -> None:
        """Judges the handshake of a WebSocket."""
        origin = req.get_header("Origin")
        if origin is None or origin in self._allowed or urlsplit(origin).netloc == req.get_header("Host"):
            return
        raise ForbiddenError(f"Pages of {origin} may not open WebSockets here (QUEEN_CORS_ORIGINS)")
