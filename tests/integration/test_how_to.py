"""The how-to pages: their programs, requests, commands and SQL, as a reader does who types what stands there."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml

from queen.worker import Client, run
from tests.support import django_database
from tests.support.api import Api
from tests.support.client_commands import Client as Commands
from tests.support.clock import eventually
from tests.support.guides import code, request_of
from tests.support.processes import PATIENCE_S, ROOT, Server

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


async def test_migration(server: Server, api: Api, database: "asyncpg.Connection[Any]", tmp_path: Path) -> None:
    reader = Reader(server, "migrate.md")
    _, celery = code(reader.page, "python")
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
    exec(celery, names)
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        await names["send"].push({"to": "nobody"}, client=client)

    async def is_dead() -> bool:
        found = (await api.http.get("/api/v1/dlq", params={"queue": "celery-mails"})).json()
        return [each["errorMessage"] for each in found["messages"]] == ["no address"]

    await working(server, names["worker"], is_dead, "it is a dead letter")


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
