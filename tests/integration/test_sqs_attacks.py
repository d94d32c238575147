"""SQS where clients do what they should not, or at a bad moment: at both workers of a server."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import Server, wait_until
from tests.support.sqs_clients import Queues, bodies, figures, queues_of, receive, refused, sqs_client


@pytest.fixture(scope="module")
def sqs(server: Server) -> Any:
    return sqs_client(server.port)


@pytest.fixture
def make(sqs: Any) -> Iterator[Queues]:
    with queues_of(sqs) as queues:
        yield queues


def entries(*names: str, group: str = "g") -> list[dict[str, str]]:
    """A batch with these deduplication ids."""
    return [
        {"Id": str(place), "MessageBody": f"{place}", "MessageGroupId": group, "MessageDeduplicationId": name}
        for place, name in enumerate(names)
    ]


@checks("G-SQS-4", level=Level.LIVE)
def test_duplicates_within_a_batch_are_stored_once(sqs: Any, make: Queues) -> None:
    url = make.fifo()
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries(*"aabacbaaca"))
    assert "Failed" not in answer
    answer["Successful"].sort(key=lambda each: int(each["Id"]))
    told: dict[str, set[tuple[str, str]]] = {}
    for name, each in zip("aabacbaaca", answer["Successful"], strict=True):
        told.setdefault(name, set()).add((each["MessageId"], each["SequenceNumber"]))
    assert [len(each) for each in told.values()] == [1, 1, 1]
    assert bodies(receive(sqs, url)) == ["0", "2", "4"], "the first of each, in their order"


@checks("G-SQS-5", level=Level.LIVE)
def test_an_attempt_is_another_one_once_its_messages_are_visible_again(sqs: Any, make: Queues) -> None:
    url = make.fifo(VisibilityTimeout="1")
    sqs.send_message_batch(QueueUrl=url, Entries=entries(*"abc"))
    asked = {"ReceiveRequestAttemptId": "once", "AttributeNames": ["ApproximateReceiveCount"]}
    [first] = receive(sqs, url, 1, **asked)
    wait_until(lambda: figures(sqs, url) == (3, 0, 0), "the end of the timeout")
    again = receive(sqs, url, 2, **asked)
    assert bodies(again) == ["0", "1"]
    assert [each["Attributes"]["ApproximateReceiveCount"] for each in again] == ["2", "1"]
    late = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    assert refused(sqs.delete_message, **late)[1] == 400
    # Its messages were changed: there is nothing to repeat.
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=again[0]["ReceiptHandle"], VisibilityTimeout=600)
    assert receive(sqs, url, **asked) == []


@checks("G-SQS-5", level=Level.LIVE)
def test_an_attempt_is_repeated_beside_receives_that_wait(server: Server, sqs: Any, make: Queues) -> None:
    url = make.fifo()
    sqs.send_message_batch(QueueUrl=url, Entries=entries(*"abc"))
    first = bodies(receive(sqs, url, ReceiveRequestAttemptId="once"))
    assert first == ["0", "1", "2"]
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(receive, sqs_client(server.port), url, WaitTimeSeconds=2) for _ in range(8)]
        while not all(each.done() for each in waiting):
            assert bodies(receive(sqs, url, ReceiveRequestAttemptId="once", WaitTimeSeconds=1)) == first
    assert [each.result() for each in waiting] == [[]] * 8


@checks("G-SQS-1", "G-SQS-11", level=Level.LIVE)
@pytest.mark.parametrize("fifo", [False, True])
def test_a_purge_beside_receives_and_sends_leaves_what_was_sent_later(
    server: Server, sqs: Any, make: Queues, fifo: bool
) -> None:
    url = make.fifo() if fifo else make()
    stop, seen, lock = threading.Event(), list[tuple[float, str]](), threading.Lock()

    def send(producer: int) -> None:
        own, number = sqs_client(server.port), 0
        while not stop.is_set():
            ids = {"MessageGroupId": f"{producer}", "MessageDeduplicationId": f"{producer}-{number}"} if fifo else {}
            own.send_message(QueueUrl=url, MessageBody=json.dumps([time.monotonic(), producer, number]), **ids)
            number += 1

    def consume() -> None:
        own = sqs_client(server.port)
        while not stop.is_set():
            began = time.monotonic()
            found = receive(own, url, WaitTimeSeconds=1)
            with lock:
                seen.extend((began, each["Body"]) for each in found)
            for each in found:
                own.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])

    with ThreadPoolExecutor(6) as threads:
        running = [*(threads.submit(send, each) for each in range(3)), *(threads.submit(consume) for _ in range(3))]
        try:
            wait_until(lambda: len(seen) > 50, "messages")
            purging = time.monotonic()
            sqs.purge_queue(QueueUrl=url)
            purged, before = time.monotonic(), len(seen)
            wait_until(lambda: len(seen) > before + 50, "messages after the purge")
        finally:
            stop.set()
        for each in running:
            each.result()
    # A receive that began after the answer gets nothing that was sent before the request.
    assert [body for began, body in seen if began > purged and json.loads(body)[0] < purging - 1] == []
    while found := receive(sqs, url, WaitTimeSeconds=1):
        for each in found:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    wait_until(lambda: figures(sqs, url) == (0, 0, 0), "figures that are exact")


@checks("G-SQS-1", "G-SQS-12", level=Level.LIVE)
def test_a_queue_that_is_made_again_at_once_is_another_one_for_every_worker(server: Server, make: Queues) -> None:
    workers = [sqs_client(server.port) for _ in range(6)]  # connections of both
    name = f"again-{uuid4().hex[:8]}.fifo"
    for turn in range(4):
        url = make(name, FifoQueue="true", VisibilityTimeout=f"{60 + turn}")
        for number, sqs in enumerate(workers):
            # An id that its predecessor knew, too.
            ids = {"MessageGroupId": f"{number}", "MessageDeduplicationId": f"{number}"}
            sqs.send_message(QueueUrl=url, MessageBody=f"{turn}", **ids)
        taken = [message for sqs in workers for message in receive(sqs, url, 1)]
        assert bodies(taken) == [f"{turn}"] * len(workers)
        for sqs in workers:
            found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
            assert found["VisibilityTimeout"] == f"{60 + turn}"
        workers[0].delete_queue(QueueUrl=url)
    make(name, FifoQueue="true")
    for sqs in workers:
        handle = {"QueueUrl": url, "ReceiptHandle": taken[0]["ReceiptHandle"]}
        assert refused(sqs.delete_message, **handle) == ("ReceiptHandleIsInvalid", 400)


@pytest.mark.parametrize(("most", "fifo"), [(120_000, False), (20_000, True)])
async def test_no_more_are_in_flight_than_sqs_allows(
    sqs: Any, make: Queues, database: "asyncpg.Connection[Any]", most: int, fifo: bool
) -> None:
    url = make.fifo() if fifo else make()
    for number in range(12):
        ids = {"MessageGroupId": f"{number}", "MessageDeduplicationId": f"{number}"} if fifo else {}
        sqs.send_message(QueueUrl=url, MessageBody="x", **ids)
    # As if others were in flight: what counts is their number.
    add = (
        "UPDATE simple_mq.counts AS c SET in_flight = c.in_flight + $2, messages = c.messages + $2"
        " FROM simple_mq.sqs_queues AS q WHERE q.queue_name = $1 AND c.queue_id = q.store_id AND c.shard = 8"
    )
    name = url.rpartition("/")[2]
    assert await database.execute(add, name, most - 5) == "UPDATE 1"
    assert len(receive(sqs, url)) == 5
    if fifo:
        assert receive(sqs, url) == []
    else:
        assert refused(sqs.receive_message, QueueUrl=url) == ("OverLimit", 403)
    await database.execute(add, name, -3)
    assert len(receive(sqs, url)) == 3
