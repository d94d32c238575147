"""Signatures of AWS, version 4: which key has signed a request.

The canonical form of a request is botocore's own; the signature in the header and the one in the query are checked.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, unquote

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials
from msgspec import Struct

from queen.sqs.errors import SqsError

ALGORITHM = "AWS4-HMAC-SHA256"
#: Allowed difference of the clocks.
_SKEW = timedelta(minutes=5)
_EXPIRES_S_MAX = 604_800
_TIME = "%Y%m%dT%H%M%SZ"

_SECONDS = re.compile(r"[0-9]{1,6}")
_PART = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]+)\s*")
_SCOPE = re.compile(r"([^/]+)/([0-9]{8})/([a-zA-Z0-9-]+)/([a-zA-Z0-9-]+)/aws4_request")


class Signed(Struct, frozen=True):
    """The parts of a signature.

    Attributes:
        key_id: id of the access key.
        day, region, service: its scope.
        headers: the signed ones.
        signature: of the request.
        time: of the signature, as it was sent.
        lifetime: how long it is valid; ``None``: the allowed difference of clocks.
    """

    key_id: str
    day: str
    region: str
    service: str
    headers: frozenset[str]
    signature: str
    time: str
    lifetime: timedelta | None = None


class Request(Struct, frozen=True):
    """What is signed.

    Attributes:
        method: HTTP's.
        path: as it was sent.
        query: likewise.
        headers: with lower-case names.
        body: whole.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def signed_by(request: Request) -> Signed | None:
    """The signature of a request, unchecked; ``None``: it has none.

    Raises:
        SqsError: it is malformed.
    """
    header = request.headers.get("authorization", "")
    if header.startswith(ALGORITHM):
        return _of_header(header.removeprefix(ALGORITHM), request.headers.get("x-amz-date", ""))
    if "X-Amz-Signature=" in request.query:
        return _of_query(dict(parse_qsl(request.query, keep_blank_values=True)))
    return None


def _of_header(header: str, time: str) -> Signed:
    parts = {found[1]: found[2] for part in header.split(",") if (found := _PART.fullmatch(part))}
    if len(parts) != 3:
        raise _incomplete("Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'.")
    if not time:
        raise _incomplete("Authorization header requires existence of a 'X-Amz-Date' header.")
    return _signed(parts["Credential"], parts["SignedHeaders"], parts["Signature"], time, None)


def _of_query(query: Mapping[str, str]) -> Signed:
    names = ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires")
    if query.get("X-Amz-Algorithm") != ALGORITHM or not all(query.get(name) for name in names):
        raise _incomplete(f"A signature in the query requires X-Amz-Algorithm={ALGORITHM} and {', '.join(names)}.")
    expires = query["X-Amz-Expires"]
    if not _SECONDS.fullmatch(expires) or not 1 <= int(expires) <= _EXPIRES_S_MAX:
        raise _incomplete(f"X-Amz-Expires must be 1 to {_EXPIRES_S_MAX} seconds.")
    credential, headers, value, time, _ = [query[name] for name in names]
    return _signed(credential, headers, value, time, timedelta(seconds=int(expires)))


def _signed(credential: str, headers: str, signature: str, time: str, lifetime: timedelta | None) -> Signed:
    scope = _SCOPE.fullmatch(credential)
    if scope is None:
        raise _incomplete("Credential must be <access key id>/<date>/<region>/sqs/aws4_request.")
    key_id, day, region, service = scope.groups()
    return Signed(key_id, day, region, service, frozenset(headers.split(";")), signature, time, lifetime)


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignatureException", message)


def check(request: Request, signed: Signed, secret: str, now: datetime) -> None:
    """Raises an error for a signature that the secret of its key did not make, or that is not valid now."""
    _check_time(signed, now)
    if signed.service != "sqs":
        raise _mismatch("Credential should be scoped to correct service: 'sqs'.")
    # Without these a signature would be valid for other servers, or for another action.
    for name in ("host", "x-amz-target"):
        if name in request.headers and name not in signed.headers:
            raise _mismatch(f"The header {name} must be signed.")
    digest = hashlib.sha256(request.body).hexdigest()
    if request.headers.get("x-amz-content-sha256", digest) != digest:
        raise _mismatch("The provided x-amz-content-sha256 header does not match what was computed.")
    candidates = _candidates(request, signed, secret, digest)
    if not any(hmac.compare_digest(each.encode(), signed.signature.encode()) for each in candidates):
        raise _mismatch(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details."
        )


def _check_time(signed: Signed, now: datetime) -> None:
    try:
        time = datetime.strptime(signed.time, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise _incomplete(f"The date must have the form of {now:{_TIME}}.") from None
    if signed.day != signed.time[:8]:
        raise _mismatch("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP.")
    # A sum with the time of a client could be beyond the last year.
    lifetime = _SKEW if signed.lifetime is None else signed.lifetime
    if now - time > lifetime:
        raise _mismatch(f"Signature expired: {signed.time} is now earlier than {now - lifetime:{_TIME}}")
    if time - now > _SKEW:
        raise _mismatch(f"Signature not yet current: {signed.time} is still later than {now + _SKEW:{_TIME}}")


def _mismatch(message: str) -> SqsError:
    return SqsError("InvalidSignatureException", message)


class _Canonical(SigV4Auth):  # type: ignore[misc]
    """botocore's signature over exactly the headers that a client has signed, and a hash that is known."""

    def __init__(self, signed: Signed, secret: str, digest: str) -> None:
        super().__init__(Credentials(signed.key_id, secret), signed.service, signed.region)
        self._digest = digest

    def headers_to_sign(self, request: AWSRequest) -> HTTPHeaders:
        """The signed headers: the request has no others."""
        return request.headers

    def payload(self, _request: AWSRequest) -> str:
        """The hash of the body."""
        return self._digest


def _candidates(request: Request, signed: Signed, secret: str, digest: str) -> Iterator[str]:
    """The signatures that a request may have: of its query as it was sent, and as it should be encoded."""
    headers = {name: value for name, value in request.headers.items() if name in signed.headers}
    url = f"https://host{request.path}"
    pairs = [pair for pair in request.query.split("&") if pair and not pair.startswith("X-Amz-Signature=")]
    sent = AWSRequest(request.method, f"{url}?{'&'.join(pairs)}", headers)
    decoded = [tuple(map(unquote, pair.partition("=")[::2])) for pair in pairs]
    auth = _Canonical(signed, secret, digest)
    for each in (sent, AWSRequest(request.method, url, headers, params=decoded)) if pairs else (sent,):
        each.context["timestamp"] = signed.time
        yield str(auth.signature(auth.string_to_sign(each, auth.canonical_request(each)), each))
