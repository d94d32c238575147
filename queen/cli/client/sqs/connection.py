"""Actions of SQS on the server of a command, with a token, or signed with an access key of the environment."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec import Raw, Struct

from queen.cli.client.connection import ANSWER_S, Server
from queen.cli.client.names import unknown
from queen.cli.errors import FailedError

T = TypeVar("T")

_PATH = "/sqs"
_REGION = "us-east-1"
_ERRORS = range(400, 600)
_ADVICE: Mapping[str, str] = {
    "AccessDeniedException": "this needs a token or an access key with a higher access level",
    "MissingAuthenticationTokenException": "give a token with --token or QUEEN_TOKEN, or an access key in "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "UnrecognizedClientException": "unset AWS_ACCESS_KEY_ID to send no signature, or give a key of QUEEN_SQS_KEYS",
}
#: Names to look for similar ones in.
_NAMES_MAX = 1000


class _Problem(Struct, rename={"kind": "__type"}):
    """An error of AWS."""

    kind: str
    message: str = ""


class SqsRefusedError(FailedError):
    """The server refused the action; ``kind`` is the name of the error."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        advice = f": {_ADVICE[kind]}" if kind in _ADVICE else ""
        super().__init__(f"{message.rstrip('.')} ({kind}){advice}")


class _Urls(Struct, rename="pascal"):
    queue_urls: list[str] = []


class _Attributes(Struct, rename="pascal"):
    attributes: dict[str, str] = {}


class Sqs:
    """Actions of SQS on a server; every method raises FailedError."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def call(self, kind: type[T], action: str, *, wait_s: float = 0.0, **given: Any) -> T:  # noqa: ANN401 - JSON
        """The result of an action; parameters that are ``None`` are omitted."""
        body = {name: value for name, value in given.items() if value is not None}
        target = action if action.startswith("Queen.") else f"AmazonSQS.{action}"
        headers = self._signed({"X-Amz-Target": target}, body)
        answer = self._server.send("POST", _PATH, body=body, timeout_s=wait_s + ANSWER_S, also=_ERRORS, headers=headers)
        if answer.is_success:
            return self._server.decoded(kind, answer)
        problem = self._server.decoded(_Problem, answer)
        raise SqsRefusedError(problem.kind.rpartition("#")[2], problem.message)

    def _signed(self, headers: dict[str, str], body: object) -> Mapping[str, str]:
        """The headers with a signature, if the environment has a key and there is no token."""
        env = os.environ
        key_id, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
        if self._server.has_token or not key_id or not secret:
            return headers
        url = f"{str(httpx.URL(self._server.url)).rstrip('/')}{_PATH}"
        request = AWSRequest("POST", url, headers, msgspec.json.encode(body))
        region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or _REGION
        SigV4Auth(Credentials(key_id, secret, env.get("AWS_SESSION_TOKEN")), "sqs", region).add_auth(request)
        return dict(request.headers)

    def names(self, prefix: str = "") -> list[str]:
        """Names of queues that begin so, sorted; at most a thousand."""
        found = self.call(_Urls, "ListQueues", QueueNamePrefix=prefix or None)
        return [name_of(url) for url in found.queue_urls[:_NAMES_MAX]]

    def attributes(self, queue: str) -> dict[str, str]:
        """All attributes of a queue."""
        with self.knowing(queue):
            return self.call(_Attributes, "GetQueueAttributes", QueueUrl=queue, AttributeNames=["All"]).attributes

    def arn(self, queue: str) -> str:
        """The ARN of a queue."""
        return self.attributes(queue)["QueueArn"]

    @contextmanager
    def knowing(self, queue: str) -> Iterator[None]:
        """Says of a queue that does not exist which one may be meant."""
        try:
            yield
        except SqsRefusedError as problem:
            if problem.kind != "QueueDoesNotExist":
                raise
            raise FailedError(unknown("queue of SQS", queue, self.names(), "queen sqs list")) from None

    def on(self, queue: str, action: str, **given: Any) -> Raw:  # noqa: ANN401 - JSON
        """The result of an action on a queue."""
        with self.knowing(queue):
            return self.call(Raw, action, QueueUrl=queue, **given)


def name_of(place: str) -> str:
    """The queue of a URL or an ARN."""
    return place.rpartition("/")[2].rpartition(":")[2]
