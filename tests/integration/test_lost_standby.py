"""A PostgreSQL that answers, and commits nothing because the synchronous standby that it waits for is gone."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from spec.guarantees import Level, checks
from tests.support.api import Api, open_client
from tests.support.clock import eventually
from tests.support.outage import wait_until_drained
from tests.support.processes import Server, open_folder, run
from tests.support.servers import serving_database
from tests.support.standby import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary alone, which may be told to wait for somebody."""
    with open_folder() as folder:
        pair = Pair(folder, "max_wal_senders = 5\n")
        pair.start(with_standby=False)
        try:
            yield pair
        finally:
            pair.stop()


@pytest.fixture
def server(pair: Pair) -> Iterator[Server]:
    with (
        open_folder() as folder,
        serving_database(pair.dsn_of("one"), folder, "--workers", "2", DB_STATEMENT_TIMEOUT="1000") as running,
    ):
        yield running


async def wait_for_standby(pair: Pair, name: str) -> None:
    """Makes commits wait for the standby of that name, or for none; returns when they do."""
    pair.sql("one", f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    pair.sql("one", "SELECT pg_reload_conf()")

    async def is_so() -> bool:
        return (await asyncio.to_thread(pair.sql, "one", "SHOW synchronous_standby_names")).strip() == name

    await eventually(is_so, "the new setting", 30)


@checks("G-SPOOL-1", "G-SPOOL-2", level=Level.FAULTS)
async def test_pushes_are_spooled_and_the_doctor_names_the_wait(pair: Pair, server: Server, queue: str) -> None:
    async with open_client(server.port) as http:
        api = Api(http)
        await api.push(queue, 0)
        await wait_for_standby(pair, "gone")

        async def spooled() -> bool:
            answer = await http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": "early"}]})
            return bool(answer.json()[0]["status"] == "buffered")

        await eventually(spooled, "the spool", 60)
        assert await spooled()

        async def named() -> dict[str, Any] | None:
            examined = await asyncio.to_thread(run, "doctor", "--json", "--dsn", pair.dsn_of("one"))
            findings = json.loads(examined.stdout)["findings"]
            return next((each for each in findings if each["topic"] == "replication"), None)

        finding = await eventually(named, "the doctor's finding", 60)
        assert finding["grade"] == "problem"
        assert "SyncRep" in finding["text"]
        assert (await http.get("/health")).status_code == 200, "PostgreSQL answers"
        assert await spooled()
        await wait_for_standby(pair, "")
        await asyncio.to_thread(wait_until_drained, server)
        await api.push(queue, "late")
        popped = await api.pop(queue, batch=1000)
        assert popped.data[0] == 0
        assert popped.data[-1] == "late"
        assert set(popped.data[1:-1]) == {"early"}
