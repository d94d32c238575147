"""Shows subject and role of the caller: ``GET /auth/me``."""

from datetime import UTC, datetime

import falcon.asgi
from msgspec import Struct

from queen.http.access import ADMIN, READ_ONLY
from queen.http.answers import answer, text
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server

#: The last year of Python's calendar.
_LAST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class IdentityAnswer(Struct, rename="camel"):
    """The caller.

    Attributes:
        authentication: whether the server requires tokens; if not, every caller has full access.
        sub: the token's subject.
        role: the level of access.
        expires_at: when the token expires; ``null``: never.
    """

    authentication: bool
    sub: str | None
    role: str
    expires_at: str | None = None


@operation(
    "GET",
    "/auth/me",
    "getIdentity",
    "Show subject and role of the caller",
    access=READ_ONLY,
    answers=[Answer("Subject and role of the token; `admin` on a server without authentication", IdentityAnswer)],
    errors=(),
)
async def get_identity(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Describes the caller, so that a page can show what its user may do."""
    identity = req.identity
    if identity is None:
        answer(resp, IdentityAnswer(False, None, ADMIN.value))
        return
    end = text(datetime.fromtimestamp(identity.expires_at, UTC)) if identity.expires_at < _LAST_S else None
    answer(resp, IdentityAnswer(True, identity.subject, server.levels.of(identity.roles).value, end))
