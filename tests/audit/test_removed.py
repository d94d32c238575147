"""Messages that were deleted or had waited for too long, on a real server: neither is a violation."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from bench.load.journal import calls
from bench.load.lines import Line
from spark_validation.columns import spark_table
from spark_validation.inputs import Inputs
from spark_validation.journal.schema import QUEUE_MODE, Call
from spark_validation.log.snapshot import Snapshot
from spark_validation.run import Result, run
from tests.support.processes import Server, wait_until
from tests.support.servers import create_database, drop_database, serving_database

GUARANTEES = (
    "G-ORD-2", "G-ORD-3", "G-DUR-1", "G-DUR-2", "G-DUR-3", "G-IDEM-1", "G-ACK-2", "G-ACK-3", "G-GRP-1", "G-GRP-3",
)  # fmt: skip


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server, and its database."""
    url = asyncio.run(create_database(postgres))
    folder = tmp_path_factory.mktemp("server")
    try:
        with serving_database(url, folder, "--workers", "1", EVICTION_INTERVAL="100") as server:
            yield server, url
    finally:
        asyncio.run(drop_database(postgres, url))


@dataclass
class Agent:
    """Asks a server, and writes down what it is told, as k6 does."""

    server: Server
    lines: list[Line] = field(default_factory=list)
    drained: list[tuple[int, str, str]] = field(default_factory=list)
    unrecorded: list[tuple[str, str]] = field(default_factory=list)

    def ask(self, op: str, method: str, path: str, body: Any, told: Any = None) -> Any:
        sent = time.time_ns() // 1_000_000
        status, answer = self.server.request(method, f"/api/v1/{path}", body)
        line = Line(
            op, 1, sent, time.time_ns() // 1_000_000 + 1, status, told or body, Raw(msgspec.json.encode(answer))
        )
        self.lines.append(line)
        return answer

    def configure(self, queue: str, **options: Any) -> None:
        self.ask("configure", "POST", "configure", {"queue": queue, "options": {"leaseTime": 60} | options})

    def push(self, queue: str, *ids: str) -> None:
        for id_ in ids:
            item = {"queue": queue, "partition": "a", "payload": id_, "transactionId": id_}
            self.ask("push", "POST", "push", {"items": [item]})

    def work(self, queue: str, batch: int) -> list[str]:
        """Takes and completes messages; their transaction ids."""
        path = f"pop/queue/{queue}?batch={batch}&partitions=10&wait=false"
        popped = self.ask("pop", "GET", path, None, {"queue": queue, "batch": batch})
        messages = popped["messages"] if popped else []
        said = [
            {name: message[name] for name in ("transactionId", "partitionId")} | {"leaseId": popped["leaseId"]}
            for message in messages
        ]
        if said:
            self.ask("ack", "POST", "ack/batch", {"acknowledgments": said})
        else:
            self.drained.append((time.time_ns() // 1000, queue, QUEUE_MODE))
        return [message["transactionId"] for message in messages]

    def journal(self) -> list[Call]:
        rows = list(calls(self.lines, "r", "agent"))
        for at, queue, group in self.drained:
            row = {"run": "r", "agent": "agent", "number": len(rows), "kind": "drained", "sent": at}
            rows.append(Call(**row, queue=queue, group=group))
        for queue, group in self.unrecorded:
            row = {"run": "r", "agent": "agent", "number": len(rows), "kind": "pop", "sent": 0, "outcome": "unknown"}
            rows.append(Call(**row, queue=queue, group=group, auto_ack=True))
        return [*rows, Call(run="r", agent="agent", number=len(rows), kind="end", sent=time.time_ns() // 1000)]


def partition_of(server: Server, queue: str) -> str:
    """The public id of its partition ``a``."""
    status, answer = server.request("GET", f"/api/v1/messages?queue={queue}")
    assert status == 200, answer
    return str(answer["messages"][0]["partitionId"])


@pytest.mark.timeout(1800)
def test_permitted_removal_is_no_violation(engine, place):
    server, url = place
    agent = Agent(server)
    agent.configure("deleted")
    agent.push("deleted", "d0", "d1", "d2", "d3")
    partition = partition_of(server, "deleted")
    assert agent.work("deleted", 2) == ["d0", "d1"]
    for id_ in ("d0", "d2"):
        assert server.request("DELETE", f"/api/v1/messages/{partition}/{id_}")[0] == 200
    agent.push("deleted", "d0")
    assert agent.work("deleted", 10) == ["d3", "d0"]
    assert agent.work("deleted", 10) == []

    agent.configure("late", maxWaitTimeSeconds=1)
    agent.push("late", "l0", "l1")

    def given_up() -> bool:
        _, answer = server.request("GET", "/api/v1/dlq?queue=late")
        return len(answer["messages"]) == 2

    wait_until(given_up, "what waited for too long")
    agent.configure("late")
    agent.push("late", "l2")
    assert agent.work("late", 10) == ["l2"]
    assert agent.work("late", 10) == []

    with Snapshot(url) as snapshot:
        journal = spark_table(engine, Call, agent.journal())
        verdicts = run(Inputs(journal, snapshot.database(engine), 1_000_000), GUARANTEES)
    assert [(each.audit, each.evidence) for each in verdicts if each.violations] == []
    judged = {each.audit for each in verdicts if each.result is Result.VALID}
    assert {"cursors_pass_only_what_is_done", "deliveries_leave_no_gap"} <= judged
