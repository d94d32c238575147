"""Consuming with SQL while processes are killed: the application's table has each message of its own once."""

import asyncio
import random
from typing import Any

import asyncpg
import httpx
import pytest

from spec.guarantees import Level, checks
from tests.chaos.test_kill import FAULTS
from tests.support.api import Api, open_client
from tests.support.nightly import mostly_at_night
from tests.support.processes import PATIENCE_S, Server, open_folder, serving

_PARTITIONS, _MESSAGES = 6, 150
_KILLS = 4
#: Messages that are consumed with SQL between two kills.
_PROGRESS = 60
_BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
#: The lease of an answer that was lost ends soon.
_LEASE_S = 2

Place = tuple[str, int]


class Consumers:
    """Of one group: some write what they consume into a table, in the transaction of the ack; some use HTTP."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server, self._seed = server, seed
        self.committed = 0
        self.stopped = asyncio.Event()
        #: Places of messages that HTTP has completed, and those of acks without an answer.
        self.over_http: set[Place] = set()
        self.unknown: set[Place] = set()

    async def run(self, number: int) -> None:
        choice = random.Random(f"{self._seed}/{number}")
        while not self.stopped.is_set():
            try:
                connection = await asyncpg.connect(self._server.dsn)
            except _BROKEN:
                await asyncio.sleep(0.05)  # PostgreSQL is down
                continue
            try:
                while not self.stopped.is_set():
                    await self._consume(connection, choice)
            except asyncpg.UniqueViolationError:
                raise  # twice
            except _BROKEN:
                pass  # perhaps in the middle of an answer, or the lease has ended
            finally:
                connection.terminate()

    async def _consume(self, connection: "asyncpg.Connection[Any]", choice: random.Random) -> None:
        """Pops, writes and acks in one transaction, or pops in one of its own."""
        transaction = connection.transaction()
        await transaction.start()
        rows = await connection.fetch(
            "SELECT * FROM queen.pop('shop', batch => $1, partitions => $2, lease_seconds => $3, auto_ack => $4)",
            choice.randint(1, 5), choice.randint(1, 2), _LEASE_S, automatic := choice.random() < 0.3,
        )  # fmt: skip
        if choice.random() < 0.3 and not automatic:
            await transaction.commit()
            transaction = connection.transaction()
            await transaction.start()
        for row in rows:
            await connection.execute("INSERT INTO consumed VALUES ($1, $2)", row["partition"], row["off"])
            if not automatic:
                await connection.execute("SELECT queen.ack($1, $2)", row["lease_id"], row["message_id"])
        if choice.random() < 0.2:
            await transaction.rollback()
        else:
            await transaction.commit()
            self.committed += len(rows)
        if not rows:
            await asyncio.sleep(0.02)  # a pop of SQL does not wait

    async def run_over_http(self) -> None:
        async with open_client(self._server.port) as http:
            api = Api(http)
            while not self.stopped.is_set():
                places: list[Place] = []
                try:
                    popped = await api.pop("shop", batch=2, leaseSeconds=_LEASE_S, wait=True, timeout=500)
                    places = [(each["partition"], each["data"]) for each in popped.messages]
                    if places:
                        results = await api.ack(popped.messages)
                        self.over_http |= {
                            place
                            for place, result in zip(places, results, strict=True)
                            if result["success"] and not result.get("noop")
                        }
                except (httpx.HTTPError, AssertionError):
                    self.unknown |= set(places)
                    await asyncio.sleep(0.05)  # the server is starting


@checks("G-SQL-1", level=Level.FAULTS)
@pytest.mark.parametrize("what", mostly_at_night(FAULTS, ["back ends"]))
def test_the_table_has_each_message_once(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        asyncio.run(_consume_all(server, what, seed))


async def _consume_all(server: Server, what: str, seed: int) -> None:
    connection = await asyncpg.connect(server.dsn)
    async with open_client(server.port) as http:
        api = Api(http)
        await api.configure("shop")
        await connection.execute(
            "SELECT queen.subscribe('shop');"
            "CREATE TABLE consumed (partition text, off bigint, PRIMARY KEY (partition, off))"
        )
        await connection.close()
        for partition in range(_PARTITIONS):
            await api.push("shop", *range(_MESSAGES), partition=f"p{partition}")
    consumers, choice = Consumers(server, seed), random.Random(seed)
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(4 * PATIENCE_S):
        for number in range(4):
            tasks.create_task(consumers.run(number))
        tasks.create_task(consumers.run_over_http())
        for _ in range(_KILLS):
            goal = consumers.committed + _PROGRESS
            while consumers.committed < goal and not await _is_done(server):
                await asyncio.sleep(0.02)
            await FAULTS[what](server, choice)
        while not await _is_done(server):
            await asyncio.sleep(0.05)
        consumers.stopped.set()
    connection = await asyncpg.connect(server.dsn)
    table = {tuple(row) for row in await connection.fetch("SELECT * FROM consumed")}
    await connection.close()
    print(f"{len(table)} with SQL, {len(consumers.over_http)} over HTTP, {len(consumers.unknown)} unknown")
    assert len(table) >= consumers.committed
    assert not table & consumers.over_http
    everything = {(f"p{partition}", number) for partition in range(_PARTITIONS) for number in range(_MESSAGES)}
    assert everything <= table | consumers.over_http | consumers.unknown


async def _is_done(server: Server) -> bool:
    try:
        connection = await asyncpg.connect(server.dsn)
        left = await connection.fetchval(
            "SELECT count(*) FROM queen.partition_consumers AS c JOIN queen.partitions AS p ON p.id = c.part_id"
            " WHERE p.name <> 'Default' AND c.acked < $1",
            _MESSAGES - 1,
        )
        await connection.close()
    except _BROKEN:
        return False
    return bool(left == 0)
