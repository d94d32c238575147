"""A poisoned spool: whatever waits in it, pushes to other partitions are stored directly again within a minute."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from queen.log.requests import PartitionBatch, Push
from queen.spool.folder import DiskFolder
from queen.spool.format import Record, spool_request
from queen.spool.place import installation_of
from queen.spool.spool import Limits, Spool, entry_of
from spec.guarantees import Level, checks
from tests.support.api import Api, open_client, worker_apis
from tests.support.nightly import mostly_at_night
from tests.support.outage import FragilePostgres, spool_in, spooling_server, wait_until_drained
from tests.support.processes import Server, run, wait_until
from tests.support.spool_world import joined, push_of

#: Pushes to other partitions are stored directly again before this is over.
LIMIT_S = 60.0
#: What is held back is tried again after so long, once its cause is gone: a try of 30 s or a minute, and its pause.
CURED_S = 240.0
_CONFIGURE = (
    "SELECT queen.configure_queue_v1($1, '', '', 0, 300, 3, 0, 0, 0, NULL, NULL, false, 0, 0, 0, 0, $2, $3, 1000)"
)
#: A push to a partition that is named here takes so long, or fails.
_POISON = """
CREATE TABLE poison (part_id bigint PRIMARY KEY, seconds float8 NOT NULL, state text);
CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE v poison;
BEGIN
    SELECT * INTO v FROM poison WHERE part_id = NEW.part_id;
    IF v.state IS NOT NULL THEN
        RAISE EXCEPTION 'poisoned' USING ERRCODE = v.state;
    END IF;
    PERFORM pg_sleep(v.seconds) WHERE v.seconds > 0;
    RETURN NEW;
END $$;
CREATE TRIGGER poison BEFORE INSERT ON queen.segments FOR EACH ROW EXECUTE FUNCTION poison();
"""

Pushed = tuple[str, Sequence[Any]]


@pytest.fixture(scope="module", autouse=True)
def _poison(server: Server, postgres: FragilePostgres) -> None:
    asyncio.run(_execute(postgres, _POISON))


@asynccontextmanager
async def _connection(postgres: FragilePostgres) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def _execute(postgres: FragilePostgres, sql: str, *arguments: Any) -> None:
    async with _connection(postgres) as connection:
        await connection.execute(sql, *arguments)


async def part_id(postgres: FragilePostgres, queue: str, partition: str) -> int:
    async with _connection(postgres) as connection:
        return int(
            await connection.fetchval(
                "SELECT p.id FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id "
                "WHERE q.name = $1 AND p.name = $2",
                queue,
                partition,
            )
        )


async def stored(postgres: FragilePostgres, queue: str) -> dict[str, list[Any]]:
    async with _connection(postgres) as connection:
        rows = await connection.fetch(
            "SELECT partition, payload::text FROM queen.messages WHERE queue = $1 ORDER BY partition, off", queue
        )
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(int(row["payload"]))
    return found


def request(queue: str, *pushed: Pushed, ids: Sequence[str] | None = None) -> Push:
    """One request for these partitions of a queue."""
    push = joined([push_of(partition, list(payloads), list(ids) if ids else None) for partition, payloads in pushed])
    return Push(
        [
            PartitionBatch(queue, batch.partition, batch.places, batch.body, batch.lengths, batch.ids)
            for batch in push.batches
        ],
        push.items,
    )


async def put(spool: Spool, *requests: Push, sent: bool = False) -> None:
    """Spools them as a worker does that has lost PostgreSQL; ``sent``: in one call whose outcome it does not know."""
    now = time.time()
    groups = [list(requests)] if sent else [[each] for each in requests]
    records = [Record(uuid4(), now if sent else None, now, [spool_request(push) for push in each]) for each in groups]
    assert await asyncio.to_thread(spool.append, [entry_of(record) for record in records], insist=True)


async def statuses(api: Api, queue: str, *payloads: Any, partition: str) -> set[str]:
    return {item["status"] for item in await api.push(queue, *payloads, partition=partition)}


async def until_direct(server: Server, queue: str, partitions: Mapping[str, list[Any]], number: int) -> None:
    """Returns when pushes through each worker to each of these partitions are stored directly; keeps what it pushed."""
    give_up_at = time.monotonic() + LIMIT_S
    async with worker_apis(server.port) as workers:
        for worker in workers:
            for partition, payloads in partitions.items():
                while True:
                    told = await statuses(worker, queue, number, partition=partition)
                    payloads.append(number)
                    number += 1
                    if told == {"queued"}:
                        break
                    assert time.monotonic() < give_up_at, f"{partition} is still spooled after {LIMIT_S:g} s"
                    await asyncio.sleep(0.05)


async def until_let_go(spool: Spool) -> None:
    async with asyncio.timeout(CURED_S):
        while spool.spooling or spool.held_back or spool.held_files() or spool.files():
            await asyncio.sleep(0.1)


async def slow(postgres: FragilePostgres, queue: str, partition: str, seconds: float, state: str | None = None) -> None:
    part = await part_id(postgres, queue, partition)
    await _execute(
        postgres,
        "INSERT INTO poison VALUES ($1, $2, $3) ON CONFLICT (part_id) DO UPDATE SET seconds = $2, state = $3",
        part,
        seconds,
        state,
    )


class Tale:
    """What was answered, by partition."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.answered: dict[str, list[Any]] = {}

    def push(self, *pushed: Pushed) -> Push:
        for partition, payloads in pushed:
            self.answered.setdefault(partition, []).extend(payloads)
        return request(self.queue, *pushed)

    async def is_true(self, postgres: FragilePostgres) -> None:
        found = await stored(postgres, self.queue)
        assert found == self.answered


async def direct(api: Api, tale: Tale, *partitions: str) -> None:
    """Makes the partitions, each with a message."""
    for partition in partitions:
        assert await statuses(api, tale.queue, 0, partition=partition) == {"queued"}
        tale.answered.setdefault(partition, []).append(0)


# ---------------------------------------------------------------- too slow, locked, failing


@checks("G-SPOOL-9", "G-SPOOL-2", "G-SPOOL-7", "G-ORD-3", level=Level.FAULTS)
@pytest.mark.parametrize("kind", mostly_at_night(["slow", "locked", "failing", "sent together"], ["slow", "failing"]))
async def test_partition_that_cannot_be_stored_holds_nothing_else_up(
    server: Server, api: Api, postgres: FragilePostgres, spool: Spool, queue: str, kind: str
) -> None:
    tale = Tale(queue)
    await direct(api, tale, "bad", "good")
    bad = await part_id(postgres, queue, "bad")
    async with _connection(postgres) as other:
        if kind == "locked":
            await other.execute("BEGIN")
            await other.execute("SELECT FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE", bad)
        else:
            await slow(postgres, queue, "bad", 3600, "XX001" if kind == "failing" else None)
        requests = [tale.push(("bad" if number % 10 == 5 else f"p{number % 7}", [number])) for number in range(1, 101)]
        requests.append(tale.push(("good", [101])))
        await put(spool, *requests, sent=kind == "sent together")
        innocent = {name: tale.answered[name] for name in ("good", *(f"p{number}" for number in range(7)))}
        await until_direct(server, queue, innocent, 200)
        assert {name: found for name, found in (await stored(postgres, queue)).items() if name != "bad"} == innocent
        # What comes behind waits behind, in every worker.
        async with worker_apis(server.port) as workers:
            for number, worker in enumerate(workers, 1000):
                assert await statuses(worker, queue, number, partition="bad") == {"buffered"}
                tale.answered["bad"].append(number)
        status, health = server.request("GET", "/health")
        assert (status, health["status"]) == (200, "degraded")
        assert health["spool"]["held_partitions"] == 1
        assert health["spool"]["held_age_s"] > 0
        wait_until(
            lambda: server.request("GET", "/api/v1/status/buffers")[1]["held"][0]["reason"].startswith(
                "data_rejected" if kind == "failing" else "too_slow"
            ),
            "the reason",
        )
        [held] = server.request("GET", "/api/v1/status/buffers")[1]["held"]
        assert (held["queue"], held["partition"]) == (queue, "bad")
        transaction = {"operations": [{"type": "push", "items": [{"queue": queue, "partition": "bad", "payload": 1}]}]}
        assert (await api.http.post("/api/v1/transaction", json=transaction)).status_code == 503
        # Its cause goes.
        if kind == "locked":
            await other.execute("ROLLBACK")
        else:
            await slow(postgres, queue, "bad", 0)
    await until_let_go(spool)
    await tale.is_true(postgres)
    assert server.request("GET", "/health")[1]["status"] == "healthy"


@checks("G-SPOOL-9", level=Level.FAULTS)
async def test_request_that_only_needs_its_time_gets_it(
    server: Server, api: Api, postgres: FragilePostgres, spool: Spool, queue: str
) -> None:
    tale = Tale(queue)
    await direct(api, tale, "bad", "good")
    await slow(postgres, queue, "bad", 7)
    await put(spool, tale.push(("bad", [1])), tale.push(("good", [1])))
    await until_direct(server, queue, {"good": tale.answered["good"]}, 100)
    await until_let_go(spool)
    await tale.is_true(postgres)


@pytest.mark.nightly
@checks("G-SPOOL-9", "G-SPOOL-7", level=Level.FAULTS)
async def test_requests_with_several_partitions_are_held_back_whole_and_twenty_culprits_stop_no_others(
    server: Server, api: Api, postgres: FragilePostgres, spool: Spool, queue: str
) -> None:
    tale = Tale(queue)
    bad = [f"bad{number}" for number in range(20)]
    await direct(api, tale, *bad, "tied", "good")
    for partition in bad:
        await slow(postgres, queue, partition, 3600)
    requests = []
    for number in range(1, 11):
        requests += [tale.push((f"one{number}", [number]), ("two", [number]), ("good", [number]))]
        requests += [tale.push((partition, [number]), (f"{partition}-too", [number])) for partition in bad]
    requests.append(tale.push(("bad0", [50]), ("tied", [50])))
    requests.append(tale.push(("tied", [51])))
    await put(spool, *requests)
    free = ["two", "good", *(f"one{number}" for number in range(1, 11))]
    await until_direct(server, queue, {name: tale.answered[name] for name in free}, 200)
    assert await statuses(api, queue, 52, partition="tied") == {"buffered"}
    tale.answered["tied"].append(52)
    found = await stored(postgres, queue)
    assert [found[name] for name in (*bad, "tied")] == [[0]] * 21
    for partition in bad:
        await slow(postgres, queue, partition, 0)
    await until_let_go(spool)
    await tale.is_true(postgres)


@pytest.mark.nightly
@checks("G-SPOOL-9", "G-SPOOL-2", "G-SPOOL-3", level=Level.FAULTS)
async def test_held_back_requests_survive_workers_and_the_server(
    server: Server, api: Api, postgres: FragilePostgres, folder: Path, queue: str
) -> None:
    tale = Tale(queue)
    await direct(api, tale, "bad", "good")
    await slow(postgres, queue, "bad", 3600)
    with spooling_server(postgres, folder, "killed") as first:
        spool = spool_in(folder / "killed")
        await put(spool, tale.push(("bad", [1])), tale.push(("good", [1])), tale.push(("bad", [2])))
        await until_direct(first, queue, {"good": tale.answered["good"]}, 100)
        old = first.workers()
        for worker in old:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(first.workers() - old) == 2, "new workers")
        first.wait_until_all_are_healthy(2)
        await until_direct(first, queue, {"good": tale.answered["good"]}, 200)
        async with worker_apis(first.port) as workers:
            for number, worker in enumerate(workers, 3):
                assert await statuses(worker, queue, number, partition="bad") == {"buffered"}
                tale.answered["bad"].append(number)
        first.kill()
    (folder / "killed" / "held-back").unlink()  # as a power failure may
    with spooling_server(postgres, folder, "killed") as second:
        await until_direct(second, queue, {"good": tale.answered["good"]}, 300)
        async with open_client(second.port) as http:
            assert await statuses(Api(http), queue, 5, partition="bad") == {"buffered"}
        tale.answered["bad"].append(5)
        await slow(postgres, queue, "bad", 0)
        await until_let_go(spool)
    await tale.is_true(postgres)


# ---------------------------------------------------------------- refused, damaged, unreadable


@checks("G-SPOOL-5", "G-SPOOL-9", level=Level.FAULTS)
async def test_refused_requests_are_set_aside_and_a_retry_stores_them_in_order_and_once(
    server: Server, api: Api, postgres: FragilePostgres, folder: Path, spool: Spool, queue: str
) -> None:
    tale = Tale(queue)
    await direct(api, tale, "bad", "good")
    await slow(postgres, queue, "bad", 0, "22P02")
    await put(spool, *(tale.push(("bad" if number % 2 else "good", [number])) for number in range(1, 30)))
    await until_direct(server, queue, {"good": tale.answered["good"]}, 100)
    wait_until_drained(server)
    assert (await stored(postgres, queue))["bad"] == [0]
    where = ("--folder", str(folder / "spool"))
    assert run("spool", "list", *where).stdout.count("22P02") == 15
    health = server.request("GET", "/health")[1]["spool"]
    assert health["failed"] == 15
    assert health["failed_age_s"] > 0
    assert len(server.request("GET", "/api/v1/status/buffers")[1]["setAside"]) == 15
    await slow(postgres, queue, "bad", 0)
    told = run("spool", "retry", *where)
    assert (told.returncode, told.stdout.count("22P02")) == (0, 15)
    assert "15 files will be replayed, 0 were left" in told.stdout
    await until_let_go(spool)
    await tale.is_true(postgres)
    assert spool.failed_files() == []
    assert "0 files will be replayed" in run("spool", "retry", *where).stdout


@pytest.mark.nightly
@checks("G-SPOOL-5", "G-SPOOL-9", level=Level.FAULTS)
async def test_damaged_and_unreadable_files_do_not_stop_the_others(
    postgres: FragilePostgres, server: Server, folder: Path, api: Api, queue: str
) -> None:
    tale = Tale(queue)
    await direct(api, tale, "good")
    path = folder / "damaged"
    path.mkdir()
    with spooling_server(postgres, folder, "damaged"):
        pass
    spool = Spool(DiskFolder(path), installation_of(path) or UUID(int=0), Limits(file_requests_max=3))
    await put(spool, request(queue, ("good", [1])))
    await put(spool, request(queue, ("good", [2])))
    await put(spool, request(queue, ("good", [3])))
    [file] = path.glob("*.buf")
    content = bytearray(file.read_bytes())
    content[content.index(b'"payload":2') + 10] ^= 1
    file.write_bytes(content)
    tale.answered["good"] += [1, 3]
    (path / "000000000002.buf").mkdir()  # a file that cannot be read, also by root
    (path / "000000000003.buf").write_bytes(b"something else")
    spool.append([entry_of(Record(uuid4(), None, 1.0, [spool_request(tale.push(("good", [4])))]))], insist=True)
    with spooling_server(postgres, folder, "damaged") as second:
        await until_direct(second, queue, {"good": tale.answered["good"]}, 100)
        await until_let_go(spool)
        assert len(spool.failed_files()) == 3
        listed = run("spool", "list", "--folder", str(path))
        assert listed.stdout.count("cannot be read") == 3
        again = run("spool", "retry", "--folder", str(path))
        assert again.returncode == 1
        assert again.stdout.count("was left") == 3
    await tale.is_true(postgres)


# ---------------------------------------------------------------- queues that changed meanwhile


@checks("G-SPOOL-9", "G-SEC-3", level=Level.FAULTS)
async def test_queues_that_are_full_deleted_or_encrypted_without_a_key_hold_up_only_themselves(
    server: Server, api: Api, postgres: FragilePostgres, spool: Spool, queue: str
) -> None:
    good, full, gone, secret = Tale(queue), Tale(f"{queue}-full"), Tale(f"{queue}-gone"), Tale(f"{queue}-secret")
    for tale in (good, full, gone, secret):
        await direct(api, tale, "p")
    await api.configure(full.queue, maxSize=1)
    await api.delete(gone.queue)
    gone.answered.clear()
    await _execute(postgres, _CONFIGURE, secret.queue, 0, True)
    for number in (1, 2):
        await put(spool, *(tale.push(("p", [number])) for tale in (secret, full, gone, good)))
    await until_direct(server, queue, {"p": good.answered["p"]}, 100)
    wait_until(
        lambda: (
            [held["queue"] for held in server.request("GET", "/api/v1/status/buffers")[1]["held"]] == [secret.queue]
        ),
        "the others",
    )
    for tale in (good, full, gone):
        await tale.is_true(postgres)
    await _execute(postgres, _CONFIGURE, secret.queue, 0, False)
    await until_let_go(spool)
    await secret.is_true(postgres)


@pytest.mark.nightly
@checks("G-SPOOL-9", level=Level.FAULTS)
async def test_request_of_forty_thousand_items_half_of_them_stored_before_holds_only_itself_up(
    postgres: FragilePostgres, server: Server, folder: Path, api: Api, queue: str
) -> None:
    tale, ids = Tale(queue), [f"t{number}" for number in range(40_000)]
    await direct(api, tale, "good")
    with spooling_server(postgres, folder, "large") as other:
        spool = spool_in(folder / "large")
        await put(spool, request(queue, ("large", range(0, 40_000, 2)), ids=ids[::2]))
        await until_let_go(spool)
        await put(spool, request(queue, ("large", range(40_000)), ids=ids), tale.push(("good", [1])))
        await until_direct(other, queue, {"good": tale.answered["good"]}, 100)
        found = await stored(postgres, queue)
        assert found["good"] == tale.answered["good"]
        # It waits, or it is stored by now.
        assert spool.held_back or len(found["large"]) == 40_000
