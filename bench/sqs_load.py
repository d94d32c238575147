"""A load on one queue of SQS whose every call is in a journal: some messages are abandoned, some are sent twice."""

import itertools
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

from bench.sqs_client import RefusedError, SqsConnection
from bench.sqs_ledger import Deleting, Ledger, Receiving, Sending

T = TypeVar("T")

VISIBILITY_S = 3
_PRODUCERS, _CONSUMERS, _GROUPS = 4, 8, 4
_ABANDONED, _REPEATED = 0.05, 0.1
#: Longer than the last abandoned messages are hidden; then no more come.
_IDLE_S = 2.0 * VISIBILITY_S
_FIGURES = [f"ApproximateNumberOfMessages{name}" for name in ("", "NotVisible", "Delayed")]


class Load:
    """A load on a new queue of a server, for a time."""

    def __init__(self, url: str, *, fifo: bool) -> None:
        self._url, self._fifo = url, fifo
        self.ledger = Ledger(VISIBILITY_S)
        self._done, self._lock = threading.Event(), threading.Lock()

    def run(self, seconds: float) -> Ledger:
        """Sends, receives and deletes until the queue is empty; the journal."""
        name = f"bench-{uuid4().hex[:12]}{'.fifo' * self._fifo}"
        attributes = {"VisibilityTimeout": str(VISIBILITY_S)} | ({"FifoQueue": "true"} if self._fifo else {})
        with SqsConnection(self._url) as sqs:
            queue = sqs.call("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]
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
            found = sqs.call("GetQueueAttributes", QueueUrl=queue, AttributeNames=_FIGURES)["Attributes"]
            self.ledger.left = sum(int(found[figure]) for figure in _FIGURES)
            sqs.call("DeleteQueue", QueueUrl=queue)
        return self.ledger

    def _produce(self, queue: str, producer: int, until: float) -> None:
        chance = random.Random(producer)
        with SqsConnection(self._url) as sqs:
            for number in itertools.count(producer, _PRODUCERS):
                if time.monotonic() > until:
                    return
                group = f"{producer} {chance.randrange(_GROUPS)}" if self._fifo else None
                for _ in range(2 if self._fifo and chance.random() < _REPEATED else 1):
                    self._send(sqs, queue, number, group)

    def _send(self, sqs: SqsConnection, queue: str, number: int, group: str | None) -> None:
        ids: dict[str, Any] = {} if group is None else {
            "MessageGroupId": group.replace(" ", "-"), "MessageDeduplicationId": str(number),
        }  # fmt: skip
        began = time.monotonic()
        answer = sqs.call("SendMessage", QueueUrl=queue, MessageBody=str(number), **ids)
        self._note(self.ledger.sent, Sending(number, answer["MessageId"], group, began, time.monotonic()))

    def _consume(self, queue: str, consumer: int) -> None:
        chance, idle = random.Random(consumer), time.monotonic()
        with SqsConnection(self._url) as sqs:
            while not self._done.is_set() or time.monotonic() < idle + _IDLE_S:
                began = time.monotonic()
                found = sqs.call("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
                messages = found.get("Messages", [])
                if not messages:
                    continue
                idle = time.monotonic()
                self._note(self.ledger.received, Receiving([int(each["Body"]) for each in messages], began, idle))
                for each in messages:
                    if chance.random() >= _ABANDONED:
                        self._delete(sqs, queue, each, began + VISIBILITY_S)

    def _delete(self, sqs: SqsConnection, queue: str, message: dict[str, Any], hidden_until: float) -> None:
        """Deletes a message; what is answered after its timeout may have come too late."""
        number, began = int(message["Body"]), time.monotonic()
        try:
            sqs.call("DeleteMessage", QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        except RefusedError:
            if time.monotonic() < hidden_until:
                raise
            return
        ended = time.monotonic()
        if ended < hidden_until:
            self._note(self.ledger.deleted, Deleting(number, began, ended))
        else:
            with self._lock:
                self.ledger.doubtful.add(number)

    def _note(self, journal: list[T], event: T) -> None:
        with self._lock:
            journal.append(event)


def audited(url: str, seconds: float, *, fifo: bool) -> Iterator[tuple[str, float]]:
    """Figures of a load, and the violations in its journal."""
    ledger = Load(url, fifo=fifo).run(seconds)
    yield "sent", float(len({each.number for each in ledger.sent}))
    yield "delivered", float(sum(len(each.numbers) for each in ledger.received))
    yield "deleted", float(len(ledger.deleted))
    yield "left", float(ledger.left)
    for guarantee, number in ledger.violations().items():
        if fifo or guarantee in ("G-SQS-1", "G-SQS-2"):
            yield f"violations of {guarantee}", float(number)
