"""Requests that a browser sends in the name of a page: those of pages that do not belong here are refused.

A browser asks nobody whether a page may send a form or open a WebSocket (RFC 6455, section 10.2): only the answer is
kept from the page, and by then the request is done. What the page itself cannot change says where it comes from:
``Origin``, and ``Sec-Fetch-Site`` (Fetch Metadata). Who is no browser says neither, and is let through.
"""

from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from queen.config import Settings
from queen.core.addresses import is_own_name, name_of
from queen.core.errors import ForbiddenError
from queen.http.request import QueenRequest

EVERY = ("*",)
#: What is shown of a name that a client has sent.
_SHOWN_CHARS = 100


def allowed_origins(settings: Settings) -> tuple[str, ...]:
    """The pages that may use the server besides its own: ``auto`` is all of them where only a token opens anything."""
    if settings.cors_origins != ("auto",):
        return settings.cors_origins
    return EVERY if settings.jwt_enabled else ()


class Pages:
    """Refuses what is sent in the name of a page that neither comes from this host nor from an allowed origin.

    Args:
        allowed: origins.
        names: of the server, besides those that nobody outside can have; ``None`` where any will do. A page can have
            its own name point at this machine (DNS rebinding); then it seems to come from here.
    """

    def __init__(self, allowed: Collection[str], names: Collection[str] | None) -> None:
        self._allowed = frozenset(allowed)
        self._names = None if names is None else frozenset(names)
        self._is_our_name = lru_cache(maxsize=100)(self._find_name)

    def check(self, req: QueenRequest, *, harmless: bool = False) -> None:
        """Judges a request.

        Args:
            req: the request.
            harmless: whether it changes nothing, and its answer is of use only to who may read it. Then it may be a
                link on somebody's page, or an image, which name no origin.

        Raises:
            ForbiddenError: it is refused.
        """
        host = req.get_header("Host", default="")
        if host and not self._is_our_name(host):
            name = name_of(host)[:_SHOWN_CHARS]
            raise ForbiddenError(
                f"This server asks for no token, and {name!r} may be a name that somebody else has given it: "
                f"QUEEN_HOSTS={name} says that it is its own (docs/security.md)"
            )
        origin = req.get_header("Origin")
        if origin not in self._allowed and not _is_own(req.get_header("Sec-Fetch-Site"), origin, host, harmless):
            page = origin[:_SHOWN_CHARS] if origin else "another site"
            raise ForbiddenError(
                f"Pages of {page} may not use this server: QUEEN_CORS_ORIGINS names those that may (docs/security.md)"
            )

    def _find_name(self, host: str) -> bool:
        return self._names is None or is_own_name(host) or name_of(host) in self._names


def _is_own(site: str | None, origin: str | None, host: str, harmless: bool) -> bool:
    """Whether a request comes from the server's own page, or from none.

    Args:
        site: ``Sec-Fetch-Site``; ``none`` is of somebody who has typed an address.
        origin: ``Origin``.
        host: ``Host``.
        harmless: see ``Pages.check``.
    """
    if site == "same-origin":
        return True
    if origin is None:
        return harmless or site in (None, "none")
    return site in (None, "none") and host != "" and origin.partition("://")[2] == host


def pages_of(settings: Settings) -> Pages | None:
    """What judges pages; ``None`` where all may come."""
    allowed = allowed_origins(settings)
    if allowed == EVERY:
        return None
    if settings.jwt_enabled:
        return Pages(allowed, None)
    return Pages(allowed, {*settings.hosts, *(urlsplit(each).hostname or "" for each in allowed)})
