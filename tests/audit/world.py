"""A small world in which everything has happened: a server's database, and the journal of what its clients did."""

import asyncio
import base64
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from msgspec import Raw
from msgspec.structs import replace

from bench.load.journal import calls
from bench.load.lines import Line
from spark_validation.journal.schema import Call
from tests.support.processes import wait_until
from tests.support.servers import create_database, serving_database

IN, OUT, SIDE = "w.in", "w.out", "w.side"


@dataclass
class Agent:
    """A client that writes a journal."""

    http: httpx.Client
    lines: list[Line] = field(default_factory=list)
    renewals: list[tuple[int, Call]] = field(default_factory=list)
    renewed: list[Call] = field(default_factory=list)

    def call(self, op: str, method: str, path: str, asked: dict[str, Any], body: Any = None, **query: Any) -> Any:
        """One call, with what a k6 script would record of it; the answer."""
        sent = time.time_ns() // 1_000_000
        answer = self.http.request(method, path, json=body, params=query)
        answered = time.time_ns() // 1_000_000 + 1
        assert answer.status_code < 500, (op, answer.text)
        told = answer.text if answer.status_code != 204 else "null"
        self.lines.append(Line(op, 1, sent, answered, answer.status_code, asked, Raw(told.encode())))
        return answer.json() if answer.status_code != 204 else None

    def configure(self, queue: str, **options: Any) -> None:
        asked = {"queue": queue, "options": options}
        self.call("configure", "POST", "/api/v1/configure", asked, asked)

    def push(self, queue: str, partition: str, *items: dict[str, Any]) -> Any:
        body = {"items": [{"queue": queue, "partition": partition, **each} for each in items]}
        return self.call("push", "POST", "/api/v1/push", body, body)

    def pop(
        self, queue: str, group: str | None = None, batch: int = 2, partition: str | None = None, **more: Any
    ) -> Any:
        asked = {"queue": queue, "batch": batch, **more} | ({"consumerGroup": group} if group else {})
        asked |= {"partition": partition} if partition else {}
        place = f"/api/v1/pop/queue/{queue}" + (f"/partition/{partition}" if partition else "")
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in asked.items()}
        return self.call(
            "pop", "GET", place, asked, None, **{k: v for k, v in query.items() if k not in ("queue", "partition")}
        )

    def ack(self, popped: Any, *statuses: str, group: str | None = None) -> Any:
        items = [
            {"transactionId": each["transactionId"], "partitionId": each["partitionId"], "leaseId": popped["leaseId"],
             "status": status}
            for each, status in zip(popped["messages"], statuses, strict=False)
        ]  # fmt: skip
        body = {"acknowledgments": items} | ({"consumerGroup": group} if group else {})
        return self.call("ack", "POST", "/api/v1/ack/batch", body, body)

    def renew(self, lease: str, seconds: int) -> None:
        sent = time.time_ns() // 1000
        answer = self.http.post(f"/api/v1/lease/{lease}/extend", json={"seconds": seconds}).json()
        self.renewed.append(
            Call(run="w", agent="w", number=len(self.lines), kind="renew", client="1", sent=sent,
                 answered=time.time_ns() // 1000, outcome="ok" if answer["success"] else "fail", lease=lease,
                 lease_seconds=float(seconds))
        )  # fmt: skip

    def clock(self) -> None:
        self.call("clock", "GET", "/api/v1/resources/overview", {})

    def drain(self, queue: str, group: str | None = None) -> None:
        """Takes and completes all that is left, and notes that the queue is empty."""
        while popped := self.pop(queue, group, 50):
            self.ack(popped, *["completed"] * len(popped["messages"]), group=group)
        now = time.time_ns() // 1_000_000
        self.lines.append(Line("drained", 1, now, now, 200, {"queue": queue, "consumerGroup": group}, Raw(b"null")))

    def journal(self) -> list[Call]:
        """The rows, with the end."""
        rows = [*calls(self.lines, "w", "w")]
        for renewal in reversed(self.renewed):
            rows.insert(renewal.number, renewal)
        rows.append(Call(run="w", agent="w", number=len(rows), kind="end", sent=rows[-1].sent + 1000))
        return [replace(call, number=number) for number, call in enumerate(rows)]


@dataclass(frozen=True)
class World:
    """A database without a server, and a journal."""

    dsn: str
    calls: list[Call]


def live(agent: Agent) -> None:
    """What clients do."""
    agent.clock()
    agent.configure(IN, retryLimit=1, leaseTime=60)
    agent.configure(OUT, leaseTime=60)
    agent.configure(SIDE, leaseTime=60)
    for number in range(6):
        for partition in ("a", "b"):
            agent.push(
                IN, partition, {"transactionId": f"{partition}{number}", "payload": {"n": number, "in": partition}}
            )
    agent.push(IN, "a", *({"payload": {"nameless": number}} for number in range(3)))
    agent.push(IN, "a", {"transactionId": "a0", "payload": {"n": 0, "in": "a"}})
    agent.push(
        IN, "c", {"transactionId": "c0", "payload": [1, "ü"], "headers": {"b": "1", "a": "2"},
                  "traceId": "00000000-0000-0000-0000-000000000007"},
        {"transactionId": "c1", "payload": None}, {"transactionId": "c2", "payload": "three"},
        {"transactionId": "c3", "payload": {"last": True}},
    )  # fmt: skip
    agent.clock()
    popped = agent.pop(IN, "g", 3, "a")
    agent.renew(popped["leaseId"], 120)
    agent.ack(popped, "completed", "completed", "completed", group="g")
    popped = agent.pop(IN, "g", 2, "b")
    agent.ack(popped, "retry", "completed", group="g")
    popped = agent.pop(IN, "g", 2, "b")
    agent.ack(popped, "completed", "completed", group="g")
    for _ in range(2):
        popped = agent.pop(IN, "f", 1, "c")
        agent.ack(popped, "failed", group="f")
    agent.clock()
    for _ in range(3):
        popped = agent.pop(IN, None, 2, "a")
        agent.ack(popped, "completed", "completed")
    for number in range(3):
        popped = agent.pop(IN, "t", 1, "b")
        [message] = popped["messages"]
        operations = [
            {"type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"],
             "leaseId": popped["leaseId"], "consumerGroup": "t", "status": "completed"},
            {"type": "push", "items": [
                {"queue": OUT, "partition": "x", "transactionId": f"o{number}", "payload": {"o": number}},
                {"queue": OUT, "partition": f"y{number}", "transactionId": f"p{number}", "payload": {"p": number}}]},
        ]  # fmt: skip
        agent.call("transaction", "POST", "/api/v1/transaction", {"operations": operations}, {"operations": operations})
    for group in ("g", "f", None):
        agent.drain(IN, group)
    agent.drain(OUT)
    # Cursors that are under way: finished ahead, failed once, leased.
    agent.push(SIDE, "s", *({"transactionId": f"s{number}", "payload": {"s": number}} for number in range(5)))
    popped = agent.pop(SIDE, "one", 4, leaseSeconds=500)
    agent.ack({**popped, "messages": popped["messages"][2:3]}, "completed", group="one")
    popped = agent.pop(SIDE, "two", 1)
    agent.ack(popped, "failed", group="two")
    agent.pop(SIDE, "two", 2, leaseSeconds=500)
    agent.pop(SIDE, "auto", 3, autoAck=True)
    agent.clock()


def beside(agent: Agent, dsn: str) -> None:
    """What journals do not have: it concerns queues of its own, and tables beside the log."""
    http = agent.http

    def post(path: str, body: Any) -> Any:
        answer = http.post(path, json=body)
        assert answer.is_success, (path, answer.text)
        return answer.json()

    post(
        "/api/v1/push",
        {"items": [{"queue": "w.old", "partition": "p", "transactionId": f"d{n}", "payload": n} for n in range(3)]},
    )
    popped = http.get("/api/v1/pop/queue/w.old", params={"consumerGroup": "gone", "batch": 3}).json()
    first = popped["messages"][0]
    post("/api/v1/traces", {"transactionId": first["transactionId"], "partitionId": first["partitionId"],
                            "data": {"seen": 1}, "traceNames": ["t1"], "consumerGroup": "gone"})  # fmt: skip
    http.get("/api/v1/pop/queue/w.old", params={"consumerGroup": "stays", "batch": 1, "subscriptionMode": "new"})
    http.delete("/api/v1/consumer-groups/gone/queues/w.old").raise_for_status()
    http.delete(f"/api/v1/messages/{first['partitionId']}/d1").raise_for_status()
    stream = post(
        "/streams/v1/queries", {"name": "s1", "source_queue": "w.old", "config_hash": "h", "sink_queue": "w.sunk"}
    )
    popped = http.get("/api/v1/pop/queue/w.old", params={"consumerGroup": "streams", "batch": 1}).json()
    [message] = popped["messages"]
    post("/streams/v1/cycle", {
        "query_id": stream["query_id"], "partition_id": message["partitionId"], "consumer_group": "streams",
        "state_ops": [{"type": "upsert", "key": "k", "value": {"windowEnd": 4e12, "n": 1}}],
        "push_items": [{"queue": "w.sunk", "payload": {"sum": 1}, "partition": "z"}],
        "ack": {"transactionId": message["transactionId"], "leaseId": popped["leaseId"]},
    })  # fmt: skip
    payload = base64.b64encode(b'{"late":1}').decode()
    timer = {"op": "schedule", "queue": "w.old", "payload": payload}
    timers = [{**timer, "timerKey": f"k{n}", "delayMs": 3_600_000 + n, "txn": f"t{n}"} for n in range(2)]
    post("/api/v1/timers", {"operations": timers})
    for name, cron in (("daily", "30 7 * * MON-FRI"), ("hourly", "5 * * * *")):
        post("/api/v1/schedules", {"queue": "w.old", "name": name, "cron": cron, "timeZone": "Europe/Berlin",
                                   "payload": {"task": name}})  # fmt: skip
    asyncio.run(_sql(dsn, "SELECT queen.push('w.old', '{\"n\": 1}', partition => 'p', transaction_id => 'x1')"))
    wait_until(lambda: not asyncio.run(_sql(dsn, "SELECT 1 FROM queen.outbox")), "the outbox is moved")
    post("/api/v1/stats/refresh", {})


async def _sql(dsn: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(query)
    finally:
        await connection.close()


#: What waits for the log when no server runs.
_HELD_PARTITIONS = """
INSERT INTO queen.outbox_held_partitions (queue_id, partition, reason)
SELECT id, u, 'locked' FROM queen.queues, unnest(ARRAY['h', 'i']) AS u WHERE name = 'w.old'
"""
_HELD = """
INSERT INTO queen.outbox_held (queue_id, partition, transaction_id, payload, pushed_at)
SELECT id, u, 'h1', '{"held": 1}', clock_timestamp() FROM queen.queues, unnest(ARRAY['h', 'i']) AS u
WHERE name = 'w.old'
"""
_AT_REST = (
    "SELECT queen.push('w.old', '{\"n\": 2}', partition => 'p', transaction_id => 'x2')",
    "SELECT queen.push('w.old', '{\"n\": 3}', partition => 'p')",
    _HELD_PARTITIONS,
    _HELD,
)


def make(postgres: str, folder: Path) -> World:
    """The world, in a database of its own."""
    dsn = asyncio.run(create_database(postgres))
    with serving_database(dsn, folder, "--workers", "1") as server:
        url = f"http://127.0.0.1:{server.port}"
        with closing(httpx.Client(base_url=url, trust_env=False, timeout=60)) as http:
            agent = Agent(http)
            live(agent)
            beside(agent, dsn)
    for query in _AT_REST:
        asyncio.run(_sql(dsn, query))
    return World(dsn, agent.journal())
