"""SQS with access keys, with tokens, and while PostgreSQL is down."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from queen.sqs.model import actions
from spec.guarantees import Level, checks
from tests.support.outage import FragilePostgres, fragile_postgres, wait_until_drained
from tests.support.processes import Server, clean_environment, open_folder, serving, wait_until
from tests.support.servers import serving_database
from tests.support.sqs_clients import KEY, SECRET, ask, bodies, endpoint, queues_of, receive, refused, sqs_client
from tests.support.tokens import AUDIENCE, ISSUER, token
from tests.support.tokens import SECRET as TOKEN_SECRET

READER, WRITER, OTHER = "reader", "writer", "a-secret-of-others"
KEYS = f"{KEY}:{SECRET}:admin,{READER}:{SECRET}:read-only,{WRITER}:{SECRET}:read-write"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[FragilePostgres]:
    with fragile_postgres(folder) as running:
        yield running


@pytest.fixture(scope="module")
def server(postgres: FragilePostgres, folder: Path) -> Iterator[Server]:
    """A server with access keys, and few messages in flight."""
    few = {"QUEEN_SQS_MAX_IN_FLIGHT": "4", "QUEEN_SQS_MAX_IN_FLIGHT_FIFO": "3"}
    with serving_database(postgres.dsn, folder, "--workers", "2", QUEEN_SQS_KEYS=KEYS, **few) as running:
        running.wait_until_all_are_healthy(2)
        yield running


@pytest.fixture(scope="module")
def sqs(server: Server) -> Any:
    return sqs_client(server.port)


@checks("G-SQS-13", level=Level.LIVE)
def test_a_key_may_do_what_its_level_says(server: Server, sqs: Any) -> None:
    reader, writer = sqs_client(server.port, READER), sqs_client(server.port, WRITER)
    with queues_of(sqs) as make:
        url = make()
        assert reader.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        writer.send_message(QueueUrl=url, MessageBody="x")
        [message] = receive(writer, url, AttributeNames=["SenderId"])
        assert message["Attributes"] == {"SenderId": WRITER}
        for client, action, more in (
            (reader, "send_message", {"MessageBody": "x"}), (reader, "receive_message", {}),
            (reader, "delete_queue", {}), (writer, "delete_queue", {}), (writer, "purge_queue", {}),
        ):  # fmt: skip
            assert refused(getattr(client, action), QueueUrl=url, **more) == ("AccessDenied", 403)
    wait_until(lambda: f'"subject": "{KEY}"' in server.output.read_text(), "the line of the deletion")


def test_no_more_are_in_flight_than_the_settings_allow(sqs: Any) -> None:
    with queues_of(sqs) as make:
        standard, fifo = make(), make.fifo()
        for number in range(6):
            sqs.send_message(QueueUrl=standard, MessageBody="x")
            sqs.send_message(QueueUrl=fifo, MessageBody="x", MessageGroupId="g", MessageDeduplicationId=f"{number}")
        assert len(receive(sqs, standard)) == 4
        assert refused(sqs.receive_message, QueueUrl=standard) == ("OverLimit", 403)
        assert len(receive(sqs, fifo)) == 3
        assert receive(sqs, fifo) == []


#: The level that each action requires, and parameters with which it is understood.
ACTIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "AddPermission": ("admin", {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]}),
    "CancelMessageMoveTask": ("read-write", {"TaskHandle": "x"}),
    "ChangeMessageVisibility": ("read-write", {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
    "ChangeMessageVisibilityBatch": ("read-write", {"Entries": [{"Id": "1", "ReceiptHandle": "x"}]}),
    "CreateQueue": ("read-write", {"QueueName": "made"}),
    "DeleteMessage": ("read-write", {"ReceiptHandle": "x"}),
    "DeleteMessageBatch": ("read-write", {"Entries": [{"Id": "1", "ReceiptHandle": "x"}]}),
    "DeleteQueue": ("admin", {}),
    "GetQueueAttributes": ("read-only", {}),
    "GetQueueUrl": ("read-only", {"QueueName": "x"}),
    "ListDeadLetterSourceQueues": ("read-only", {}),
    "ListMessageMoveTasks": ("read-only", {"SourceArn": "arn:aws:sqs:eu-central-1:000000000000:x"}),
    "ListQueueTags": ("read-only", {}),
    "ListQueues": ("read-only", {}),
    "PurgeQueue": ("admin", {}),
    "Queen.ListQueues": ("read-only", {}),
    "Queen.PeekMessages": ("read-only", {}),
    "ReceiveMessage": ("read-write", {}),
    "RemovePermission": ("admin", {"Label": "l"}),
    "SendMessage": ("read-write", {"MessageBody": "x"}),
    "SendMessageBatch": ("read-write", {"Entries": [{"Id": "1", "MessageBody": "x"}]}),
    "SetQueueAttributes": ("read-write", {"Attributes": {"DelaySeconds": "1"}}),
    "StartMessageMoveTask": ("read-write", {"SourceArn": "arn:aws:sqs:eu-central-1:000000000000:x"}),
    "TagQueue": ("read-write", {"Tags": {"a": "b"}}),
    "UntagQueue": ("read-write", {"TagKeys": ["a"]}),
}
LEVELS = ("read-only", "read-write", "admin")


@checks("G-SQS-13", level=Level.LIVE)
def test_each_action_requires_its_level(server: Server) -> None:
    """On a queue that does not exist, so that what is allowed changes nothing."""
    assert set(ACTIONS) == set(actions())
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as http:
        for name, (required, parameters) in ACTIONS.items():
            for key, level in zip((READER, WRITER, KEY), LEVELS, strict=True):
                answer = signed(http, key, name, {"QueueUrl": "unknown", **parameters})
                if LEVELS.index(level) >= LEVELS.index(required):
                    assert answer.status_code in (200, 400, 404), (name, level, answer.text)
                    continue
                assert answer.status_code == 403
                assert answer.headers["x-amzn-query-error"] == "AccessDenied;Sender"
                assert answer.json() == {
                    "__type": "com.amazonaws.sqs#AccessDeniedException",
                    "message": f"{name} requires the access level {required}.",
                }


def signed(http: httpx.Client, key: str, action: str, parameters: dict[str, Any]) -> httpx.Response:
    """The answer to an action that a key has signed."""
    headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    url, body = str(http.base_url.join("/sqs")), json.dumps(parameters)
    request = AWSRequest("POST", url, headers, body)
    SigV4Auth(Credentials(key, SECRET), "sqs", "eu-central-1").add_auth(request)
    return http.post("/sqs", headers=dict(request.headers), content=body)


@checks("G-SQS-13", level=Level.LIVE)
def test_signatures_that_are_refused(server: Server) -> None:
    wrong = sqs_client(server.port, secret=OTHER)
    assert refused(wrong.list_queues) == ("SignatureDoesNotMatch", 403)
    assert refused(sqs_client(server.port, key="unknown").list_queues) == ("InvalidClientTokenId", 403)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as http:
        assert ask(http, "ListQueues").findtext("Error/Code") == "MissingAuthenticationToken"
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=x", "X-Amz-Target": "AmazonSQS.ListQueues"}
        assert http.post("/sqs", headers=headers).json()["__type"].endswith("#IncompleteSignatureException")


def test_a_presigned_url_is_good_for_its_action(server: Server) -> None:
    url = f"{endpoint(server.port)}?Action=ListQueues"
    request = AWSRequest("GET", url)
    SigV4QueryAuth(Credentials(KEY, SECRET), "sqs", "eu-central-1", expires=60).add_auth(request)
    assert httpx.get(request.url).status_code == 200
    assert httpx.get(request.url.replace("ListQueues", "GetQueueUrl")).status_code == 403


def test_an_outage_is_a_503_that_sdks_repeat(postgres: FragilePostgres, server: Server, sqs: Any) -> None:
    """Sends are spooled meanwhile."""
    with queues_of(sqs) as make:
        url = make()
        sqs.send_message(QueueUrl=url, MessageBody="before")
        [message] = receive(sqs, url, VisibilityTimeout=0)
        postgres.kill()
        try:
            done = refused(sqs.delete_message, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            assert done == ("ServiceUnavailable", 503)
            sqs.send_message(QueueUrl=url, MessageBody="meanwhile")
        finally:
            postgres.start()
        patient = sqs_client(server.port, retries={"max_attempts": 8})
        patient.send_message(QueueUrl=url, MessageBody="after")
        wait_until_drained(server)
        assert bodies(receive(sqs, url)) == ["before", "meanwhile", "after"]


@pytest.mark.nightly
def test_tokens_and_signatures_side_by_side(folder: Path) -> None:
    environment = clean_environment(
        JWT_ENABLED="true", JWT_SECRET=TOKEN_SECRET, JWT_ISSUER=ISSUER, JWT_AUDIENCE=AUDIENCE, QUEEN_SQS_KEYS=KEYS
    )
    with serving(folder / "tokens", "--workers", "1", env=environment) as running:
        sqs = sqs_client(running.port)
        assert sqs.list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200
        assert refused(sqs_client(running.port, secret=OTHER).list_queues) == ("SignatureDoesNotMatch", 403)
        with httpx.Client(base_url=f"http://127.0.0.1:{running.port}") as http:
            unsigned = http.post("/sqs", headers={"X-Amz-Target": "AmazonSQS.ListQueues"})
            assert unsigned.status_code == 401
            assert unsigned.json()["__type"].endswith("#MissingAuthenticationTokenException")
            http.headers["Authorization"] = f"Bearer {token('read-only')}"
            assert ask(http, "ListQueues").tag == "ListQueuesResponse"
            assert ask(http, "CreateQueue", QueueName="x").findtext("Error/Code") == "AccessDenied"
            for name in sorted(name for name, (required, _) in ACTIONS.items() if required != "read-only"):
                path = "" if name == "CreateQueue" else "/0/unknown"
                assert ask(http, name, path).findtext("Error/Code") == "AccessDenied"
            http.headers["Authorization"] = f"Bearer {token('admin')}"
            assert ask(http, "CreateQueue", QueueName="x").findtext("CreateQueueResult/QueueUrl")
