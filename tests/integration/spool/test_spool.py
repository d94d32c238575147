"""Pushes while PostgreSQL is down: two real workers, a real spool, and a PostgreSQL that dies or falls silent."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from queen.log import ids
from queen.spool.format import Record, spool_request
from queen.spool.spool import Spool, entry_of
from spec.guarantees import Level, checks
from tests.support.api import Api, open_client, worker_apis
from tests.support.cut import Line, line_to
from tests.support.nightly import mostly_at_night
from tests.support.outage import WORKERS, FragilePostgres, spooling_server, wait_until_drained
from tests.support.processes import Server, run, wait_until
from tests.support.spool_world import push_of


async def statuses(api: Api, queue: str, *payloads: Any, **arguments: Any) -> set[str]:
    return {item["status"] for item in await api.push(queue, *payloads, **arguments)}


async def stored(postgres: FragilePostgres, queue: str) -> dict[str, list[Any]]:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        rows = await connection.fetch(
            "SELECT partition, payload::text FROM queen.messages WHERE queue = $1 ORDER BY partition, off", queue
        )
    finally:
        await connection.close()
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(int(row["payload"]))
    return found


# ---------------------------------------------------------------- outages


@checks("G-SPOOL-1", "G-SPOOL-2", "G-SPOOL-6", "G-SPOOL-7", "G-SPOOL-8", "G-ORD-2", level=Level.FAULTS)
@pytest.mark.parametrize("kind", ["killed", "silent"])
async def test_pushes_through_both_workers_are_answered_and_stored_once_and_in_order(
    postgres: FragilePostgres, server: Server, workers: list[Api], queue: str, kind: str
) -> None:
    number = 0

    async def push_some() -> set[str]:
        nonlocal number
        seen: set[str] = set()
        for worker in workers * 5:
            seen |= await statuses(
                worker, queue, number, number + 1, partition="p", ids=[f"t{number}", f"t{number + 1}"]
            )
            number += 2
        return seen

    assert await push_some() == {"queued"}
    if kind == "killed":
        postgres.kill()
        began = time.monotonic()
        assert await statuses(workers[0], queue, number, partition="p") == {"buffered"}
        number += 1
        print(f"noticed after {time.monotonic() - began:.1f} s")
        assert await push_some() == {"buffered"}
        postgres.start()
    else:
        with postgres.silent():
            began = time.monotonic()
            assert await statuses(workers[0], queue, number, partition="p") == {"buffered"}
            number += 1
            print(f"noticed after {time.monotonic() - began:.1f} s")
            assert await push_some() == {"buffered"}
    while await push_some() != {"queued"}:
        await asyncio.sleep(0.05)
    assert await stored(postgres, queue) == {"p": list(range(number))}


@checks("G-SPOOL-2", level=Level.FAULTS)
async def test_replay_into_a_new_queue_is_seen_by_every_kind_of_pop(
    postgres: FragilePostgres, server: Server, api: Api, queue: str
) -> None:
    name = f"{queue}.task"
    waiting = asyncio.create_task(api.pop(name, consumerGroup="waits", wait=True, timeout=40_000))
    await api.pop(name, consumerGroup="before")
    postgres.kill()
    assert await statuses(api, name, 1, partition="new") == {"buffered"}
    postgres.start()
    assert (await waiting).data == [1]
    wait_until_drained(server)
    assert (await api.pop(name, consumerGroup="before")).data == [1]
    assert (await api.pop(name, consumerGroup="after")).data == [1]
    assert (await api.pop(name, "new", consumerGroup="of-a-partition")).data == [1]
    assert (await api.pop_label(namespace=queue, consumerGroup="of-a-namespace")).data == [1]
    assert (await api.pop_label(task="task", consumerGroup=f"of-a-task-{queue}")).data == [1]
    assert (await api.pop(name)).data == [1]


@checks("G-WAIT-1", level=Level.FAULTS)
async def test_long_poll_during_an_outage_ends_empty_and_other_requests_are_told_to_come_again(
    postgres: FragilePostgres, server: Server, api: Api, queue: str
) -> None:
    await api.push(queue, 1, 2)
    popped = await api.pop(queue, batch=1)
    postgres.kill()
    try:
        polls = [api.pop(f"{queue}-empty", wait=True, timeout=timeout) for timeout in (100, 2500)]
        assert [poll.messages for poll in await asyncio.gather(*polls)] == [[], []]
        refused = await api.http.get(f"/api/v1/pop/queue/{queue}")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        transaction = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": 3}]}]}
        assert (await api.http.post("/api/v1/transaction", json=transaction)).status_code == 503
        acking = asyncio.create_task(api.ack(popped.messages))
        # A later request is answered: the ack has been sent.
        assert (await api.http.get("/health/live")).status_code == 200
    finally:
        # In this thread, with which PostgreSQL ends: one of a pool would take it along at the end of the test.
        postgres.start()
    assert [item["success"] for item in await acking] == [True]
    wait_until_drained(server)


async def test_health_tells_an_orchestrator_the_truth(
    postgres: FragilePostgres, server: Server, api: Api, queue: str
) -> None:
    async def told() -> list[Any]:
        answers = [await api.http.get(f"/health{suffix}") for suffix in ("", "/ready", "/live")]
        return [(answer.status_code, answer.json()["status"]) for answer in answers]

    assert await told() == [(200, "healthy"), (200, "ready"), (200, "live")]
    postgres.kill()
    await api.push(queue, 1)
    assert await told() == [(503, "unhealthy"), (200, "spooling"), (200, "live")]
    body = (await api.http.get("/health")).json()
    assert (body["spool"]["spooling"], body["spool"]["messages"]) == (True, 1)
    assert body["spool"]["oldest_age_s"] > 0
    postgres.start()
    wait_until_drained(server)
    assert await told() == [(200, "healthy"), (200, "ready"), (200, "live")]


# ---------------------------------------------------------------- deaths


@checks("G-SPOOL-1", "G-SPOOL-2", "G-SPOOL-3", "G-DUR-1", level=Level.FAULTS)
@pytest.mark.parametrize("torn", mostly_at_night([False, True], [True]))
async def test_everything_killed_between_answer_and_replay_is_replayed_before_the_first_request(
    postgres: FragilePostgres, folder: Path, queue: str, torn: bool
) -> None:
    name = f"killed-{torn}"
    with spooling_server(postgres, folder, name) as first:
        postgres.kill()
        async with open_client(first.port) as http:
            for number in range(5):
                assert await statuses(Api(http), queue, number) == {"buffered"}
        first.kill()
    postgres.start()
    if torn:
        [file] = (folder / name).glob("*.buf.tmp")
        with file.open("ab") as tail:
            tail.write(b"\0\0\1\0 half a record")
    with spooling_server(postgres, folder, name) as second:
        body = second.request("GET", f"/api/v1/pop/queue/{queue}?batch=100")[1]
        assert [message["data"] for message in body["messages"]] == list(range(5))
        assert second.request("GET", "/api/v1/status/buffers")[1]["pending"] == 0


@checks("G-SPOOL-2", level=Level.FAULTS)
async def test_worker_killed_while_spooling_blocks_no_other(
    postgres: FragilePostgres, folder: Path, queue: str
) -> None:
    with spooling_server(postgres, folder, "worker-killed") as server:
        postgres.kill()
        answered = []
        async with open_client(server.port) as http:
            for number in range(30):
                if number in (5, 15):
                    os.kill(min(server.workers()), signal.SIGKILL)
                try:
                    answered += [number] if await statuses(Api(http), queue, number) == {"buffered"} else []
                except Exception:
                    continue
        postgres.start()
        wait_until_drained(server)
        log = (await stored(postgres, queue))["Default"]
        assert len(answered) > 20
        assert [number for number in log if number in answered] == answered
        assert len(log) == len(set(log))


@checks("G-SPOOL-2", level=Level.FAULTS)
@pytest.mark.parametrize("kind", mostly_at_night(["killed", "silent", "cut"], ["silent"]))
async def test_workers_that_start_during_an_outage_serve(
    postgres: FragilePostgres, folder: Path, queue: str, kind: str
) -> None:
    with line_to(postgres.dsn) as line, spooling_server(line, folder, f"replaced-{kind}") as server:
        with unavailable(postgres, line, kind):
            old = server.workers()
            for worker in old:
                os.kill(worker, signal.SIGKILL)
            wait_until(lambda: len(server.workers() - old) == WORKERS, "new workers")
            async with worker_apis(server.port) as workers:
                for number, worker in enumerate(workers):
                    assert await statuses(worker, queue, number) == {"buffered"}
        wait_until_drained(server)
        assert await stored(postgres, queue) == {"Default": list(range(WORKERS))}


@contextmanager
def unavailable(postgres: FragilePostgres, line: Line, kind: str) -> Iterator[None]:
    """PostgreSQL does not serve; ``cut``: it takes log-ins and then breaks off."""
    if kind == "silent":
        with postgres.silent():
            yield
        return
    if kind == "cut":
        line.cutting = True
    else:
        postgres.kill()
    try:
        yield
    finally:
        if kind == "cut":
            line.cutting = False
        else:
            postgres.start()


# ---------------------------------------------------------------- no room


@checks("G-SPOOL-4", level=Level.FAULTS)
async def test_full_spool_and_full_disk_are_answered_503(postgres: FragilePostgres, folder: Path, queue: str) -> None:
    with spooling_server(postgres, folder, "full", FILE_BUFFER_MAX_BYTES="1500") as server:
        postgres.kill()
        async with open_client(server.port) as http:
            api, taken = Api(http), 0
            assert await statuses(api, queue, taken) == {"buffered"}
            for pid in server.workers():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            full_disk = await push_response(api, queue)
            for pid in server.workers():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            while (answer := await push_response(api, queue, taken + 1)).status_code == 201:
                taken += 1
        for refusal in (full_disk, answer):
            assert (refusal.status_code, refusal.json()["code"]) == (503, "spool_full")
            assert refusal.headers["retry-after"] == "1"
        assert server.request("GET", "/api/v1/system/maintenance")[1]["bufferStats"]["pendingCount"] == taken + 1
        postgres.start()
        wait_until_drained(server)
        assert await stored(postgres, queue) == {"Default": list(range(taken + 1))}


async def push_response(api: Api, queue: str, payload: Any = "refused") -> Any:
    return await api.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": payload}]})


@pytest.mark.parametrize(
    ("given", "words"), [("missing", "does not exist"), ("file", "does not exist"), ("/proc/self", "is not writable")]
)
def test_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, given: str, words: str) -> None:
    (tmp_path / "file").touch()
    result = run("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), FILE_BUFFER_DIR=str(tmp_path / given))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert words in line
    assert str(tmp_path / given) in line
    assert "FILE_BUFFER_DIR" in line


# ---------------------------------------------------------------- poison


@pytest.mark.nightly
@checks("G-SPOOL-5", level=Level.FAULTS)
async def test_rejected_records_are_set_aside_for_an_operator(
    server: Server, api: Api, postgres: FragilePostgres, folder: Path, spool: Spool, queue: str
) -> None:
    requests = [push_of(queue, [1]), push_of("with a NUL: \0", [2]), push_of(queue, [3])]
    record = Record(uuid4(), None, time.time(), [spool_request(push) for push in requests])
    before = spool.state().failed
    assert await asyncio.to_thread(spool.append, [entry_of(record)], insist=True)
    wait_until_drained(server)
    assert (await stored(postgres, "q"))[queue] == [1, 3]
    assert server.request("GET", "/api/v1/status/buffers")[1]["failed"] == before + 1
    [name] = spool.failed_files()
    where = ("--folder", str(folder / "spool"))
    listed = run("spool", "list", *where)
    assert name in listed.stdout
    assert "22021" in listed.stdout
    assert run("spool", "show", name, *where).stdout.endswith(": - 2\n")
    assert "will be replayed" in run("spool", "retry", name, *where).stdout
    [again] = wait_until(lambda: [each for each in spool.failed_files() if each != name], "set aside again")
    assert "--yes" in run("spool", "discard", again, *where).stderr
    assert run("spool", "discard", again, "--yes", *where).returncode == 0
    assert spool.failed_files() == []
    missing = run("spool", "discard", again, "--yes", *where)
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    wait_until_drained(server)


@checks("G-SPOOL-5", "G-IDEM-1", level=Level.FAULTS)
async def test_spooled_item_with_an_id_that_only_the_server_gives_out_is_set_aside(
    postgres: FragilePostgres, server: Server, api: Api, spool: Spool, queue: str
) -> None:
    [first] = await api.push(queue, 0)
    part_id, _ = ids.parse_message_id(first["message_id"]) or (0, 0)
    chosen = [ids.message_id(part_id, 0), ids.message_id(part_id, 99), "mine"]
    postgres.kill()
    assert await statuses(api, queue, 1, 2, 3, ids=chosen) == {"buffered"}
    postgres.start()
    wait_until_drained(server)
    assert await stored(postgres, queue) == {"Default": [0, 3]}
    [name] = spool.failed_files()
    assert spool.read(name).messages == 1
    spool.discard(name)


# ---------------------------------------------------------------- maintenance


async def switch(api: Api, on: bool, what: str = "") -> Any:
    response = await api.http.post(f"/api/v1/system/maintenance{what}", json={"enabled": on})
    assert response.status_code == 200, response.text
    return response.json()


@checks("G-SPOOL-2", "G-SPOOL-6", level=Level.LIVE)
async def test_maintenance_spools_in_every_worker_and_instance_until_it_ends(
    postgres: FragilePostgres, server: Server, workers: list[Api], folder: Path, queue: str
) -> None:
    first, second = workers
    await first.push(queue, 0)
    with spooling_server(postgres, folder, "other") as other:
        assert (await switch(first, True))["maintenanceMode"] is True
        assert await statuses(second, queue, 1) == {"buffered"}
        assert await statuses(first, queue, 2) == {"buffered"}
        told = (await second.http.get("/api/v1/system/maintenance")).json()
        assert (told["maintenanceMode"], told["bufferedMessages"], told["bufferHealthy"]) == (True, 2, True)
        transaction = {"operations": [{"type": "push", "items": [{"queue": f"{queue}-t", "payload": 3}]}]}
        assert (await first.http.post("/api/v1/transaction", json=transaction)).json()["success"] is True
        wait_until(
            lambda: other.request("GET", "/api/v1/system/maintenance")[1]["maintenanceMode"], "the other instance"
        )
        async with open_client(other.port) as http:
            assert await statuses(Api(http), f"{queue}-other", 1) == {"buffered"}
        assert await stored(postgres, queue) == {"Default": [0]}
        assert (await switch(second, False))["maintenanceMode"] is False
        wait_until_drained(server)
        wait_until_drained(other)
    assert await stored(postgres, queue) == {"Default": [0, 1, 2]}
    assert await stored(postgres, f"{queue}-other") == {"Default": [1]}


async def test_pops_get_nothing_in_pop_maintenance_and_acks_still_work(workers: list[Api], queue: str) -> None:
    first, second = workers
    await first.push(queue, 1, 2)
    popped = await first.pop(queue)
    assert (await switch(first, True, "/pop"))["popMaintenanceMode"] is True
    for worker in workers:
        assert (await worker.pop(queue, consumerGroup="g")).messages == []
        assert (await worker.pop(queue, consumerGroup="g", wait=True, timeout=60_000)).messages == []
        assert (await worker.http.get("/api/v1/system/maintenance/pop")).json()["popMaintenanceMode"] is True
    answer = await first.ack_and_pop(popped.messages, queue=queue, wait=True, timeout=60_000)
    assert ([item["success"] for item in answer["acknowledgments"]], answer["pop"]) == ([True], None)
    assert (await switch(second, False, "/pop"))["popMaintenanceMode"] is False
    assert (await second.pop(queue, consumerGroup="g", batch=5)).data == [1, 2]


@pytest.mark.parametrize("body", [{}, {"enabled": "yes"}, {"enabled": 1}, []])
@pytest.mark.parametrize("what", ["", "/pop"])
async def test_switch_without_a_boolean_is_refused(api: Api, body: Any, what: str) -> None:
    response = await api.http.post(f"/api/v1/system/maintenance{what}", json=body)
    assert response.status_code == 400
    assert body == [] or response.json()["error"] == "enabled (boolean) is required"
