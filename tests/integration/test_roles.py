"""deploy/postgresql/roles.sql: a server that may use the schema and not change it."""

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.support.api import Api, open_client
from tests.support.processes import ROOT, Server, open_folder, run
from tests.support.servers import create_database, drop_database, serving_database

pytestmark = pytest.mark.skipif(
    "QUEEN_TEST_DSN" in os.environ, reason="makes roles without a password, which the embedded PostgreSQL trusts"
)
SCRIPT = (ROOT / "deploy" / "postgresql" / "roles.sql").read_text()


def as_role(url: str, role: str) -> str:
    """The same database for another role; the embedded PostgreSQL trusts all local users."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
async def database_of_roles(server: Server) -> AsyncIterator[str]:
    url = await create_database(server.dsn)
    yield url
    await drop_database(server.dsn, url)


async def execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def init(url: str) -> tuple[int, str]:
    done = await asyncio.to_thread(run, "init", DATABASE_URL=url)
    return done.returncode, done.stdout + done.stderr


async def test_a_server_does_its_work_with_the_rights_of_its_role(database_of_roles: str, queue: str) -> None:
    url = database_of_roles
    owner, server_role = as_role(url, "queen_owner"), as_role(url, "queen_server")
    await execute(url, SCRIPT)
    code, text = await init(server_role)
    assert code == 1, "it may not make the schema"
    assert "as the owner of the schema" in text
    assert (await init(owner))[0] == 0
    with open_folder() as folder, serving_database(server_role, folder, "--workers", "1") as running:
        async with open_client(running.port) as http:
            await _use_everything(Api(http), queue)
        assert "permission denied" not in running.output.read_text()
    examined = await asyncio.to_thread(run, "doctor", DATABASE_URL=server_role)
    assert "All migrations are applied" in examined.stdout, examined.stderr
    assert "cannot see sessions of other roles" in examined.stdout
    assert "No session has waited" not in examined.stdout
    for sql in (
        "CREATE TABLE queen.mine (id int)", "DROP TABLE queen.segments", "TRUNCATE queen.segments",
        "CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
        "ALTER TABLE queen.segments DISABLE TRIGGER ALL", "CREATE SCHEMA mine", "CREATE ROLE other",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await execute(server_role, sql)
    await execute(owner, "UPDATE queen.system_state SET value = '\"of another version\"' WHERE key = 'procedures'")
    code, text = await init(server_role)
    assert code == 1, "its procedures are not those of this version"
    assert (await init(owner))[0] == 0
    assert (await init(server_role))[0] == 0


async def _use_everything(api: Api, queue: str) -> None:
    """A little of each part of the server."""
    await api.configure(queue, retryLimit=0)
    await api.push(queue, 1, 2, 3, ids=["a", "b", "c"])
    popped = await api.pop(queue, consumerGroup="g", subscriptionMode="all", batch=3)
    await api.ack(popped.messages[:1])
    await api.ack(popped.messages[1:], "failed")
    assert (await api.transact([{"type": "push", "items": [{"queue": queue, "payload": 4}]}]))["success"]
    for method, path, body in (
        ("GET", f"/api/v1/dlq?queue={queue}", None),
        ("POST", "/api/v1/stats/refresh", None),
        ("GET", "/api/v1/status", None),
        ("GET", "/metrics/prometheus", None),
        ("GET", "/api/v1/analytics/postgres-stats", None),
        ("GET", "/api/v1/analytics/system-metrics", None),
        ("POST", "/api/v1/system/maintenance/pop", {"enabled": False}),
        ("POST", f"/api/v1/consumer-groups/g/queues/{queue}/seek", {"toEnd": True}),
        ("DELETE", f"/api/v1/consumer-groups/g/queues/{queue}", None),
    ):
        response = await api.http.request(method, path, json=body)
        assert response.status_code == 200, f"{method} {path}: {response.text}"
    body = {"queueName": "n", "queueSize": 10, "visibilityTimeout": 30, "maxDeliveries": 1}
    made = (await api.http.post("/api/queues", json=body)).json()["queue_id"]
    assert (await api.http.post(f"/api/queues/{made}/messages", json={"data": "x"})).status_code == 201
    assert (await api.http.get(f"/api/queues/{made}/messages")).json()["message"]
    assert (await api.http.delete(f"/api/queues/{made}")).status_code == 200
    await api.delete(queue)


async def test_the_owner_without_the_right_to_make_roles_lets_producers_push(
    database_of_roles: str, queue: str
) -> None:
    url = database_of_roles
    await execute(url, SCRIPT)
    assert (await init(as_role(url, "queen_owner")))[0] == 0
    await execute(url, f"INSERT INTO queen.queues (name) VALUES ('{queue}')")
    role = f"shop_{queue[-8:]}"
    await execute(url, f"CREATE ROLE {role} LOGIN; GRANT queen_producer TO {role}")
    try:
        await execute(as_role(url, role), f"SELECT queen.push('{queue}', '1')")
    finally:
        await execute(url, f"DROP ROLE {role}")


async def test_a_schema_that_somebody_else_has_made_is_handed_over(database_of_roles: str) -> None:
    url = database_of_roles
    assert (await init(url))[0] == 0
    for _ in range(2):
        await execute(url, SCRIPT)
    assert (await init(as_role(url, "queen_server")))[0] == 0
    assert (await init(as_role(url, "queen_owner")))[0] == 0
    connection = await asyncpg.connect(url)
    try:
        schemas = "IN ('queen'::regnamespace, 'simple_mq'::regnamespace)"
        foreign = await connection.fetch(
            f"SELECT relname FROM pg_class WHERE relnamespace {schemas} AND relowner <> 'queen_owner'::regrole"
            " UNION ALL "
            f"SELECT proname FROM pg_proc WHERE pronamespace {schemas} AND proowner <> 'queen_owner'::regrole"
        )
    finally:
        await connection.close()
    assert foreign == []
