"""A server behind PgBouncer in transaction mode: no session state, so no LISTEN; long polls wake by their back-off."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import pytest

from queen.core.errors import DatabaseSetupError
from queen.postgres.setup import prepare
from spec.guarantees import Level, checks
from tests.support.api import Api, ack_of, open_client, worker_apis
from tests.support.clock import eventually
from tests.support.processes import Server, free_port, open_folder
from tests.support.servers import create_database, drop_database, serving_database

#: PgBouncer's connections, which it then makes again, under the settings that hold now.
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def find_pgbouncer() -> str | None:
    """Its path; as root it is installed where it is missing."""
    path = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    apt = shutil.which("apt-get")
    if path is None and apt and os.geteuid() == 0:
        for command in ([apt, "update"], [apt, "install", "-y", "--no-install-recommends", "pgbouncer"]):
            subprocess.run(
                command, capture_output=True, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            )
        path = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    return path


def target_of(url: str) -> str:
    """The database as PgBouncer's configuration names it."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    fields = {
        "host": query.get("host") or parts.hostname or "",
        "port": query.get("port") or str(parts.port or 5432),
        "dbname": parts.path.lstrip("/"),
        "user": unquote(parts.username or "postgres"),
        **({"password": unquote(parts.password)} if parts.password else {}),
    }
    return " ".join(f"{name}='{value}'" for name, value in fields.items())


def account_for(url: str) -> str:
    """A user who may reach the server's socket; PgBouncer refuses to run as root."""
    host = parse_qs(urlsplit(url).query).get("host", [""])[0]
    return Path(host).owner() if host.startswith("/") and Path(host).owner() != "root" else "nobody"


@pytest.fixture(scope="module")
def pgbouncer(postgres: str) -> Iterator[tuple[str, str]]:
    """PgBouncer before an empty database: connection strings through it, and around it."""
    program = find_pgbouncer()
    if program is None:
        pytest.skip("PgBouncer is not installed, and cannot be: apt-get install pgbouncer")
    direct = asyncio.run(create_database(postgres))
    port = free_port()
    with open_folder() as folder:
        configuration = folder / "pgbouncer.ini"
        lines = [
            "[databases]", f"pooled = {target_of(direct)}", "[pgbouncer]", "listen_addr = 127.0.0.1",
            f"listen_port = {port}", "unix_socket_dir =", "auth_type = any", "pool_mode = transaction",
            "default_pool_size = 6", "max_client_conn = 200", "server_idle_timeout = 5",
            *([f"user = {account_for(direct)}"] if os.geteuid() == 0 else []),
        ]  # fmt: skip
        configuration.write_text("\n".join(lines) + "\n")
        configuration.chmod(0o644)
        with (folder / "pgbouncer.out").open("wb") as output:
            process = subprocess.Popen([program, configuration], stdout=output, stderr=output)
        through = f"postgresql://anyone@127.0.0.1:{port}/pooled"
        try:
            asyncio.run(answers(through, process, (folder / "pgbouncer.out").read_text))
            yield through, direct
        finally:
            process.terminate()
            process.wait(30)
            asyncio.run(drop_database(postgres, direct))


async def answers(url: str, process: "subprocess.Popen[bytes]", text: Callable[[], str]) -> None:
    """Returns when a connection through PgBouncer works."""

    async def look() -> bool:
        assert process.poll() is None, "PgBouncer ended: " + text()
        try:
            connection = await asyncpg.connect(url, statement_cache_size=0)
        except (OSError, asyncpg.PostgresError):
            return False
        try:
            return bool(await connection.fetchval("SELECT true"))
        finally:
            await connection.close()

    await eventually(look, "PgBouncer answers")


@pytest.fixture(scope="module")
def pooled_server(pgbouncer: tuple[str, str]) -> Iterator[Server]:
    """A server with two workers behind PgBouncer."""
    through, _ = pgbouncer
    with open_folder() as folder, serving_database(through, folder, "--workers", "2") as running:
        yield running


@pytest.fixture
async def pooled(pooled_server: Server) -> AsyncIterator[Api]:
    async with open_client(pooled_server.port) as http:
        yield Api(http)


async def test_setup_through_pgbouncer_notices_the_pooler(pgbouncer: tuple[str, str]) -> None:
    through, direct = pgbouncer
    assert (await prepare(through, 5000)).pooled is True
    assert (await prepare(direct, 5000)).pooled is False


async def test_setup_through_pgbouncer_refuses_an_isolation_that_loses_messages(pgbouncer: tuple[str, str]) -> None:
    through, direct = pgbouncer
    owner = await asyncpg.connect(direct)
    name = await owner.fetchval("SELECT quote_ident(current_database())")
    try:
        await owner.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        await owner.execute(_END_OTHERS)
        with pytest.raises(DatabaseSetupError, match=r"repeatable read.*read committed"):
            await prepare(through, 5000)
        assert (await prepare(direct, 5000)).pooled is False
    finally:
        await owner.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
        await owner.execute(_END_OTHERS)
        await owner.close()
    assert (await prepare(through, 5000)).pooled is True


async def test_push_pop_and_ack_through_pgbouncer_work(pooled: Api, queue: str) -> None:
    results = await pooled.push(queue, *range(100), ids=[f"t{n}" for n in range(100)])
    assert {result["status"] for result in results} == {"queued"}
    (again,) = await pooled.push(queue, 0, ids=["t0"])
    assert again["status"] == "duplicate"
    messages = (await pooled.pop(queue, batch=60)).messages
    assert [message["data"] for message in messages] == list(range(60))
    assert (await pooled.extend(messages[0]["leaseId"]))["success"] is True
    assert all(result["success"] for result in await pooled.ack(messages))
    assert (await pooled.pop(queue, batch=100, autoAck=True)).data == list(range(60, 100))
    await pooled.configure(queue, retryLimit=0)
    assert (await pooled.delete(queue))["existed"] is True


@checks("G-ISO-1", level=Level.LIVE)
async def test_many_requests_at_once_through_pgbouncer_work(pooled: Api, queue: str) -> None:
    async def work(number: int) -> None:
        for n in range(10):
            await pooled.push(queue, n, partition=f"p{number}", ids=[f"{n}"] if number % 2 else None)
            popped = await pooled.pop(queue, f"p{number}")
            assert popped.data == [n]
            (result,) = await pooled.ack(popped.messages)
            assert result["success"] is True

    await asyncio.gather(*[work(n) for n in range(12)])


@checks("G-ISO-1", level=Level.LIVE)
async def test_pushes_through_pgbouncer_do_not_wait_for_other_locked_partitions(
    pooled: Api, pgbouncer: tuple[str, str], queue: str
) -> None:
    names = [f"p{number}" for number in range(30)]
    await pooled.push_items([{"queue": queue, "partition": name, "payload": 0} for name in ("x", *names)])
    operator = await asyncpg.connect(pgbouncer[1])
    try:
        [row] = await operator.fetch("SELECT part_id FROM queen.resolve_partitions_v1($1, $2, false)", [queue], ["x"])
        async with operator.transaction():
            await operator.execute("SELECT FROM queen.partition_locks WHERE part_id = $1 FOR UPDATE", row["part_id"])
            item = {"queue": queue, "partition": "x", "payload": 1}
            waiting = [asyncio.create_task(pooled.http.post("/api/v1/push", json={"items": [item]})) for _ in range(10)]
            async with asyncio.timeout(20):
                await asyncio.gather(*(pooled.push(queue, 1, partition=name) for name in names * 3))
            assert not any(task.done() and task.result().status_code == 201 for task in waiting)
        await asyncio.gather(*waiting)
    finally:
        await operator.close()
    await pooled.push(queue, 2, partition="x")


@checks("G-TXN-1", level=Level.LIVE)
async def test_transaction_through_pgbouncer_happens_or_does_not(pooled: Api, queue: str) -> None:
    await pooled.push(queue, 1)
    (message,) = (await pooled.pop(queue)).messages
    push = {"type": "push", "items": [{"queue": f"{queue}-out", "payload": 1, "transactionId": "t"}]}
    assert (await pooled.transact([push, {"type": "ack", **ack_of(message, transactionId="x")}]))["success"] is False
    assert (await pooled.pop(f"{queue}-out")).messages == []
    assert (await pooled.transact([push, {"type": "ack", **ack_of(message)}]))["success"] is True
    assert (await pooled.transact([push]))["success"] is False
    assert (await pooled.pop(f"{queue}-out")).data == [1]


@checks("G-WAIT-1", level=Level.LIVE)
async def test_long_poll_behind_pgbouncer_wakes_by_its_back_off(pooled_server: Server, queue: str) -> None:
    async with worker_apis(pooled_server.port) as (waiter, sender):
        assert (await waiter.pop(queue, wait=True, timeout=200)).messages == []
        for turn in range(3):
            waiting = asyncio.create_task(waiter.pop(queue, wait=True, timeout=50_000, autoAck=True))
            assert (await sender.pop(queue)).messages == []
            await sender.push(queue, turn)
            assert (await waiting).data == [turn]


def test_server_behind_pgbouncer_logs_no_errors(pooled_server: Server) -> None:
    lines = pooled_server.output.read_text().splitlines()
    bad = [line for line in lines if '"level":"error"' in line.replace(" ", "").lower() or "Traceback" in line]
    assert bad == []
