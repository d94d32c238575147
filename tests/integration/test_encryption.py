"""Encryption at rest on live servers: nothing in clear, keys that change, texts that were tampered with."""

import asyncio
import base64
import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.integration.test_timers import HOUR_MS, change, path, schedule
from tests.support.api import Api, open_client, worker_apis
from tests.support.client_commands import Client
from tests.support.nightly import mostly_at_night
from tests.support.processes import Server, clean_environment, open_folder, run, serving
from tests.support.servers import serving_database
from tests.support.sockets import data_of, open_socket
from tests.support.streams import Streams

OLD, NEW = "11" * 32, "22" * 32
MARKER = "plaintext-marker-7f3a"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


@pytest.fixture(scope="module")
def secret_server(folder: Path) -> Iterator[Server]:
    """Two workers with a key."""
    environment = clean_environment(QUEEN_ENCRYPTION_KEY=OLD)
    with serving(folder / "data", "--workers", "2", env=environment) as running:
        yield running


@pytest.fixture
async def secret(secret_server: Server) -> AsyncIterator[Api]:
    async with open_client(secret_server.port) as http:
        yield Api(http)


@pytest.fixture
async def db(secret_server: Server) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(secret_server.dsn)
    yield connection
    await connection.close()


def everything_on_disk(server: Server) -> bytes:
    """What a thief of the disk would read: every file of the cluster, WAL included, and the server's output."""
    files = [path for path in server.data_dir.rglob("*") if path.is_file()]
    assert any("pg_wal" in str(path) for path in files)
    return b"".join(path.read_bytes() for path in files) + server.output.read_bytes()


async def dump(db: "asyncpg.Connection[Any]") -> str:
    """Every row of every table."""
    tables = await db.fetch("SELECT table_name FROM information_schema.tables WHERE table_schema = 'queen'"
                            " AND table_type = 'BASE TABLE'")  # fmt: skip
    rows = [
        str(tuple(row.values())) for t in tables for row in await db.fetch(f"SELECT * FROM queen.{t['table_name']}")
    ]
    messages = [str(tuple(row.values())) for row in await db.fetch("SELECT * FROM queen.messages")]
    return "\n".join(rows + messages)


@checks("G-SEC-3", level=Level.LIVE)
async def test_a_timer_rests_encrypted_and_is_delivered_in_clear(
    secret: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    await secret.configure(queue, encryptionEnabled=True)
    await change(secret, schedule(queue, "k", {"card": MARKER}, HOUR_MS, txn="t"))
    stored = json.loads(await db.fetchval("SELECT message FROM queen.timers WHERE key = 'k'"))
    assert stored["payload"].keys() == {"encrypted", "iv", "authTag"}
    found = (await secret.http.get(path(queue, "k"))).json()
    assert found["encrypted"] is True
    assert json.loads(base64.b64decode(found["payload"])) == stored["payload"]
    await change(secret, {"op": "fire", "queue": queue, "timerKey": "k"})
    [message] = (await secret.pop(queue, wait=True, timeout=30_000)).messages
    assert (message["data"], message["transactionId"]) == ({"card": MARKER}, "t")


@checks("G-SEC-3", level=Level.LIVE)
async def test_nothing_stands_in_clear_on_the_disk(
    secret_server: Server, secret: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    await secret.configure(queue, encryptionEnabled=True, retryLimit=0)
    payloads = [{"card": MARKER, "n": n} for n in range(4)]
    await secret.push(queue, *payloads[:2])
    await secret.push(queue, payloads[2], ids=["chosen"])
    await secret.transact([{"type": "push", "items": [{"queue": queue, "payload": payloads[3]}]}])
    popped = await secret.pop(queue, batch=10)
    assert popped.data == payloads
    await secret.ack(popped.messages[:1], "failed", error="no")
    [row] = await db.fetch("SELECT d.* FROM queen.dead_letter_queue d JOIN queen.queues q ON q.id = d.queue_id"
                           " WHERE q.name = $1", queue)  # fmt: skip
    assert json.loads(row["payload"]).keys() == {"encrypted", "iv", "authTag"}
    assert row["key_id"]
    [kept] = await db.fetch("SELECT payload, key_id FROM queen.messages WHERE queue = $1 AND off = 2", queue)
    assert json.loads(kept["payload"]).keys() == {"encrypted", "iv", "authTag"}
    assert kept["key_id"] == row["key_id"]
    await db.execute("CHECKPOINT")
    assert MARKER not in await dump(db)
    disk = await asyncio.to_thread(everything_on_disk, secret_server)
    assert MARKER.encode() not in disk
    assert OLD.encode() not in disk
    await secret.push(f"{queue}-clear", MARKER)
    assert MARKER in await dump(db), "the marker would be found"


async def test_the_queue_beside_is_stored_as_it_is(secret: Api, db: "asyncpg.Connection[Any]", queue: str) -> None:
    await secret.configure(queue, encryptionEnabled=True)
    await secret.push_items([{"queue": queue, "payload": 1}, {"queue": f"{queue}-clear", "payload": 2}])
    rows = await db.fetch("SELECT queue, payload FROM queen.messages WHERE queue LIKE $1", f"{queue}%")
    assert {row["queue"]: row["payload"] for row in rows}[f"{queue}-clear"] == "2"
    assert (await secret.pop(queue)).data == [1]


async def test_a_payload_that_looks_encrypted_is_a_payload(secret: Api, queue: str) -> None:
    payload = {"encrypted": "AAAA", "iv": "AAAA", "authTag": "AAAA", "keyId": "0123456789abcdef"}
    await secret.push(queue, payload)
    assert (await secret.pop(queue, autoAck=True)).data == [payload]
    await secret.configure(queue, encryptionEnabled=True)
    await secret.push(queue, payload)
    assert (await secret.pop(queue)).data == [payload]


@checks("G-SEC-3", level=Level.LIVE)
async def test_encryption_that_another_worker_switched_on_holds_for_every_push_that_begins_afterwards(
    secret_server: Server, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    async with worker_apis(secret_server.port) as (first, second):
        for turn in range(15):
            name = f"{queue}-{turn}"
            await second.push(name, "before")
            await first.configure(name, encryptionEnabled=True)
            results = await asyncio.gather(
                second.push(name, MARKER), second.push(name, MARKER, ids=["t"]), first.push(name, MARKER),
                second.transact([{"type": "push", "items": [{"queue": name, "payload": MARKER}]}]),
            )  # fmt: skip
            assert len(results) == 4
            clear = await db.fetch("SELECT payload FROM queen.messages WHERE queue = $1 AND key_id IS NULL", name)
            assert [row["payload"] for row in clear] == ['"before"']
            assert (await first.pop(name, batch=10)).data == ["before", *[MARKER] * 4]


@checks("G-SEC-5", level=Level.LIVE)
async def test_a_tampered_message_says_so_the_others_flow_and_it_can_be_dead_lettered(
    secret_server: Server, secret: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    await secret.configure(queue, encryptionEnabled=True)
    for n in range(3):
        await secret.push(queue, {"n": n}, ids=[f"t{n}"])
    part, data = await db.fetchrow(
        "SELECT s.part_id, s.data FROM queen.segments s JOIN queen.partitions p ON p.id = s.part_id"
        " JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1 AND s.last_off = 1", queue,
    )  # fmt: skip
    at = data.index(b'"encrypted":"') + 15
    changed = data[:at] + (b"A" if data[at : at + 1] != b"A" else b"B") + data[at + 1 :]
    await db.execute("UPDATE queen.segments SET data = $1 WHERE part_id = $2 AND last_off = 1", changed, part)
    look_at_commands(secret_server, queue)
    messages = (await secret.pop(queue, batch=3)).messages
    assert [message["data"] for message in messages] == [{"n": 0}, None, {"n": 2}]
    assert [message.get("errorCode") for message in messages] == [None, "decryption_failed", None]
    assert "corrupt" in messages[1]["error"]
    assert messages[1]["transactionId"] == "t1"
    (result,) = await secret.ack(messages[1:2], "dlq", error="tampered")
    assert (result["success"], result["dlq"]) == (True, True)
    await secret.ack([messages[0], messages[2]])
    assert (await secret.pop(queue)).messages == []


def look_at_commands(server: Server, queue: str) -> None:
    """Messages of which the second was tampered with, as somebody pops and acks them for a group of their own."""
    client = Client(server)
    popped = client.text("pop", queue, "-g", "people", "-n", "9", "--json")
    done = client.call("ack", "--json", given=popped)
    assert done.code == 1
    assert [(each["transactionId"], each["success"]) for each in json.loads(done.stdout)] == [
        ("t0", True),
        ("t2", True),
    ]
    assert done.stderr.splitlines()[0].startswith("t1: not acked")
    assert "1 message that could not be decrypted not acked" in done.stderr
    assert client.text("ack", "--dlq", given=json.dumps(json.loads(popped)[1])) == "1 message acked, 1 dead letter\n"
    shown = client.call("pop", queue, "-g", "others", "-n", "9")
    assert "corrupt" in shown.stdout
    assert "t0 t2" in shown.stderr, "the command to copy leaves out what could not be decrypted"


async def test_listings_show_messages_dead_letters_and_traces_in_clear(secret: Api, queue: str) -> None:
    await secret.configure(queue, encryptionEnabled=True)
    await secret.push(queue, {"n": 1}, {"n": 2})
    [dead, kept] = (await secret.pop(queue, batch=2)).messages
    await secret.ack([dead], "dlq", error="no")
    listed = await got(secret, "/messages", queue=queue)
    assert [message["data"] for message in listed["messages"]] == [{"n": 2}, {"n": 1}]
    detail = await got(secret, f"/messages/{kept['partitionId']}/{kept['transactionId']}")
    assert (detail["data"], detail["payload"], detail["isEncrypted"]) == ({"n": 2}, {"n": 2}, True)
    letters = (await got(secret, "/dlq", queue=queue))["messages"]
    assert [(letter["data"], letter["errorMessage"]) for letter in letters] == [({"n": 1}, "no")]
    trace = {
        "transactionId": kept["transactionId"],
        "partitionId": kept["partitionId"],
        "data": 1,
        "traceNames": [queue],
    }
    assert (await secret.http.post("/api/v1/traces", json=trace)).status_code == 201
    [shown] = (await got(secret, f"/traces/by-name/{queue}"))["traces"]
    assert shown["message_payload"] == {"n": 2}


@checks("G-SEC-5", level=Level.LIVE)
async def test_a_listing_without_the_key_says_so_for_each_message(
    secret_server: Server, secret: Api, folder: Path, queue: str
) -> None:
    await secret.configure(queue, encryptionEnabled=True)
    await secret.push(queue, MARKER)
    await secret.ack((await secret.pop(queue)).messages, "dlq")
    with serving_database(secret_server.dsn, folder, "--workers", "1", QUEEN_ENCRYPTION_KEY=NEW) as other:
        async with open_client(other.port) as http:
            keyless = Api(http)
            [message] = (await got(keyless, "/messages", queue=queue))["messages"]
            [letter] = (await got(keyless, "/dlq", queue=queue))["messages"]
            for shown in (message, letter):
                assert (shown["data"], shown["errorCode"]) == (None, "decryption_failed")
                assert "QUEEN_ENCRYPTION_OLD_KEYS" in shown["error"]
            refused = await http.post(f"/api/v1/dlq/{letter['id']}/replay")
            assert (refused.status_code, refused.json()["code"]) == (409, "decryption_failed")
            metrics = (await http.get("/metrics/prometheus")).text
            (failures,) = re.findall(r"^queen_decryption_failures_total (\S+)", metrics, re.MULTILINE)
            assert float(failures) >= 3
        said = [line for line in other.output.read_text().splitlines() if "cannot be decrypted" in line]
        assert said, "the first failure is told"
        assert queue in said[0]
        assert "QUEEN_ENCRYPTION_OLD_KEYS" in said[0]
    assert len((await got(secret, "/dlq", queue=queue))["messages"]) == 1


@checks("G-SEC-3", level=Level.LIVE)
@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_dead_letter_is_replayed_to_where_it_can_be_read(
    secret: Api, db: "asyncpg.Connection[Any]", queue: str, encrypted: bool
) -> None:
    """A ciphertext is bound to its queue and partition, so a move decrypts it, and encrypts it again if need be."""
    target = f"{queue}-target"
    await secret.configure(queue, encryptionEnabled=True)
    await secret.configure(target, encryptionEnabled=encrypted)
    await secret.push(queue, MARKER)
    await secret.ack((await secret.pop(queue)).messages, "dlq")
    [letter] = (await got(secret, "/dlq", queue=queue))["messages"]
    replayed = await secret.http.post(f"/api/v1/dlq/{letter['id']}/replay", json={"queue": target, "partition": "p"})
    assert replayed.json()["result"] == "moved"
    assert (await secret.pop(target)).data == [MARKER]
    key = await db.fetchval("SELECT key_id FROM queen.messages WHERE queue = $1", target)
    assert (key is not None) == encrypted


@checks("G-SEC-3", level=Level.LIVE)
async def test_a_stream_writes_encrypted_and_a_socket_reads_in_clear(
    secret_server: Server, secret: Api, db: "asyncpg.Connection[Any]", queue: str
) -> None:
    sink = f"{queue}-sink"
    for name in (queue, sink):
        await secret.configure(name, encryptionEnabled=True)
    await secret.push(queue, MARKER)
    streams = Streams(secret)
    query = (await streams.register(queue, queue, sink_queue=sink))["query_id"]
    messages = (await secret.pop(queue, consumerGroup="g")).messages
    done = await streams.commit(query, messages, [], [{"queue": sink, "payload": messages[0]["data"]}])
    assert done["success"], done
    [row] = await db.fetch("SELECT payload::text, key_id FROM queen.messages WHERE queue = $1", sink)
    assert row["key_id"] is not None
    assert MARKER not in row["payload"]
    async with open_socket(secret_server.port) as socket:
        await socket.subscribe(sink)
        assert data_of(await socket.expect("batch")) == [MARKER]


async def got(api: Api, path: str, **parameters: Any) -> dict[str, Any]:
    response = await api.http.get(f"/api/v1{path}", params=parameters)
    assert response.status_code == 200, response.text
    return dict(response.json())


@checks("G-SEC-4", level=Level.LIVE)
async def test_a_server_without_the_key_refuses_and_says_why(api: Api, queue: str) -> None:
    """The other server of these tests has no key at all."""
    response = await api.http.post("/api/v1/configure", json={"queue": queue, "options": {"encryptionEnabled": True}})
    assert response.status_code == 400
    body = response.json()
    assert body["field"] == "options.encryptionEnabled"
    assert "QUEEN_ENCRYPTION_KEY" in body["error"]
    await api.configure(queue, encryptionEnabled=False)


@checks("G-SEC-4", level=Level.LIVE)
async def test_a_server_that_has_lost_its_key_neither_stores_in_clear_nor_stops(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue, maxSize=9)
    await database.execute(
        "UPDATE queen.queues SET encryption_enabled = true, ever_encrypted = true WHERE name = $1", queue
    )
    await database.execute("UPDATE queen.push_options SET version = version + 1")
    try:
        items = [{"queue": queue, "payload": MARKER}]
        refused, stored = await asyncio.gather(
            api.http.post("/api/v1/push", json={"items": items}), api.push(f"{queue}-clear", 1)
        )
        assert (refused.status_code, refused.json()["code"]) == (503, "no_encryption_key")
        assert stored[0]["status"] == "queued"
        response = await api.http.post("/api/v1/transaction", json={"operations": [{"type": "push", "items": items}]})
        assert response.status_code == 503
        assert await database.fetchval("SELECT count(*) FROM queen.messages WHERE queue = $1", queue) == 0
    finally:
        await api.delete(queue)


@pytest.mark.nightly
@checks("G-SEC-3", "G-SEC-5", level=Level.LIVE)
async def test_keys_rotate(folder: Path, queue: str) -> None:
    """Under the old key, then both, then the new one alone."""
    place = folder / "rotating"
    with serving(place, "--workers", "1", env=clean_environment(QUEEN_ENCRYPTION_KEY=OLD)) as server:
        async with open_client(server.port) as http:
            api = Api(http)
            await api.push(queue, "early")
            await api.configure(queue, encryptionEnabled=True)
            await api.push(queue, "old", "old too")
            await api.push(queue, "dead", ids=["dead"], partition="p")
            await api.ack((await api.pop(queue, "p")).messages, "dlq")
            await change(api, schedule(queue, "timer", "timed", HOUR_MS, partition="t"))
            cron = {"queue": queue, "name": "cron", "cron": "0 0 1 1 *", "payload": "yearly"}
            assert (await api.http.post("/api/v1/schedules", json=cron)).status_code == 200
    both = {"QUEEN_ENCRYPTION_KEY": NEW, "QUEEN_ENCRYPTION_OLD_KEYS": OLD, "QUEEN_DATA_DIR": str(place)}
    with serving(place, "--workers", "1", env=clean_environment(**both)) as server:
        async with open_client(server.port) as http:
            api = Api(http)
            await api.push(queue, "new")
            assert (await api.pop(queue, "Default", consumerGroup="a", batch=9)).data == [
                "early",
                "old",
                "old too",
                "new",
            ]
            half = run("encryption", "rotate", "--dsn", server.dsn, QUEEN_ENCRYPTION_KEY=NEW)
            assert half.returncode == 1
            *named, last = half.stderr.splitlines()
            waiting = [f"{queue}, timer timer", f"{queue}, schedule cron"]
            assert [line.partition(":")[0] for line in named[:2]] == waiting
            named = named[2:]
            assert last == "error: 6 messages cannot be decrypted and were left unchanged"
            places = [
                f"{queue}, partition {place}" for place in ("Default, offset 1", "Default, offset 2", "p, offset 0")
            ]
            assert [line.partition(":")[0] for line in named[:3]] == places
            assert named[3].startswith(f"{queue}, dead letter 0")
            assert all("add it to QUEEN_ENCRYPTION_OLD_KEYS" in line for line in named)
            # The embedded PostgreSQL is found as it runs.
            done = rotated(both)
            assert "re-encrypted 3 messages, 1 dead letters, 2 timers and schedules" in done.stdout
            assert "re-encrypted 0 messages, 0 dead letters, 0 timers and schedules" in rotated(both).stdout
            assert NEW not in done.stdout + done.stderr + half.stdout + half.stderr
    with serving(place, "--workers", "1", env=clean_environment(QUEEN_ENCRYPTION_KEY=NEW)) as server:
        async with open_client(server.port) as http:
            api = Api(http)
            expected = ["early", "old", "old too", "new"]
            assert (await api.pop(queue, "Default", consumerGroup="b", batch=9)).data == expected
            await change(api, {"op": "fire", "queue": queue, "timerKey": "timer"})
            assert (await api.pop(queue, "t", consumerGroup="b", wait=True, timeout=30_000)).data == ["timed"]
            [listed] = (await api.http.get("/api/v1/schedules", params={"queue": queue})).json()["schedules"]
            assert listed["payload"] == "yearly"
            connection = await asyncpg.connect(server.dsn)
            try:
                assert await connection.fetchval("SELECT count(DISTINCT key_id) FROM queen.messages") == 1
                assert await connection.fetchval("SELECT count(*) FROM queen.messages WHERE key_id IS NULL") == 0
                keys = "SELECT d.key_id = m.key_id FROM queen.dead_letter_queue d, queen.messages m WHERE m.off = d.off"
                assert await connection.fetchval(keys) is True
            finally:
                await connection.close()
    assert "re-encrypted 0 messages" in rotated(both).stdout, "it is started for it where no server runs"


def rotated(variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    done = run("encryption", "rotate", **variables)
    assert done.returncode == 0, done.stderr
    return done


def test_rotate_without_a_key_says_what_to_set(secret_server: Server) -> None:
    done = run("encryption", "rotate", "--dsn", secret_server.dsn)
    assert done.returncode == 2
    assert "QUEEN_ENCRYPTION_KEY" in done.stderr


@pytest.mark.parametrize("key", mostly_at_night(["abc", "zz" * 32, OLD + "00"], ["zz" * 32]))
def test_a_malformed_key_stops_the_start_without_being_shown(key: str) -> None:
    done = run("serve", QUEEN_ENCRYPTION_KEY=key)
    assert done.returncode != 0
    assert "QUEEN_ENCRYPTION_KEY is not 64 hexadecimal digits" in done.stderr
    assert key not in done.stderr + done.stdout
