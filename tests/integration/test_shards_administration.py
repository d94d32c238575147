"""Administration over three databases: the same requests get the same answers as over one."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import Server
from tests.support.servers import serving_database
from tests.support.shards import NAMES, new_databases, serving_shards
from tests.support.sockets import Socket, open_socket

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)")
#: Figures that depend on when one asks, on the machine, or on the process.
_VOLATILE = frozenset(
    [
        "statsAge",
        "workerId",
        "worker_id",
        "timeLagSeconds",
        "time_lag_seconds",
        "lag_hours",
        "maxTimeLag",
        "bytes_max",
        "oldest_age_s",
    ]
)
PARTITIONS = [f"p{number}@{name}" for number in range(3) for name in NAMES]


@pytest.fixture(scope="module")
def databases(postgres: str) -> Iterator[dict[str, str]]:
    """Three databases, by name."""
    with new_databases(postgres) as several:
        yield several


@pytest.fixture(scope="module")
def servers(
    postgres: str, databases: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """A server over one database, and one over three."""
    folder = tmp_path_factory.mktemp("shards")
    with ExitStack() as stack:
        [alone] = stack.enter_context(new_databases(postgres, ["alone"])).values()
        (folder / "alone").mkdir()
        yield (
            stack.enter_context(serving_database(alone, folder / "alone", "--workers", "1", SIDECAR_POOL_SIZE="8")),
            stack.enter_context(serving_shards(databases, folder / "several", "--workers", "1", SIDECAR_POOL_SIZE="8")),
        )


#: What tests have to remember of the ids of each server.
IDS: dict[str, dict[str, str]] = {}


class Side:
    """One of the two servers, and what a test has to remember of its ids."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.ids = IDS.setdefault(str(http.base_url), {})

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer to a request; names in braces are ids."""
        answer = await self.http.request(method, path.format_map(self.ids), json=body, params=query)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


class Both:
    """Asks both servers the same."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides

    async def each(self, method: str, path: str, body: Any = None, **query: Any) -> list[Any]:
        """Both answers."""
        return [await side.ask(method, path, body, **query) for side in self.sides]

    async def same(self, method: str, path: str, body: Any = None, *, without: str = "", **query: Any) -> Any:
        """The answer over one database, which is that over several, too."""
        alone, several = [normal(answer, without.split()) for answer in await self.each(method, path, body, **query)]
        assert several == alone, f"{method} {path} {query}"
        return alone


def normal(value: Any, without: "list[str] | tuple[str, ...]" = ()) -> Any:
    """An answer without what differs between two servers anyway."""
    match value:
        case dict():
            return {
                normal(name): normal(each, without)
                for name, each in value.items()
                if name not in _VOLATILE and name not in without
            }
        case list():
            return [normal(each, without) for each in value]
        case str():
            return _TIME.sub("TIME", _ID.sub("ID", value))
        case _:
            return value


@pytest.fixture
async def both(servers: tuple[Server, Server]) -> AsyncIterator[Both]:
    async with AsyncExitStack() as stack:
        yield Both(
            [
                Side(
                    await stack.enter_async_context(
                        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60)
                    )
                )
                for server in servers
            ]
        )


async def fill(both: Both, queue: str, *, each: int = 3, partitions: list[str] = PARTITIONS) -> None:
    """Messages in partitions of all databases, one partition after the other."""
    for partition in partitions:
        items = [
            {"queue": queue, "partition": partition, "payload": {"n": number}, "transactionId": f"{partition}-{number}"}
            for number in range(each)
        ]
        for side in both.sides:
            answers = await side.ask("POST", "/api/v1/push", {"items": items})
            side.ids[f"{queue}/{partition}"] = answers[0]["partition_id"]


async def consume(both: Both, queue: str, group: str | None, *, partitions: list[str] = PARTITIONS) -> None:
    """In each partition one message is done, one is a dead letter, and one is in flight."""
    for side in both.sides:
        for number, partition in enumerate(partitions):
            query = {"batch": 3, **({"consumerGroup": group} if group else {})}
            popped = await side.ask("GET", f"/api/v1/pop/queue/{queue}/partition/{partition}", **query)
            acks = [
                {
                    **{name: message[name] for name in ("transactionId", "partitionId", "leaseId")},
                    "status": status,
                    "error": f"error {number % 2}",
                }
                for message, status in zip(popped["messages"], ("completed", "dlq"), strict=False)
            ]
            body = {"acknowledgments": acks, **({"consumerGroup": group} if group else {})}
            assert all(each["success"] for each in await side.ask("POST", "/api/v1/ack/batch", body))


async def test_lists_and_figures_are_the_same(both: Both) -> None:
    for queue, task in (("orders", "pay"), ("bills", "book"), ("empty", "book")):
        await both.same(
            "POST", "/api/v1/configure",
            {"queue": queue, "namespace": "shop", "task": task, "options": {"leaseTime": 600}},
        )  # fmt: skip
    await fill(both, "orders")
    await fill(both, "bills", each=1, partitions=["x@b", "y@c"])
    await fill(both, "unconfigured", each=2, partitions=["z@c"])
    await consume(both, "orders", "g")
    await consume(both, "unconfigured", None, partitions=["z@c"])
    for side in both.sides:
        for number, partition in enumerate(PARTITIONS):
            trace = {
                "transactionId": f"{partition}-0", "partitionId": side.ids[f"orders/{partition}"], "consumerGroup": "g",
                "traceNames": ["all", f"n{number % 2}"], "data": {"text": "seen"},
            }  # fmt: skip
            await side.ask("POST", "/api/v1/traces", trace)
    await both.each("POST", "/api/v1/stats/refresh")
    for order in ("newest", "name", "partitions", "total", "pending", "processing"):
        for reverse in ("false", "true"):
            await both.same("GET", "/api/v1/resources/queues", order=order, reverse=reverse)
            await both.same("GET", "/api/v1/resources/queues", order=order, reverse=reverse, limit=1, offset=1)
    await both.same("GET", "/api/v1/resources/queues", search="ill")
    await both.same("GET", "/api/v1/resources/queues", namespace="shop", task="book")
    for path in ("resources/namespaces", "resources/tasks", "status/queues"):
        await both.same("GET", f"/api/v1/{path}")
        await both.same("GET", f"/api/v1/{path}", limit=1, offset=1)
    await both.same("GET", "/api/v1/resources/overview", without="time")
    for order in ("name", "total", "pending", "processing", "dead_letter", "newest"):
        for reverse in ("false", "true"):
            query = {"order": order, "reverse": reverse}
            await both.same("GET", "/api/v1/resources/queues/orders", **query)
            await both.same("GET", "/api/v1/resources/queues/orders", **query, limit=4, offset=3)
            await both.same("GET", "/api/v1/status/queues/orders", **query, search="p1")
    await both.same("GET", "/api/v1/resources/partitions", queue="orders", limit=5)
    for query in ({}, {"group": "g"}, {"group": "unknown"}):
        await both.same("GET", "/api/v1/resources/queues/orders/depth", **query)
    await both.same("GET", "/api/v1/configure", queue="orders")
    activity = "throughput pointCount workers"
    await both.same("GET", "/api/v1/status", without=activity)
    await both.same("GET", "/api/v1/status", without=activity, queue="orders", limit=1)
    await both.same("GET", "/api/v1/status", without=activity, namespace="shop")
    await both.same("GET", "/api/v1/status/analytics", interval="day")
    await both.same("GET", "/api/v1/status/analytics", interval="day", task="pay")


async def test_activity_is_the_same(both: Both) -> None:
    series = "timeSeries pointCount workers avgLagMs maxLagMs"
    await both.same("GET", "/api/v1/analytics/worker-metrics", without=series)
    await both.same("GET", "/api/v1/analytics/worker-metrics", without=series, limit=1, offset=1)
    await both.same("GET", "/api/v1/analytics/retention")
    await both.same("GET", "/api/v1/analytics/queue-parked-replicas")
    alone, several = await both.each("GET", "/api/v1/analytics/queue-ops")
    assert counts_of(several["series"]) == counts_of(alone["series"])
    assert several["queues"] == alone["queues"]
    for answer in await both.each("GET", "/api/v1/analytics/queue-lag", queue="orders"):
        assert sum(point["popCount"] for point in answer) == 27
    for answer in await both.each("GET", "/api/v1/analytics/system-metrics"):
        assert answer["replicaCount"] == len(answer["replicas"]) <= 1  # none before its first report
    [alone, several] = await both.each("GET", "/metrics")
    assert several["messages"]["total"] == alone["messages"]["total"]


def counts_of(series: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """What was done for each queue in all buckets."""
    names = ("pushRequests", "pushMessages", "popMessages", "ackRequests", "ackSuccess", "ackFailed")
    counts: dict[str, dict[str, int]] = {}
    for point in series:
        own = counts.setdefault(point["queueName"], dict.fromkeys(names, 0))
        for name in names:
            own[name] += point[name]
    return counts


@checks("G-SHARD-6", level=Level.LIVE)
async def test_groups_are_the_same(both: Both) -> None:
    for order in ("name", "lag", "age"):
        for reverse in ("false", "true"):
            await both.same("GET", "/api/v1/consumer-groups", order=order, reverse=reverse)
    await both.same("GET", "/api/v1/consumer-groups", behind="true", search="ord")
    for order in ("name", "lag", "acknowledged"):
        for reverse in ("false", "true"):
            query = {"queue": "orders", "order": order, "reverse": reverse}
            await both.same("GET", "/api/v1/consumer-groups/g", **query)
            await both.same("GET", "/api/v1/consumer-groups/g", **query, limit=4, offset=2)
    await both.same("GET", "/api/v1/consumer-groups/lagging", minLagSeconds=0)
    await both.same("GET", "/api/v1/consumer-groups/lagging", minLagSeconds=0, limit=4)
    await both.same("GET", "/api/v1/consumer-groups/g/queues/orders/consumers")
    for answer in await both.each("GET", "/api/v1/consumer-groups/g/queues/orders/lag"):
        assert answer["series"][0]["lag"] >= 9
    for target in ("toEnd", "toBeginning"):
        await both.same("GET", "/api/v1/consumer-groups/g/queues/orders/seek", **{target: "true"})
        await both.same(
            "GET", "/api/v1/consumer-groups/g/queues/orders/seek", **{target: "true", "partition": "p1@b"}
        )  # fmt: skip


async def test_messages_dead_letters_and_traces_are_the_same(both: Both) -> None:
    for query in ({}, {"status": "pending"}, {"status": "dead_letter"}, {"partition": "p1@b"}):
        await both.same("GET", "/api/v1/messages", queue="orders", limit=50, **query)
        await both.same("GET", "/api/v1/messages", queue="orders", limit=4, offset=3, **query)
    await both.same("GET", "/api/v1/messages", limit=50)
    await both.same("GET", "/api/v1/status/queues/orders/messages", limit=5, offset=2)
    for query in ({}, {"queue": "orders"}, {"consumerGroup": "g", "error": "error 1"}, {"partition": "p2@c"}):
        await both.same("GET", "/api/v1/dlq", **query)
        await both.same("GET", "/api/v1/dlq", **query, limit=3, offset=1)
        await both.same("GET", "/api/v1/dlq/errors", without="counts", **query)
    for [error, *_] in [answer["errors"] for answer in await both.each("GET", "/api/v1/dlq/errors")]:
        assert sum(error["counts"]) == error["count"]
    await both.same("GET", "/api/v1/traces/names")
    await both.same("GET", "/api/v1/traces/names", limit=1, offset=1)
    await both.same("GET", "/api/v1/traces/by-name/all", limit=5, offset=2)
    for partition in ("p0@a", "p1@c"):
        path = f"{{orders/{partition}}}/{partition}"
        await both.same("GET", f"/api/v1/messages/{path}-1")
        await both.same("GET", f"/api/v1/traces/{path}-0")


async def test_timers_and_schedules_are_the_same(both: Both) -> None:
    for number, partition in enumerate(PARTITIONS):
        timer = {
            "op": "schedule", "queue": "orders", "partition": partition, "timerKey": f"k{number}",
            "payload": "MQ==", "delayMs": 3_600_000, "txn": f"t{number}",
        }  # fmt: skip
        await both.each("POST", "/api/v1/timers", {"operations": [timer]})
        schedule = {"queue": "orders", "name": f"s{number}", "cron": "0 0 1 1 *", "partition": partition, "payload": 1}
        await both.same("POST", "/api/v1/schedules", schedule)
    await both.same("GET", "/api/v1/timers/orders")
    await both.same("GET", "/api/v1/timers/orders", limit=4)
    await both.same("GET", "/api/v1/timers/orders", limit=4, after="k3")
    await both.same("GET", "/api/v1/timers/orders/k4")
    await both.same("GET", "/api/v1/timers/orders/unknown")
    await both.same("GET", "/api/v1/schedules")
    moved = {"queue": "orders", "name": "s0", "cron": "0 0 1 1 *", "partition": "p0@c", "payload": 1}
    await both.same("POST", "/api/v1/schedules", moved)
    await both.same("GET", "/api/v1/schedules", queue="orders", limit=3, offset=0)
    await both.same("DELETE", "/api/v1/schedules/orders/s4")
    assert len((await both.same("GET", "/api/v1/schedules"))["schedules"]) == len(PARTITIONS) - 1


async def test_streams_have_one_number_everywhere(both: Both) -> None:
    query = {"name": "sums", "source_queue": "orders", "config_hash": "h1"}
    await both.same("POST", "/streams/v1/queries", query)
    await both.same("POST", "/streams/v1/queries", query)
    for side in both.sides:
        side.ids["stream"] = (await side.ask("POST", "/streams/v1/queries", query))["query_id"]
        for partition in PARTITIONS:
            part = side.ids[f"orders/{partition}"]
            cycle = {
                "query_id": side.ids["stream"], "partition_id": part, "consumer_group": "streams.sums",
                "state_ops": [{"type": "upsert", "key": "sum", "value": {"of": partition}}],
            }  # fmt: skip
            done = await side.ask("POST", "/streams/v1/cycle", cycle)
            assert done["success"], done
            state = await side.ask(
                "POST", "/streams/v1/state/get", {"query_id": side.ids["stream"], "partition_id": part}
            )
            assert [row["value"] for row in state["rows"]] == [{"of": partition}]
    await both.same("POST", "/streams/v1/queries", {**query, "config_hash": "h2", "reset": True})
    for side in both.sides:
        for partition in PARTITIONS:
            body = {"query_id": side.ids["stream"], "partition_id": side.ids[f"orders/{partition}"]}
            assert (await side.ask("POST", "/streams/v1/state/get", body))["rows"] == []


async def test_dead_letters_are_replayed_to_any_database(both: Both) -> None:
    """To its own partition, to one on another database, and all of a queue, page by page."""
    await fill(both, "again")
    await consume(both, "again", "g")
    for side in both.sides:
        letters = (await side.ask("GET", "/api/v1/dlq", queue="again"))["messages"]
        side.ids |= {f"letter {letter['partition']}": letter["id"] for letter in letters}
    await both.same("POST", "/api/v1/dlq/{letter p0@a}/replay")
    moved = await both.same("POST", "/api/v1/dlq/{letter p0@b}/replay", {"partition": "p0@c"})
    assert moved["partition"] == "p0@c"
    await both.same("GET", "/api/v1/dlq", queue="again")
    await both.same("GET", "/api/v1/status/queues/again/messages", limit=50)
    await both.same("POST", "/api/v1/messages/{again/p1@b}/p1@b-1/retry")
    await both.same("DELETE", "/api/v1/dlq/{letter p1@c}")
    await both.same("POST", "/api/v1/messages/{again/p2@c}/p2@c-2/dlq", {"error": "by hand"})
    await both.same("DELETE", "/api/v1/messages/{again/p2@b}/p2@b-0")
    await both.same("GET", "/api/v1/dlq", queue="again")
    for side in both.sides:
        done, after = 0, None
        while True:
            body = {"queue": "again", "limit": 2, "after": after}
            page = await side.ask("POST", "/api/v1/dlq/replay", body)
            done, after = done + page["replayed"], page["next"]
            if after is None:
                break
        assert done == 6
    await both.same("GET", "/api/v1/dlq", queue="again")
    await consume(both, "again", "h", partitions=["p0@a", "p1@b", "p2@c"])
    await both.same("DELETE", "/api/v1/dlq", queue="again", consumerGroup="h")


async def test_changes_reach_all_databases(both: Both) -> None:
    await fill(both, "changed")
    await consume(both, "changed", "g")
    changed = "/api/v1/consumer-groups/g/queues/changed"
    await both.same("POST", f"{changed}/partitions/p1@b/seek", {"toEnd": True})
    await both.same("POST", f"{changed}/seek", {"toBeginning": True})
    await both.each("POST", "/api/v1/stats/refresh")
    await both.same("GET", "/api/v1/consumer-groups/g", queue="changed")
    since = {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}
    await both.same("POST", "/api/v1/consumer-groups/g/subscription", since)
    await both.same("POST", "/api/v1/resources/queues/changed/pause", {"paused": True})
    await both.same("POST", f"{changed}/pause", {"paused": True})
    await both.same("GET", "/api/v1/resources/queues", queue="changed")
    await both.same("GET", "/api/v1/consumer-groups", queue="changed")
    for partition in PARTITIONS:
        path = f"/api/v1/pop/queue/changed/partition/{partition}"
        assert await both.each("GET", path, consumerGroup="other") == [None, None]
    await both.same("POST", "/api/v1/resources/queues/changed/pause", {"paused": False})
    await both.same("POST", f"{changed}/pause", {"paused": False})
    await both.same("DELETE", changed)
    await both.same("GET", "/api/v1/consumer-groups/g", queue="changed")
    await both.same("DELETE", "/api/v1/consumer-groups/g")
    await both.same("GET", "/api/v1/consumer-groups")
    for path in ("/api/v1/system/maintenance/pop", "/api/v1/system/maintenance"):
        await both.same("POST", path, {"enabled": True})
        await both.same("GET", path)
        if path.endswith("pop"):
            assert await both.each("GET", "/api/v1/pop/queue/changed") == [None, None]
        await both.same("POST", path, {"enabled": False})
    await both.same("DELETE", "/api/v1/resources/queues/changed")
    await both.same("DELETE", "/api/v1/resources/queues/changed")
    await both.same("GET", "/api/v1/resources/queues", queue="changed")
    await fill(both, "changed", each=1)
    await both.each("POST", "/api/v1/stats/refresh")
    await both.same("GET", "/api/v1/resources/queues/changed")


async def test_what_comes_to_a_database_later_is_paused_there_too(both: Both) -> None:
    """Neither queue nor group is on all databases when they are paused."""
    for queue in ("late-queue", "late-group"):
        await fill(both, queue, each=1, partitions=["p@a"])
        await both.each("GET", f"/api/v1/pop/queue/{queue}", consumerGroup="g", autoAck="true")
    await both.same("POST", "/api/v1/resources/queues/late-queue/pause", {"paused": True})
    await both.same("POST", "/api/v1/consumer-groups/g/queues/late-group/pause", {"paused": True})
    for queue in ("late-queue", "late-group"):
        await fill(both, queue, each=1, partitions=["p@b"])
        assert await both.each("GET", f"/api/v1/pop/queue/{queue}", consumerGroup="g") == [None, None]
    for path in ("resources/queues/late-queue", "consumer-groups/g/queues/late-group"):
        await both.same("POST", f"/api/v1/{path}/pause", {"paused": False})
    for queue in ("late-queue", "late-group"):
        for popped in await both.each("GET", f"/api/v1/pop/queue/{queue}", consumerGroup="g", autoAck="true"):
            assert [message["transactionId"] for message in popped["messages"]] == ["p@b-0"]


async def test_a_consumer_that_waits_on_all_databases_is_listed_once(both: Both) -> None:
    await both.same("POST", "/api/v1/configure", {"queue": "awaited"})
    await both.each("GET", "/api/v1/pop/queue/awaited", consumerGroup="g")
    for side in both.sides:
        query = {"wait": "true", "timeout": 20_000, "consumerGroup": "g", "subscriptionMode": "all"}
        waiting = asyncio.create_task(side.http.get("/api/v1/pop/queue/awaited", params=query))
        async with asyncio.timeout(20):
            while not (found := await side.ask("GET", "/api/v1/consumer-groups/g/queues/awaited/consumers"))["total"]:
                await asyncio.sleep(0.05)
        [consumer] = found["consumers"]
        assert consumer["address"].startswith("127.0.0.1:")
        await side.ask("POST", "/api/v1/push", {"items": [{"queue": "awaited", "partition": "p@c", "payload": 1}]})
        assert len((await waiting).json()["messages"]) == 1


async def test_a_replay_that_was_interrupted_between_two_databases_is_finished(both: Both) -> None:
    """It was stored on the other database, and the letter is still there."""
    _, side = both.sides
    await fill(both, "halfway", each=2, partitions=["p@a"])
    await consume(both, "halfway", "g", partitions=["p@a"])
    [letter] = (await side.ask("GET", "/api/v1/dlq", queue="halfway"))["messages"]
    stored = {"queue": "halfway", "partition": "p@c", "payload": {"n": 1}, "transactionId": f"dlq:{letter['id']}"}
    [earlier] = await side.ask("POST", "/api/v1/push", {"items": [stored]})
    done = await side.ask("POST", f"/api/v1/dlq/{letter['id']}/replay", {"partition": "p@c"})
    assert done["replayedAs"]["message_id"] == earlier["message_id"]
    assert (await side.ask("GET", "/api/v1/dlq", queue="halfway"))["messages"] == []
    popped = await side.ask("GET", "/api/v1/pop/queue/halfway/partition/p@c", batch=10)
    assert [message["transactionId"] for message in popped["messages"]] == [stored["transactionId"]]


async def test_a_websocket_gets_the_messages_of_all_databases(both: Both, servers: tuple[Server, Server]) -> None:
    partitions = [f"p@{name}" for name in NAMES]
    await fill(both, "streamed", each=2, partitions=partitions)
    later = [
        {"queue": "streamed", "partition": partition, "payload": 0, "transactionId": f"{partition}-{number}"}
        for partition in partitions
        for number in (2, 3)
    ]
    async with open_socket(servers[1].port) as socket:
        await socket.subscribe("streamed", consumerGroup="g", subscriptionMode="all")
        found = await _take(socket, 6)
        await both.sides[1].ask("POST", "/api/v1/push", {"items": later})
        found += await _take(socket, 6)
    assert sorted(found) == sorted(f"{partition}-{number}" for partition in partitions for number in range(4))


async def _take(socket: Socket, number: int) -> list[str]:
    """The transaction ids of so many messages, when all are acknowledged."""
    found: list[str] = []
    while len(found) < number or socket.held:
        frame = await socket.receive()
        if frame["type"] == "batch":
            found += [message["transactionId"] for message in frame["messages"]]
            await socket.ack(frame)
        else:
            assert (frame["type"], frame["refused"]) == ("acked", [])
    return found


async def test_health_and_metrics_name_the_databases(both: Both) -> None:
    up = dict.fromkeys(NAMES, "connected")
    for path in ("/health", "/health/ready", "/api/v1/status/buffers"):
        alone, several = await both.each("GET", path)
        assert "databases" not in alone
        assert several["databases"] == up
    assert (await both.same("GET", "/health", without="databases"))["status"] == "healthy"
    await both.each("POST", "/api/v1/stats/refresh")
    texts = [(await side.http.get("/metrics/prometheus")).text for side in both.sides]
    assert "queen_database_up 1.0" in texts[0]
    for name in NAMES:
        assert f'queen_database_up{{database="{name}"}} 1.0' in texts[1]
        assert f'queen_spool_messages{{database="{name}"}} 0.0' in texts[1]
    for line in texts[0].splitlines():
        if line.startswith(
            ("queen_queues ", 'queen_queue_messages{queue="orders"}', 'queen_queue_partitions{queue="orders"}')
        ):
            assert line in texts[1].splitlines()
    named = [await both.sides[1].ask("GET", "/api/v1/analytics/postgres-stats", database=name) for name in NAMES]
    assert len({each["database"] for each in named}) == len(NAMES)
    unknown = await both.sides[1].http.get("/api/v1/analytics/postgres-stats", params={"database": "d"})
    assert unknown.status_code == 404


@checks("G-SHARD-3", level=Level.LIVE)
async def test_while_a_database_is_unavailable_figures_are_refused_and_the_others_go_on(
    both: Both, postgres: str, databases: dict[str, str]
) -> None:
    """Last of all: it takes a database away for a while."""
    _, side = both.sides
    name = urlsplit(databases["b"]).path.lstrip("/")
    connection = await asyncpg.connect(postgres)
    try:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        await _until(side, "disconnected")
        health = await side.ask("GET", "/health")
        assert (health["status"], health["database"]) == ("degraded", "connected")
        ready = await side.http.get("/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "spooling")
        answer = await side.http.get("/api/v1/messages/{orders/p1@b}/p1@b-1".format_map(side.ids))
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        for method, path, body in (
            ("GET", "/api/v1/resources/queues", None),
            ("GET", "/api/v1/consumer-groups", None),
            ("POST", "/api/v1/configure", {"queue": "orders"}),
            ("DELETE", "/api/v1/resources/queues/orders", None),
        ):
            answer = await side.http.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable"), path
            assert "the database b" in answer.json()["detail"]
        await side.ask("GET", "/api/v1/messages/{orders/p1@c}/p1@c-1")
        await side.ask("GET", "/api/v1/traces/{orders/p1@a}/p1@a-0")
        text = (await side.http.get("/metrics/prometheus")).text
        assert 'queen_database_up{database="b"} 0.0' in text
        assert 'queen_database_up{database="c"} 1.0' in text
        assert "queen_queue_messages" not in text
    finally:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await connection.close()
    await _until(side, "connected")
    await both.same("GET", "/api/v1/resources/queues/orders", without="stats totals messages")


async def _until(side: Side, state: str) -> None:
    async with asyncio.timeout(60):
        while (await side.http.get("/health")).json()["databases"]["b"] != state:
            await asyncio.sleep(0.05)
