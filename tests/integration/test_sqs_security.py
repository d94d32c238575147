"""SQS with access keys, with tokens, and while PostgreSQL is down."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spec.guarantees import Level, checks
from tests.support.outage import FragilePostgres, fragile_postgres
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
    """A server with access keys."""
    with serving_database(postgres.dsn, folder, "--workers", "2", QUEEN_SQS_KEYS=KEYS) as running:
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
    with queues_of(sqs) as make:
        url = make()
        sqs.send_message(QueueUrl=url, MessageBody="before")
        [message] = receive(sqs, url, VisibilityTimeout=0)
        postgres.kill()
        try:
            for action, more in (
                (sqs.send_message, {"MessageBody": "x"}),
                (sqs.delete_message, {"ReceiptHandle": message["ReceiptHandle"]}),
            ):
                assert refused(action, QueueUrl=url, **more) == ("ServiceUnavailable", 503)
        finally:
            postgres.start()
        patient = sqs_client(server.port, retries={"max_attempts": 8})
        patient.send_message(QueueUrl=url, MessageBody="after")
        server.wait_until_all_are_healthy(2)
        assert bodies(receive(sqs, url)) == ["before", "after"]


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
            http.headers["Authorization"] = f"Bearer {token('admin')}"
            assert ask(http, "CreateQueue", QueueName="x").findtext("CreateQueueResult/QueueUrl")
