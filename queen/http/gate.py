"""Access control for all routes: a falcon middleware that runs after routing.

It runs before any resource, and so before a body is read. A server without access rules does not have it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import falcon.asgi
from falcon.asgi import WebSocket

from queen.core.errors import ForbiddenError, QueenError, RateLimitError, UnauthorizedError
from queen.core.rate_limit import RateLimit
from queen.http.access import Access, Levels
from queen.http.origins import Pages
from queen.http.request import QueenRequest
from queen.http.routes import WEBSOCKET, Route
from queen.security.identity import Identity

if TYPE_CHECKING:
    from queen.security.tokens import Verifier

#: A browser cannot send headers with a WebSocket, but it can send subprotocols, and one may contain the token.
BEARER_PROTOCOL = "bearer."


class SkippedPaths:
    """Paths that a setting exempts from tokens, with all paths below them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._exact = frozenset(paths)
        self._below = tuple(f"{path}/" for path in paths if path != "/")

    def __contains__(self, path: str) -> bool:
        return path in self._exact or path.startswith(self._below)


class Gate:
    """Admits a request to its resource, or refuses it.

    Args:
        table: all routes.
        verifier: checks tokens; ``None``: no authentication.
        levels: the access levels of roles.
        skipped: paths that need no token.
        pages: checks requests from pages in browsers; ``None`` admits all.
        rate_limit: of requests per client; ``None``: unlimited.
    """

    def __init__(
        self,
        table: Sequence[Route],
        verifier: "Verifier | None",
        levels: Levels,
        skipped: SkippedPaths,
        pages: Pages | None,
        rate_limit: RateLimit | None,
    ) -> None:
        self._needed: Mapping[tuple[str, str], Access] = {
            (route.path, method): access for route in table for method, access in route.access.items()
        }
        self._signatures = {route.path: route.signatures for route in table if route.signatures is not None}
        self._verifier, self._levels, self._skipped = verifier, levels, skipped
        self._pages, self._rate_limit = pages, rate_limit

    async def process_startup(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401 - ASGI's dictionaries
        """Starts to refresh the keys."""
        if self._verifier is not None:
            await self._verifier.start()

    async def process_shutdown(self, _scope: Any, _event: Any) -> None:  # noqa: ANN401
        """Stops refreshing the keys."""
        if self._verifier is not None:
            await self._verifier.stop()

    async def process_resource(
        self, req: QueenRequest, resp: falcon.asgi.Response, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Checks a request: its token, or its page if it needs no token."""
        signatures = self._signatures.get(req.uri_template or "")
        signed = signatures is not None and signatures.present(req)
        try:
            needed = self._level(req, req.method)
            if self._verifier is not None and not signed and (verifier := self._verifier_of(req, needed)) is not None:
                await self._judge_sender(verifier, req, needed, ())
                return
            public = needed is Access.PUBLIC
            if self._pages is not None:
                self._pages.check(req, harmless=public)
            if not public and self._rate_limit is not None:
                self._count(req.remote_addr)
        except QueenError as problem:
            if signatures is None:
                raise
            signatures.refuse(req, resp, problem)
            resp.complete = True

    async def process_resource_ws(
        self, req: QueenRequest, ws: WebSocket, _resource: object, _params: Mapping[str, object]
    ) -> None:
        """Checks the handshake of a WebSocket: its page, and its token if it needs one."""
        if self._pages is not None:
            self._pages.check(req)
        needed = self._level(req, WEBSOCKET)
        if (verifier := self._verifier_of(req, needed)) is not None:
            await self._judge_sender(verifier, req, needed, ws.subprotocols)
        else:
            self._count(req.remote_addr)

    def _level(self, req: QueenRequest, method: str) -> Access:
        """The access level of a request; ``admin`` if the route has none."""
        if method == "OPTIONS":  # a browser sends these without a token
            return Access.PUBLIC
        return self._needed.get((req.uri_template or "", "GET" if method == "HEAD" else method), Access.ADMIN)

    def _verifier_of(self, req: QueenRequest, needed: Access) -> "Verifier | None":
        """The verifier for a request; ``None`` if it needs no token."""
        if self._verifier is None or needed is Access.PUBLIC or req.path in self._skipped:
            return None
        return self._verifier

    async def _judge_sender(
        self, verifier: "Verifier", req: QueenRequest, needed: Access, protocols: Sequence[str]
    ) -> None:
        identity = await self._identify(verifier, req, protocols)
        self._count(_client(identity))
        if not self._levels.of(identity.roles).includes(needed):
            raise ForbiddenError("Insufficient permissions")

    async def _identify(self, verifier: "Verifier", req: QueenRequest, protocols: Sequence[str]) -> Identity:
        try:
            req.identity = await verifier.verify(_token(req, protocols))
        except UnauthorizedError:
            # By address, and after the check of the token: a valid client may share its address with an attacker.
            self._count(req.remote_addr)
            raise
        return req.identity

    def _count(self, client: object) -> None:
        if self._rate_limit is not None and not self._rate_limit.admits(client, time.monotonic()):
            raise RateLimitError(
                "The client sends more requests than QUEEN_MAX_REQUESTS_PER_S allows. Try again in a second"
            )


def _client(identity: Identity) -> object:
    """The key of the rate limit: the subject, or else the token."""
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
