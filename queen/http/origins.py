"""Refuses requests that browsers send from pages of other sites.

A browser sends a page's forms and opens its WebSockets without asking (RFC 6455, section 10.2). It only hides the
answer from the page, and by then the request is done. Two headers that a page cannot change tell where a request
comes from: ``Origin``, and ``Sec-Fetch-Site`` (Fetch Metadata). Clients other than browsers send neither, and pass.
"""

from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from queen.config import Settings
from queen.core.addresses import is_own_name, name_of
from queen.core.errors import ForbiddenError
from queen.http.request import QueenRequest

EVERY = ("*",)
#: Characters of a client's value that an error shows.
_SHOWN_CHARS = 100


def allowed_origins(settings: Settings) -> tuple[str, ...]:
    """The origins that may call the server, besides its own: ``auto`` means all if every request needs a token."""
    if settings.security.cors_origins != ("auto",):
        return settings.security.cors_origins
    return EVERY if settings.jwt.enabled else ()


class Pages:
    """Refuses requests of pages that come neither from this host nor from an allowed origin.

    Args:
        allowed: origins.
        names: host names of the server, besides local ones; ``None``: any. A site can let its own name resolve to
            this machine (DNS rebinding); its pages then seem to come from this server.
    """

    def __init__(self, allowed: Collection[str], names: Collection[str] | None) -> None:
        self._allowed = frozenset(allowed)
        self._names = None if names is None else frozenset(names)
        self._find_fault = lru_cache(maxsize=100)(self._judge)

    def check(self, req: QueenRequest, *, harmless: bool = False) -> None:
        """Checks a request.

        Args:
            req: the request.
            harmless: whether it changes nothing. Then it may be a link or an image on another page, which have no
                ``Origin``; the browser hides the answer from that page.

        Raises:
            ForbiddenError: the request is refused.
        """
        sent = req.sent_headers
        fault = self._find_fault(sent.get(b"host", b""), sent.get(b"origin"), sent.get(b"sec-fetch-site"), harmless)
        if fault:
            raise ForbiddenError(fault)

    def _judge(self, host: bytes, origin: bytes | None, site: bytes | None, harmless: bool) -> str:
        """The error of a request, from three of its headers; empty if it is allowed."""
        authority = host.decode("latin-1")
        if host and not self._is_our_name(authority):
            name = name_of(authority)[:_SHOWN_CHARS]
            return (
                "This server requires no token, so it accepts only requests for its own names, and does not "
                f"know {name!r}. If that is a name of this server, set QUEEN_HOSTS={name} (docs/security.md)"
            )
        page = None if origin is None else origin.decode("latin-1")
        if page not in self._allowed and not _is_own(site, page, authority, harmless):
            return (
                f"Pages of {page[:_SHOWN_CHARS] if page else 'another site'} may not call this server. "
                "QUEEN_CORS_ORIGINS lists the origins that may (docs/security.md)"
            )
        return ""

    def _is_our_name(self, authority: str) -> bool:
        return self._names is None or is_own_name(authority) or name_of(authority) in self._names


def _is_own(site: bytes | None, origin: str | None, host: str, harmless: bool) -> bool:
    """Whether a request comes from the server's own page, or from none.

    Args:
        site: ``Sec-Fetch-Site``; ``none`` if the user typed the address.
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
    """The check of pages; ``None`` if all are allowed."""
    allowed = allowed_origins(settings)
    if allowed == EVERY:
        return None
    if settings.jwt.enabled:
        return Pages(allowed, None)
    return Pages(allowed, {*settings.security.hosts, *(urlsplit(each).hostname or "" for each in allowed)})
