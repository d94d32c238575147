"""A client of SQS for measurements: AWS JSON 1.0 over one connection, signed if the environment has a key."""

import http.client
import json
import os
import socket
from typing import Any, Self
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from queen.core.errors import QueenError

_PATIENCE_S = 120.0
_OK = 200
#: Servers that check nothing read the region from it.
_UNSIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"


class RefusedError(QueenError):
    """An action was answered with an error; ``str()`` is its name."""

    code = "bench_sqs_refused"


class SqsConnection:
    """One connection that stays open during a block."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        self._url, self._path = url, place.path or "/"
        self._http = kind(place.hostname or "", place.port, timeout=_PATIENCE_S)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key_id, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        region = os.environ.get("AWS_REGION", "us-east-1")
        self._signer = (
            SigV4Auth(Credentials(key_id, secret, os.environ.get("AWS_SESSION_TOKEN")), "sqs", region)
            if key_id and secret
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, action: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """The result of an action; raises RefusedError."""
        body = json.dumps(given)
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        self._http.request("POST", self._path, body, self._signed(headers, body))
        answer = self._http.getresponse()
        text = answer.read()
        if answer.status == _OK:
            return json.loads(text) if text else {}
        raise RefusedError(_kind(text) or f"{answer.status}")

    def _signed(self, headers: dict[str, str], body: str) -> dict[str, str]:
        if self._signer is None:
            return {**headers, "Authorization": _UNSIGNED}
        request = AWSRequest("POST", self._url if urlsplit(self._url).path else f"{self._url}/", headers, body)
        self._signer.add_auth(request)
        return dict(request.headers)


def _kind(text: bytes) -> str:
    try:
        return str(json.loads(text).get("__type", "")).rpartition("#")[2]
    except (ValueError, AttributeError):
        return ""
