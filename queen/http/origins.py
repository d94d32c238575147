"""Requests that a browser sends in the name of a page: those of pages that do not belong here are refused.

A browser asks nobody whether a page may send a form or open a WebSocket (RFC 6455, section 10.2): only the answer is
kept from the page, and by then the request is done. What the page itself cannot change says where it comes from:
``Origin``, and ``Sec-Fetch-Site`` (Fetch Metadata). Who is no browser says neither, and is let through.
"""

from collections.abc import Collection

from queen.config import Settings
from queen.core.addresses import is_loopback, is_own_name
from queen.core.errors import ForbiddenError
from queen.http.request import QueenRequest

EVERY = ("*",)
#: What a browser says of its own page, and of somebody who has typed an address.
_OWN = ("same-origin", "none")


def allowed_origins(settings: Settings) -> tuple[str, ...]:
    """The pages that may use the server besides its own: ``auto`` is all of them where only a token opens anything."""
    if settings.cors_origins != ("auto",):
        return settings.cors_origins
    return EVERY if settings.jwt_enabled else ()


def _host_of(origin: str) -> str:
    """Host and port of ``scheme://host:port``, whatever a client has made of it."""
    return origin.partition("://")[2]


class Pages:
    """Refuses what is sent in the name of a page that neither comes from this host nor from an allowed origin.

    Args:
        allowed: origins.
        only_own_names: whether the host must be named as nobody outside can name it, or as an allowed origin does. A
            page can have its own name point at this machine (DNS rebinding); then it seems to come from here.
    """

    def __init__(self, allowed: Collection[str], *, only_own_names: bool) -> None:
        self._allowed = frozenset(allowed)
        self._names = frozenset(map(_host_of, allowed))
        self._only_own_names = only_own_names

    def check(self, req: QueenRequest) -> None:
        """Judges a request.

        Raises:
            ForbiddenError: it is refused.
        """
        host = req.get_header("Host", default="")
        if self._only_own_names and host and not is_own_name(host) and host.lower() not in self._names:
            raise ForbiddenError(
                f"This server asks for no token and is for this machine alone, which is not called {host[:100]!r}: "
                "name it by its address or as localhost, or set QUEEN_CORS_ORIGINS or JWT_ENABLED (docs/security.md)"
            )
        origin = req.get_header("Origin")
        if (site := req.get_header("Sec-Fetch-Site")) is not None:
            own = site in _OWN
        else:
            own = origin is None or _host_of(origin) == host
        if not own and origin not in self._allowed:
            page = f"Pages of {origin[:100]}" if origin else "Pages of other sites"
            raise ForbiddenError(f"{page} may not do that here (QUEEN_CORS_ORIGINS; docs/security.md)")


def pages_of(settings: Settings) -> Pages | None:
    """What judges pages; ``None`` where all may come."""
    allowed = allowed_origins(settings)
    if allowed == EVERY:
        return None
    return Pages(allowed, only_own_names=not settings.jwt_enabled and is_loopback(settings.host))
