"""An autoAck pop whose call broke off: its consumer is told, for what it took comes to nobody."""

import asyncio

import asyncpg
import pytest

from queen_spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.chaos.proxy import Proxy, Streams
from tests.support.outage import fragile_postgres
from tests.support.processes import open_folder
from tests.support.servers import serving_database

_ACKED = "SELECT max(acked) FROM queen.partition_consumers"


@checks("G-ACK-3", "G-ORD-2", level=Level.FAULTS)
@pytest.mark.parametrize("waits", [False, True])
async def test_pop_whose_answer_from_postgresql_is_lost_is_not_repeated(waits: bool) -> None:
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
            async with open_client(server.port) as http:
                api = Api(http)
                await api.push("q", 1, 2, 3)
                assert (await api.pop("q", autoAck=True)).data == [1]
                connection = await asyncpg.connect(postgres.dsn)
                before = await connection.fetchval(_ACKED)
                proxy.swallow("back")
                wait = {"wait": "true", "timeout": "30000"} if waits else {}
                popping = asyncio.create_task(http.get("/api/v1/pop/queue/q", params={"autoAck": "true", **wait}))
                async with asyncio.timeout(30):
                    while await connection.fetchval(_ACKED) == before:
                        await asyncio.sleep(0.02)
                await connection.close()
                proxy.reset()
                proxy.deliver("back")
                answer = await popping
                assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
                async with asyncio.timeout(30):
                    while (answer := await http.get("/api/v1/pop/queue/q?autoAck=true")).status_code == 503:
                        await asyncio.sleep(0.05)
                assert [message["data"] for message in answer.json()["messages"]] == [3]
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)
            await proxy.stop()
