"""The how-to pages: their programs, requests, commands and SQL, as a reader does who types what stands there."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import boto3
import httpx
import pytest
import yaml

from queen.worker import Client, run
from tests.support import django_database
from tests.support.api import Api
from tests.support.client_commands import Client as Commands
from tests.support.clock import eventually
from tests.support.guides import code, request_of
from tests.support.processes import PATIENCE_S, ROOT, Server, free_port, open_folder, wait_until
from tests.support.rabbitmq import PROGRAM as RABBITMQ
from tests.support.rabbitmq import serving_rabbitmq
from tests.support.sqs_clients import figures, queues_of, receive, sqs_client

FOLDER = ROOT / "docs" / "how-to"


class Reader:
    """Types what stands on a page, for the server of the tests."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.page = server, FOLDER / name
        self.requests = [line for block in code(self.page, "sh") for line in block.splitlines() if line[:5] == "curl "]

    def send(self, **told: str) -> Any:
        """Sends the next request, with what the reader was told filled in; its answer."""
        line = self.requests.pop(0)
        for name, value in told.items():
            line = line.replace(f"<{name}>", value)
        assert "<" not in line, line
        method, path, body = request_of(line)
        status, answer = self.server.request(method, path, None if body is None else json.loads(body))
        assert status < 300, (line, answer)
        return answer

    def send_all(self) -> None:
        """Sends the requests that are left."""
        while self.requests:
            self.send()

    def programs(self, language: str, folder: Path) -> list[Path]:
        """Writes the programs, each under the name in its first line, or in its second behind ``#!``."""
        files = []
        for text in code(self.page, language):
            if found := re.match(r"(?:#!.*\n)?(?:#|//) (\S+\.\w+)\n", text):
                files.append(folder / found[1])
                files[-1].write_text(text.replace("localhost:6632", f"127.0.0.1:{self.server.port}"))
        return files


@asynccontextmanager
async def running(*command: str | Path) -> AsyncIterator[asyncio.StreamReader]:
    """What a program prints that runs for the block."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process.stdout
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def is_done(api: Api, queue: str, group: str) -> bool:
    """Whether the group has acknowledged everything."""
    found = (await api.http.get("/api/v1/consumer-groups", params={"queue": queue})).json()
    return [each["totalLag"] for each in found if each["name"] == group] == [0]


CONSUMERS = {
    "curl.md": ("bash", ("bash",), ("curl", "jq")),
    "javascript.md": ("js", ("node",), ("node",)),
    "go.md": ("go", ("go", "run"), ("go",)),
    "java.md": ("java", ("java",), ("javac",)),
}


@pytest.mark.parametrize("name", CONSUMERS)
async def test_a_consumer_in_another_language(server: Server, api: Api, tmp_path: Path, name: str) -> None:
    language, command, needed = CONSUMERS[name]
    if missing := [each for each in needed if shutil.which(each) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed here")
    reader = Reader(server, name)
    [program] = reader.programs(language, tmp_path)
    [queue] = set(re.findall(r"pop/queue/([\w-]+)", program.read_text()))
    reader.send_all()
    async with running(*command, program) as printed:
        lines = [(await printed.readline()).decode().strip().replace('"', "") for _ in range(2)]
        await eventually(lambda: is_done(api, queue, "sender"), "both are acknowledged")
    assert lines == ["to ann", "to bob"]


def test_delay_and_retry(server: Server) -> None:
    reader = Reader(server, "retry.md")
    reader.send()
    reader.send()
    for attempt in (1, 2):
        [message] = reader.send()["messages"]
        assert message["deliveryAttempt"] == attempt
        reader.send(partitionId=message["partitionId"], leaseId=message["leaseId"])
    [dead] = reader.send()["messages"]
    assert dead["errorMessage"] == "no tea"
    assert reader.send()["replayed"] == 1
    assert reader.requests == []


async def test_an_idempotent_consumer(server: Server, api: Api, database: "asyncpg.Connection[Any]") -> None:
    reader = Reader(server, "idempotent.md")
    names: dict[str, Any] = {}
    try:
        for script in code(reader.page, "sql"):
            await database.execute(script)
        for program in code(reader.page, "python"):
            exec(program, names)
        assert [reader.send()[0]["status"] for _ in range(2)] == ["queued", "duplicate"]
        [message] = (await api.pop("once-payments")).messages
        for _ in range(2):
            await names["pay"](database, message)
        assert await database.fetchval("SELECT balance FROM accounts WHERE name = 'ann'") == 5
    finally:
        await database.execute("DROP TABLE IF EXISTS accounts, done_payments")


async def working(server: Server, worker: Any, until: Any, what: str) -> None:
    """Lets a worker of ours work until something is true."""
    stop = asyncio.Event()
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        it = asyncio.create_task(run(worker, client, stop))
        try:
            await eventually(until, what)
        finally:
            stop.set()
            await asyncio.wait_for(it, PATIENCE_S)


async def test_a_schedule_in_place_of_cron(server: Server) -> None:
    reader = Reader(server, "cron.md")
    names: dict[str, Any] = {}
    exec(code(reader.page, "python")[0], names)
    reader.send()
    reader.send()

    async def ran() -> bool:
        return bool(names["ran"] == ["report"])

    await working(server, names["worker"], ran, "the job ran")
    [schedule] = reader.send()["schedules"]
    assert (schedule["name"], schedule["payload"]) == ("report", {"task": "report"})
    reader.send()
    assert reader.requests == []


async def test_fastapi_and_django(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    fastapi = pytest.importorskip("fastapi", reason="fastapi is not installed here")
    reader = Reader(server, "web-frameworks.md")
    shop, django, background = code(reader.page, "python")
    names: dict[str, Any] = {}
    exec(shop.replace("localhost:6632", f"127.0.0.1:{server.port}"), names)
    assert isinstance(names["app"], fastapi.FastAPI)
    transport = httpx.ASGITransport(app=names["app"])
    async with names["lifespan"](names["app"]), httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
        for status in ("queued", "duplicate"):
            answer = await http.post("/orders/7", params={"customer": "ann"})
            assert (answer.status_code, answer.json()) == (202, {"status": status})
    exec(background, names)
    said: list[str] = []

    async def shipped() -> bool:
        said.append(capsys.readouterr().out)
        return "ship 7" in "".join(said)

    await working(server, names["worker"], shipped, "the order is shipped")

    reader.send()
    await asyncio.to_thread(_order_with_django, server.dsn, django)
    [message] = (await api.pop("django-orders", wait=True, timeout=30_000)).messages
    assert message["data"] == {"number": 8}


def _order_with_django(dsn: str, program: str) -> None:
    django_database.use(dsn)
    names: dict[str, Any] = {}
    exec(program, names)
    names["order"](8)
    import_module("django.db").connections.close_all()


async def test_migration_from_pgmq_and_celery(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", tmp_path: Path
) -> None:
    reader = Reader(server, "migrate.md")
    # As pgmq makes it.
    await database.execute(
        "CREATE SCHEMA pgmq; CREATE TABLE pgmq.q_orders (msg_id bigint PRIMARY KEY, message jsonb);"
        """INSERT INTO pgmq.q_orders VALUES (2, '{"item": "milk"}'), (1, '{"item": "tea"}')"""
    )
    try:
        await api.configure("pgmq-orders")
        for script in code(reader.page, "sql"):
            await database.execute(script)
        popped = await api.pop("pgmq-orders", wait=True, timeout=30_000, batch=2)
        assert [each["data"]["item"] for each in popped.messages][:1] == ["tea"]
        assert popped.messages[0]["transactionId"] == "pgmq-1"
        assert await database.fetchval("SELECT count(*) FROM pgmq.q_orders") == 0
    finally:
        await database.execute("DROP SCHEMA pgmq CASCADE")
    names: dict[str, Any] = {}
    exec(reader.programs("python", tmp_path)[-1].read_text(), names)
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        await names["send"].push({"to": "nobody"}, client=client)

    async def is_dead() -> bool:
        found = (await api.http.get("/api/v1/dlq", params={"queue": "celery-mails"})).json()
        return [each["errorMessage"] for each in found["messages"]] == ["no address"]

    await working(server, names["worker"], is_dead, "it is a dead letter")


def migration(server: Server, folder: Path, name: str) -> dict[str, Any]:
    """The names of a program of the page."""
    names: dict[str, Any] = {"__name__": "read"}
    [program] = (each for each in Reader(server, "migrate.md").programs("python", folder) if each.name == name)
    exec(program.read_text(), names)
    return names


def popped(http: httpx.Client, queue: str, number: int) -> list[dict[str, Any]]:
    parameters = {"batch": number, "partitions": 10, "autoAck": "true"}
    messages = http.get(f"/api/v1/pop/queue/{queue}", params=parameters).json()["messages"]
    return sorted(messages, key=lambda message: str(message["transactionId"]))


@pytest.mark.skipif(not RABBITMQ.exists(), reason="RabbitMQ is not installed here")
@pytest.mark.nightly
def test_migration_from_rabbitmq(server: Server, tmp_path: Path) -> None:
    pika = pytest.importorskip("pika", reason="pika is not installed here")
    names = migration(server, tmp_path, "from_rabbitmq.py")
    url = f"http://127.0.0.1:{server.port}"
    with open_folder() as folder, serving_rabbitmq(folder) as broker, httpx.Client(base_url=url) as queen:
        with pika.BlockingConnection(pika.URLParameters(f"{broker}/")) as rabbit:
            channel = rabbit.channel()
            channel.queue_declare("rabbit-mails")

            def publish(body: bytes, **properties: Any) -> None:
                channel.basic_publish("", "rabbit-mails", body, pika.BasicProperties(**properties))

            publish(b'{"to": "ann"}', content_type="application/json", message_id="m1", headers={"try": 2})
            publish("Grüße".encode())
            assert names["move"](channel, "rabbit-mails", queen) == 2
            # The same once more, as after a kill before the ack; and one that cannot be moved stays.
            publish(b'{"to": "ann"}', content_type="application/json", message_id="m1")
            publish(b"\xff")
            with pytest.raises(UnicodeDecodeError):
                names["move"](channel, "rabbit-mails", queen)
        found = {str(each["data"]): each for each in popped(queen, "rabbit-mails", 10)}
        assert set(found) == {"{'to': 'ann'}", "Grüße"}
        first = found["{'to': 'ann'}"]
        assert (first["transactionId"], first["headers"]) == ("m1", {"try": "2"})
        with pika.BlockingConnection(pika.URLParameters(f"{broker}/")) as rabbit:
            assert rabbit.channel().queue_declare("rabbit-mails", passive=True).method.message_count == 1


@pytest.fixture(params=["here", "moto"])
def other_sqs(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    """A client of what plays AWS: our own endpoint, and moto's server where there is one."""
    if request.param == "here":
        yield sqs_client(server.port)
        return
    program = shutil.which("moto_server") or pytest.skip(
        "moto's server is not installed here (pip install moto[server])"
    )
    port = free_port()
    with subprocess.Popen([program, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as moto:
        try:
            wait_until(lambda: answers(port), "moto answers")
            yield boto3.client(
                "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="eu-central-1", aws_access_key_id="any",
                aws_secret_access_key="any",
            )  # fmt: skip
        finally:
            moto.kill()


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_migration_from_sqs(server: Server, other_sqs: Any, tmp_path: Path) -> None:
    names = migration(server, tmp_path, "from_sqs.py")
    given = {
        "kind": {"DataType": "String", "StringValue": "tea"},
        "picture": {"DataType": "Binary", "BinaryValue": b"\xff"},
    }
    here, queue = sqs_client(server.port), f"sqs-{uuid4().hex[:8]}"
    with queues_of(other_sqs) as old, queues_of(here) as new:
        standard, fifo = old(f"old-{queue}"), old(f"old-{queue}.fifo", FifoQueue="true")
        moved, ordered = new(f"new-{queue}"), new(f"new-{queue}.fifo", FifoQueue="true")

        def fill() -> None:
            other_sqs.send_message(QueueUrl=standard, MessageBody="ann", MessageAttributes=given)
            for number in range(12):
                other_sqs.send_message(
                    QueueUrl=fifo, MessageBody=f"order {number}", MessageGroupId=f"customer-{number % 2}",
                    MessageDeduplicationId=f"{queue}-{number}",
                )  # fmt: skip

        fill()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as queen:
            names["to_queen"](other_sqs, standard, queue, queen)
            names["to_queen"](other_sqs, fifo, f"{queue}-ordered", queen)
            [mail] = popped(queen, queue, 10)
            assert (mail["data"], mail["headers"], mail["partition"]) == ("ann", {"kind": "tea"}, "Default")
            orders: dict[str, list[str]] = {}
            for each in popped(queen, f"{queue}-ordered", 100):
                orders.setdefault(each["partition"], []).append(each["data"])
        assert {name: sorted(own) for name, own in orders.items()} == {
            f"customer-{which}": sorted(f"order {number}" for number in range(which, 12, 2)) for which in range(2)
        }
        queue = f"{queue}-again"  # other ids of deduplication
        fill()
        names["to_sqs"](other_sqs, standard, here, moved)
        names["to_sqs"](other_sqs, fifo, here, ordered)
        [mail] = receive(here, moved, MessageAttributeNames=["All"])
        assert (mail["Body"], mail["MessageAttributes"]) == ("ann", given)
        assert sorted(message["Body"] for message in drain(here, ordered)) == sorted(f"order {n}" for n in range(12))
        for client, url in ((other_sqs, standard), (other_sqs, fifo)):
            assert figures(client, url) == (0, 0, 0)


def drain(sqs: Any, url: str) -> Iterator[dict[str, Any]]:
    while found := receive(sqs, url):
        for message in found:
            yield message
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


# ---------------------------------------------------------------- pages for operators


def _alerts() -> Iterator[str]:
    for name in ("queen", "simple-mq"):
        rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / f"{name}.rules.yaml").read_text())
        yield from (rule["alert"] for group in rules["groups"] for rule in group["rules"])


def test_each_alert_has_a_section() -> None:
    text = (FOLDER / "alerts.md").read_text()
    assert re.findall(r"^## (\S+)$", text, re.MULTILINE) == list(_alerts())


@contextmanager
def made(server: Server, queue: str) -> Iterator[Commands]:
    """A queue with a group and a message, and a client of it."""
    queen = Commands(server)
    queen.text("push", queue, "1", "--transaction-id", "order-1")
    queen.text("pop", queue, "-g", "billing")
    yield queen
    queen.text("queues", "delete", queue, "--yes")


@pytest.mark.parametrize(("name", "queue"), [("alerts.md", "alerts-orders"), ("troubleshooting.md", "trouble-orders")])
def test_the_commands_for_operators_exist(server: Server, name: str, queue: str) -> None:
    page = FOLDER / name
    lines = [line for block in code(page, "sh") for line in block.splitlines()]
    with made(server, queue) as queen:
        messages = server.request("GET", f"/api/v1/messages?queue={queue}")[1]["messages"]
        for line in lines:
            words = line.replace("<partitionId>", messages[0]["partitionId"]).split()
            assert words.pop(0) == "queen"
            queen.text(*words)
        # Those within sentences: at least their help is there.
        for command in set(re.findall(r"`queen ([a-z -]+)", page.read_text())):
            verbs = [word for word in command.split() if not word.startswith("-")][:2]
            result = queen.call(*verbs, "--help")
            assert result.code == 0, (verbs, result)


def test_an_upgrade(server: Server) -> None:
    page = FOLDER / "upgrade.md"
    queen = Commands(server)
    for block in code(page, "sh"):
        for line in block.splitlines():
            words = line.split()
            assert words.pop(0) == "queen"
            result = queen.call(*words, "--dsn", server.dsn)
            assert result.code in (0, 1) if words == ["doctor"] else result.code == 0, (line, result)
