"""simple-mq and SQS over three databases: a queue lives on one of them, and lists and figures are of all."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from botocore.exceptions import ClientError

from queen.core.placement import slot_of_queue
from spec.guarantees import Level, checks
from tests.support.processes import Server, wait_until
from tests.support.shards import NAMES, new_databases, rows, serving_shards
from tests.support.sqs_clients import bodies, receive, sqs_client


@pytest.fixture(scope="module")
def databases(postgres: str) -> Iterator[dict[str, str]]:
    with new_databases(postgres) as made:
        yield made


@pytest.fixture(scope="module")
def server(databases: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_shards(databases, tmp_path_factory.mktemp("shards")) as server:
        yield server


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client


@checks("G-SHARD-9", level=Level.LIVE)
def test_queues_of_simple_mq_are_spread_and_each_is_found_by_its_id(http: httpx.Client, server: Server) -> None:
    made: dict[str, set[int]] = {}
    for number in range(12):
        body = {"queue_name": f"q{number}", "queue_size": 100, "visibility_timeout": 30, "max_deliveries": 3}
        queue = http.post("/api/queues", json=body).json()["queue_id"]
        made[queue] = {slot_of_queue(UUID(queue))}
        sent = http.post(f"/api/queues/{queue}/messages", json={"data": f"m{number}"}).json()["message_id"]
        assert http.get(f"/api/queues/{queue}").json()["current_message_count"] == 1
        assert [m["data"] for m in http.get(f"/api/queues/{queue}/messages/peek?limit=5").json()["messages"]] == [
            f"m{number}"
        ]
        message = http.get(f"/api/queues/{queue}/messages").json()["message"]
        assert message["message_id"] == sent
        assert http.delete(f"/api/queues/{queue}/messages/{sent}").status_code == 200
        assert http.get(f"/api/queues/{queue}/messages").json()["message"] is None
    assert set.union(*made.values()) == {0, 1, 2}
    counted = http.get("/metrics/prometheus").text
    assert all(queue in counted for queue in made)
    assert "simplemq_queues 12.0" in counted
    listed: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = http.get("/api/v1/simple-mq/queues", params={"limit": "5", **cursor}).json()
        listed += [each["queue_id"] for each in page["queues"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert listed == sorted(made)
    for queue in made:
        assert http.delete(f"/api/queues/{queue}").status_code == 200
        assert http.get(f"/api/queues/{queue}").status_code == 404


@checks("G-SHARD-9", level=Level.LIVE)
@pytest.mark.parametrize("name", NAMES)
def test_a_queue_of_simple_mq_can_be_pinned_and_its_dead_letters_are_beside_it(http: httpx.Client, name: str) -> None:
    body = {"queue_name": f"bills@{name}", "queue_size": 100, "visibility_timeout": 1, "max_deliveries": 1}
    queue = http.post("/api/queues", json=body).json()["queue_id"]
    assert slot_of_queue(UUID(queue)) == NAMES.index(name)
    http.post(f"/api/queues/{queue}/messages", json={"data": "dead"})
    assert http.get(f"/api/queues/{queue}/messages").json()["message"]["data"] == "dead"

    def dead() -> str | None:
        http.get(f"/api/queues/{queue}/messages")
        found: str | None = http.get(f"/api/queues/{queue}").json()["dlq_id"]
        return found

    dlq = wait_until(dead, "a dead letter")
    assert slot_of_queue(UUID(dlq)) == NAMES.index(name)
    assert http.get(f"/api/queues/{dlq}").json()["current_message_count"] == 1
    waiting = http.post(f"/api/queues/{dlq}/requeue").json()
    assert waiting == {"requeued": 1, "requeued_to": queue}
    assert http.get(f"/api/queues/{queue}/messages?wait=20").json()["message"]["data"] == "dead"


@checks("G-SHARD-9", level=Level.LIVE)
def test_queues_of_sqs_are_spread_listed_and_found(server: Server, databases: dict[str, str]) -> None:
    sqs = sqs_client(server.port)
    names = sorted(f"spread-{number}" for number in range(12))
    for name in names:
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
        sqs.send_message(QueueUrl=url, MessageBody=name)
    placed = [rows(url, "SELECT queue_name FROM simple_mq.sqs_queues") for url in databases.values()]
    assert all(placed)
    assert sorted(row["queue_name"] for some in placed for row in some) == names
    found: list[str] = []
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="spread-", PaginationConfig={"PageSize": 5})
    for page in pages:
        found += [url.rpartition("/")[2] for url in page["QueueUrls"]]
    assert found == names
    for name in names:
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        [message] = receive(sqs, url)
        assert message["Body"] == name
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=20)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        sqs.tag_queue(QueueUrl=url, Tags={"team": "tea"})
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "tea"}
        sqs.delete_queue(QueueUrl=url)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="spread-")


def error_of(function: Any, **arguments: Any) -> str:
    """The error of a call; empty if there is none."""
    try:
        function(**arguments)
    except ClientError as problem:
        return str(problem)
    return ""


@checks("G-SHARD-9", level=Level.LIVE)
def test_dead_letter_queues_are_on_the_database_of_their_sources(server: Server) -> None:
    sqs = sqs_client(server.port)

    def arn(url: str) -> str:
        return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])

    def policy(target: str) -> dict[str, str]:
        return {"RedrivePolicy": f'{{"deadLetterTargetArn": "{arn(target)}", "maxReceiveCount": 1}}'}

    for fifo in ("", ".fifo"):
        type_ = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if fifo else {}
        refused = 0
        for number in range(8):
            name = f"order{number}"
            other = sqs.create_queue(QueueName=f"{name}-dlq{fifo}", Attributes=type_)["QueueUrl"]
            dlq = sqs.create_queue(QueueName=f"{name}--dlq{fifo}", Attributes=type_)["QueueUrl"]
            error = error_of(sqs.create_queue, QueueName=f"{name}{fifo}", Attributes={**type_, **policy(other)})
            if error:
                refused += 1
                assert f"such as {name}--dlq{fifo}." in error
                sqs.create_queue(QueueName=f"{name}{fifo}", Attributes={**type_, **policy(dlq)})
        assert 0 < refused < 8
    source = sqs.create_queue(QueueName="moved", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
    dlq = sqs.create_queue(QueueName="moved--dlq")["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=source, Attributes=policy(dlq))
    sqs.send_message(QueueUrl=source, MessageBody="x")
    assert bodies(receive(sqs, source)) == ["x"]
    assert receive(sqs, source) == []
    assert sqs.list_dead_letter_source_queues(QueueUrl=dlq)["queueUrls"] == [source]
    elsewhere = [sqs.create_queue(QueueName=f"else{number}")["QueueUrl"] for number in range(8)]
    refused = 0
    for url in elsewhere:
        if error := error_of(sqs.start_message_move_task, SourceArn=arn(dlq), DestinationArn=arn(url)):
            refused += 1
            assert "on different databases" in error
            continue
        wait_until(
            lambda: sqs.list_message_move_tasks(SourceArn=arn(dlq))["Results"][0]["Status"] != "RUNNING", "a move"
        )
    assert 0 < refused < 8
