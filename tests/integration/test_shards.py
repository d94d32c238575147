"""One server over three databases: where messages go, and that they come."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.support.processes import Server
from tests.support.shards import NAMES, drain, items, new_databases, push, serving_shards, slot


@pytest.fixture(scope="module")
def databases(postgres: str) -> Iterator[dict[str, str]]:
    with new_databases(postgres) as databases:
        yield databases


@pytest.fixture(scope="module")
def server(databases: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers over three databases."""
    with serving_shards(databases, tmp_path_factory.mktemp("shards")) as server:
        yield server


@pytest.fixture
async def api(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client


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
    assert refused.json()["code"] == "partly_stored"
    assert "it has room for 1 of 2 messages" in refused.json()["error"]
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
