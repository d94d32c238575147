"""The list of the databases of an installation, and its changes."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import asyncpg
import httpx
import pytest
from botocore.exceptions import ClientError
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
from tests.support.clock import eventually
from tests.support.processes import Server, run, wait_until
from tests.support.shards import NAMES, drain, new_databases, push, rows, serving_shards, slot, urls
from tests.support.sqs_clients import bodies, receive, sqs_client


@pytest.fixture
def fresh(postgres: str) -> Iterator[dict[str, str]]:
    """Empty databases that no server has used."""
    with new_databases(postgres) as databases:
        yield databases


@checks("G-SHARD-5", level=Level.LIVE)
async def test_spooled_pushes_follow_a_changed_list(fresh: dict[str, str], tmp_path: Path) -> None:
    """What was spooled for one database is stored on another one, in order and once, if that became its home."""
    with serving_shards({name: fresh[name] for name in ("a", "b")}, tmp_path / "first"):
        pass  # the list has two databases
    with serving_shards(fresh, tmp_path / "second", "--workers", "2") as server:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as api:
            await api.post("/api/v1/configure", json={"queue": "moved"})
            await api.post("/api/v1/system/maintenance", json={"enabled": True})
            partitions = [f"p{number}" for number in range(24)]
            for number in range(3):
                each = [{"queue": "moved", "partition": p, "payload": {"n": number}} for p in partitions]
                assert {answer["status"] for answer in await push(api, each)} == {"buffered"}
            targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
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
            assert [await _lanes(url) for url in fresh.values()] == [0, 0, 0]


async def test_an_added_database_has_the_definitions_of_the_others(fresh: dict[str, str]) -> None:
    """Every option of a queue, also if a group that began has made the queue there before."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    for name in targets:
        await prepare(fresh[name], 5000)
    await _store(first_list(["a", "b"], []), targets)
    source, added = await asyncpg.connect(fresh["a"]), await asyncpg.connect(fresh["c"])
    await source.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    for column, kind in await source.fetch(
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'queen' AND table_name = 'queues' AND column_name NOT IN ('id', 'name')"
    ):
        other = {"integer": "7", "text": "'x'", "boolean": f"{column} IS NOT true"}.get(kind, "'2026-01-01'")
        await source.execute(f"UPDATE queen.queues SET {column} = {other}")

    async def pause(_seconds: float) -> None:
        await added.execute("INSERT INTO queen.queues (name) VALUES ('q')")

    await change(targets, lambda known: with_added(known, "c"), pause)
    options = "SELECT to_jsonb(q) - 'id' FROM queen.queues AS q"
    assert await added.fetchval(options) == await source.fetchval(options)
    await source.close()
    await added.close()


@pytest.mark.nightly
@checks("G-SHARD-1", level=Level.LIVE)
async def test_a_database_with_an_old_list_gets_the_current_one(fresh: dict[str, str], tmp_path: Path) -> None:
    """It was restored from a backup, say."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    with serving_shards({name: fresh[name] for name in ("a", "b")}, tmp_path / "first"):
        old = (await shard_list.read(targets["b"])).shards
    with serving_shards(fresh, tmp_path / "second"):
        current = await change(targets, lambda known: with_added(known, "c"))
        connection = await asyncpg.connect(fresh["b"])
        await connection.execute("DELETE FROM queen.shard_list; DELETE FROM queen.shards")
        await connection.close()
        assert old is not None
        await shard_list.store(targets["b"], old, "b")
        async with asyncio.timeout(30):
            while (await shard_list.read(targets["b"])).shards != current:
                await asyncio.sleep(0.1)


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
async def test_while_the_list_changes_nothing_is_made_that_moves(fresh: dict[str, str]) -> None:
    """In the first step, both databases refuse what the two lists place differently; what stays is made at home."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    for name in targets:
        await prepare(fresh[name], 5000)
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


@pytest.mark.nightly
def test_names_stay_with_their_databases(fresh: dict[str, str], tmp_path: Path) -> None:
    first = {name: fresh[name] for name in ("a", "b")}
    with serving_shards(first, tmp_path / "first"):
        pass
    swapped = urls({"a": fresh["b"], "b": fresh["a"]})
    with (
        pytest.raises(AssertionError, match="give each database the name that it had before"),
        serving_shards({}, tmp_path / "second", DATABASE_URLS=swapped),
    ):
        pass


class Growing:
    """Clients of a server while the list of its databases changes; each call is repeated until it is carried out."""

    def __init__(self, server: Server) -> None:
        self._server, self.over = server, Event()

    def until_done(self, call: Callable[[], Any]) -> Any:
        """The answer to a call that may be put off while the list changes."""

        def done() -> list[Any]:
            try:
                return [call()]
            except ClientError as problem:
                if problem.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    raise
                return []

        return wait_until(done, "a call that is carried out")[0]

    def send(self, name: str) -> int:
        """Makes the queue again, finds it and sends to it, until all is over; how many messages it has now."""
        sqs, sent = sqs_client(self._server.port), 0
        while not self.over.is_set():
            made = self.until_done(lambda: sqs.create_queue(QueueName=name))["QueueUrl"]
            assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == made
            sqs.send_message(QueueUrl=made, MessageBody=str(sent))
            sent += 1
        return sent

    def send_simply(self, queue: str) -> int:
        sent = 0
        with httpx.Client(base_url=f"http://127.0.0.1:{self._server.port}", timeout=30) as client:
            while not self.over.is_set():
                assert client.post(f"/api/queues/{queue}/messages", json={"data": str(sent)}).status_code == 201
                sent += 1
        return sent

    def make_new(self, worker: int) -> int:
        """Makes new queues, which another client makes at the same time."""
        sqs, made = sqs_client(self._server.port), 0
        while not self.over.is_set():
            group = f"new{made}"
            for name in (f"{group}--dlq", group)[:: 1 if worker else -1]:
                self.until_done(lambda name=name: sqs.create_queue(QueueName=name))  # type: ignore[misc]
            made += 1
        return made


@pytest.mark.nightly
@checks("G-SHARD-9", level=Level.LIVE)
def test_a_change_of_the_list_under_load_splits_no_queue(fresh: dict[str, str], tmp_path: Path) -> None:
    with serving_shards({name: fresh[name] for name in ("a", "b")}, tmp_path / "first"):
        pass  # the list has two databases
    with serving_shards(fresh, tmp_path / "second", "--workers", "2") as server:
        sqs = sqs_client(server.port)
        groups = [f"group{number}" for number in range(12)]
        for group in groups:
            sqs.create_queue(QueueName=f"{group}--dlq")
        body = {"queue_size": 100_000, "visibility_timeout": 30, "max_deliveries": 3}
        simple = [
            server.request("POST", "/api/queues", {"queue_name": f"s{number}", **body})[1]["queue_id"]
            for number in range(2)
        ]
        targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
        growing = Growing(server)
        with ThreadPoolExecutor(6) as pool:
            sending = {name: pool.submit(growing.send, name) for name in ("q0", "q1")}
            sending |= {queue: pool.submit(growing.send_simply, queue) for queue in simple}
            making = [pool.submit(growing.make_new, worker) for worker in range(2)]
            try:
                asyncio.run(change(targets, lambda known: with_added(known, "c")))
                wait_until(lambda: rows(fresh["c"], "SELECT FROM simple_mq.sqs_queues"), "queues on the new database")
            finally:
                growing.over.set()
            sent = {name: each.result() for name, each in sending.items()}
            assert min(each.result() for each in making) > 0
        for group in groups:
            source_beside_its_dead_letters(sqs, group)
        in_one_database(fresh, sqs, sent)


def source_beside_its_dead_letters(sqs: Any, group: str) -> None:
    """Makes the queue of a dead-letter queue that was there before, and a dead letter."""
    dlq = sqs.get_queue_url(QueueName=f"{group}--dlq")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dlq, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    attributes = {"VisibilityTimeout": "0", "RedrivePolicy": policy}
    source = sqs.create_queue(QueueName=group, Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=source, MessageBody=group)
    assert bodies(receive(sqs, source)) == [group]
    assert receive(sqs, source) == []
    assert bodies(receive(sqs, dlq)) == [group]


def in_one_database(databases: dict[str, str], sqs: Any, sent: dict[str, int]) -> None:
    """Every group of queues and all messages of each queue are in one database, and none is missing."""
    names = [{row[0] for row in rows(url, "SELECT queue_name FROM simple_mq.sqs_queues")} for url in databases.values()]
    assert all(names)
    groups = [{name.partition("--")[0] for name in some} for some in names]
    assert set(Counter(group for some in groups for group in some).values()) == {1}
    stored: Counter[str] = Counter()
    for url in databases.values():
        found = rows(url, "SELECT queue_id::text, count(*) FROM simple_mq.messages GROUP BY queue_id")
        assert stored.keys().isdisjoint(row[0] for row in found)
        stored.update(dict(map(tuple, found)))
    for name in list(sent):
        if name.startswith("q"):
            url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
            count = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
            assert int(count["ApproximateNumberOfMessages"]) == sent[name]
        else:
            assert stored[name] == sent[name]


@checks("G-SHARD-1", level=Level.LIVE)
async def test_while_a_command_changes_the_list_others_are_refused(fresh: dict[str, str]) -> None:
    """Each would make the next version, with another list."""
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    for name in targets:
        await prepare(fresh[name], 5000)
    await _store(first_list(["a", "b"], []), targets)

    async def pause(_seconds: float) -> None:
        for command in (("drain", "b"), ("move",)):
            done = await asyncio.to_thread(run, "shards", *command, DATABASE_URLS=urls(fresh))
            assert done.returncode == 1
            assert "wait for its end" in done.stderr

    changed = await change(targets, lambda known: with_added(known, "c"), pause)
    lists = [(await shard_list.read(target)).shards for target in targets.values()]
    assert lists == [changed] * 3
    assert changed.names(2) == ["a", "b", "c"]


@pytest.mark.nightly
@checks("G-SHARD-1", level=Level.LIVE)
async def test_a_change_whose_connection_breaks_says_so_and_is_taken_up(fresh: dict[str, str]) -> None:
    targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
    for name in targets:
        await prepare(fresh[name], 5000)
    await _store(first_list(list(NAMES), []), targets)
    connection = await asyncpg.connect(fresh["b"])
    try:
        await connection.execute("SELECT pg_advisory_lock(487215785330)")  # which storing the list takes
        draining = asyncio.create_task(asyncio.to_thread(run, "shards", "drain", "c", DATABASE_URLS=urls(fresh)))
        waiting = (
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database"
            " WHERE NOT l.granted AND d.datname = current_database()"
        )
        while not draining.done():
            await connection.execute(waiting)
            await asyncio.sleep(0.1)
        done = draining.result()
    finally:
        await connection.close()
    assert done.returncode == 1
    assert "was lost" in done.stderr
    assert "Traceback" not in done.stderr
    again = await asyncio.to_thread(run, "shards", "drain", "c", DATABASE_URLS=urls(fresh))
    assert again.returncode == 0, again.stderr
    lists = [(await shard_list.read(target)).shards for target in targets.values()]
    assert [(each.version, each.opened, each.names(2)) for each in lists if each] == [(2, 2, ["a", "b"])] * 3


@pytest.mark.nightly
async def test_an_added_database_that_cannot_be_used_yet_is_used_when_it_can(
    fresh: dict[str, str], tmp_path: Path
) -> None:
    """Its spool has no folder: what belongs there waits, and the rest goes on."""
    spools = tmp_path / "spools"
    spools.mkdir()
    with serving_shards({name: fresh[name] for name in ("a", "b")}, tmp_path / "first", FILE_BUFFER_DIR=str(spools)):
        pass  # the list has two databases
    with serving_shards(fresh, tmp_path / "second", "--workers", "2", FILE_BUFFER_DIR=str(spools)) as server:
        (spools / "c").write_text("in the way")
        targets = {name: parse(url, "test", 5000) for name, url in fresh.items()}
        await change(targets, lambda known: with_added(known, "c"))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as api:

            async def pushed(number: int) -> int:
                body = {"items": [{"queue": "q", "partition": f"p{number}", "payload": number}]}
                return (await api.post("/api/v1/push", json=body)).status_code

            statuses = Counter(await asyncio.gather(*map(pushed, range(60))))
            assert set(statuses) == {201, 503}, statuses
            lines = server.output.read_text()
            assert "Database c cannot be used yet: The spool folder" in lines
            assert lines.count("cannot be used yet") <= 2, "once per worker"
            (spools / "c").unlink()
            await eventually(lambda: _all_are_taken(pushed), "each database takes pushes", 60)
            found = await drain(api, "q")
            assert {slot(str(message["partitionId"])) for message in found} == {0, 1, 2}
        assert '"level": "error", "logger": "queen.http"' not in server.output.read_text()


async def _all_are_taken(pushed: Callable[[int], Awaitable[int]]) -> bool:
    return {*await asyncio.gather(*map(pushed, range(60)))} == {201}
