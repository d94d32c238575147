"""A client of SQS: actions in AWS JSON 1.0, signed with the keys of the environment."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from ..broker import NotCarriedOutError
from ..http import BadAnswerError, NoAnswerError, Server
from ..lab import SkippedError
from ..program import Exchange

REQUEST_TIMEOUT_S = 15.0
#: The longest wait of a receive.
_WAIT_S_MAX = 20
_UNKNOWN_ACTIONS = frozenset({"UnknownOperationException", "InvalidAction", "UnsupportedOperation"})
_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Keys:
    """How requests are signed; `given`: whether the environment says so, as for every SDK of AWS."""

    key_id: str
    secret: str
    region: str
    session: str | None = None
    given: bool = True

    @classmethod
    def of_environment(cls) -> Keys:
        """Those of `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and `AWS_REGION`; else any."""
        env = os.environ
        key_id, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
        region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or _REGION
        if not key_id or not secret:
            return cls("verify", "verify", region, given=False)
        return cls(key_id, secret, region, env.get("AWS_SESSION_TOKEN"))


class RefusedError(NotCarriedOutError):
    """An action was answered with an error.

    Attributes:
        code: its name, without the namespace.
        status: of HTTP.
    """

    def __init__(self, action: str, status: int, code: str, text: str) -> None:
        super().__init__(f"{action} was answered {status} {code}: {text}")
        self.code, self.status = code, status


@dataclass
class Client:
    """Calls of one client.

    Attributes:
        server: where it is.
        keys: sign the requests.
        statuses: counts what was answered: (action, status).
        made: gets the URLs of all queues that it has made.
        trace: every request, with its answer.
    """

    server: Server
    keys: Keys
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    made: list[str] = field(default_factory=list)
    trace: list[Exchange] = field(default_factory=list)

    async def call(self, action: str, *, wait_s: float = 0.0, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """The result of an action.

        Raises:
            RefusedError: it was answered with an error.
            SkippedError: the server does not know the action.
            NoAnswerError: there was no answer.
        """
        body = json.dumps(given).encode()
        path = "" if self.server.path else "/"
        began = time.monotonic()
        headers = self._signed(action, path, body)
        answer = await self.server.request("POST", path, body, headers=headers, timeout_s=wait_s + REQUEST_TIMEOUT_S)
        self.trace.append(Exchange(action, path, body, began, time.monotonic(), answer.status, answer.body))
        self.statuses[action, answer.status] += 1
        told = answer.json()
        if not isinstance(told, dict):
            raise BadAnswerError(f"not an object: {answer.body[:120]!r}")
        if answer.status == 200:
            return told
        code = str(told.get("__type", "")).rpartition("#")[2]
        if code in _UNKNOWN_ACTIONS:
            raise SkippedError(f"the server does not know {action}")
        raise RefusedError(action, answer.status, code, str(told.get("message", ""))[:200])

    def _signed(self, action: str, path: str, body: bytes) -> dict[str, str]:
        sent = AWSRequest(
            "POST", f"{self.server.url}{path}",
            {"Host": self.server.authority, "X-Amz-Target": f"AmazonSQS.{action}",
             "Content-Type": "application/x-amz-json-1.0"},
            body,
        )  # fmt: skip
        keys = self.keys
        SigV4Auth(Credentials(keys.key_id, keys.secret, keys.session), "sqs", keys.region).add_auth(sent)
        return {name: value for name, value in sent.headers.items() if name.lower() != "host"}

    async def create(self, *, fifo: bool = False, **attributes: str) -> str:
        """A new queue; its URL."""
        name = f"verify-{uuid4().hex[:16]}"
        if fifo:
            name, attributes = f"{name}.fifo", {**attributes, "FifoQueue": "true"}
        url = str((await self.call("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"])
        self.made.append(url)
        return url

    async def arn(self, url: str) -> str:
        """The ARN of a queue."""
        told = await self.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])
        return str(told["Attributes"]["QueueArn"])

    async def send(self, url: str, body: str, group: str | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Sends a message; with a group its deduplication id is the body unless given."""
        if group is not None:
            more = {"MessageGroupId": group, "MessageDeduplicationId": body, **more}
        given = {name: value for name, value in more.items() if value is not None}
        return await self.call("SendMessage", QueueUrl=url, MessageBody=body, **given)

    async def receive(self, url: str, number: int = 10, *, wait_s: int = 0, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Receives messages."""
        told = await self.call(
            "ReceiveMessage", wait_s=wait_s, QueueUrl=url, MaxNumberOfMessages=number, WaitTimeSeconds=wait_s,
            AttributeNames=["All"], **more,
        )  # fmt: skip
        messages = told.get("Messages", [])
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise BadAnswerError(f"not a list of objects: {str(messages)[:120]}")
        return messages

    async def next(self, url: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """The next message, for which it waits.

        Raises:
            NoAnswerError: none came within the longest wait.
        """
        messages = await self.receive(url, 1, wait_s=_WAIT_S_MAX, **more)
        if not messages:
            raise NoAnswerError(f"no message came within {_WAIT_S_MAX} s")
        return messages[0]

    async def delete(self, url: str, message: dict[str, Any]) -> None:
        """Deletes a received message."""
        await self.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def hide(self, url: str, message: dict[str, Any], seconds: int) -> None:
        """Changes how long a received message stays hidden."""
        await self.call(
            "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )
