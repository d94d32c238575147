"""Nothing that is secret is logged or printed, whatever goes wrong. Tokens: test_authentication.py."""

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest

from queen.config import AREAS
from queen.config.variable import settings_of
from tests.support.api import open_client
from tests.support.clock import eventually
from tests.support.processes import Server, free_port, open_folder, run
from tests.support.servers import create_database, drop_database, serving_database

PASSWORD = "the-pass%40word"
SECRETS = {
    "QUEEN_ENCRYPTION_KEY": "5e" * 32,
    "QUEEN_ENCRYPTION_OLD_KEYS": "6f" * 32,
    "QUEEN_SYNC_SECRET": "the-secret-of-the-instances",
    "JWT_SECRET": "the-secret-that-signs-every-token",
    "QUEEN_SQS_KEYS": "a-key:the-secret-of-a-key:admin",
}
#: What must stand nowhere: the password also as it is meant.
HIDDEN = ("the-pass", "the-secret-of-a-key", *SECRETS.values())


def test_every_secret_setting_is_tried_here() -> None:
    secret = {
        name for area in AREAS.values() for setting in settings_of(area) if setting.secret for name in setting.names
    }
    assert secret == {*SECRETS, "DATABASE_URL", "DATABASE_URLS", "PG_PASSWORD"}


async def test_a_server_at_work_and_in_trouble_logs_no_secret(server: Server, queue: str) -> None:
    url = await create_database(server.dsn)
    with_password = url.replace("postgres@", f"postgres:{PASSWORD}@", 1)
    assert PASSWORD in with_password
    try:
        with (
            open_folder() as folder,
            serving_database(with_password, folder, "--workers", "1", LOG_LEVEL="debug", **SECRETS) as running,
        ):
            async with open_client(running.port) as http:
                options = {"queue": queue, "options": {"encryptionEnabled": True}}
                assert (await http.post("/api/v1/configure", json=options)).status_code == 200
                items = {"items": [{"queue": queue, "payload": 1}]}
                assert (await http.post("/api/v1/push", json=items)).status_code == 201
                assert (await http.post("/api/v1/push", json=items | {"items": 1})).status_code == 400
                await _away(server.dsn, url)
                assert (await http.post("/api/v1/push", json=items)).status_code == 201
            output = running.output.read_text()
            await _back(server.dsn, url)
    finally:
        await drop_database(server.dsn, url)
    assert '"level": "debug"' in output, "everything was logged that can be"
    assert "PostgreSQL at" in output, "the log names the PostgreSQL that is down"
    assert not [secret for secret in HIDDEN if secret in output]


async def _away(dsn: str, url: str) -> None:
    """The database takes no connections, and ends those that it has."""
    name = _name(url)
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")

    async def ended() -> bool:
        alive = await connection.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1", name
        )
        return not alive

    await eventually(ended, "no connection to the database")
    await connection.close()


async def _back(dsn: str, url: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"ALTER DATABASE {_name(url)} ALLOW_CONNECTIONS true")
    await connection.close()


def _name(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


@pytest.mark.parametrize("command", ["init", "doctor", "serve"])
async def test_commands_that_cannot_reach_postgresql_print_no_secret(command: str) -> None:
    port = str(free_port())
    places = [
        {"DATABASE_URL": f"postgresql://queen:{PASSWORD}@127.0.0.1:{port}/queen"},
        {"DATABASE_URL": f"host=127.0.0.1 port={port} user=queen password={PASSWORD}"},
        {"DATABASE_URL": f"postgresql://queen:{PASSWORD}@127.0.0.1:{port}/queen?no_such_parameter=1"},
        {"DATABASE_URLS": f"a=postgresql://queen:{PASSWORD}@127.0.0.1:{port}/queen b=host=127.0.0.1"},
        {"DATABASE_URLS": f"a=postgresql://queen:{PASSWORD}@127.0.0.1:{port}/queen"},
        {"PG_HOST": "127.0.0.1", "PG_PORT": port, "PG_PASSWORD": PASSWORD},
    ]
    done = await asyncio.gather(
        *(asyncio.to_thread(run, command, LOG_LEVEL="debug", PORT="0", **place, **SECRETS) for place in places)
    )
    for place, each in zip(places, done, strict=True):
        assert each.returncode != 0, place
        text = each.stdout + each.stderr
        assert text
        assert not [secret for secret in HIDDEN if secret in text], place
