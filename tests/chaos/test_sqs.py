"""SQS while processes are killed, or a standby takes over: nothing answered is lost, groups stay in order.

Sends go through the spool meanwhile. The schedule follows from a seed; how the processes interleave does not.
"""

import asyncio
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from spec.guarantees import Level, checks
from tests.chaos.test_high_availability import ALONE, CONFIGURATION, RELOAD
from tests.chaos.test_kill import kill_a_back_end, kill_a_worker, kill_postmaster
from tests.support.outage import spooling_server, wait_until_drained
from tests.support.processes import Server, open_folder, serving, wait_until
from tests.support.sqs_clients import figures, receive, sqs_client
from tests.support.standby import pair

_FAILED = (ClientError, BotoCoreError)
_GROUPS, _CONSUMERS, _PER_GROUP = 6, 8, 60
_FAULTS = (kill_postmaster, kill_postmaster, kill_a_back_end, kill_a_worker, kill_a_worker)


def _status_of(problem: Exception) -> int:
    """HTTP's status; 0 without an answer."""
    return problem.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(problem, ClientError) else 0


class Run:
    """Producers and consumers of a standard and a FIFO queue, each with a client of its own."""

    def __init__(self, server: Server) -> None:
        self.server, self.ended = server, threading.Event()
        sqs = sqs_client(server.port)
        attributes = {"VisibilityTimeout": "3"}
        name = uuid4().hex
        self.standard = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.fifo = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={**attributes, "FifoQueue": "true"})[
            "QueueUrl"
        ]
        self.answered: dict[str, str] = {}
        self.seen: dict[str, set[str]] = defaultdict(set)
        self.firsts: dict[str, list[int]] = defaultdict(list)
        self.lock = threading.Lock()
        self.sent = self.spooled = 0

    def produce(self, group: int) -> None:
        """Sends the messages of a group one after another, each until it is answered."""
        sqs = sqs_client(self.server.port)
        for number in range(_PER_GROUP):
            body = f"{group}-{number}"
            ids = {"MessageGroupId": str(group), "MessageDeduplicationId": body}
            for url, more in (self.standard, {}), (self.fifo, ids):
                answer = self.until_answered(lambda url=url, more=more, body=body: sqs.send_message(  # type: ignore[misc]
                    QueueUrl=url, MessageBody=body, **more
                ))  # fmt: skip
                with self.lock:
                    self.answered[answer["MessageId"]] = body
                    self.sent += 1
                    self.spooled += url == self.fifo and "SequenceNumber" not in answer

    @staticmethod
    def until_answered(call: Callable[[], Any]) -> Any:
        until = time.monotonic() + 120
        while True:
            try:
                return call()
            except _FAILED as problem:
                if time.monotonic() > until or _status_of(problem) == 400:
                    raise

    def consume(self, url: str) -> None:
        """Receives and deletes; a failed delete is repeated at the next delivery."""
        sqs = sqs_client(self.server.port)
        while not self.ended.is_set():
            with suppress(*_FAILED):
                for message in receive(sqs, url, 3, WaitTimeSeconds=1):
                    with self.lock:
                        if message["Body"] not in self.seen[url] and url == self.fifo:
                            group, number = message["Body"].split("-")
                            self.firsts[group].append(int(number))
                        self.seen[url].add(message["Body"])
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    @contextmanager
    def consuming(self) -> Iterator[None]:
        urls = [self.fifo] * _CONSUMERS + [self.standard] * 2
        threads = [threading.Thread(target=self.consume, args=(url,)) for url in urls]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()

    def carry_out(self, disturb: Callable[["Run"], None]) -> None:
        """Sends, receives and deletes while it is disturbed; then all is there, once and in order."""
        producers = [threading.Thread(target=self.produce, args=(group,)) for group in range(_GROUPS)]
        with self.consuming():
            for producer in producers:
                producer.start()
            try:
                disturb(self)
            finally:
                for producer in producers:
                    producer.join()
            expected = {f"{group}-{number}" for group in range(_GROUPS) for number in range(_PER_GROUP)}
            for url in self.standard, self.fifo:
                wait_until(lambda url=url: self.seen[url] >= expected, f"all of {url}")  # type: ignore[misc]
            sqs = sqs_client(self.server.port)
            for url in self.standard, self.fifo:
                wait_until(lambda url=url: figures(sqs, url) == (0, 0, 0), f"an empty {url}")  # type: ignore[misc]
        assert set(self.answered.values()) == expected
        assert dict(self.firsts) == {str(group): list(range(_PER_GROUP)) for group in range(_GROUPS)}


_TOTAL = 2 * _GROUPS * _PER_GROUP


@checks("G-SQS-1", "G-SQS-3", "G-SQS-4", "G-SQS-14", level=Level.FAULTS)
def test_killing_processes_loses_nothing_and_keeps_groups_in_order() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    schedule = random.Random(seed)
    faults = schedule.sample(_FAULTS, len(_FAULTS))
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:

        def kill(run: Run) -> None:
            for number, fault in enumerate(faults):
                wait_until(lambda number=number: run.sent >= _TOTAL * number / len(faults), "sends")  # type: ignore[misc]
                print(fault.__name__)
                asyncio.run(fault(server, schedule))

        Run(server).carry_out(kill)


@pytest.mark.nightly
@checks("G-SQS-1", "G-SQS-3", "G-SQS-4", "G-SQS-14", level=Level.FAULTS)
def test_a_fail_over_to_a_standby_loses_nothing_and_keeps_groups_in_order() -> None:
    """The primary is gone until sends were spooled; then the standby takes its place, and receives go on."""
    with (
        open_folder() as folder,
        pair(folder / "pair", CONFIGURATION) as both,
        spooling_server(both, folder) as server,
    ):

        def fail_over(run: Run) -> None:
            wait_until(lambda: run.sent >= _TOTAL / 4, "sends")
            both.end(signal.SIGKILL, "one")
            spooled = run.spooled
            wait_until(lambda: run.spooled > spooled + _GROUPS, "sends in the spool")
            for statement in ("SELECT pg_promote()", ALONE, RELOAD):
                both.sql("two", statement)
            wait_until_drained(server)

        Run(server).carry_out(fail_over)
