"""Clients of SQS: boto3, which speaks JSON, and one of the query protocol."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
_NS = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def endpoint(port: int) -> str:
    return f"http://127.0.0.1:{port}/sqs"


def sqs_client(port: int, key: str = KEY, secret: str = SECRET, **config: Any) -> Any:
    """boto3's client; it tries each request once."""
    return boto3.client(
        "sqs", endpoint_url=endpoint(port), region_name="eu-central-1", aws_access_key_id=key,
        aws_secret_access_key=secret, config=Config(**{"retries": {"max_attempts": 0}, **config}),
    )  # fmt: skip


class Queues:
    """Makes queues of a client, and deletes them at the end."""

    def __init__(self, sqs: Any) -> None:
        self._sqs, self._made = sqs, list[str]()

    def __call__(self, name: str = "", tags: dict[str, str] | None = None, **attributes: str) -> str:
        fifo = attributes.get("FifoQueue") == "true"
        name = name or f"q-{uuid4().hex[:12]}{'.fifo' if fifo else ''}"
        url: str = self._sqs.create_queue(QueueName=name, Attributes=attributes, tags=tags or {})["QueueUrl"]
        self._made.append(url)
        return url

    def fifo(self, **attributes: str) -> str:
        return self(FifoQueue="true", **attributes)

    def arn(self, url: str) -> str:
        found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arn: str = found["Attributes"]["QueueArn"]
        return arn

    def delete(self) -> None:
        for url in self._made:
            try:
                self._sqs.delete_queue(QueueUrl=url)
            except self._sqs.exceptions.QueueDoesNotExist:
                continue


@contextmanager
def queues_of(sqs: Any) -> Iterator[Queues]:
    queues = Queues(sqs)
    yield queues
    queues.delete()


def receive(sqs: Any, url: str, number: int = 10, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=number, **more).get(
        "Messages", []
    )
    return found


def bodies(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def figures(sqs: Any, url: str) -> tuple[int, int, int]:
    """Messages that are visible, in flight, delayed."""
    names = ["", "NotVisible", "Delayed"]
    names = [f"ApproximateNumberOfMessages{name}" for name in names]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    visible, hidden, delayed = (int(found[name]) for name in names)
    return visible, hidden, delayed


def refused(function: Any, **arguments: Any) -> tuple[str, int]:
    """Code and status of the error that a call ends with."""
    with pytest.raises(ClientError) as caught:
        function(**arguments)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def ask(http: httpx.Client, action: str, path: str = "", method: str = "POST", **parameters: str) -> ET.Element:
    """The answer to a query, without its namespace."""
    pairs = {"Action": action, "Version": "2012-11-05", **parameters}
    place: dict[str, Any] = {"data": pairs} if method == "POST" else {"params": pairs}
    response = http.request(method, f"/sqs{path}", **place)
    assert response.headers["content-type"] == "text/xml"
    root = ET.fromstring(response.content)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_NS)
    assert root.tag == (f"{action}Response" if response.status_code == 200 else "ErrorResponse")
    return root
