"""Pops of which PostgreSQL's answer is lost: no message comes to nobody, and none is withheld for a whole lease."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest

from queen_spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.chaos.proxy import Proxy, Streams
from tests.support.outage import fragile_postgres
from tests.support.processes import PATIENCE_S, open_folder
from tests.support.servers import serving_database

_ACKED = "SELECT max(acked) FROM queen.partition_consumers"
_LEASED = "SELECT count(lease) FROM queen.partition_consumers"


@asynccontextmanager
async def lossy() -> AsyncIterator[tuple[httpx.AsyncClient, Proxy, "asyncpg.Connection[asyncpg.Record]"]]:
    """A client of a server, the proxy between that and its PostgreSQL, and a connection that does not go through it."""
    with open_folder() as folder, fragile_postgres(folder) as postgres:
        socket = postgres.dsn.split("host=")[1].replace("%2F", "/")

        async def open_far() -> Streams:
            return await asyncio.open_unix_connection(f"{socket}/.s.PGSQL.5432")

        proxy = Proxy(open_far, 1)
        await proxy.start()
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        serving = serving_database(dsn, folder, "--workers", "1")
        server = await asyncio.to_thread(serving.__enter__)
        try:
            connection = await asyncpg.connect(postgres.dsn)
            async with open_client(server.port) as http:
                yield http, proxy, connection
            await connection.close()
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)
            await proxy.stop()


async def changes(connection: "asyncpg.Connection[asyncpg.Record]", question: str, before: int) -> None:
    """Returns when PostgreSQL answers the question in another way."""
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval(question) == before:
            await asyncio.sleep(0.02)


async def popped(http: httpx.AsyncClient, **parameters: str) -> list[object]:
    """What a pop gets as soon as it gets something."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await http.get("/api/v1/pop/queue/q", params=parameters)).status_code != 200:
            await asyncio.sleep(0.05)
    return [message["data"] for message in answer.json()["messages"]]


@checks("G-ACK-3", "G-ORD-2", level=Level.FAULTS)
@pytest.mark.parametrize("waits", [False, True])
async def test_pop_with_auto_ack_whose_answer_is_lost_is_not_repeated(waits: bool) -> None:
    """Its consumer is told, for what it took comes to nobody."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.push("q", 1, 2, 3)
        assert (await api.pop("q", autoAck=True)).data == [1]
        before = await connection.fetchval(_ACKED)
        proxy.swallow("back")
        wait = {"wait": "true", "timeout": "30000"} if waits else {}
        popping = asyncio.create_task(http.get("/api/v1/pop/queue/q", params={"autoAck": "true", **wait}))
        await changes(connection, _ACKED, before)
        proxy.reset()
        proxy.deliver("back")
        answer = await popping
        assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
        assert await popped(http, autoAck="true") == [3]


@checks("G-LEASE-2", level=Level.FAULTS)
@pytest.mark.parametrize("wait", [{}, {"wait": "true", "timeout": "4000"}])
async def test_a_lease_of_which_nobody_heard_is_given_back_when_postgresql_answers_again(wait: dict[str, str]) -> None:
    """Also where the consumer was answered long before that: nobody asks for it any more, and it would last an hour."""
    async with lossy() as (http, proxy, connection):
        api = Api(http)
        await api.configure("q", leaseTime=3600)
        await api.push("q", 1, 2)
        # From here on the pop is the only thing that has to be asked.
        assert (await api.pop("q", autoAck=True)).data == [1]
        proxy.swallow("back")
        popping = asyncio.create_task(http.get("/api/v1/pop/queue/q", params=wait))
        await changes(connection, _LEASED, 0)
        assert (await popping).status_code == (204 if wait else 503)
        proxy.reset()
        proxy.deliver("back")
        await changes(connection, _LEASED, 1)
        assert await popped(http) == [2]
