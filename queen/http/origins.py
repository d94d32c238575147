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
        self._find_fault = lru_cache(maxsize=100)(self._judge)

    def check(self, req: QueenRequest, *, harmless: bool = False) -> None:
        """Judges a request.

        Args:
            req: the request.
            harmless: whether it changes nothing, and its answer is of use only to who may read it. Then it may be a
                link on somebody's page, or an image, which name no origin.

        Raises:
            ForbiddenError: it is refused.
        """
        # Not falcon's get_header: most requests lack two of the three, and it raises an exception for each.
        sent = dict(req.scope["headers"])
        fault = self._find_fault(sent.get(b"host", b""), sent.get(b"origin"), sent.get(b"sec-fetch-site"), harmless)
        if fault:
            raise ForbiddenError(fault)

    def _judge(self, host: bytes, origin: bytes | None, site: bytes | None, harmless: bool) -> str:
        """What is wrong with a request, as three of its headers have it; empty if it is welcome."""
        authority = host.decode("latin-1")
        if host and not self._is_our_name(authority):
            name = name_of(authority)[:_SHOWN_CHARS]
            return (
                f"This server asks for no token, and {name!r} may be a name that somebody else has given it: "
                f"QUEEN_HOSTS={name} says that it is its own (docs/security.md)"
            )
        page = None if origin is None else origin.decode("latin-1")
        if page not in self._allowed and not _is_own(site, page, authority, harmless):
            return (
                f"Pages of {page[:_SHOWN_CHARS] if page else 'another site'} may not use this server: "
                "QUEEN_CORS_ORIGINS names those that may (docs/security.md)"
            )
        return ""

    def _is_our_name(self, authority: str) -> bool:
        return self._names is None or is_own_name(authority) or name_of(authority) in self._names


def _is_own(site: bytes | None, origin: str | None, host: str, harmless: bool) -> bool:
    """Whether a request comes from the server's own page, or from none.

    Args:
        site: ``Sec-Fetch-Site``; ``none`` is of somebody who has typed an address.
        origin: ``Origin``.
        host: ``Host``.
        harmless: see ``Pages.check``.
    """
    if site == b"same-origin":
        return True
    if origin is None:
        return harmless or site in (None, b"none")
    return site in (None, b"none") and host != "" and origin.partition("://")[2] == host


def pages_of(settings: Settings) -> Pages | None:
    """What judges pages; ``None`` where all may come."""
    allowed = allowed_origins(settings)
    if allowed == EVERY:
        return None
    if settings.jwt_enabled:
        return Pages(allowed, None)
    return Pages(allowed, {*settings.hosts, *(urlsplit(each).hostname or "" for each in allowed)})
