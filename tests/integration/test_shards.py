"""One server over three databases: where messages go, and that they come."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from msgspec import structs

from queen.core.errors import DataRejectedError
from queen.core.placement import ShardList, first_list, with_added
from queen.postgres import shard_list
from queen.postgres.dsn import Target, parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from queen.shards.setup import change
from spec.guarantees import Level, checks
from tests.support.processes import Server
from tests.support.servers import create_database, drop_database
from tests.support.shards import new_databases, serving_shards, urls

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def databases(postgres: str) -> Iterator[dict[str, str]]:
    made = {name: asyncio.run(create_database(postgres)) for name in NAMES}
    yield made
    for url in made.values():
        asyncio.run(drop_database(postgres, url))


@pytest.fixture(scope="module")
def server(databases: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers over three databases."""
    with serving_shards(databases, tmp_path_factory.mktemp("shards")) as server:
        yield server


@pytest.fixture
async def api(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client


def slot(identifier: str) -> int:
    """The slot of the shard of an id."""
    return int(identifier[:2], 16)


def items(queue: str, *partitions: str, each: int = 1) -> list[dict[str, object]]:
    return [
        {"queue": queue, "partition": partition, "payload": {"n": number}, "transactionId": f"{partition}-{number}"}
        for partition in partitions
        for number in range(each)
    ]


async def push(api: httpx.AsyncClient, pushed: list[dict[str, object]]) -> list[dict[str, str]]:
    answer = await api.post("/api/v1/push", json={"items": pushed})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def drain(api: httpx.AsyncClient, queue: str, **query: object) -> list[dict[str, object]]:
    """All messages that pops without a wait get, acknowledged."""
    found: list[dict[str, object]] = []
    while (answer := await api.get(f"/api/v1/pop/queue/{queue}", params={"batch": 100, **query})).status_code == 200:
        messages = answer.json()["messages"]
        acks = [
            {"transactionId": m["transactionId"], "partitionId": m["partitionId"], "leaseId": m["leaseId"],
             "status": "completed"} for m in messages
        ]  # fmt: skip
        acked = await api.post("/api/v1/ack/batch", json={"acknowledgments": acks})
        assert all(result["success"] for result in acked.json()), acked.text
        found += messages
    assert answer.status_code == 204, answer.text
    return found


@checks("G-SHARD-1", level=Level.LIVE)
async def test_a_push_is_spread_and_comes_whole_and_in_order(api: httpx.AsyncClient) -> None:
    partitions = [f"p{number}" for number in range(30)]
    answers = await push(api, items("spread", *partitions, each=3))
    assert {answer["status"] for answer in answers} == {"queued"}
    assert {slot(answer["message_id"]) for answer in answers} == {0, 1, 2}
    homes = {answer["partition_id"] for answer in answers}
    assert len(homes) == len(partitions)
    found = await drain(api, "spread")
    assert len(found) == 90
    for partition in partitions:
        assert [m["data"]["n"] for m in found if m["partition"] == partition] == [0, 1, 2]


@checks("G-SHARD-2", level=Level.LIVE)
async def test_a_repeated_push_stores_nothing_twice(api: httpx.AsyncClient) -> None:
    pushed = items("once", *[f"p{number}" for number in range(12)])
    first = await push(api, pushed)
    again = await push(api, pushed)
    assert [answer["status"] for answer in again] == ["duplicate"] * 12
    assert [answer["message_id"] for answer in again] == [answer["message_id"] for answer in first]
    assert len(await drain(api, "once")) == 12


@checks("G-SHARD-2", level=Level.LIVE)
async def test_a_push_that_one_database_refuses_is_repeated(api: httpx.AsyncClient) -> None:
    """Each database stores its part or nothing of it; what was stored is not stored again."""
    await api.post("/api/v1/configure", json={"queue": "small", "options": {"maxSize": 2}})
    await push(api, items("small", "p@b"))
    pushed = [*items("small", "p@a", each=2), *items("small", "q@b", each=2)]
    refused = await api.post("/api/v1/push", json={"items": pushed})
    assert refused.status_code == 503
    assert "Repeat it with the same transaction ids" in refused.json()["error"]
    found = await drain(api, "small")
    assert sorted(str(m["transactionId"]) for m in found) == ["p@a-0", "p@a-1", "p@b-0"]
    assert [answer["status"] for answer in await push(api, pushed)] == ["duplicate"] * 2 + ["queued"] * 2
    assert [m["transactionId"] for m in await drain(api, "small")] == ["q@b-0", "q@b-1"]


@checks("G-SHARD-1", level=Level.LIVE)
async def test_a_partition_has_one_home_whoever_makes_it(api: httpx.AsyncClient) -> None:
    """Both workers, at once, and pushes that share a request with others."""
    partitions = [f"k{number}" for number in range(20)]
    answers = await asyncio.gather(*[push(api, [item]) for item in items("home", *partitions, each=8)])
    homes: dict[str, set[str]] = {}
    for item, [answer] in zip(items("home", *partitions, each=8), answers, strict=True):
        homes.setdefault(str(item["partition"]), set()).add(answer["partition_id"])
    assert {len(ids) for ids in homes.values()} == {1}
    counts = Counter(str(m["partition"]) for m in await drain(api, "home"))
    assert counts == dict.fromkeys(partitions, 8)


@pytest.mark.parametrize("auto_ack", ["false", "true"])
async def test_a_long_poll_is_answered_from_any_shard(api: httpx.AsyncClient, auto_ack: str) -> None:
    for number in range(12):
        queue, partition = f"poll-{auto_ack}", f"p{number}"
        waiting = asyncio.create_task(
            api.get(f"/api/v1/pop/queue/{queue}", params={"wait": "true", "timeout": 20000, "autoAck": auto_ack})
        )
        await asyncio.sleep(0)
        await push(api, items(queue, partition))
        answer = await waiting
        [message] = answer.json()["messages"]
        assert message["partition"] == partition
        if auto_ack == "false":
            [acked] = (await api.post("/api/v1/ack", json={**message, "status": "completed"})).json()
            assert acked["success"]
    assert await drain(api, queue) == []


async def test_long_polls_on_all_shards_lose_and_double_nothing(api: httpx.AsyncClient) -> None:
    """Several long polls wait while messages come on all shards at once: what two shards give one poll comes again."""
    wanted = 150
    taken: list[str] = []

    async def consume() -> None:
        while len(taken) < wanted:
            query = {"wait": "true", "timeout": 1000, "autoAck": "true", "batch": 3}
            answer = await api.get("/api/v1/pop/queue/race", params=query)
            if answer.status_code == 200:
                taken.extend(m["transactionId"] for m in answer.json()["messages"])

    async def produce() -> None:
        for number in range(wanted // 6):
            await push(api, items("race", *[f"p{number}-{place}" for place in range(6)]))

    await asyncio.gather(produce(), *[consume() for _ in range(8)])
    assert len(taken) == len(set(taken)) == wanted


async def test_a_partition_can_be_pinned_to_a_database(api: httpx.AsyncClient) -> None:
    for number, name in enumerate(NAMES):
        [answer] = await push(api, items("pinned", f"here@{name}"))
        assert slot(answer["message_id"]) == number


@checks("G-SHARD-7", level=Level.LIVE)
async def test_sql_pushes_into_the_database_in_which_it_is_called(
    api: httpx.AsyncClient, databases: dict[str, str]
) -> None:
    await api.post("/api/v1/configure", json={"queue": "sql"})
    for name, url in databases.items():
        connection = await asyncpg.connect(url)
        payloads = ["{}"] * 3
        await connection.execute("SELECT queen.push_many('sql', $1::text[]::jsonb[])", payloads)
        await connection.execute("SELECT queen.push('sql', '{}', $1)", f"mine@{name}")
        await connection.close()
    found: Counter[tuple[str, int]] = Counter()
    while found.total() < 4 * len(NAMES):
        answer = await api.get("/api/v1/pop/queue/sql", params={"wait": "true", "timeout": 20000, "autoAck": "true"})
        found.update((m["partition"], slot(m["partitionId"])) for m in answer.json()["messages"])
    home = next(place for partition, place in found if partition == "Default")
    wanted = {("Default" if place == home else f"Default@{name}", place): 3 for place, name in enumerate(NAMES)}
    assert found == wanted | {(f"mine@{name}", place): 1 for place, name in enumerate(NAMES)}


@checks("G-SHARD-4", level=Level.LIVE)
async def test_a_transaction_stays_on_one_database(api: httpx.AsyncClient) -> None:
    await push(api, items("input", "in@b"))
    [message] = (await api.get("/api/v1/pop/queue/input")).json()["messages"]
    ack = {"type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"],
           "leaseId": message["leaseId"], "status": "completed"}  # fmt: skip

    def transaction(partition: str) -> dict[str, object]:
        return {"operations": [ack, {"type": "push", "items": items("output", partition)}],
                "requiredLeases": [message["leaseId"]]}  # fmt: skip

    refused = await api.post("/api/v1/transaction", json=transaction("out@c"))
    assert refused.status_code == 409
    assert "several databases (b and c)" in refused.json()["error"]
    done = await api.post("/api/v1/transaction", json=transaction("out@b"))
    assert done.json()["success"], done.text
    assert [m["partition"] for m in await drain(api, "output")] == ["out@b"]


async def test_queues_that_follow_another_share_its_transactions(api: httpx.AsyncClient) -> None:
    configured = await api.post("/api/v1/configure", json={"queue": "billed", "options": {"colocateWith": "ordered"}})
    assert configured.json()["options"]["colocateWith"] == "ordered"
    partitions = [f"customer-{number}" for number in range(12)]
    await push(api, items("ordered", *partitions))
    while (answer := await api.get("/api/v1/pop/queue/ordered")).status_code == 200:
        [message] = answer.json()["messages"]
        ack = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        operations = [
            {"type": "ack", "status": "completed", **ack},
            {"type": "push", "items": items("billed", message["partition"])},
        ]
        done = await api.post("/api/v1/transaction", json={"operations": operations})
        assert done.status_code == 200
        assert done.json()["success"], done.text
    assert sorted(str(m["partition"]) for m in await drain(api, "billed")) == sorted(partitions)


async def test_a_queue_that_exists_cannot_follow_another(api: httpx.AsyncClient) -> None:
    await push(api, items("settled", "p"))
    refused = await api.post("/api/v1/configure", json={"queue": "settled", "options": {"colocateWith": "ordered"}})
    assert refused.status_code == 409
    assert "colocateWith cannot change" in refused.json()["error"]
    await api.post("/api/v1/configure", json={"queue": "follower", "options": {"colocateWith": "ordered"}})
    again = await api.post("/api/v1/configure", json={"queue": "follower", "options": {"leaseTime": 7}})
    assert again.status_code == 200


async def test_a_lease_is_renewed_wherever_it_is(api: httpx.AsyncClient) -> None:
    await push(api, items("leased", *[f"in@{name}" for name in NAMES]))
    for _ in NAMES:
        popped = (await api.get("/api/v1/pop/queue/leased", params={"leaseSeconds": 30})).json()
        renewed = await api.post(f"/api/v1/lease/{popped['leaseId']}/extend", json={"seconds": 600})
        assert renewed.status_code == 200
        assert renewed.json()[0]["success"] if isinstance(renewed.json(), list) else renewed.json()["success"]


async def test_a_timer_fires_on_the_shard_of_its_partition(api: httpx.AsyncClient) -> None:
    later = [{**item, "delaySeconds": 1} for item in items("late", *[f"p{number}" for number in range(6)])]
    assert {answer["status"] for answer in await push(api, later)} == {"scheduled"}
    found: list[str] = []
    while len(found) < 6:
        answer = await api.get("/api/v1/pop/queue/late", params={"wait": "true", "timeout": 20000, "autoAck": "true"})
        found += [m["transactionId"] for m in answer.json()["messages"]]
    assert sorted(found) == sorted(str(item["transactionId"]) for item in later)


@checks("G-SHARD-5", level=Level.LIVE)
async def test_spooled_pushes_follow_a_changed_list(postgres: str, tmp_path: Path) -> None:
    """What was spooled for one database is stored on another one, in order and once, if that became its home."""
    with new_databases(postgres) as databases:
        with serving_shards({name: databases[name] for name in ("a", "b")}, tmp_path / "first"):
            pass  # the list has two databases
        with serving_shards(databases, tmp_path / "second", "--workers", "2") as server:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as api:
                await api.post("/api/v1/configure", json={"queue": "moved"})
                await api.post("/api/v1/system/maintenance", json={"enabled": True})
                partitions = [f"p{number}" for number in range(24)]
                for number in range(3):
                    each = [{"queue": "moved", "partition": p, "payload": {"n": number}} for p in partitions]
                    assert {answer["status"] for answer in await push(api, each)} == {"buffered"}
                targets = {name: parse(url, "test", 5000) for name, url in databases.items()}
                await change(targets, lambda known: with_added(known, "c"))
                each = [{"queue": "moved", "partition": p, "payload": {"n": 3}} for p in partitions]
                assert {answer["status"] for answer in await push(api, each)} == {"buffered"}
                await api.post("/api/v1/system/maintenance", json={"enabled": False})
                async with asyncio.timeout(60):
                    found: list[dict[str, Any]] = []
                    while len(found) < 4 * len(partitions):
                        found += await drain(api, "moved", wait="true", timeout=100)
                for partition in partitions:
                    assert [m["data"]["n"] for m in found if m["partition"] == partition] == [0, 1, 2, 3]
                assert {slot(str(m["partitionId"])) for m in found} == {0, 1, 2}
                assert [await _lanes(url) for url in databases.values()] == [0, 0, 0]


async def _lanes(url: str) -> int:
    """How many positions of spool files a database still has; they go when the files do."""
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(10):
            while number := await connection.fetchval("SELECT count(*) FROM queen.spool_lanes"):
                await asyncio.sleep(0.1)
    finally:
        await connection.close()
    return number


@checks("G-SHARD-1", level=Level.LIVE)
async def test_while_the_list_changes_nothing_is_made_that_moves(postgres: str) -> None:
    """In the first step, both databases refuse what the two lists place differently; what stays is made at home."""
    with new_databases(postgres) as databases:
        targets = {name: parse(url, "test", 5000) for name, url in databases.items()}
        for target in targets.values():
            await prepare(target.dsn, 5000)
        first = first_list(["a", "b"], [])
        await _store(first, targets)
        changing = with_added(first, "c")
        await _store(changing, targets)
        partitions = [f"p{number}" for number in range(24)]
        made = {name: await _made(targets[name], partitions) for name in NAMES}
        stay = {name: {p for p in partitions if first.home("q", p) == changing.home("q", p) == name} for name in NAMES}
        assert made == stay
        assert sum(map(len, stay.values())) < len(partitions)
        await _store(structs.replace(changing, opened=2), targets)
        made = {name: await _made(targets[name], partitions) for name in NAMES}
        assert made == {name: {p for p in partitions if changing.home("q", p) == name} for name in NAMES}


async def _store(shards: ShardList, targets: Mapping[str, Target]) -> None:
    for name, target in targets.items():
        if shards.find(name):
            await shard_list.store(target, shards, name)


async def _made(target: Target, partitions: list[str]) -> set[str]:
    """The partitions that a database makes, or has; it refuses the others."""
    made, pool = set(), Pool(target, 1, 30)
    for partition in partitions:
        with suppress(DataRejectedError):
            await Store(pool).resolve_partitions([("q", partition)], create=True)
            made.add(partition)
    await pool.close()
    return made


def test_names_stay_with_their_databases(postgres: str, tmp_path: Path) -> None:
    databases = {name: asyncio.run(create_database(postgres)) for name in ("a", "b")}
    with serving_shards(databases, tmp_path / "first"):
        pass
    swapped = urls({"a": databases["b"], "b": databases["a"]})
    with (
        pytest.raises(AssertionError, match="give each database the name that it had before"),
        serving_shards({}, tmp_path / "second", DATABASE_URLS=swapped),
    ):
        pass
    for url in databases.values():
        asyncio.run(drop_database(postgres, url))
