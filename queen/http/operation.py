"""Operations of the HTTP interface: each is declared once, with its handler.

Routes, access levels, the OpenAPI document and the audit log follow from the declarations.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import falcon
import falcon.asgi
from msgspec import Struct

from queen.core.errors import QueenError
from queen.http.access import Access
from queen.http.paths import Template
from queen.http.request import QueenRequest

#: ``handler(server, req, resp, **names of the path)``; a WebSocket instead of ``resp`` where the operation opens one.
Handler = Callable[..., Awaitable[None]]


class Parameter(Struct, frozen=True):
    """A parameter of the query, the path or the header.

    Attributes:
        name: of the parameter.
        description: its meaning, unit and default.
        schema: JSON Schema.
        place: ``query``, ``path`` or ``header``.
        required: whether it must be given.
        may_be_empty: whether an empty one counts as not given.
        slashes: whether a part of the path may contain slashes that are not percent-encoded.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    place: str = "query"
    required: bool = False
    may_be_empty: bool = True
    slashes: bool = False


class Answer(Struct, frozen=True):
    """A successful answer.

    Attributes:
        description: its meaning.
        body: type of the body; ``None``: there is none.
        status: HTTP's.
        media_type: of the body.
    """

    description: str
    body: Any = None
    status: int = 200
    media_type: str = falcon.MEDIA_JSON


class Signatures(Struct, frozen=True):
    """Signatures that requests may have instead of a token. The handler checks them, because they cover the body.

    Attributes:
        present: whether a request has one.
        refuse: answers an error of the gate in the form of the interface.
    """

    present: Callable[[QueenRequest], bool]
    refuse: Callable[[QueenRequest, falcon.asgi.Response, QueenError], None]


class Operation(Struct, frozen=True):
    """One operation.

    Attributes:
        method: HTTP's.
        path: with the names of its parameters in braces.
        name: unique ``operationId``.
        summary: a few words.
        access: the level that it requires.
        answers: successful answers.
        errors: statuses of problem documents.
        handler: answers a request.
        description: further details.
        parameters: of query, path and header.
        body: type of the request body, if there is one.
        needs_body: whether the body is required.
        audited: whether it is an administrative change: the log names the caller.
        websocket: whether it opens a WebSocket.
        signatures: those that its requests may have instead of a token.
    """

    method: str
    path: str
    name: str
    summary: str
    access: Access
    answers: Sequence[Answer]
    errors: Sequence[int]
    handler: Handler
    description: str = ""
    parameters: Sequence[Parameter] = ()
    body: Any = None
    needs_body: bool = True
    audited: bool = False
    websocket: bool = False
    signatures: Signatures | None = None

    @property
    def template(self) -> Template:
        """Its path, which may have names with slashes."""
        slashes = any(parameter.slashes for parameter in self.parameters if parameter.place == "path")
        return Template(self.path, slashes=slashes)

    @property
    def served_by(self) -> str:
        """Falcon's template of the route."""
        return self.template.route


class Topic(Struct, frozen=True):
    """A group of operations.

    Attributes:
        name: OpenAPI's tag.
        description: what they have in common.
        operations: in reading order.
        prefix: of the names of its schemas, which could otherwise collide with those of another interface.
    """

    name: str
    description: str
    operations: Sequence[Operation]
    prefix: str = ""


def operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    *,
    access: Access,
    answers: Sequence[Answer],
    errors: Sequence[int],
    description: str = "",
    parameters: Sequence[Parameter] = (),
    body: Any = None,  # noqa: ANN401 - a type
    needs_body: bool = True,
    audited: bool = False,
    websocket: bool = False,
) -> Callable[[Handler], Operation]:
    """Declares an operation; decorates its handler. The arguments are the attributes of ``Operation``."""

    def declare(handler: Handler) -> Operation:
        return Operation(
            method, path, name, summary, access, answers, errors, handler, description, parameters, body, needs_body,
            audited, websocket,
        )  # fmt: skip

    return declare
