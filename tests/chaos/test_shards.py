"""Several databases, of which one fails: its partitions spool, the others go on, and nothing is lost."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import httpx
import pytest

from queen.core.placement import with_added
from queen.postgres.dsn import parse
from queen.shards.setup import change
from spec.guarantees import Level, checks
from tests.support.outage import FragilePostgres, fragile_postgres
from tests.support.processes import Server, open_folder
from tests.support.servers import create_database, drop_database
from tests.support.shards import serving_shards
from tests.support.traffic import Traffic

NAMES = ("a", "b", "c")
#: One producer each: two partitions on every database, and others where the list places them.
PARTITIONS = [*[f"p{number}@{name}" for name in NAMES for number in range(2)], "p0", "p1", "p2"]
ROUNDS = 4


@pytest.fixture
def databases() -> Iterator[tuple[Path, dict[str, FragilePostgres]]]:
    with open_folder() as folder, ExitStack() as stack:
        yield folder, {name: stack.enter_context(fragile_postgres(folder / name)) for name in NAMES}


class Faults:
    """What may go wrong with one of the databases while the others go on."""

    def __init__(self, databases: dict[str, FragilePostgres], server: Server, traffic: Traffic, seed: int) -> None:
        self._databases, self._server, self._traffic = databases, server, traffic
        self._choice = random.Random(seed)

    async def one(self) -> str:
        """Lets one database fail, until messages were spooled and messages of others came."""
        name = self._choice.choice(sorted(self._databases))
        if self._choice.random() < 0.5:
            self._databases[name].kill()
            await self._others_go_on()
            if self._choice.random() < 0.5:
                os.kill(self._choice.choice(sorted(self._server.workers())), signal.SIGKILL)
            self._databases[name].start()
            return f"{name} died"
        with self._databases[name].silent():
            await self._others_go_on()
        return f"{name} was silent"

    async def _others_go_on(self) -> None:
        goal = self._traffic.journal.buffered + 10
        async with asyncio.timeout(120):
            while self._traffic.journal.buffered < goal:
                await asyncio.sleep(0.02)
        await self._traffic.progress(100)
        await self._pops_without_a_wait()

    async def _pops_without_a_wait(self) -> None:
        """They begin with another database each time, and fail with none that is down."""
        url = f"{self._traffic.urls[0]}/api/v1/pop/queue/{self._traffic.queue}?consumerGroup=beside&autoAck=true"
        async with httpx.AsyncClient(timeout=60) as client:
            for _ in range(4 * len(NAMES)):
                answer = await client.get(url)
                assert answer.status_code in (200, 204), answer.text


@checks("G-SHARD-3", "G-SHARD-1", level=Level.FAULTS)
def test_a_database_fails_and_the_others_go_on(databases: tuple[Path, dict[str, FragilePostgres]]) -> None:
    seed = int(os.environ.get("QUEEN_SEED", random.SystemRandom().randrange(10**6)))
    print(f"QUEEN_SEED={seed}")
    folder, fragile = databases
    urls = {name: postgres.dsn for name, postgres in fragile.items()}
    with serving_shards(urls, folder / "server", "--workers", "2") as server:
        traffic, timeline = Traffic(f"http://127.0.0.1:{server.port}", f"shards-{seed}", seed), []
        faults = Faults(fragile, server, traffic, seed)

        async def disturb() -> None:
            for _ in range(ROUNDS):
                timeline.append(await faults.one())
                await traffic.progress(50)

        assert (
            server.request("POST", "/api/v1/configure", {"queue": traffic.queue, "options": {"leaseTime": 2}})[0] == 200
        )
        asyncio.run(traffic.run(disturb, PARTITIONS, consumers=4))
        asyncio.run(traffic.judge(*urls.values()))
    print(f"{timeline}; {traffic.journal.buffered} spooled")


@checks("G-SHARD-6", level=Level.FAULTS)
def test_a_group_that_begins_while_a_database_is_down_misses_nothing(
    databases: tuple[Path, dict[str, FragilePostgres]],
) -> None:
    folder, fragile = databases
    with serving_shards({name: each.dsn for name, each in fragile.items()}, folder / "server") as server:

        def push(number: int) -> str:
            body = {"items": [{"queue": "q", "partition": f"p@{name}", "payload": number} for name in NAMES]}
            status, answer = server.request("POST", "/api/v1/push", body)
            assert status == 201, answer
            statuses = {item["status"] for item in answer}
            return "buffered" if "buffered" in statuses else "queued"

        def pop(timeout_ms: int = 0) -> list[int]:
            wait = f"&wait=true&timeout={timeout_ms}" if timeout_ms else ""
            path = f"/api/v1/pop/queue/q?consumerGroup=g&subscriptionMode=new&batch=100&autoAck=true{wait}"
            status, answer = server.request("GET", path)
            return [message["data"] for message in answer["messages"]] if status == 200 else []

        push(0)
        fragile["b"].kill()
        while push(1) != "buffered":
            pass
        assert pop() == []  # the group begins
        assert push(2) == "buffered"
        fragile["b"].start()
        found: list[int] = []
        while found.count(2) < len(NAMES):
            found += pop(30_000)
        assert set(found) <= {1, 2}  # what was spooled before is stored after the beginning


@pytest.fixture
def empty_databases(postgres: str) -> Iterator[dict[str, str]]:
    made = {name: asyncio.run(create_database(postgres)) for name in NAMES}
    yield made
    for url in made.values():
        asyncio.run(drop_database(postgres, url))


@pytest.mark.nightly
@checks("G-SHARD-1", "G-SHARD-5", level=Level.FAULTS)
def test_a_database_is_added_under_load(empty_databases: dict[str, str], tmp_path: Path) -> None:
    seed = int(os.environ.get("QUEEN_SEED", random.SystemRandom().randrange(10**6)))
    print(f"QUEEN_SEED={seed}")
    first = {name: empty_databases[name] for name in ("a", "b")}
    with serving_shards(first, tmp_path / "first"):
        pass  # the list has two shards
    targets = {name: parse(url, "test", 5000) for name, url in empty_databases.items()}
    with serving_shards(empty_databases, tmp_path / "server", "--workers", "2") as server:
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"grown-{seed}", seed)
        options = {"leaseTime": 2, "retryLimit": 7}
        assert server.request("POST", "/api/v1/configure", {"queue": traffic.queue, "options": options})[0] == 200

        async def add() -> None:
            made = [asyncio.create_task(push_to_new(traffic, f"new{number}")) for number in range(40)]
            await change(targets, lambda known: with_added(known, "c"))
            made += [asyncio.create_task(push_to_new(traffic, f"newer{number}")) for number in range(40)]
            await asyncio.gather(*made)

        asyncio.run(traffic.run(add, [f"p{number}" for number in range(6)], consumers=4))
        asyncio.run(traffic.judge(*empty_databases.values()))
        assert asyncio.run(partitions_of(empty_databases["c"], traffic.queue)) > 0


async def push_to_new(traffic: Traffic, partition: str) -> None:
    """Makes a partition, beside others that are made."""
    async with httpx.AsyncClient(timeout=60) as client:
        for number in range(3):
            text = f"{partition}-{number}"
            item = {"queue": traffic.queue, "partition": partition, "payload": number, "transactionId": text}
            answer = await traffic.request(client, "POST", "/api/v1/push", json={"items": [item]})
            assert answer.status_code == 201, answer.text
            traffic.journal.answered[partition].append(text)


async def partitions_of(url: str, queue: str) -> int:
    """How many partitions of a queue a database has, whose options are those of the others."""
    connection = await asyncpg.connect(url)
    try:
        limit, number = await connection.fetchrow(
            "SELECT q.retry_limit, count(p.id) FROM queen.queues AS q"
            " LEFT JOIN queen.partitions AS p ON p.queue_id = q.id"
            " WHERE q.name = $1 GROUP BY q.id",
            queue,
        )
    finally:
        await connection.close()
    assert limit == 7
    return int(number)
