"""Status, analytics and metrics."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.support.api import Api
from tests.support.clock import eventually

SERIES = ("system-metrics", "worker-metrics", "queue-lag", "queue-ops", "queue-parked-replicas", "retention")


async def get(api: Api, path: str, **parameters: Any) -> Any:
    response = await api.http.get(path, params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


async def work(api: Api, queue: str) -> None:
    """Five messages pushed, three popped and acked: one of them failed, one dead."""
    await api.push(queue, *range(5))
    messages = (await api.pop(queue, batch=3)).messages
    await api.ack(messages[:1])
    await api.ack(messages[1:2], "dlq", error=f"broken {queue}")
    await api.ack(messages[:1], "failed")


async def test_status_shows_what_was_done_and_how_things_stand(workers: list[Api], queue: str) -> None:
    api = workers[0]
    await work(api, queue)
    found = await get(api, "/api/v1/status", queue=queue)
    [point] = [point for point in found["throughput"] if point["ingested"]]
    assert (point["ingested"], point["popMessages"], point["processed"]) == (5, 3, 2)
    assert (point["ackFailed"], point["dlqCount"]) == (1, 1)
    assert point["ingestedPerSecond"] == pytest.approx(5 / 60, abs=0.001)
    assert 0 <= point["avgLagMs"] <= point["maxLagMs"]
    messages = found["messages"]
    assert (messages["total"], messages["pending"], messages["processing"], messages["completed"]) == (5, 2, 1, 2)
    assert messages["requests"] == {"push": 1, "pop": 1, "ack": 3}
    assert messages["batchEfficiency"] == {"push": 5, "pop": 3, "ack": 1}
    assert found["leases"] == {"active": 1, "partitionsWithLeases": 1, "totalBatchSize": 1, "totalAcked": 2}
    assert found["deadLetterQueue"]["totalMessages"] == 1
    assert found["deadLetterQueue"]["topErrors"] == [{"error": f"broken {queue}", "count": 1}]
    assert found["errors"]["ackFailed"] == 1
    assert [(q["name"], q["totalConsumed"]) for q in found["queues"]] == [(queue, 2)]
    assert (found["bucketMinutes"], found["pointCount"]) == (1, len(found["throughput"]))


async def test_workers_report_themselves(api: Api) -> None:
    async def both() -> bool:
        return len((await get(api, "/api/v1/status"))["workers"]) >= 2

    await eventually(both, "both workers have reported")
    found = (await get(api, "/api/v1/status"))["workers"]
    assert len({worker["workerId"] for worker in found}) == len(found)
    assert all(worker["dbConnections"] >= worker["freeSlots"] >= 0 for worker in found)
    system = await get(api, "/api/v1/analytics/system-metrics")
    replica = system["replicas"][0]
    assert replica["port"] == api.http.base_url.port
    assert replica["timeSeries"][0]["metrics"]["memory"]["rss_bytes"]["last"] > 10**6
    one = await get(api, "/api/v1/analytics/system-metrics", workerId=replica["workerId"])
    assert {each["workerId"] for each in one["replicas"]} == {replica["workerId"]}
    assert (await get(api, "/api/v1/analytics/system-metrics", hostname="unknown"))["replicas"] == []
    assert (await get(api, "/api/v1/analytics/worker-metrics"))["workers"]


async def test_levels_of_workers_are_those_of_their_seconds_and_name_their_server(
    api: Api, database: "asyncpg.Connection[Any]"
) -> None:
    """Reports of a worker of another server in two minutes."""
    begin = (datetime.now(UTC) - timedelta(hours=3)).replace(minute=0, second=0, microsecond=0)
    for minute, seconds in ((0, [1.0, 9.0]), (0, [3.0]), (1, [2.0])):
        arrays = [[value] * 9 for value in (sum(seconds), min(seconds), max(seconds), seconds[-1])]
        await database.execute(
            "SELECT queen.record_worker_metrics_v1($1, 'elsewhere:7', 'elsewhere', 7, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, "
            "interval '1 day', 7001, $2, $3, $4, $5, $6)",
            begin + timedelta(minutes=minute), len(seconds), *arrays,
        )  # fmt: skip

    async def series(hours_before: int, hours_after: int) -> Any:
        period = {
            "from": (begin - timedelta(hours=hours_before)).isoformat(),
            "to": (begin + timedelta(hours=hours_after, minutes=-1)).isoformat(),
        }
        [replica] = (await get(api, "/api/v1/analytics/system-metrics", hostname="elsewhere", **period))["replicas"]
        assert (replica["port"], replica["workerId"]) == (7001, 7)
        return replica["timeSeries"]

    later, earlier = await series(0, 1)
    assert (later["sampleCount"], earlier["sampleCount"]) == (1, 3)
    assert earlier["metrics"]["memory"]["rss_bytes"] == {"avg": 13 / 3, "min": 1, "max": 9, "last": 3}
    assert earlier["metrics"]["cpu"]["user_us"] == {"avg": 433, "min": 100, "max": 900, "last": 300}
    assert later["metrics"]["registries"]["response"] == {"avg": 2, "min": 2, "max": 2, "last": 2}
    [point] = await series(20, 2)
    assert point["sampleCount"] == 4
    assert point["metrics"]["database"]["pool_idle"] == {"avg": 15 / 4, "min": 1, "max": 9, "last": 2}


@pytest.mark.parametrize(("hours", "minutes"), [(1, 1), (2, 5), (6, 5), (24, 15), (168, 60), (169, 360)], ids=str)
async def test_longer_times_have_longer_buckets(api: Api, hours: int, minutes: int) -> None:
    day = {"from": "2024-03-01T00:00:00Z", "to": f"2024-03-{1 + (hours - 1) // 24:02}T{(hours - 1) % 24:02}:59:00Z"}
    assert (await get(api, "/api/v1/status", **day))["bucketMinutes"] == minutes
    for series in SERIES:
        body = await get(api, f"/api/v1/analytics/{series}", **day)
        assert body == [] or body["bucketMinutes"] == minutes


async def test_a_time_without_work_is_empty_lists(api: Api, queue: str) -> None:
    past = {"from": "2024-03-01T00:00:00Z", "to": "2024-03-01T00:10:00Z"}
    found = await get(api, "/api/v1/status", **past)
    assert (found["throughput"], found["pointCount"]) == ([], 0)
    assert found["timeRange"] == {"from": "2024-03-01T00:00:00.000Z", "to": "2024-03-01T00:10:59.999Z"}
    assert (await get(api, "/api/v1/analytics/queue-lag", **past)) == []
    ops = await get(api, "/api/v1/analytics/queue-ops", **past)
    assert (ops["series"], ops["queues"]) == ([], [])
    assert (await get(api, "/api/v1/status", queue=f"{queue}-unknown"))["queues"] == []


async def test_queues_of_the_status_come_in_pages_and_pending_holds_what_is_leased(api: Api, queue: str) -> None:
    for name in ("a", "b"):
        await api.configure(f"{queue}-{name}", namespace=queue)
    await api.push(f"{queue}-a", 1, 2)
    await api.pop(f"{queue}-a")
    found = await get(api, "/api/v1/status/queues", namespace=queue)
    assert [q["name"] for q in found["queues"]] == [f"{queue}-b", f"{queue}-a"]
    assert found["queues"][1]["messages"] == {"total": 2, "pending": 2, "processing": 1}
    page = await get(api, "/api/v1/status/queues", namespace=queue, limit=1, offset=1)
    assert [q["name"] for q in page["queues"]] == [f"{queue}-a"]
    assert page["pagination"] == {"limit": 1, "offset": 1}


async def test_one_queue_is_shown_with_options_partitions_and_totals(api: Api, queue: str) -> None:
    await api.configure(queue, leaseTime=33, retryLimit=1, priority=4)
    await work(api, queue)
    found = await get(api, f"/api/v1/status/queues/{queue}")
    assert found["queue"]["config"] == {
        "leaseTime": 33,
        "retryLimit": 1,
        "retryDelay": 0,
        "ttl": 0,
        "maxQueueSize": 0,
        "deadLetterQueue": True,
    }
    assert found["queue"]["priority"] == 4
    [partition] = found["partitions"]
    assert partition["cursor"]["totalConsumed"] == 2
    assert partition["messages"] == partition["stats"] == found["totals"]["messages"]
    assert (found["totals"]["total"], found["totals"]["deadLetter"]) == (5, 1)
    assert partition["lastActivity"] == partition["newestMessage"] is not None


async def test_messages_of_a_queue_come_in_pages(api: Api, queue: str) -> None:
    """In the original limit and offset do nothing, and an offset gives null."""
    await api.push(queue, *range(4))
    path = f"/api/v1/status/queues/{queue}/messages"
    everything = await get(api, path)
    assert len(everything) == 4
    assert everything[0]["queuePath"] == f"{queue}/Default"
    assert await get(api, path, limit=2, offset=1) == everything[1:3]
    assert await get(api, path, offset=4) == []


async def test_messages_pushed_are_counted_by_interval(workers: list[Api], queue: str) -> None:
    api = workers[0]
    await api.push(queue, *range(3))
    for interval, points in (("minute", 24 * 60 + 1), ("hour", 25), ("day", 2)):
        found = await get(api, "/api/v1/status/analytics", queue=queue, interval=interval)
        assert (found["interval"], sum(point["messages"] for point in found["dataPoints"])) == (interval, 3)
        assert len(found["dataPoints"]) == points
        times = [point["timestamp"] for point in found["dataPoints"]]
        assert times == sorted(times)


async def test_operations_of_a_queue_are_counted(workers: list[Api], queue: str) -> None:
    api = workers[0]
    await work(api, queue)
    await api.pop(f"{queue}-empty")
    await api.transact([{"type": "push", "items": [{"queue": queue, "payload": 1}]}])
    [point] = (await get(api, "/api/v1/analytics/queue-ops", queue=queue))["series"]
    assert (point["pushMessages"], point["popMessages"], point["ackSuccess"], point["ackFailed"]) == (6, 3, 2, 1)
    assert (point["transactions"], point["partitionCount"]) == (1, 1)
    [lag] = await get(api, "/api/v1/analytics/queue-lag", queue=queue)
    assert (lag["queueName"], lag["popCount"]) == (queue, 3)
    [empty] = (await get(api, "/api/v1/analytics/queue-ops", queue=f"{queue}-empty"))["series"]
    assert (empty["popEmpty"], empty["popMessages"]) == (1, 0)
    summary = (await get(api, "/api/v1/analytics/worker-metrics"))["summary"]
    assert summary["totalPushMessages"] >= 6


async def test_long_polls_that_wait_are_counted_by_worker(workers: list[Api], queue: str) -> None:
    api = workers[0]
    waiting = [asyncio.create_task(api_.pop(queue, wait=True, timeout=60_000)) for api_ in workers[1:]]

    async def parked() -> list[Any]:
        found = await get(api, "/api/v1/analytics/queue-parked-replicas", queue=queue)
        return list(found["series"])

    [point] = await eventually(parked, "a long poll is seen")
    assert (point["queueName"], point["parkedCount"]) == (queue, 1)
    await api.push(queue, 1)
    assert [popped.data for popped in await asyncio.gather(*waiting)] == [[1]]


async def test_postgres_says_how_it_is(api: Api, database: "asyncpg.Connection[Any]") -> None:
    found = await get(api, "/api/v1/analytics/postgres-stats")
    assert {"segments", "partition_locks"} <= {table["table"] for table in found["tableSizes"]}
    assert found["cacheSummary"]["tables"]["cacheHits"] > 0
    assert found["database"] == found["databaseCache"]["database"]
    assert found["timestamp"].endswith("Z")
    for table in found["tableSizes"]:
        pretty = await database.fetchval("SELECT pg_size_pretty($1::bigint)", table["totalSizeBytes"])
        assert table["totalSize"] == pretty


async def test_metrics_are_real_figures(workers: list[Api], queue: str) -> None:
    """In the original everything but the pool is a constant."""
    api = workers[0]
    before = await get(api, "/metrics")
    await api.push(queue, *range(7))
    after = await get(api, "/metrics")
    assert after["messages"]["total"] == before["messages"]["total"] + 7
    assert after["requests"]["total"] > before["requests"]["total"]
    assert after["memory"]["rss"] > 10**6
    assert after["cpu"]["user"] > 0
    assert after["database"]["poolSize"] >= 1


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/status?from=garbage", "from"),
        ("/api/v1/status?from=2024-01-02&to=2024-01-01", "from"),
        ("/api/v1/status/analytics?interval=week", "interval"),
        ("/api/v1/status/analytics?interval=minute&from=2000-01-01", "interval"),
        ("/api/v1/analytics/worker-metrics?workerId=x", "workerId"),
        ("/api/v1/analytics/queue-ops?to=garbage", "to"),
    ],
)
async def test_bad_parameters_are_named(api: Api, path: str, field: str) -> None:
    response = await api.http.get(path)
    assert (response.status_code, response.json()["field"]) == (400, field)


@pytest.mark.parametrize("path", ["/api/v1/status", *[f"/api/v1/analytics/{series}" for series in SERIES]])
@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
async def test_times_at_the_edge_are_answered(api: Api, path: str, time: str) -> None:
    for parameters in ({"from": time}, {"to": time}, {"from": "0001-01-01T00:00:00Z", "to": time}):
        response = await api.http.get(path, params=parameters)
        assert response.status_code in (200, 400), response.text
