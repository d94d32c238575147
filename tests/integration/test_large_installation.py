"""30,000 queues, groups, labels, dead letters and traces: no list is without a bound, and totals are of everything."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from queen.core.limits import CURSORS_STEP
from queen.log import ids
from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.processes import Server, clean_environment, open_folder, serving

QUEUES = 30_000
WORKERS = 200
ANSWER_BYTES_MAX = 2**20
GROUP = "readers"

#: Figures stand where the background puts them; what has no cursor and no message costs no time to make.
FILL = """
SELECT count(*) FROM queen.resolve_partitions_v1(
    ARRAY(SELECT format('shop-%s.task-%s.queue-%s', n, n, n) FROM generate_series(1, {queues}) AS n),
    ARRAY(SELECT 'p' FROM generate_series(1, {queues})), true);
SELECT count(*) FROM queen.resolve_partitions_v1(
    ARRAY(SELECT 'wide' FROM generate_series(1, {queues})),
    ARRAY(SELECT format('partition-%s', n) FROM generate_series(1, {queues}) AS n), true);
INSERT INTO queen.consumer_groups_metadata (queue_id, name, subscription_mode, since, created_at)
SELECT q.id, '{group}', 'all', '-infinity', now() FROM queen.queues AS q;
INSERT INTO queen.consumer_groups_metadata (queue_id, name, subscription_mode, since, created_at)
SELECT q.id, format('group-%s', n), 'all', '-infinity', now()
FROM queen.queues AS q, generate_series(1, {queues}) AS n WHERE q.name = 'wide';
INSERT INTO queen.group_stats
SELECT g.id, g.queue_id, 1, 1, g.id, 0, 0, 7, false, now() - interval '2 hours', '{{}}', now()
FROM queen.consumer_groups_metadata AS g;
INSERT INTO queen.queue_stats
SELECT q.id, 1, 10, 5, 1, 3, 0, 1, 5, now() - interval '2 hours', now() FROM queen.queues AS q;
INSERT INTO queen.queue_metrics
SELECT date_trunc('minute', now()) - make_interval(mins => m), q.name, format('host:%s', q.id % {workers}),
    1, q.id, 1, q.id, 0, 1, q.id, 0, 0, 0, 5, 5, 3
FROM queen.queues AS q, generate_series(0, 2) AS m;
INSERT INTO queen.total_metrics
SELECT m.bucket, m.worker, sum(m.push_requests), sum(m.push_messages), sum(m.pop_requests), sum(m.pop_messages),
    sum(m.pop_empty), sum(m.ack_requests), sum(m.ack_success), sum(m.ack_failed), sum(m.dead_letters),
    sum(m.transactions), sum(m.lag_ms_sum), max(m.lag_ms_max), sum(m.parked)
FROM queen.queue_metrics AS m GROUP BY m.bucket, m.worker;
INSERT INTO queen.busy_queues
SELECT 60, queen.bucket(m.bucket, 60), m.queue, sum(m.push_messages + m.pop_messages + m.ack_success + m.ack_failed)
FROM queen.queue_metrics AS m GROUP BY 1, 2, 3;
INSERT INTO queen.worker_metrics
SELECT date_trunc('minute', now()) - make_interval(mins => m), format('host:%s', n), 'host', n,
    6, 1, 1, 1, 1, 1, 1, 1, 1, 10, 5, 0, 0, now() - make_interval(secs => n / 100.0), 6632, 60,
    array_fill(60::float8, ARRAY[9]), array_fill(0::float8, ARRAY[9]), array_fill(2::float8, ARRAY[9]),
    array_fill(1::float8, ARRAY[9])
FROM generate_series(1, {workers}) AS n, generate_series(0, 59) AS m;
INSERT INTO queen.dead_letter_queue (queue_id, part_id, off, grp_id, consumer_group, transaction_id, payload, error,
    retry_count, created_at, failed_at)
SELECT p.queue_id, p.id, 0, g.id, '{group}', format('t-%s', p.id), '{{"a": 1}}', 'broken', 3, now(), now()
FROM queen.partitions AS p JOIN queen.consumer_groups_metadata AS g ON g.queue_id = p.queue_id AND g.name = '{group}';
INSERT INTO queen.traces (queue_id, part_id, off, consumer_group, event_type, data, worker, created_at)
SELECT p.queue_id, p.id, 0, '{group}', 'seen', '{{"step": 1}}', '1', now() FROM queen.partitions AS p;
INSERT INTO queen.trace_names SELECT format('name-%s', t.id), t.id FROM queen.traces AS t;
INSERT INTO queen.trace_names SELECT 'common', t.id FROM queen.traces AS t;
ANALYZE;
"""


#: Not lists: messages, a stream, and what does not grow.
OTHERS = re.compile(r"/seek$|/api/v1/(pop|subscribe|configure)|/api/queues|/docs|/$")
#: What stands in a path for its parameters.
NAMES = {"queue": "wide", "consumerGroup": GROUP, "traceName": "common", "transactionId": "t"}


@pytest.fixture(scope="module")
def large() -> Iterator[Server]:
    """A server with so much of everything."""
    # Statistics of the large queue are not computed again meanwhile: the figures are made up.
    environment = clean_environment(STATS_INTERVAL_MS="3600000")
    with open_folder() as folder, serving(folder / "data", "--workers", "1", env=environment) as running:
        asyncio.run(fill(running.dsn))
        yield running


async def fill(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(FILL.format(queues=QUEUES, workers=WORKERS, group=GROUP))
    await connection.close()


def get(server: Server, path: str) -> Any:
    status, answer = server.request("GET", path)
    assert status == 200, answer
    return answer


def lists(server: Server) -> list[str]:
    """A request for every operation of the contract that reads, with nothing but what must be named."""
    paths = []
    for path, operations in get(server, "/openapi.json")["paths"].items():
        if "get" in operations and not OTHERS.search(path):
            paths.append(re.sub(r"\{(\w+)\}", lambda name: NAMES.get(name[1], ids.partition_id(1)), path))
    return paths


@pytest.mark.nightly
def test_every_answer_is_below_a_mebibyte(large: Server) -> None:
    paths = lists(large)
    assert len(paths) > 30
    sizes = {}
    for path in paths:
        connection = large.connection()
        connection.request("GET", path)
        response = connection.getresponse()
        sizes[path] = len(response.read())
        assert response.status in (200, 404), path
        connection.close()
    assert {path: size for path, size in sizes.items() if size >= ANSWER_BYTES_MAX} == {}


@pytest.mark.nightly
def test_totals_are_of_everything_and_pages_reach_it(large: Server) -> None:
    everything = QUEUES + 1
    assert get(large, "/api/v1/resources/overview")["queues"] == everything
    assert get(large, "/api/v1/status/queues")["total"] == everything
    names: list[str] = []
    for offset in range(0, everything, 10_000):
        page = get(large, f"/api/v1/resources/queues?limit=10000&offset={offset}")
        assert page["total"] == everything
        names += [queue["name"] for queue in page["queues"]]
    assert len(names) == len(set(names)) == everything
    # The first part of a queue's name is its namespace, the second its task.
    for labels, total in (("namespaces", everything), ("tasks", QUEUES)):
        page = get(large, f"/api/v1/resources/{labels}?limit=3&offset=5")
        assert (len(page[labels]), page["total"]) == (3, total)
    status = get(large, "/api/v1/status?limit=2")
    assert len(status["queues"]) == 2
    # Those of small queues are computed again, and have done nothing.
    assert 7 * QUEUES < status["leases"]["totalAcked"] <= 7 * (2 * QUEUES + 1)
    assert status["messages"]["deadLetter"] >= QUEUES
    assert get(large, "/api/v1/traces/by-name/common?limit=1")["total"] == 2 * QUEUES
    assert get(large, "/api/v1/dlq?queue=wide&limit=1")["total"] == QUEUES


def test_series_are_those_of_the_busiest_and_totals_of_all(large: Server) -> None:
    """What was done for a queue is its number: the last ones are the busiest."""
    found = get(large, "/api/v1/analytics/queue-ops?limit=3")
    assert (found["queueCount"], len(found["queues"])) == (QUEUES + 1, 3)
    pushed = [point["pushMessages"] for point in found["totals"]]
    assert len(pushed) == 3
    assert min(pushed) > max(point["pushMessages"] for point in found["series"]) * QUEUES / 3
    assert {point["queueName"] for point in found["series"]} == set(found["queues"])
    busiest = {point["queueName"] for point in get(large, "/api/v1/analytics/queue-lag?limit=3")}
    assert busiest == set(found["queues"])
    one = get(large, f"/api/v1/analytics/queue-ops?queue=wide&queue={found['queues'][0]}")
    assert one["queueCount"] == 2
    system = get(large, "/api/v1/analytics/system-metrics?limit=2")
    # Those that were seen last; the server's own worker may be one of them.
    assert (len(system["replicas"]), system["replicaCount"] >= WORKERS) == (2, True)
    workers = get(large, "/api/v1/analytics/worker-metrics?limit=4")
    assert len(workers["queues"]) == 4


def test_more_points_than_an_answer_may_have_are_a_400_that_says_how_many_series(large: Server) -> None:
    status, answer = large.request("GET", "/api/v1/analytics/queue-ops?limit=1000")
    assert (status, answer["error"]) == (400, "limit must be a whole number from 1 to 161, not '1000'")
    assert large.request("GET", "/api/v1/analytics/queue-ops?limit=161")[0] == 200


def test_lists_are_searched_and_put_in_order_by_the_server(large: Server) -> None:
    found = get(large, "/api/v1/resources/queues?search=QUEUE-777&order=name&limit=2")
    assert [queue["name"] for queue in found["queues"]] == [
        "shop-777.task-777.queue-777", "shop-7770.task-7770.queue-7770",
    ]  # fmt: skip
    assert found["total"] == 11
    names = ["wide", "shop-9.task-9.queue-9"]
    chosen = get(large, "/api/v1/resources/queues?order=name&" + "&".join(f"queue={name}" for name in names))
    assert [queue["name"] for queue in chosen["queues"]] == sorted(names)
    groups = get(large, "/api/v1/consumer-groups?queue=wide&limit=2&offset=1")
    assert [(group["queueName"], group["name"]) for group in groups] == [("wide", "group-10"), ("wide", "group-100")]
    slowest = get(large, "/api/v1/consumer-groups?order=lag&limit=5")
    lags = [group["totalLag"] for group in slowest]
    assert lags == sorted(lags, reverse=True)
    assert [group["name"] for group in get(large, "/api/v1/consumer-groups?search=readers&limit=1")] == [GROUP]


@pytest.mark.parametrize(
    "query", ["order=alphabet", "limit=0", "limit=10001", "&".join(f"queue=q{n}" for n in range(101))]
)
@pytest.mark.parametrize("path", ["/api/v1/resources/queues", "/api/v1/consumer-groups"])
def test_an_impossible_page_is_a_400_that_names_it(large: Server, path: str, query: str) -> None:
    status, answer = large.request("GET", f"{path}?{query}")
    assert status == 400
    assert answer["error"].startswith(query.partition("=")[0])


# ---------------------------------------------------------------- groups on one queue with many partitions

PARTITIONS = 30_000
#: What a page may take, with a wide margin: each is a statement of its own.
STATEMENT_TIMEOUT_MS = 5000
PARTS = """
SELECT count(*) FROM queen.resolve_partitions_v1(
    ARRAY(SELECT 'broad' FROM generate_series(1, {n})),
    ARRAY(SELECT format('p-%s', n) FROM generate_series(1, {n}) AS n), true);
INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
SELECT p.id, 0, 1, now(), gen_random_uuid(), NULL, '\\x0000000e', '[{{"payload":1}}]' FROM queen.partitions AS p;
"""
#: How many cursors of a group each transaction has written, most first.
WRITTEN = """
SELECT count(*) FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
WHERE g.name = $1 GROUP BY c.xmin::text ORDER BY 1 DESC
"""
CURSORS = """
SELECT count(*), count(DISTINCT c.part_id)
FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id WHERE g.name = $1
"""


@pytest.fixture(scope="module")
def broad() -> Iterator[Server]:
    """A server with two workers and a queue of many partitions, with a message each."""
    environment = clean_environment(DB_STATEMENT_TIMEOUT=str(STATEMENT_TIMEOUT_MS), STATS_INTERVAL_MS="3600000")
    with open_folder() as folder, serving(folder / "data", "--workers", "2", env=environment) as running:
        asyncio.run(execute(running.dsn, PARTS.format(n=PARTITIONS)))
        yield running


async def execute(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(sql)
    await connection.close()


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[tuple[Api, "asyncpg.Connection[Any]"]]:
    connection = await asyncpg.connect(server.dsn)
    try:
        async with open_client(server.port) as http:
            yield Api(http), connection
    finally:
        await connection.close()


async def others_until(api: Api, task: "asyncio.Task[Any]") -> int:
    """Pushes and pops of others until a task is done; how many rounds they made."""
    rounds = 0
    while not task.done():
        await api.push("other", rounds)
        await api.push("broad", rounds, partition="more")
        assert (await api.pop("other", autoAck=True)).data == [rounds]
        rounds += 1
    return rounds


@checks("G-GRP-1", "G-GRP-5", level=Level.LIVE)
async def test_a_first_pop_and_a_seek_are_many_small_transactions_and_others_go_on(broad: Server) -> None:
    async with opened(broad) as (api, database):
        # Nothing is there for it but what comes meanwhile, so that it has to see all partitions.
        popping = asyncio.create_task(api.pop("broad", consumerGroup="idle", subscriptionMode="new"))
        assert await others_until(api, popping) > 1
        assert {message["partition"] for message in (await popping).messages} <= {"more"}
        written = [row[0] for row in await database.fetch(WRITTEN, "idle")]
        assert (sum(written), max(written)) == (PARTITIONS + 1, CURSORS_STEP)
        path = "/api/v1/consumer-groups/idle/queues/broad/seek"
        seeking = asyncio.create_task(api.http.post(path, json={"toBeginning": True}))
        assert await others_until(api, seeking) > 1
        assert (await seeking).json()["partitionsUpdated"] == PARTITIONS + 1
        written = [row[0] for row in await database.fetch(WRITTEN, "idle")]
        assert (sum(written), max(written)) == (PARTITIONS + 1, CURSORS_STEP)
        assert len(written) <= PARTITIONS // CURSORS_STEP + 5


@pytest.mark.nightly
@checks("G-GRP-1", "G-POP-3", level=Level.LIVE)
async def test_a_subscription_whose_worker_was_killed_is_taken_up_by_the_next_pop(broad: Server) -> None:
    async with opened(broad) as (api, database):
        await api.push("broad", 0, partition="more")
        parts = "SELECT p.id FROM queen.partitions AS p WHERE p.name = $1"
        far = await database.fetchval(parts, f"p-{PARTITIONS // 2}")
        holding = database.transaction()
        await holding.start()
        await database.execute("SELECT FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE", far)
        # The pages end at that partition; the first pop has its message, and so have others beside them.
        taken = await api.pop("broad", consumerGroup="cut", subscriptionMode="all", autoAck=True)
        assert taken.data == [1]
        assert (await api.pop("broad", consumerGroup="cut", autoAck=True)).data == [1]
        async with asyncpg.create_pool(broad.dsn, min_size=1, max_size=1) as others:
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%subscribe%'"
            )
            while not await others.fetchval(waiting):
                await api.push("other", 0)
        for pid in broad.workers():
            os.kill(pid, signal.SIGKILL)
        await holding.rollback()
    broad.wait_until_all_are_healthy(2)
    async with opened(broad) as (api, database):
        found = 2
        while messages := (
            await api.pop("broad", consumerGroup="cut", batch=10_000, partitions=1000, autoAck=True)
        ).messages:
            found += sum(message["partition"] != "more" for message in messages)
        assert found == PARTITIONS
        assert [*await database.fetchrow(CURSORS, "cut")] == [PARTITIONS + 1] * 2
