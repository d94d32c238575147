"""A load on one queue of SQS whose every call is in a journal (docs/journal.md#sqs).

Some messages are abandoned, some until they are dead letters, some are sent twice, some receives are repeated.
"""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.sqs_client import RefusedError, SqsConnection
from spark_validation.journal.hashes import hash_of
from spark_validation.journal.schema import AckItem, Call, Delivery, Outcome, PushItem, to_line

VISIBILITY_S = 3
RECEIVES = 2
_PRODUCERS, _CONSUMERS, _GROUPS = 4, 8, 4
_ABANDONED, _REPEATED = 0.05, 0.1
#: Every so many messages one is abandoned until it is a dead letter.
_POISON = 97
#: Longer than the last abandoned messages are hidden; then no more come.
_IDLE_S = 2.0 * VISIBILITY_S
_FIGURES = [f"ApproximateNumberOfMessages{name}" for name in ("", "NotVisible", "Delayed")]
_SECOND = 1_000_000


class Journal:
    """The file of one agent: a line of JSON per call, written when the call has ended."""

    def __init__(self, path: Path, run: str, agent: str) -> None:
        self._file, self._run, self._agent = path.open("wb"), run, agent
        self._lock, self._number, self._last = threading.Lock(), 0, 0
        # The wall clock may be set; it is asked once.
        self._ahead = time.time() - time.monotonic()

    def now(self) -> int:
        """Microseconds since 1970."""
        return int((time.monotonic() + self._ahead) * _SECOND)

    def note(self, kind: str, sent: int, **fields: Any) -> None:  # noqa: ANN401 - the fields of a row
        """Appends a row."""
        with self._lock:
            row: dict[str, Any] = {
                "run": self._run,
                "agent": self._agent,
                "number": self._number,
                "kind": kind,
                "sent": sent,
            }
            call = Call(**row | fields)
            self._number, self._last = self._number + 1, max(self._last, call.answered or sent)
            self._file.write(to_line(call))

    def close(self) -> None:
        """Ends the journal: the agent was not killed."""
        self.note("end", self._last)
        self._file.close()


class Load:
    """A load on a new queue of a server, for a time; ``journal`` gets every call."""

    def __init__(self, url: str, journal: Journal, *, fifo: bool) -> None:
        self._url, self._fifo, self._journal = url, fifo, journal
        self._name = f"bench-{uuid4().hex[:12]}"
        self._done = threading.Event()

    def run(self, seconds: float) -> None:
        """Sends, receives and deletes until the queue is empty."""
        with SqsConnection(self._url) as sqs:
            dead = self._create(sqs, f"{self._name}-dead", {})
            arn = sqs.call("GetQueueAttributes", QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES})
            queue = self._create(sqs, self._name, {"RedrivePolicy": policy})
            with ThreadPoolExecutor(_PRODUCERS + _CONSUMERS) as threads:
                until = time.monotonic() + seconds
                producers = [threads.submit(self._produce, queue, number, until) for number in range(_PRODUCERS)]
                consumers = [threads.submit(self._consume, queue, number) for number in range(_CONSUMERS)]
                try:
                    for each in producers:
                        each.result()
                finally:
                    self._done.set()
                for each in consumers:
                    each.result()
            self._consume(dead, _CONSUMERS)
            for url in queue, dead:
                now = self._journal.now()
                found = sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=_FIGURES)["Attributes"]
                left = sum(int(found[figure]) for figure in _FIGURES)
                self._journal.note("left", now, answered=self._journal.now(), queue=_name(url), batch=left)
                sqs.call("DeleteQueue", QueueUrl=url)

    def _create(self, sqs: SqsConnection, name: str, more: dict[str, str]) -> str:
        attributes = {"VisibilityTimeout": str(VISIBILITY_S), **more} | ({"FifoQueue": "true"} if self._fifo else {})
        url: str = sqs.call("CreateQueue", QueueName=f"{name}{'.fifo' * self._fifo}", Attributes=attributes)["QueueUrl"]
        limit: dict[str, Any] = {}
        if more:
            limit = {"retry_limit": RECEIVES, "group": f"{self._name}-dead{'.fifo' * self._fifo}"}
        self._journal.note(
            "configured", self._journal.now(), queue=_name(url), lease_seconds=float(VISIBILITY_S), **limit
        )
        return url

    def _asked(
        self, call: Callable[[], dict[str, Any]], row: Callable[[Outcome, dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Makes a call and notes it; None if it was refused. Without an answer the load ends."""
        sent = self._journal.now()
        outcome: Outcome = "unknown"
        answer: dict[str, Any] = {}
        answered = None
        try:
            answer, outcome = call(), "ok"
        except RefusedError:
            outcome = "fail"
            return None
        finally:
            if outcome != "unknown":
                answered = self._journal.now()
            self._journal.note(sent=sent, answered=answered, outcome=outcome, **row(outcome, answer))
        return answer

    def _produce(self, queue: str, producer: int, until: float) -> None:
        chance = random.Random(producer)
        with SqsConnection(self._url) as sqs:
            for number in itertools.count(producer, _PRODUCERS):
                if time.monotonic() > until:
                    return
                group = f"{producer}-{chance.randrange(_GROUPS)}" if self._fifo else None
                for _ in range(2 if self._fifo and chance.random() < _REPEATED else 1):
                    self._send(sqs, queue, number, group)

    def _send(self, sqs: SqsConnection, queue: str, number: int, group: str | None) -> None:
        ids = {} if group is None else {"MessageGroupId": group, "MessageDeduplicationId": str(number)}
        name, body = _name(queue), str(number)

        def row(outcome: Outcome, answer: dict[str, Any]) -> dict[str, Any]:
            spooled = group is not None and outcome == "ok" and "SequenceNumber" not in answer
            item = PushItem(
                name, group or "", ids.get("MessageDeduplicationId"), outcome, spooled=spooled,
                message_id=answer.get("MessageId"), payload_hash=hash_of(body.encode()),
            )  # fmt: skip
            return {"kind": "send", "client": f"producer {number % _PRODUCERS}", "pushes": (item,)}

        self._asked(lambda: sqs.call("SendMessage", QueueUrl=queue, MessageBody=body, **ids), row)

    def _consume(self, queue: str, consumer: int) -> None:
        chance, idle = random.Random(consumer), time.monotonic()
        letters = consumer == _CONSUMERS
        with SqsConnection(self._url) as sqs:
            while not (self._done.is_set() and time.monotonic() > idle + _IDLE_S):
                attempt = uuid4().hex if self._fifo else None
                messages = self._receive(sqs, queue, consumer, attempt)
                if attempt and messages and chance.random() < _REPEATED:
                    messages = self._receive(sqs, queue, consumer, attempt)
                if not messages:
                    continue
                idle = time.monotonic()
                for each in messages:
                    poison = int(each["Body"]) % _POISON == 1
                    if letters or (not poison and chance.random() >= _ABANDONED):
                        self._delete(sqs, queue, consumer, each)

    def _receive(self, sqs: SqsConnection, queue: str, consumer: int, attempt: str | None) -> list[dict[str, Any]]:
        more = {"ReceiveRequestAttemptId": attempt} if attempt else {}
        name = _name(queue)

        def row(_outcome: Outcome, answer: dict[str, Any]) -> dict[str, Any]:
            got = tuple(_delivery(name, each) for each in answer.get("Messages", []))
            return {
                "kind": "receive", "client": f"consumer {consumer}", "queue": name, "batch": 10, "lease": attempt,
                "deliveries": got,
            }  # fmt: skip

        asked = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 1, "AttributeNames": ["All"], **more}
        answer = self._asked(lambda: sqs.call("ReceiveMessage", QueueUrl=queue, **asked), row)
        found: list[dict[str, Any]] = (answer or {}).get("Messages", [])
        return found

    def _delete(self, sqs: SqsConnection, queue: str, consumer: int, message: dict[str, Any]) -> None:
        attributes, handle = message["Attributes"], message["ReceiptHandle"]

        def row(outcome: Outcome, _answer: dict[str, Any]) -> dict[str, Any]:
            item = AckItem(
                _name(queue), attributes.get("MessageGroupId", ""), message["MessageId"],
                lease=attributes["ApproximateReceiveCount"], outcome=outcome, message_id=message["MessageId"],
            )  # fmt: skip
            return {"kind": "delete", "client": f"consumer {consumer}", "acks": (item,)}

        self._asked(lambda: sqs.call("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle), row)


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _delivery(queue: str, message: dict[str, Any]) -> Delivery:
    attributes = message["Attributes"]
    return Delivery(
        queue, attributes.get("MessageGroupId", ""),
        attributes.get("MessageDeduplicationId") or message["MessageId"],
        attempt=int(attributes["ApproximateReceiveCount"]), created_at=int(attributes["SentTimestamp"]) * 1000,
        message_id=message["MessageId"], payload_hash=hash_of(message["Body"].encode()),
    )  # fmt: skip


def record(url: str, seconds: float, folder: Path, side: str) -> None:
    """Loads a standard and a FIFO queue of a server, one after the other; their journals are in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    for fifo in (False, True):
        agent = f"{side} {'fifo' if fifo else 'standard'} {run}"
        journal = Journal(folder / f"{'fifo' if fifo else 'standard'}-{run}.jsonl", run, agent)
        Load(url, journal, fifo=fifo).run(seconds)
        journal.close()
