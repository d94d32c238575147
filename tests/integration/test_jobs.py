"""One worker of all instances runs the background services, also behind a pooler, and another one when that ends."""

import asyncio
import random
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from queen.jobs.leadership import Leadership
from queen.postgres.dsn import parse
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from spec.guarantees import Level, checks
from tests.integration.test_pgbouncer import pgbouncer  # noqa: F401 - a fixture
from tests.support.api import Api, open_client
from tests.support.clock import eventually
from tests.support.processes import open_folder
from tests.support.servers import create_database, drop_database, serving_database

BUSY = {"RETENTION_INTERVAL": "100", "EVICTION_INTERVAL": "100"}
LEADER = "SELECT holder FROM queen.service_leader WHERE expires_at > clock_timestamp()"
AGE = "UPDATE queen.segments SET created_at = created_at - interval '2 minutes'"
GONE = """
SELECT (SELECT array_agg(name::text) FROM queen.consumer_groups_metadata) = ARRAY['done']
    AND NOT EXISTS (SELECT 1 FROM queen.segments WHERE n > 0)
"""
FASTER = "UPDATE queen.service_leader SET expires_at = least(expires_at, clock_timestamp())"


async def works(api: Api, database: "asyncpg.Connection[Any]") -> None:
    """Returns when a service has removed a message."""
    queue = f"services-{uuid4().hex[:8]}"
    await api.configure(queue, ttl=60)
    await api.push(queue, 1)
    await database.execute(AGE)
    await eventually(
        lambda: database.fetchval("SELECT count(*) = 0 FROM queen.segments WHERE n > 0"), "the services work"
    )


@pytest.mark.nightly
@checks("G-RET-4", level=Level.LIVE)
async def test_one_leads_for_two_instances_and_another_takes_over(postgres: str) -> None:
    url = await create_database(postgres)
    database = await asyncpg.connect(url)
    try:
        with open_folder() as folder, serving_database(url, folder, "--workers", "2", **BUSY) as first:
            await eventually(lambda: database.fetchval(LEADER), "a leader")
            with serving_database(url, folder, "--workers", "2", **BUSY) as second:
                before = await database.fetchval(LEADER)
                async with open_client(second.port) as http:
                    await works(Api(http), database)
                    assert await database.fetchval(LEADER) == before
                    assert first.stop() == 0
                    assert await database.fetchval(LEADER) in (None, *await others(database, before)), "it resigned"
                    await works(Api(http), database)
                    assert await database.fetchval(LEADER) != before
                    connections = await database.fetchval(
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'queen background jobs'"
                        " AND datname = current_database()"
                    )
                    assert 1 <= connections <= 2, "each worker has one of its own"
    finally:
        await database.close()
        await drop_database(postgres, url)


@checks("G-RET-2", "G-GRP-7", level=Level.LIVE)
async def test_the_leader_ends_a_deletion_that_was_cut_off_and_what_waited_for_the_group_goes(postgres: str) -> None:
    url = await create_database(postgres)
    database = await asyncpg.connect(url)
    try:
        with open_folder() as folder, serving_database(url, folder, "--workers", "1", **BUSY) as server:
            async with open_client(server.port) as http:
                api = Api(http)
                await api.configure("q", retentionEnabled=True, completedRetentionSeconds=60)
                for partition in ("a", "b"):
                    await api.push("q", 1, partition=partition)
                for group in ("done", "deleted"):
                    popped = await api.pop("q", partitions=2, batch=2, consumerGroup=group, autoAck=group == "done")
                    assert len(popped.messages) == 2
                await database.execute(AGE)
                begun = await database.fetchrow("SELECT * FROM queen.delete_group_v1('q', 'deleted', true, '', 1)")
                assert begun is not None
                assert begun["last"] == "rest"
                await eventually(lambda: database.fetchval(GONE), "the group is gone, and the messages with it")
    finally:
        await database.close()
        await drop_database(postgres, url)


async def others(database: "asyncpg.Connection[Any]", before: object) -> list[object]:
    rows = await database.fetch("SELECT holder FROM queen.service_leader")
    return [row["holder"] for row in rows if row["holder"] != before]


@pytest.mark.parametrize("pooled", [False, True])
async def test_the_row_gives_the_lead_to_one_at_a_time(
    pgbouncer: tuple[str, str],  # noqa: F811
    pooled: bool,
) -> None:
    """Also where each call may come over another connection of the server."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    url = pgbouncer[0 if pooled else 1]
    database = await prepare(url, 5000)
    assert database.pooled is pooled
    target = msgspec.structs.replace(parse(url, "queen test", 5000), pooled=pooled)
    pools = [Pool(target, 1, 30) for _ in range(4)]
    loop = asyncio.get_running_loop()
    workers = [Leadership(MaintenanceStore(pool), loop.time) for pool in pools]
    watcher = await asyncpg.connect(pgbouncer[1])
    leaders = set()
    try:
        for _ in range(30):
            await asyncio.gather(*[worker.renew() for worker in rng.sample(workers, 4)])
            [leader] = [n for n, worker in enumerate(workers) if worker.held]
            leaders.add(leader)
            if rng.random() < 0.5:
                await workers[leader].resign()
                assert not any(worker.held for worker in workers)
        assert len(leaders) > 1
        # A leader that has stopped without a word: its time runs out.
        lost = next((worker for worker in workers if worker.held), workers[0])
        await watcher.execute(FASTER)
        await asyncio.gather(*[worker.renew() for worker in workers if worker is not lost])
        assert sum(worker.held for worker in workers if worker is not lost) == 1
        await lost.renew()
        assert not lost.held, "it notices"
    finally:
        await watcher.execute("DELETE FROM queen.service_leader")
        await watcher.close()
        for pool in pools:
            await pool.close()


@pytest.mark.parametrize(
    ("seconds_left", "done", "most", "portion"),
    [(60, 0, 1000, 100), (60, 100, 1000, 100), (60, 400, 1000, 400), (60, 800, 1000, 200), (60, 0, 3, 3), (60, 3, 3, 0),
     (-60, 100, 1000, 0)],
)  # fmt: skip
async def test_the_portions_of_a_transaction_double_until_its_time_is_over(
    postgres: str, seconds_left: int, done: int, most: int, portion: int
) -> None:
    await prepare(postgres, 5000)
    database = await asyncpg.connect(postgres)
    question = "SELECT queen.portion(clock_timestamp() + make_interval(secs => $1), $2, $3)"
    assert await database.fetchval(question, seconds_left, done, most) == portion
    await database.close()


async def test_services_work_behind_pgbouncer(pgbouncer: tuple[str, str]) -> None:  # noqa: F811
    through, direct = pgbouncer
    with open_folder() as folder, serving_database(through, folder, "--workers", "2", **BUSY) as server:
        database = await asyncpg.connect(direct)
        try:
            async with open_client(server.port) as http:
                await works(Api(http), database)
        finally:
            await database.close()
