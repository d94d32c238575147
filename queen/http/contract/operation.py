"""The words of the contract: operations, parameters and answers as values."""

from collections.abc import Mapping, Sequence
from typing import Any

import falcon
from msgspec import Struct

#: What each error status means, whatever the operation.
ERRORS: Mapping[int, str] = {
    400: "The request cannot be understood. `field` names the part at fault, `detail` says what is wrong with it.",
    401: "The server asks for tokens (`JWT_ENABLED`), and this request has none that is good.",
    403: "The token's role may not do this. Without tokens: a page of another origin, or a name that is not the "
    "server's (`QUEEN_CORS_ORIGINS`, `QUEEN_HOSTS`). Between instances: the request is not signed with their secret.",
    404: "What the request is about does not exist.",
    409: "Not possible in the present state; asking again will not help.",
    413: "The body, or a message in it, is too large.",
    415: "The body claims to be something else than JSON.",
    422: "The database refused the data of the request; nothing of it was stored.",
    426: "This path is a WebSocket.",
    429: "A limit of size or number is reached; there may be room later (`Retry-After`).",
    501: "This worker cannot hold another long poll (worker classes `gthread` and `meinheld`): ask without waiting.",
    503: "Not at the moment: the database is down or slow, the server is full or stops. Try again (`Retry-After`).",
    504: "The database did not complete this request alone within its time limit. Send it in smaller parts.",
}


class Parameter(Struct, frozen=True):
    """A parameter of the query, the path or the header.

    Attributes:
        name: as it is sent.
        description: its meaning, unit and default.
        schema: JSON Schema.
        place: ``query``, ``path`` or ``header``.
        required: whether it must be sent.
        may_be_empty: whether an empty one counts as not sent.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    place: str = "query"
    required: bool = False
    may_be_empty: bool = True


class Answer(Struct, frozen=True):
    """An answer that is no error.

    Attributes:
        description: when it comes, and what it says.
        body: type of the body; ``None``: there is none.
        media_type: of the body.
        status: HTTP's.
    """

    description: str
    body: Any = None
    status: int = 200
    media_type: str = falcon.MEDIA_JSON


class Operation(Struct, frozen=True):
    """One operation.

    Attributes:
        method: HTTP's.
        path: with the names of its parameters in braces.
        name: unique, as clients would call their method.
        summary: a few words.
        description: what else there is to know.
        parameters: of query, path and header.
        body: type of the request body, if there is one.
        needs_body: whether it may be left out.
        answers: those that are no errors.
        errors: statuses of problem documents.
        route: falcon's template that serves the path, where that is another one.
        websocket: whether the answer is a WebSocket.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: Sequence[Answer]
    errors: Sequence[int]
    description: str = ""
    parameters: Sequence[Parameter] = ()
    body: Any = None
    needs_body: bool = True
    route: str = ""
    websocket: bool = False

    @property
    def served_by(self) -> str:
        """Falcon's template of the route."""
        return self.route or self.path


class Topic(Struct, frozen=True):
    """Operations that belong together.

    Attributes:
        name: OpenAPI's tag.
        description: what they have in common.
        operations: in the order of a reader.
        prefix: begins the names of its schemas, where these would be those of another interface.
    """

    name: str
    description: str
    operations: Sequence[Operation]
    prefix: str = ""
