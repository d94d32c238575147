"""A procedure that an upgrade replaced can be returned to, while servers run, and left again."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from queen.postgres.setup import prepare
from tests.integration.test_setup import TIMEOUT_MS, query
from tests.support.api import Api, open_client
from tests.support.processes import open_folder, run
from tests.support.servers import create_database, drop_database, serving_database

SOURCE = "SELECT prosrc FROM pg_proc WHERE oid = 'queen.renew_lease_v1'::regproc"
NAME = "renew_lease_v1"
#: A comment in the body of a procedure of the version before.
MARK = "-- the version before"


@pytest.fixture
async def upgraded(postgres: str) -> AsyncIterator[str]:
    """A database that had another version of a procedure before its last upgrade."""
    url = await create_database(postgres)
    await prepare(url, TIMEOUT_MS)
    [(text,)] = await query(url, "SELECT pg_get_functiondef('queen.renew_lease_v1'::regproc)")
    connection = await asyncpg.connect(url)
    await connection.execute(text.replace("\nBEGIN\n", f"\nBEGIN\n    {MARK}\n", 1))
    await connection.execute("""UPDATE queen.system_state SET value = '"other"' WHERE key = 'procedures'""")
    await connection.close()
    await prepare(url, TIMEOUT_MS)
    yield url
    await drop_database(postgres, url)


async def is_the_earlier_one(url: str) -> bool:
    [(source,)] = await query(url, SOURCE)
    return MARK in source


def procedures(url: str, *arguments: str) -> tuple[int, str]:
    done = run("procedures", *arguments, DATABASE_URL=url)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.nightly
async def test_a_procedure_is_returned_to_beside_a_server_and_stays_after_a_restart(upgraded: str) -> None:
    assert not await is_the_earlier_one(upgraded)
    assert "current version in use" in procedures(upgraded, "list")[1]
    with open_folder() as folder, serving_database(upgraded, folder, "--workers", "1") as server:
        async with open_client(server.port) as http:
            api = Api(http)
            await api.push("q", 1)
            lease = (await api.pop("q")).lease
            code, said = procedures(upgraded, "restore", NAME)
            assert (code, NAME in said) == (0, True), said
            assert await is_the_earlier_one(upgraded)
            assert (await api.extend(lease))["success"] is True
    await prepare(upgraded, TIMEOUT_MS)
    assert await is_the_earlier_one(upgraded), "a start leaves it in use"
    assert "earlier version in use" in procedures(upgraded, "list")[1]
    assert procedures(upgraded, "reset")[0] == 0
    assert not await is_the_earlier_one(upgraded)


async def test_an_upgrade_ends_the_use_of_an_earlier_version(upgraded: str) -> None:
    assert procedures(upgraded, "restore", f"queen.{NAME}")[0] == 0
    await query(upgraded, """UPDATE queen.system_state SET value = '"another"' WHERE key = 'procedures' RETURNING 1""")
    await prepare(upgraded, TIMEOUT_MS)
    assert not await is_the_earlier_one(upgraded)
    assert "current version in use" in procedures(upgraded, "list")[1]


async def test_a_procedure_without_an_earlier_version_is_named(upgraded: str) -> None:
    code, said = procedures(upgraded, "restore", "push_messages_v1")
    assert (code, said.count("No earlier version of push_messages_v1 is kept")) == (1, 1), said
