"""``GET /auth/me``: who the server takes the sender for."""

from datetime import UTC, datetime

import falcon.asgi
from msgspec import Struct

from queen.http.access import Access, Levels
from queen.http.answers import answer, text
from queen.http.request import QueenRequest

#: The end of the calendar.
_LAST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class IdentityAnswer(Struct, rename="camel"):
    """The sender.

    Attributes:
        authentication: whether the server asks for tokens at all; if not, everybody may do everything.
        sub: the token's subject.
        role: the level of access.
        expires_at: when the token stops to be good; ``null``: never.
    """

    authentication: bool
    sub: str | None
    role: str
    expires_at: str | None = None


class IdentityResource:
    """Tells a sender about itself, so that a page can show what its user may do."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels

    async def on_get(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Subject and level of the token."""
        identity = req.identity
        if identity is None:
            answer(resp, IdentityAnswer(False, None, Access.ADMIN.value))
            return
        end = text(datetime.fromtimestamp(identity.expires_at, UTC)) if identity.expires_at < _LAST_S else None
        answer(resp, IdentityAnswer(True, identity.subject, self._levels.of(identity.roles).value, end))
