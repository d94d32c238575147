"""Encrypted and bounded queues while pushes go to the spool: what lies on the disk, and what is stored afterwards."""

import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client, worker_apis
from tests.support.outage import FragilePostgres, spooling_server, wait_until_drained
from tests.support.processes import Server, wait_until

KEY = "33" * 32
SECRET = "spooled-secret-91c4"
_CONFIGURE = (
    "SELECT queen.configure_queue_v1($1, '', '', 0, 300, 3, 0, 0, 0, NULL, NULL, false, 0, 0, 0, 0, $2, $3, 1000)"
)


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"QUEEN_ENCRYPTION_KEY": KEY}


async def configure_elsewhere(postgres: FragilePostgres, queue: str, max_size: int, encrypted: bool) -> None:
    """As an instance that sends no notifications."""
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(_CONFIGURE, queue, max_size, encrypted)
    finally:
        await connection.close()


async def stored(postgres: FragilePostgres, queue: str) -> list[tuple[str, bool]]:
    """The stored payloads, and whether each is encrypted."""
    connection = await asyncpg.connect(postgres.dsn)
    try:
        rows = await connection.fetch(
            "SELECT payload::text, key_id FROM queen.messages WHERE queue = $1 ORDER BY off", queue
        )
    finally:
        await connection.close()
    return [(row["payload"], row["key_id"] is not None) for row in rows]


def spooled(folder: Path) -> bytes:
    """Everything in the folder of the spool."""
    return b"".join(path.read_bytes() for path in (folder / "spool").iterdir())


async def statuses(api: Api, queue: str, *payloads: Any, **arguments: Any) -> set[str]:
    return {item["status"] for item in await api.push(queue, *payloads, **arguments)}


async def maintain(api: Api, on: bool) -> None:
    response = await api.http.post("/api/v1/system/maintenance", json={"enabled": on})
    assert response.status_code == 200, response.text


@checks("G-SEC-3", level=Level.FAULTS)
async def test_pushes_to_an_encrypted_queue_are_ciphertext_in_the_spool_and_are_delivered_in_clear(
    postgres: FragilePostgres, server: Server, api: Api, folder: Path, queue: str
) -> None:
    await api.configure(queue, encryptionEnabled=True)
    postgres.kill()
    async with worker_apis(server.port) as workers:
        for number, worker in enumerate(workers):
            assert await statuses(worker, queue, f"{SECRET} {number}", ids=[f"t{number}"]) == {"buffered"}
    assert await statuses(api, f"{queue}-open", "legible") == {"buffered"}
    assert SECRET.encode() not in spooled(folder)
    assert b"legible" in spooled(folder)
    postgres.start()
    wait_until_drained(server)
    kept = await stored(postgres, queue)
    assert [encrypted for _, encrypted in kept] == [True, True]
    assert SECRET not in str(kept)
    assert [message["data"] for message in (await api.pop(queue, batch=10)).messages] == [f"{SECRET} 0", f"{SECRET} 1"]
    assert await statuses(api, queue, "again", ids=["t1"]) == {"duplicate"}


@checks("G-SEC-3", level=Level.FAULTS)
async def test_a_worker_that_starts_during_an_outage_knows_which_queues_are_encrypted(
    postgres: FragilePostgres, server: Server, api: Api, folder: Path, queue: str
) -> None:
    await api.configure(queue, encryptionEnabled=True)
    before = server.workers()
    postgres.kill()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(server.workers() - before) == len(before), "new workers")
    async with worker_apis(server.port) as workers:
        for worker in workers:
            assert await statuses(worker, queue, SECRET) == {"buffered"}
    assert SECRET.encode() not in spooled(folder)
    postgres.start()
    wait_until_drained(server)
    assert [encrypted for _, encrypted in await stored(postgres, queue)] == [True, True]


@checks("G-SEC-3", level=Level.LIVE)
async def test_what_was_spooled_in_clear_is_encrypted_by_the_replay_if_its_queue_is_so_by_then(
    postgres: FragilePostgres, server: Server, api: Api, queue: str
) -> None:
    await statuses(api, queue, "first")
    await maintain(api, True)
    assert await statuses(api, queue, SECRET) == {"buffered"}
    await configure_elsewhere(postgres, queue, 0, True)
    await maintain(api, False)
    wait_until_drained(server)
    assert [encrypted for _, encrypted in await stored(postgres, queue)] == [False, True]
    assert [message["data"] for message in (await api.pop(queue, batch=10)).messages] == ["first", SECRET]


async def test_what_was_spooled_encrypted_is_delivered_although_its_queue_no_longer_is(
    postgres: FragilePostgres, server: Server, api: Api, folder: Path, queue: str
) -> None:
    await api.configure(queue, encryptionEnabled=True)
    await maintain(api, True)
    assert await statuses(api, queue, SECRET) == {"buffered"}
    assert SECRET.encode() not in spooled(folder)
    await configure_elsewhere(postgres, queue, 0, False)
    await maintain(api, False)
    wait_until_drained(server)
    assert await statuses(api, queue, "open") == {"queued"}
    # The other one is in clear, or encrypted by a worker that had not heard yet that it need not be.
    (_, encrypted), _ = await stored(postgres, queue)
    assert encrypted
    assert [message["data"] for message in (await api.pop(queue, batch=10)).messages] == [SECRET, "open"]


async def test_a_queue_that_becomes_encrypted_in_maintenance_is_so_in_the_spool_at_once(
    postgres: FragilePostgres, server: Server, api: Api, folder: Path, queue: str
) -> None:
    await maintain(api, True)
    async with worker_apis(server.port) as workers:
        await workers[0].configure(queue, encryptionEnabled=True)
        for worker in workers:
            assert await statuses(worker, queue, SECRET) == {"buffered"}
    assert SECRET.encode() not in spooled(folder)
    await maintain(api, False)
    wait_until_drained(server)
    assert [encrypted for _, encrypted in await stored(postgres, queue)] == [True, True]


@checks("G-SPOOL-2", level=Level.FAULTS)
async def test_a_full_queue_refuses_pushes_but_not_what_was_spooled(
    postgres: FragilePostgres, server: Server, api: Api, queue: str
) -> None:
    await api.configure(queue, maxSize=2)
    assert await statuses(api, queue, 0, 1) == {"queued"}

    async def refusal() -> int:
        items = [{"queue": queue, "payload": "too much"}]
        return (await api.http.post("/api/v1/push", json={"items": items})).status_code

    assert await refusal() == 429
    assert server.request("GET", "/api/v1/status/buffers")[1]["spooling"] is False
    postgres.kill()
    assert await statuses(api, queue, 2, 3) == {"buffered"}
    postgres.start()
    wait_until_drained(server)
    assert [payload for payload, _ in await stored(postgres, queue)] == ["0", "1", "2", "3"]
    assert await refusal() == 429
    popped = await api.pop(queue, batch=10)
    await api.ack(popped.messages)
    assert await statuses(api, queue, 4) == {"queued"}


@pytest.mark.nightly
async def test_a_server_without_the_key_keeps_what_waits_until_it_has_it(
    postgres: FragilePostgres, folder: Path, queue: str
) -> None:
    with spooling_server(postgres, folder, "keyless") as keyless:
        async with open_client(keyless.port) as http:
            api = Api(http)
            await maintain(api, True)
            assert await statuses(api, queue, SECRET) == {"buffered"}
            await configure_elsewhere(postgres, queue, 0, True)
            await maintain(api, False)
            assert await stored(postgres, queue) == []
    with spooling_server(postgres, folder, "keyless", QUEEN_ENCRYPTION_KEY=KEY) as other:
        wait_until_drained(other)
        body = other.request("GET", f"/api/v1/pop/queue/{queue}?batch=100")[1]
        assert [message["data"] for message in body["messages"]] == [SECRET]
    assert [encrypted for _, encrypted in await stored(postgres, queue)] == [True]
