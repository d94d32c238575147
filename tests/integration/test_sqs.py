"""SQS as boto3 and clients of the query protocol know it: both protocols, all actions, errors as AWS has them."""

import hashlib
import json
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import Server, wait_until
from tests.support.scraping import samples_of
from tests.support.sqs_clients import Queues, ask, bodies, endpoint, figures, queues_of, receive, refused, sqs_client

ATTRIBUTES = {
    "kind": {"DataType": "String", "StringValue": "tea & milk"},
    "price": {"DataType": "Number.cents", "StringValue": "250"},
    "picture": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}


@pytest.fixture(scope="module")
def sqs(server: Server) -> Any:
    return sqs_client(server.port)


@pytest.fixture
def make(sqs: Any) -> Iterator[Queues]:
    with queues_of(sqs) as queues:
        yield queues


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client


# ---------------------------------------------------------------- messages


def test_a_message_arrives_as_it_was_sent_and_is_gone_when_deleted(sqs: Any, make: Queues) -> None:
    url = make()
    assert url == f"{endpoint(int(url.split(':')[2].split('/')[0]))}/000000000000/{url.rpartition('/')[2]}"
    body = "a <b> &\r\n\t ü 😀"
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=ATTRIBUTES, MessageSystemAttributes=TRACE)
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    assert {"MD5OfMessageAttributes", "MD5OfMessageSystemAttributes"} <= sent.keys()
    assert "SequenceNumber" not in sent
    [message] = receive(sqs, url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])
    assert (message["Body"], message["MessageId"]) == (body, sent["MessageId"])
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    facts = message["Attributes"]
    assert (facts["ApproximateReceiveCount"], facts["AWSTraceHeader"]) == ("1", TRACE["AWSTraceHeader"]["StringValue"])
    assert abs(int(facts["SentTimestamp"]) / 1000 - time.time()) < 60
    assert int(facts["ApproximateFirstReceiveTimestamp"]) >= int(facts["SentTimestamp"])
    assert figures(sqs, url) == (0, 1, 0)
    for _ in range(2):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert figures(sqs, url) == (0, 0, 0)


def test_a_consumer_gets_the_attributes_that_it_asks_for(sqs: Any, make: Queues) -> None:
    url = make(VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ATTRIBUTES)
    for names, expected in ([], []), (["p.*"], []), (["pri.*", "kind"], ["kind", "price"]), ([".*"], list(ATTRIBUTES)):
        [message] = receive(sqs, url, MessageAttributeNames=names)
        assert sorted(message.get("MessageAttributes", {})) == sorted(
            name for name in expected if name in ATTRIBUTES
        ) or names == ["p.*"]
        assert ("MD5OfMessageAttributes" in message) == ("MessageAttributes" in message)
        assert "Attributes" not in message
    [message] = receive(sqs, url, AttributeNames=["SenderId", "SequenceNumber"])
    assert list(message["Attributes"]) == ["SenderId"]
    assert refused(sqs.receive_message, QueueUrl=url, AttributeNames=["Foo"]) == ("InvalidAttributeName", 400)


@checks("G-SQS-1", level=Level.LIVE)
@checks("G-SQS-2", level=Level.LIVE)
@checks("G-SQS-6", level=Level.LIVE)
def test_a_message_is_hidden_for_its_visibility_timeout(sqs: Any, make: Queues) -> None:
    url = make(VisibilityTimeout="600")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    [first] = receive(sqs, url)
    assert receive(sqs, url) == []
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    [second] = receive(sqs, url, AttributeNames=["ApproximateReceiveCount"], VisibilityTimeout=0)
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    # The earlier handle deletes nothing, and is no error.
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    [third] = receive(sqs, url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"])
    change = {"QueueUrl": url, "ReceiptHandle": third["ReceiptHandle"]}
    assert refused(sqs.change_message_visibility, VisibilityTimeout=5, **change) == ("InvalidParameterValue", 400)
    assert refused(sqs.change_message_visibility, VisibilityTimeout=43201, **change) == ("InvalidParameterValue", 400)


@checks("G-SQS-12", level=Level.LIVE)
def test_handles_are_of_their_queue(sqs: Any, make: Queues) -> None:
    one, other = make(), make()
    sqs.send_message(QueueUrl=one, MessageBody="x")
    [message] = receive(sqs, one)
    handle = message["ReceiptHandle"]
    for url, bad in ((other, handle), (one, handle[:-1] + ("A" if handle[-1] != "A" else "B")), (one, "x")):
        assert refused(sqs.delete_message, QueueUrl=url, ReceiptHandle=bad) == ("ReceiptHandleIsInvalid", 400)
    assert figures(sqs, one) == (0, 1, 0)


@checks("G-SQS-8", level=Level.LIVE)
@checks("G-SQS-11", level=Level.LIVE)
def test_a_delay_hides_messages(sqs: Any, make: Queues) -> None:
    url = make(DelaySeconds="900")
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    assert figures(sqs, url) == (1, 0, 1)
    assert bodies(receive(sqs, url)) == ["now"]
    sqs.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    assert bodies(receive(sqs, url, WaitTimeSeconds=10)) == ["soon"]


def test_a_long_poll_ends_with_the_message(sqs: Any, make: Queues, server: Server) -> None:
    url = make(ReceiveMessageWaitTimeSeconds="20")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(receive, sqs_client(server.port), url)
        began = time.monotonic()
        sqs.send_message(QueueUrl=url, MessageBody="x")
        assert bodies(waiting.result()) == ["x"]
    assert time.monotonic() - began < 10
    assert receive(sqs, url, WaitTimeSeconds=0) == []
    assert receive(sqs, url, WaitTimeSeconds=1) == []


def test_a_long_poll_of_a_client_that_is_gone_takes_nothing(sqs: Any, make: Queues, http: httpx.Client) -> None:
    url = make()
    headers = {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": "application/x-amz-json-1.0"}
    for _ in range(3):
        with pytest.raises(httpx.ReadTimeout):
            http.post("/sqs", json={"QueueUrl": url, "WaitTimeSeconds": 20}, headers=headers, timeout=0.3)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(sqs, url, WaitTimeSeconds=5)) == ["x"]


# ---------------------------------------------------------------- batches


def test_the_entries_of_a_batch_fail_each_on_its_own(sqs: Any, make: Queues) -> None:
    url = make(MaximumMessageSize="1024")
    entries: list[dict[str, Any]] = [
        {"Id": "good", "MessageBody": "x", "MessageAttributes": ATTRIBUTES},
        {"Id": "control", "MessageBody": "\x01"},
        {"Id": "large", "MessageBody": "x" * 1025},
        {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "empty", "MessageBody": ""},
    ]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in sent["Successful"]] == ["good"]
    assert {each["Id"]: (each["Code"], each["SenderFault"]) for each in sent["Failed"]} == {
        "control": ("InvalidMessageContents", True), "large": ("InvalidParameterValue", True),
        "late": ("InvalidParameterValue", True), "empty": ("MissingParameter", True),
    }  # fmt: skip
    [message] = receive(sqs, url)
    handle = message["ReceiptHandle"]
    changes = [
        {"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 60},
        {"Id": "b", "ReceiptHandle": "x", "VisibilityTimeout": 60},
        {"Id": "c", "ReceiptHandle": handle, "VisibilityTimeout": -1},
    ]
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=changes)
    assert [each["Id"] for each in changed["Successful"]] == ["a"]
    assert [each["Code"] for each in changed["Failed"]] == ["ReceiptHandleIsInvalid", "InvalidParameterValue"]
    entries = [{"Id": "a", "ReceiptHandle": handle}, {"Id": "b", "ReceiptHandle": "x"}]
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in deleted["Successful"]] == ["a"]
    assert [each["Code"] for each in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert figures(sqs, url) == (0, 0, 0)


def test_batches_that_are_refused(sqs: Any, make: Queues) -> None:
    url = make()

    def code(*entries: dict[str, Any]) -> str:
        return refused(sqs.send_message_batch, QueueUrl=url, Entries=list(entries))[0].rpartition(".")[2]

    assert code() == "EmptyBatchRequest"
    assert code(*[{"Id": str(n), "MessageBody": "x"} for n in range(11)]) == "TooManyEntriesInBatchRequest"
    assert code(*[{"Id": "1", "MessageBody": "x"}] * 2) == "BatchEntryIdsNotDistinct"
    assert code({"Id": "a:b", "MessageBody": "x"}) == "InvalidBatchEntryId"
    assert code({"Id": "", "MessageBody": "x"}) == "InvalidBatchEntryId"
    assert code(*[{"Id": str(n), "MessageBody": "x" * (1 << 19)} for n in range(3)]) == "BatchRequestTooLong"
    assert figures(sqs, url) == (0, 0, 0)
    sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x" * (1 << 19)} for n in range(2)])
    assert figures(sqs, url) == (2, 0, 0)


# ---------------------------------------------------------------- FIFO


@checks("G-SQS-3", level=Level.LIVE)
def test_groups_stay_in_order_under_eight_consumers(sqs: Any, make: Queues, server: Server) -> None:
    url = make.fifo(VisibilityTimeout="60")
    numbers = range(20)
    for group in "abcdef":
        for begin in (0, 10):
            entries = [
                {"Id": str(n), "MessageBody": str(n), "MessageGroupId": group, "MessageDeduplicationId": f"{group}{n}"}
                for n in numbers[begin : begin + 10]
            ]
            assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    got: dict[str, list[int]] = defaultdict(list)

    def consume(_number: int) -> None:
        own = sqs_client(server.port)
        while messages := receive(own, url, 3, AttributeNames=["All"], WaitTimeSeconds=1):
            for message in messages:
                got[message["Attributes"]["MessageGroupId"]].append(int(message["Body"]))
                own.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(consume, range(8)))
    assert got == {group: list(numbers) for group in "abcdef"}


@checks("G-SQS-4", level=Level.LIVE)
def test_duplicates_are_stored_once(sqs: Any, make: Queues) -> None:
    url, by_content = make.fifo(), make.fifo(ContentBasedDeduplication="true")

    def send(queue: str, body: str, **more: str) -> dict[str, Any]:
        found: dict[str, Any] = sqs.send_message(QueueUrl=queue, MessageBody=body, MessageGroupId="g", **more)
        return found

    first, again = send(url, "x", MessageDeduplicationId="1"), send(url, "y", MessageDeduplicationId="1")
    assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
    assert send(url, "x", MessageDeduplicationId="2")["SequenceNumber"] > first["SequenceNumber"]
    assert [send(by_content, body)["MessageId"] for body in "aba"][::2] == [send(by_content, "a")["MessageId"]] * 2
    assert figures(sqs, url)[0] == figures(sqs, by_content)[0] == 2
    [message] = receive(sqs, by_content, 1, AttributeNames=["All"])
    assert message["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"a").hexdigest()


@checks("G-SQS-5", level=Level.LIVE)
def test_a_receive_with_the_same_attempt_id_returns_the_same_messages(sqs: Any, make: Queues) -> None:
    url = make.fifo(ContentBasedDeduplication="true")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    first, again = (receive(sqs, url, ReceiveRequestAttemptId="attempt") for _ in range(2))
    assert bodies(first) == bodies(again) == ["x"]
    assert receive(sqs, url) == []
    assert refused(sqs.receive_message, QueueUrl=make(), ReceiveRequestAttemptId="a") == ("InvalidParameterValue", 400)


def test_what_a_fifo_queue_and_a_standard_queue_refuse(sqs: Any, make: Queues) -> None:
    fifo, standard = make.fifo(), make()
    message = {"QueueUrl": fifo, "MessageBody": "x"}
    assert refused(sqs.send_message, **message) == ("MissingParameter", 400)
    assert refused(sqs.send_message, MessageGroupId="g", **message) == ("InvalidParameterValue", 400)
    good = {**message, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    assert refused(sqs.send_message, **{**good, "DelaySeconds": 1}) == ("InvalidParameterValue", 400)
    assert refused(sqs.send_message, **{**good, "MessageGroupId": "a b"}) == ("InvalidParameterValue", 400)
    entry = {"Id": "1", "MessageBody": "x", "MessageDeduplicationId": "1"}
    assert refused(sqs.send_message_batch, QueueUrl=fifo, Entries=[entry]) == ("InvalidParameterValue", 400)
    assert refused(sqs.send_message, **{**good, "QueueUrl": standard}) == ("InvalidParameterValue", 400)
    sqs.send_message(QueueUrl=standard, MessageBody="fair", MessageGroupId="tenant")
    [fair] = receive(sqs, standard, AttributeNames=["MessageGroupId"])
    assert fair["Attributes"] == {"MessageGroupId": "tenant"}
    sqs.send_message(**{**good, "DelaySeconds": 0})
    [first] = receive(sqs, fifo, VisibilityTimeout=1)
    [second] = receive(sqs, fifo, WaitTimeSeconds=5)
    late = {"QueueUrl": fifo, "ReceiptHandle": first["ReceiptHandle"]}
    assert refused(sqs.delete_message, **late) == ("InvalidParameterValue", 400)
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=second["ReceiptHandle"])


# ---------------------------------------------------------------- dead letters


@pytest.fixture
def dead_lettering(make: Queues) -> tuple[str, str]:
    """A queue with its dead-letter queue."""
    dead = make()
    policy = json.dumps({"deadLetterTargetArn": make.arn(dead), "maxReceiveCount": 1})
    return make(RedrivePolicy=policy, VisibilityTimeout="0"), dead


@checks("G-SQS-7", level=Level.LIVE)
@checks("G-SQS-10", level=Level.LIVE)
def test_a_message_that_is_received_too_often_moves_and_can_be_moved_back(
    sqs: Any, make: Queues, dead_lettering: tuple[str, str]
) -> None:
    url, dead = dead_lettering
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=ATTRIBUTES)
    assert bodies(receive(sqs, url)) == ["x"]
    assert receive(sqs, url) == []
    [message] = receive(
        sqs, dead, WaitTimeSeconds=5, VisibilityTimeout=0, AttributeNames=["All"], MessageAttributeNames=["All"]
    )
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == make.arn(url)
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    assert sqs.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == []
    task = sqs.start_message_move_task(SourceArn=make.arn(dead))
    assert task["TaskHandle"]

    def moved() -> bool:
        [found] = sqs.list_message_move_tasks(SourceArn=make.arn(dead))["Results"]
        assert (found["SourceArn"], found["Status"]) in {
            (make.arn(dead), "RUNNING"), (make.arn(dead), "COMPLETED")
        }  # fmt: skip
        return bool(found["ApproximateNumberOfMessagesMoved"] == 1 and found["Status"] == "COMPLETED")

    wait_until(moved, "the move")
    assert bodies(receive(sqs, url, WaitTimeSeconds=5)) == ["x"]


def test_a_move_can_be_slow_and_is_cancelled(sqs: Any, make: Queues, dead_lettering: tuple[str, str]) -> None:
    url, dead = dead_lettering
    sqs.send_message_batch(QueueUrl=dead, Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(10)])
    source, other = make.arn(dead), make.arn(make())
    task = sqs.start_message_move_task(SourceArn=source, DestinationArn=other, MaxNumberOfMessagesPerSecond=1)
    assert refused(sqs.start_message_move_task, SourceArn=source) == ("InvalidParameterValue", 400)
    [found] = sqs.list_message_move_tasks(SourceArn=source)["Results"]
    assert (found["Status"], found["DestinationArn"], found["MaxNumberOfMessagesPerSecond"]) == ("RUNNING", other, 1)
    assert sqs.cancel_message_move_task(TaskHandle=task["TaskHandle"])["ApproximateNumberOfMessagesMoved"] < 10
    assert sqs.list_message_move_tasks(SourceArn=source)["Results"][0]["Status"] == "CANCELLED"
    unknown = b64encode(json.dumps({"taskId": str(uuid4()), "sourceArn": source}).encode()).decode()
    assert refused(sqs.cancel_message_move_task, TaskHandle=unknown) == ("ResourceNotFoundException", 404)
    assert refused(sqs.cancel_message_move_task, TaskHandle="x") == ("InvalidParameterValue", 400)
    assert refused(sqs.start_message_move_task, SourceArn=make.arn(url)) == ("InvalidParameterValue", 400)
    assert refused(sqs.start_message_move_task, SourceArn=f"{source}x") == ("ResourceNotFoundException", 404)
    nested = b64encode(b'{"a":' + b"[" * 100_000).decode()
    assert refused(sqs.cancel_message_move_task, TaskHandle=nested) == ("InvalidParameterValue", 400)
    assert sqs.list_message_move_tasks(SourceArn=make.arn(url)).get("Results", []) == []


def test_redrive_policies_are_checked(sqs: Any, make: Queues) -> None:
    closed = make(RedriveAllowPolicy=json.dumps({"redrivePermission": "denyAll"}))
    url, fifo = make(), make.fifo()
    for target in (make.arn(closed), make.arn(fifo), f"{make.arn(url)}-unknown"):
        policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": "3"})
        change = {"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}}
        assert refused(sqs.set_queue_attributes, **change) == ("InvalidParameterValue", 400)
    policy = json.dumps({"deadLetterTargetArn": make.arn(make()), "maxReceiveCount": "3"})
    for value in (policy, ""):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": value})
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
        shown = found.get("Attributes", {}).get("RedrivePolicy", "")
        assert json.loads(shown or "{}") == ({**json.loads(value), "maxReceiveCount": 3} if value else {})


def test_metrics_are_those_of_cloudwatch(sqs: Any, make: Queues, http: httpx.Client) -> None:
    url, empty = make(), make()
    for body in "abcd":
        sqs.send_message(QueueUrl=url, MessageBody=body, DelaySeconds=900 if body == "d" else 0)
    [first, _, _] = receive(sqs, url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert receive(sqs, empty) == []

    def metrics(url: str) -> dict[str, float]:
        samples = samples_of(http.get("/metrics/prometheus").text)
        found = {(name.removeprefix("queen_sqs_"), *labels): number for (name, labels), number in samples.items()}
        queue = ("queue", url.rpartition("/")[2])
        return {
            " ".join([name, *[value for key, value in labels if key == "state"]]): number
            for (name, *labels), number in found.items() if queue in labels
        }  # fmt: skip

    wanted = {
        "messages visible": 0, "messages in_flight": 2, "messages delayed": 1, "sent_total": 4, "received_total": 3,
        "deleted_total": 1,
    }  # fmt: skip
    wait_until(lambda: wanted.items() <= metrics(url).items(), "the counters")
    assert 0 < metrics(url)["oldest_message_age_seconds"] < 600
    wait_until(lambda: metrics(empty).get("empty_receives_total") == 1, "the empty receive")
    assert metrics(empty)["oldest_message_age_seconds"] == 0


# ---------------------------------------------------------------- queues


def test_a_queue_is_created_once(sqs: Any, make: Queues) -> None:
    name = f"q-{uuid4().hex}"
    url = make(name, VisibilityTimeout="7")
    assert make(name) == make(name, VisibilityTimeout="7", DelaySeconds="0") == url
    assert make(f"{name}.fifo", FifoQueue="True") == make(f"{name}.fifo", FifoQueue="true")
    create = {"QueueName": name, "Attributes": {"VisibilityTimeout": "8"}}
    assert refused(sqs.create_queue, **create) == ("QueueAlreadyExists", 400)
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=name)
    for gone in (
        sqs.delete_queue, sqs.purge_queue, sqs.receive_message, sqs.get_queue_attributes, sqs.list_queue_tags,
    ):  # fmt: skip
        assert refused(gone, QueueUrl=url) == ("AWS.SimpleQueueService.NonExistentQueue", 400)
    for name in ("a/b", "a.fifo", "x" * 81, "\0"):
        assert refused(sqs.create_queue, QueueName=name) == ("InvalidParameterValue", 400)


def test_attributes_of_a_queue(sqs: Any, make: Queues) -> None:
    url = make(DelaySeconds="5")
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert {name: found[name] for name in found if name.isalpha() and found[name].isdigit()} | {
        "CreatedTimestamp": "", "LastModifiedTimestamp": "",
    } == {
        "DelaySeconds": "5", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0", "VisibilityTimeout": "30", "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0",
        "CreatedTimestamp": "", "LastModifiedTimestamp": "",
    }  # fmt: skip
    assert found["QueueArn"] == f"arn:aws:sqs:eu-central-1:000000000000:{url.rpartition('/')[2]}"
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0", "MaximumMessageSize": "1024"})
    assert refused(sqs.send_message, QueueUrl=url, MessageBody="x" * 1025) == ("InvalidParameterValue", 400)
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1024)
    change = {"QueueUrl": url, "Attributes": {"Foo": "1"}}
    assert refused(sqs.set_queue_attributes, **change) == ("InvalidAttributeName", 400)
    change = {"QueueUrl": url, "Attributes": {"VisibilityTimeout": "43201"}}
    assert refused(sqs.set_queue_attributes, **change) == ("InvalidAttributeValue", 400)
    fifo = sqs.get_queue_attributes(QueueUrl=make.fifo(), AttributeNames=["All"])["Attributes"]
    assert (fifo["FifoQueue"], fifo["ContentBasedDeduplication"], fifo["DeduplicationScope"]) == (
        "true", "false", "queue",
    )  # fmt: skip


def test_lists_come_in_pages(sqs: Any, make: Queues) -> None:
    prefix = f"page-{uuid4().hex[:8]}-"
    urls = [make(f"{prefix}{n}") for n in range(5)]
    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2})
    assert [page["QueueUrls"] for page in pages] == [urls[:2], urls[2:4], urls[4:]]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=f"{prefix}x")
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="\0")
    assert refused(sqs.list_queues, MaxResults=1001) == ("InvalidParameterValue", 400)
    assert refused(sqs.list_queues, MaxResults=1, NextToken="ü") == ("InvalidParameterValue", 400)


def test_tags_and_permissions(sqs: Any, make: Queues) -> None:
    url = make(tags={"a": "1"})
    sqs.tag_queue(QueueUrl=url, Tags={"b": "", "c": "ü"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["a", "x"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"b": "", "c": "ü"}
    assert refused(sqs.tag_queue, QueueUrl=url, Tags={"x" * 129: ""}) == ("InvalidParameterValue", 400)
    assert refused(sqs.tag_queue, QueueUrl=url, Tags={}) == ("MissingParameter", 400)
    assert refused(sqs.untag_queue, QueueUrl=url, TagKeys=["\0"]) == ("InvalidParameterValue", 400)
    grant = {"QueueUrl": url, "Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
    sqs.add_permission(**grant)
    assert refused(sqs.add_permission, **grant) == ("InvalidParameterValue", 400)
    more = {**grant, "Label": "m", "Actions": ["RemovePermission"]}
    assert refused(sqs.add_permission, **more) == ("InvalidParameterValue", 400)
    assert refused(sqs.add_permission, **{**more, "Actions": ["SendMessage"] * 8}) == ("OverLimit", 403)
    policy = json.loads(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"])
    assert [each["Sid"] for each in policy["Statement"]] == ["l"]
    sqs.remove_permission(QueueUrl=url, Label="l")
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    assert refused(sqs.remove_permission, QueueUrl=url, Label="l") == ("InvalidParameterValue", 400)


def test_a_purge_empties_a_queue_once_a_minute(sqs: Any, make: Queues) -> None:
    url = make()
    sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(5)])
    receive(sqs, url, 2)
    sqs.purge_queue(QueueUrl=url)
    assert figures(sqs, url) == (0, 0, 0)
    assert refused(sqs.purge_queue, QueueUrl=url) == ("AWS.SimpleQueueService.PurgeQueueInProgress", 403)
    sqs.send_message(QueueUrl=url, MessageBody="after")
    assert bodies(receive(sqs, url)) == ["after"]


# ---------------------------------------------------------------- the query protocol, and bad requests


def test_the_life_of_a_message_in_the_query_protocol(sqs: Any, http: httpx.Client) -> None:
    name = f"q-{uuid4().hex}"
    created = ask(
        http, "CreateQueue", QueueName=name,
        **{"Attribute.1.Name": "VisibilityTimeout", "Attribute.1.Value": "0", "Tag.1.Key": "k", "Tag.1.Value": "v"},
    )  # fmt: skip
    url = created.findtext("CreateQueueResult/QueueUrl")
    assert url is not None
    path = f"/000000000000/{name}"
    attribute = "MessageAttribute.1"
    sent = ask(
        http, "SendMessage", path, MessageBody="a <&> ü\r",
        **{f"{attribute}.Name": "n", f"{attribute}.Value.DataType": "Binary", f"{attribute}.Value.BinaryValue": "aGk="},
    )  # fmt: skip
    assert sent.findtext("SendMessageResult/MessageId")
    found = ask(
        http, "ReceiveMessage", path, "GET", **{"AttributeName.1": "All", "MessageAttributeName.1": "All"}
    ).find("ReceiveMessageResult/Message")
    assert found is not None
    assert found.findtext("Body") == "a <&> ü\r"
    assert found.findtext("MessageAttribute/Value/BinaryValue") == "aGk="
    assert "ApproximateReceiveCount" in [each.text for each in found.findall("Attribute/Name")]
    handle = found.findtext("ReceiptHandle") or ""
    entry = "DeleteMessageBatchRequestEntry"
    deleted = ask(
        http, "DeleteMessageBatch", QueueUrl=url,
        **{f"{entry}.1.Id": "a", f"{entry}.1.ReceiptHandle": handle},
        **{f"{entry}.2.Id": "b", f"{entry}.2.ReceiptHandle": "x"},
    )  # fmt: skip
    assert deleted.findtext("DeleteMessageBatchResult/DeleteMessageBatchResultEntry/Id") == "a"
    assert deleted.findtext("DeleteMessageBatchResult/BatchResultErrorEntry/Code") == "ReceiptHandleIsInvalid"
    assert ask(http, "ListQueueTags", path).findtext("ListQueueTagsResult/Tag/Key") == "k"
    assert ask(http, "GetQueueUrl", QueueName=name).findtext("GetQueueUrlResult/QueueUrl") == url
    shown = ask(http, "GetQueueAttributes", path, **{"AttributeName.1": "QueueArn"})
    assert (shown.findtext("GetQueueAttributesResult/Attribute/Value") or "").endswith(f":{name}")
    assert ask(http, "DeleteQueue", path).findtext("ResponseMetadata/RequestId")
    assert ask(http, "DeleteQueue", path).findtext("Error/Code") == "AWS.SimpleQueueService.NonExistentQueue"


def test_queries_that_are_refused(http: httpx.Client, make: Queues) -> None:
    path = make().partition("/sqs")[2]
    for action, where in (("FooBar", ""), ("CreateQueue", path), ("ListQueues", path)):
        assert ask(http, action, where, "GET").findtext("Error/Code") == "InvalidAction"
    missing = ask(http, "SendMessage", path, "GET")
    assert missing.findtext("Error/Message") == "The request must contain the parameter MessageBody."
    assert ask(http, "ReceiveMessage", path, MaxNumberOfMessages="x").findtext("Error/Code") == "InvalidParameterValue"
    assert ask(http, "ReceiveMessage", MaxNumberOfMessages="1").findtext("Error/Code") == "MissingParameter"
    # Without access keys nobody looks at a signature.
    http.headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=x"
    assert ask(http, "ListQueues").tag == "ListQueuesResponse"
    nothing = http.get(f"/sqs{path}")
    assert (nothing.status_code, nothing.content) == (404, b"<UnknownOperationException/>")


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [
        ("AmazonSQS.Foo", b"{}", "UnknownOperationException"), ("AmazonSQS.ListQueues", b"{", "SerializationException"),
        ("AmazonSQS.ListQueues", b"[" * 100_000, "SerializationException"),
        ("AmazonSQS.ListQueues", b'{"MaxResults":"x"}', "SerializationException"),
        ("AmazonSQS.CreateQueue", b"", "MissingRequiredParameterException"),
        ("AmazonSQS.CreateQueue", b'{"QueueName":"a","Attributes":{"Policy":"{\\"a\\":\\"\\u0000\\"}"}}',
         "InvalidAttributeValue"),
        ("AmazonSQS.SendMessageBatch", b'{"QueueUrl":"a","Entries":[null]}', "SerializationException"),
        ("AmazonSQS.ReceiveMessage", b'{"QueueUrl":"http://[x"}', "QueueDoesNotExist"),
        ("AmazonSQS.GetQueueUrl", b'{"QueueName":"' + b"x" * (9 << 20) + b'"}', "RequestEntityTooLarge"),
    ],
)  # fmt: skip
def test_bad_requests_in_json(http: httpx.Client, target: str, body: bytes, expected: str) -> None:
    response = http.post("/sqs/", content=body, headers={"X-Amz-Target": target})
    assert response.json()["__type"] == f"com.amazonaws.sqs#{expected}"
    assert response.status_code in {400, 413}
    assert response.headers["x-amzn-query-error"].endswith(";Sender")
    assert response.headers["x-amzn-requestid"]


# ---------------------------------------------------------------- to look at


def look(http: httpx.Client, action: str, **parameters: Any) -> dict[str, Any]:
    """The answer to an action that SQS does not have."""
    answer = http.post("/sqs", headers={"X-Amz-Target": f"Queen.{action}"}, json=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_messages_are_shown_and_not_received(sqs: Any, make: Queues, http: httpx.Client) -> None:
    url, dead = make(VisibilityTimeout="43200"), make()
    sqs.send_message(QueueUrl=url, MessageBody="late", DelaySeconds=900)
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=ATTRIBUTES)
    [taken] = receive(sqs, url, 1)
    for _ in range(2):
        found = look(http, "PeekMessages", QueueUrl=url)["Messages"]
        states = [(each["Body"], each["State"], each["Attributes"]["ApproximateReceiveCount"]) for each in found]
        assert states == [
            ("late", "delayed", "0"), ("a", "in_flight", "1"), ("b", "visible", "0"), ("c", "visible", "0"),
        ]  # fmt: skip
    assert found[1]["MessageId"] == taken["MessageId"]
    assert found[0]["MessageAttributes"] == {}
    assert found[1]["MessageAttributes"]["picture"] == {"DataType": "Binary", "BinaryValue": "AP8="}
    late = int(found[0]["VisibleTimestamp"]) - int(found[0]["Attributes"]["SentTimestamp"])
    assert late == 900_000
    first = look(http, "PeekMessages", QueueUrl=url, MaxResults=3)
    second = look(http, "PeekMessages", QueueUrl=url, MaxResults=3, NextToken=first["NextToken"])
    assert bodies(first["Messages"] + second["Messages"]) == ["late", "a", "b", "c"]
    assert look(http, "PeekMessages", QueueUrl=url, NextToken=second["NextToken"]) == {"Messages": []}
    assert figures(sqs, url) == (2, 1, 1)
    policy = json.dumps({"deadLetterTargetArn": make.arn(dead), "maxReceiveCount": 1})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(receive(sqs, url, 1)) == ["b"]
    [letter] = look(http, "PeekMessages", QueueUrl=dead)["Messages"]
    source = letter["Attributes"]["DeadLetterQueueSourceArn"].rpartition(":")[2]
    assert (letter["Body"], source) == ("a", url.rpartition("/")[2])


def test_messages_of_a_fifo_queue_are_shown_with_their_group(sqs: Any, make: Queues, http: httpx.Client) -> None:
    url = make.fifo()
    for number, group in enumerate("ggh"):
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId=str(number))
    found = look(http, "PeekMessages", QueueUrl=url)["Messages"]
    assert [(each["Attributes"]["MessageGroupId"], each["State"]) for each in found] == [
        ("g", "visible"), ("g", "behind"), ("h", "visible"),
    ]  # fmt: skip


def test_queues_are_shown_with_figures_and_counters(sqs: Any, make: Queues, http: httpx.Client) -> None:
    part = uuid4().hex[:12]
    dead = make(f"b-{part}")
    policy = json.dumps({"deadLetterTargetArn": make.arn(dead), "maxReceiveCount": 1})
    url = make(f"a-{part}", RedrivePolicy=policy)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.send_message(QueueUrl=url, MessageBody="y", DelaySeconds=900)
    receive(sqs, url)
    expected = {
        "QueueName": f"a-{part}", "QueueUrl": url, "DeadLetterQueue": f"b-{part}", "Visible": 0, "InFlight": 1,
        "Delayed": 1, "Sent": 2, "Received": 1, "EmptyReceives": 0, "Deleted": 0, "DeadLettered": 0,
    }  # fmt: skip

    def page(**more: Any) -> dict[str, Any]:
        return look(http, "ListQueues", Search=part, **more)

    # The other worker counts what it does up to 0.2 s later.
    wait_until(lambda: page()["Queues"][0].items() >= expected.items(), "the counters of both workers")
    assert [each["QueueName"] for each in page()["Queues"]] == [f"a-{part}", f"b-{part}"]
    first = page(MaxResults=1)
    assert [each["QueueName"] for each in first["Queues"]] == [f"a-{part}"]
    second = page(MaxResults=1, NextToken=first["NextToken"])
    assert [each["DeadLetterQueue"] for each in second["Queues"]] == [None]
    assert "NextToken" not in second
    assert look(http, "ListQueues", Search="no queue's name") == {"Queues": []}


@pytest.mark.parametrize(
    ("action", "parameters"),
    [
        ("ListQueues", {"MaxResults": 0}), ("ListQueues", {"MaxResults": 101}), ("PeekMessages", {"MaxResults": 0}),
        ("PeekMessages", {"NextToken": "x"}), ("PeekMessages", {"NextToken": ""}), ("ListQueues", {"Search": 1}),
        ("PeekMessages", {"QueueUrl": "unknown"}), ("Nothing", {}),
    ],
)  # fmt: skip
def test_a_bad_look_is_a_clear_error(make: Queues, http: httpx.Client, action: str, parameters: dict[str, Any]) -> None:
    headers = {"X-Amz-Target": f"Queen.{action}"}
    answer = http.post("/sqs", headers=headers, json={"QueueUrl": make(), **parameters})
    assert answer.status_code == 400
    assert answer.json()["message"]
