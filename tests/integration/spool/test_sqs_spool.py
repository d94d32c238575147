"""Sends of SQS while PostgreSQL is down: two real workers, a real spool, and a PostgreSQL that dies."""

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.outage import WORKERS, FragilePostgres, wait_until_drained
from tests.support.processes import Server, run, wait_until
from tests.support.sqs_clients import Queues, bodies, figures, queues_of, receive, refused, sqs_client

KEY = "11" * 32


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"QUEEN_ENCRYPTION_KEY": KEY}


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


def maintenance(server: Server, *, on: bool) -> None:
    """Sends go to the spool on purpose, or are stored."""
    assert server.request("POST", "/api/v1/system/maintenance", {"enabled": on})[0] == 200
    if not on:
        wait_until_drained(server)


@pytest.mark.nightly
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
        assert '"body":"m' not in shown, "bodies are encrypted in the spool, too"
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


@checks("G-SQS-14", level=Level.FAULTS)
def test_duplicates_delays_and_deleted_queues_are_judged_when_the_spool_is_stored(
    server: Server, folder: Path, sqs: Any, make: Queues
) -> None:
    standard, late, gone = make(), make.fifo(DelaySeconds="3"), make()
    first = sqs.send_message(QueueUrl=late, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="x")
    maintenance(server, on=True)
    for body in "x", "y", "y":
        sqs.send_message(QueueUrl=late, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
    began = time.monotonic()
    for seconds in 60, 2, 0:
        sqs.send_message(QueueUrl=standard, MessageBody=f"after {seconds}", DelaySeconds=seconds)
    sqs.send_message(QueueUrl=gone, MessageBody="nobody's")
    sqs.delete_queue(QueueUrl=gone)
    wait_until(lambda: time.monotonic() > began + 3, "the end of the delays")
    maintenance(server, on=False)
    assert figures(sqs, standard) == (2, 0, 1)
    assert sorted(bodies(receive(sqs, standard))) == ["after 0", "after 2"]
    again = sqs.send_message(QueueUrl=late, MessageBody="y", MessageGroupId="g", MessageDeduplicationId="y")
    found = everything(sqs, late, 2)
    assert [each["MessageId"] for each in found] == [first["MessageId"], again["MessageId"]]
    assert bodies(found) == ["x", "y"]
    [listed] = json.loads(spool_command(folder, "list", "--json"))
    [failed] = [row for row in listed["files"] if row["state"] == "failed"]
    assert (failed["messages"], "The queue was deleted" in failed["reason"]) == (1, True)
    spool_command(folder, "discard", failed["file"], "--yes")


@checks("G-SQS-14", level=Level.FAULTS)
def test_killing_workers_during_the_replay_loses_and_repeats_nothing(
    postgres: FragilePostgres, server: Server, sqs: Any, make: Queues
) -> None:
    url, number, random_ = make.fifo(), 300, random.Random(7)
    groups = [f"g{number}" for number in range(5)]
    sqs.send_message(QueueUrl=url, MessageBody="-1", MessageGroupId="g0", MessageDeduplicationId="-1")
    postgres.kill()
    try:
        for at in range(0, number, 10):
            texts = [(groups[n % 5], str(n)) for n in range(at, at + 10)]
            entries = [
                {"Id": text, "MessageBody": text, "MessageGroupId": group, "MessageDeduplicationId": text}
                for group, text in texts
            ]
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
    finally:
        postgres.start()
    for _ in range(6):
        wait_until(lambda: len(server.workers()) == WORKERS, "workers")
        os.kill(random_.choice(sorted(server.workers())), signal.SIGKILL)
        time.sleep(random_.uniform(0.05, 0.4))  # any moment of the replay
    wait_until_drained(server)
    found = everything(sqs, url, number + 1)
    for place, group in enumerate(groups):
        numbers = [int(each["Body"]) for each in found if each["Attributes"]["MessageGroupId"] == group]
        assert numbers == [*([-1] if place == 0 else []), *range(place, number, 5)]
