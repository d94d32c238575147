"""Sends of SQS while PostgreSQL is down: two real workers, a real spool, and a PostgreSQL that dies."""

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.outage import FragilePostgres, fragile_postgres, spooling_server, wait_until_drained
from tests.support.processes import Server, open_folder, run
from tests.support.sqs_clients import Queues, queues_of, receive, refused, sqs_client

KEY = "11" * 32


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[FragilePostgres]:
    with fragile_postgres(folder) as server:
        yield server


@pytest.fixture(scope="module")
def server(postgres: FragilePostgres, folder: Path) -> Iterator[Server]:
    with spooling_server(postgres, folder, QUEEN_ENCRYPTION_KEY=KEY) as running:
        yield running


@pytest.fixture
def sqs(server: Server) -> Any:
    return sqs_client(server.port)


@pytest.fixture
def make(sqs: Any) -> Iterator[Queues]:
    with queues_of(sqs) as queues:
        yield queues


def everything(sqs: Any, url: str, number: int) -> list[dict[str, Any]]:
    """Receives and deletes so many messages, and no more."""
    found: list[dict[str, Any]] = []
    until = time.monotonic() + 30
    while len(found) < number and time.monotonic() < until:
        for message in receive(sqs, url, MessageSystemAttributeNames=["All"], WaitTimeSeconds=1):
            found.append(message)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert receive(sqs, url) == []
    return found


def spool_command(folder: Path, *arguments: str) -> str:
    return run("spool", *arguments, FILE_BUFFER_DIR=str(folder / "spool")).stdout


@checks("G-SQS-14", level=Level.FAULTS)
def test_sends_during_an_outage_are_answered_and_received_once_and_in_order(
    postgres: FragilePostgres, server: Server, folder: Path, sqs: Any, make: Queues
) -> None:
    standard, fifo = make(), make.fifo()
    sent: dict[str, dict[str, Any]] = {}

    def send(*, direct: bool) -> None:
        """Through both workers: each client has connections of its own."""
        for _ in range(8):
            client = sqs_client(server.port)
            body = f"m{len(sent)}"
            for url, more in (standard, {}), (fifo, {"MessageGroupId": "g", "MessageDeduplicationId": body}):
                answer = client.send_message(QueueUrl=url, MessageBody=body, **more)
                assert answer["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
                assert ("SequenceNumber" in answer) == (direct and url == fifo)
                sent[answer["MessageId"]] = {"body": body, "url": url, "at": time.time()}

    send(direct=True)
    postgres.kill()
    try:
        send(direct=False)
        batch = [
            {"Id": str(n), "MessageBody": f"b{n}", "MessageGroupId": "h", "MessageDeduplicationId": str(n)}
            for n in range(3)
        ]
        answer = sqs.send_message_batch(QueueUrl=fifo, Entries=batch)
        sent |= {
            one["MessageId"]: {"body": f"b{one['Id']}", "url": fifo, "at": time.time()} for one in answer["Successful"]
        }
        assert refused(sqs.send_message, QueueUrl=fifo, MessageBody="x") == ("MissingParameter", 400)
        unknown = standard.rpartition("/")[0] + "/unknown"
        assert refused(sqs.send_message, QueueUrl=unknown, MessageBody="x") == ("ServiceUnavailable", 503)
        [listed] = json.loads(spool_command(folder, "list", "--json"))
        assert listed["spooling"]
        [name] = [row["file"] for row in listed["files"]]
        shown = spool_command(folder, "show", name, "--json", "-n", "100")
        name = standard.rpartition("/")[2]
        assert f"sqs:{name}" in shown
        assert "m8" not in shown, "bodies are encrypted in the spool, too"
    finally:
        postgres.start()
    wait_until_drained(server)
    send(direct=True)
    for url in standard, fifo:
        expected = [(id_, each["body"]) for id_, each in sent.items() if each["url"] == url]
        found = everything(sqs, url, len(expected))
        told = [(each["MessageId"], each["Body"]) for each in found]
        assert sorted(told) == sorted(expected)
        if url == fifo:
            for group in "g", "h":
                ordered = [m for m in found if m["Attributes"]["MessageGroupId"] == group]
                numbers = [int(each["Attributes"]["SequenceNumber"]) for each in ordered]
                assert numbers == sorted(set(numbers))
                ids = [each["MessageId"] for each in ordered]
                assert ids == [id_ for id_, _ in expected if id_ in ids]
        for each in found:
            assert abs(int(each["Attributes"]["SentTimestamp"]) / 1000 - sent[each["MessageId"]]["at"]) < 0.5
