"""The one place where it is decided whether a request may use its route: a falcon middleware behind the router.

It runs before any resource, and so before a body is read. Where everybody and every page may do everything, it is not
there.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import falcon.asgi
from falcon.asgi import WebSocket

from queen.core.errors import ForbiddenError, RateLimitError, UnauthorizedError
from queen.core.rate_limit import RateLimit
from queen.http.access import Access, Levels
from queen.http.origins import Pages
from queen.http.request import QueenRequest
from queen.http.routes import WEBSOCKET, Route
from queen.security.tokens import Identity, Verifier

#: A browser cannot send headers with a WebSocket; it can name protocols, of which one may carry the token.
BEARER_PROTOCOL = "bearer."


class SkippedPaths:
    """Paths that need no token because a setting says so: themselves, and what lies below them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._exact = frozenset(paths)
        self._below = tuple(f"{path}/" for path in paths if path != "/")

    def __contains__(self, path: str) -> bool:
        return path in self._exact or path.startswith(self._below)


class Gate:
    """Lets a request pass to its resource, or refuses it.

    Args:
        table: all routes.
        verifier: knows good tokens; ``None`` lets everybody do everything.
        levels: what roles may do.
        skipped: paths that need no token.
        pages: judges what is sent in the name of a page in a browser; ``None`` lets all of them in.
        rate_limit: requests of a client; ``None`` for any number.
    """

    def __init__(
        self,
        table: Sequence[Route],
        verifier: Verifier | None,
        levels: Levels,
        skipped: SkippedPaths,
        pages: Pages | None,
        rate_limit: RateLimit | None,
    ) -> None:
        self._needed: Mapping[tuple[str, str], Access] = {
            (route.path, method): access for route in table for method, access in route.access.items()
        }
        self._verifier, self._levels, self._skipped = verifier, levels, skipped
        self._pages, self._rate_limit = pages, rate_limit

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        """Begins to keep the keys up to date."""
        if self._verifier is not None:
            await self._verifier.start()

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        """Ends that."""
        if self._verifier is not None:
            await self._verifier.stop()

    async def process_resource(
        self, req: QueenRequest, _resp: falcon.asgi.Response, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Judges a request: by its token, or by the page that it comes from where it needs none."""
        needed = self._level(req, req.method)
        if (verifier := self._verifier_of(req, needed)) is not None:
            await self._judge_sender(verifier, req, needed, ())
            return
        public = needed is Access.PUBLIC
        if self._pages is not None:
            self._pages.check(req, harmless=public)
        if not public:
            self._count(req.remote_addr)

    async def process_resource_ws(
        self, req: QueenRequest, ws: WebSocket, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Judges the handshake of a WebSocket: by its page, and by its token where it needs one."""
        if self._pages is not None:
            self._pages.check(req)
        needed = self._level(req, WEBSOCKET)
        if (verifier := self._verifier_of(req, needed)) is not None:
            await self._judge_sender(verifier, req, needed, ws.subprotocols)
        else:
            self._count(req.remote_addr)

    def _level(self, req: QueenRequest, method: str) -> Access:
        """What a request needs. What no level was given for, nobody but an administrator may try."""
        if method == "OPTIONS":  # what a browser asks before it sends a token
            return Access.PUBLIC
        return self._needed.get((req.uri_template or "", "GET" if method == "HEAD" else method), Access.ADMIN)

    def _verifier_of(self, req: QueenRequest, needed: Access) -> Verifier | None:
        """What judges the token of a request; ``None`` where it needs none."""
        if self._verifier is None or needed is Access.PUBLIC or req.path in self._skipped:
            return None
        return self._verifier

    async def _judge_sender(
        self, verifier: Verifier, req: QueenRequest, needed: Access, protocols: Sequence[str]
    ) -> None:
        identity = await self._identify(verifier, req, protocols)
        self._count(_client(identity))
        if not self._levels.of(identity.roles).includes(needed):
            raise ForbiddenError("Insufficient permissions")

    async def _identify(self, verifier: Verifier, req: QueenRequest, protocols: Sequence[str]) -> Identity:
        try:
            req.identity = await verifier.verify(_token(req, protocols))
        except UnauthorizedError:
            # By address, and after the token was judged: who has a good one may share it with who guesses.
            self._count(req.remote_addr)
            raise
        return req.identity

    def _count(self, client: object) -> None:
        if self._rate_limit is not None and not self._rate_limit.admits(client, time.monotonic()):
            raise RateLimitError("More requests than QUEEN_MAX_REQUESTS_PER_S allows; try again in a second")


def _client(identity: Identity) -> object:
    """Whose requests are counted together: all with the same subject, or else with the same token."""
    return (identity.subject,) if identity.subject is not None else identity


def _token(req: QueenRequest, protocols: Sequence[str]) -> str:
    header = req.get_header("Authorization")
    if header is None:
        for protocol in protocols:
            if protocol.startswith(BEARER_PROTOCOL):
                return protocol.removeprefix(BEARER_PROTOCOL)
        raise UnauthorizedError("Authentication required")
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthorizedError("Authentication required: send Authorization: Bearer <token>")
    return token.strip()
