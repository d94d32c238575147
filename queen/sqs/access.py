"""Who may call which action: signatures of AWS against configured keys, or the identity of a token."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from queen.http.access import ADMIN, Access
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.security.identity import Identity
from queen.sqs import signature
from queen.sqs.errors import SqsError
from queen.sqs.signature import Request, Signed

#: Region of a client that does not name one.
DEFAULT_REGION = "us-east-1"


class Caller(Struct, frozen=True):
    """Who sends a request.

    Attributes:
        access: what it may do.
        region: that it has signed for; it names the server's only one.
    """

    access: Access
    region: str


def is_signed(req: QueenRequest) -> bool:
    """Whether a request has a signature of AWS, which is checked when its body has arrived."""
    return (req.get_header("Authorization") or "").startswith(signature.ALGORITHM) or (
        "X-Amz-Signature=" in req.query_string
    )


def caller_of(server: Server, req: QueenRequest, body: bytes) -> Caller:
    """Who sends a request.

    Raises:
        SqsError: it has no valid signature and needs one.
    """
    if req.identity is not None:
        return Caller(server.levels.of(req.identity.roles), DEFAULT_REGION)
    request, keys = _request(req, body), server.settings.sqs.keys
    if keys or server.settings.jwt.enabled:
        return _checked(request, signature.signed_by(request), keys, req)
    return Caller(ADMIN, _region(request))


def _region(request: Request) -> str:
    """The region of a signature that is not checked, and so may be malformed."""
    try:
        signed = signature.signed_by(request)
    except SqsError:
        signed = None
    return DEFAULT_REGION if signed is None else signed.region


def _checked(
    request: Request, signed: Signed | None, keys: Sequence[tuple[str, str, str]], req: QueenRequest
) -> Caller:
    if signed is None:
        raise SqsError("MissingAuthenticationTokenException", "Request is missing Authentication Token")
    found = next((each for each in keys if each[0] == signed.key_id), None)
    if found is None:
        raise SqsError("UnrecognizedClientException", "The security token included in the request is invalid.")
    _, secret, access = found
    signature.check(request, signed, secret, datetime.now(UTC))
    # From here on log lines name the key.
    req.identity = Identity(signed.key_id, ())
    return Caller(Access(access), signed.region)


def _request(req: QueenRequest, body: bytes) -> Request:
    headers: dict[str, str] = {}
    for name, value in req.scope["headers"]:
        text, more = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[text] = f"{headers[text]},{more}" if text in headers else more
    path = req.scope["raw_path"].partition(b"?")[0].decode("latin-1")
    return Request(req.method, path, req.query_string, headers, body)
