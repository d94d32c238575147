"""Pushing with SQL while processes are killed: the log has exactly what the application's table has."""

import asyncio
import os
import random
import signal
import time
from typing import Any

import asyncpg
import pytest

from spec.guarantees import Level, checks
from tests.chaos.test_kill import FAULTS
from tests.support.clock import eventually
from tests.support.processes import PATIENCE_S, Server, open_folder, serving

_PARTITIONS = 4
_KILLS = 4
#: PostgreSQL is down, or a connection was killed.
_BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
#: Orders between two kills.
_PROGRESS = 60


class Shop:
    """Clients that insert an order and push a message about it in one transaction, or roll both back."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server, self._seed = server, seed
        self.committed, self.stopped = 0, asyncio.Event()

    async def run(self, partition: int) -> None:
        """Numbers orders per partition. One whose outcome is unknown is looked up, as the next number depends on it."""
        choice = random.Random(f"{self._seed}/{partition}")
        while not self.stopped.is_set():
            try:
                connection = await asyncpg.connect(self._server.dsn)
            except _BROKEN:
                await asyncio.sleep(0.05)  # PostgreSQL is down
                continue
            try:
                await self._order(connection, partition, choice)
            except _BROKEN:
                pass  # perhaps in the middle of an answer
            finally:
                connection.terminate()

    async def _order(self, connection: "asyncpg.Connection[Any]", partition: int, choice: random.Random) -> None:
        while not self.stopped.is_set():
            transaction = connection.transaction()
            await transaction.start()
            number = await connection.fetchval(
                "INSERT INTO orders SELECT $1, coalesce(max(number), -1) + 1 FROM orders WHERE part = $1"
                " RETURNING number",
                partition,
            )
            await connection.execute(
                "SELECT queen.push('shop', to_jsonb($1::int), partition => $2)", number, f"p{partition}"
            )
            if choice.random() < 0.2:
                await transaction.rollback()
            else:
                await transaction.commit()
                self.committed += 1


@checks("G-OUT-1", "G-OUT-2", level=Level.FAULTS)
@pytest.mark.parametrize("what", FAULTS)
def test_the_log_has_exactly_what_was_committed(what: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, killed: {what}")
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
        asyncio.run(_trade(server, what, seed))


async def _trade(server: Server, what: str, seed: int) -> None:
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("CREATE TABLE orders (part int, number int, PRIMARY KEY (part, number))")
    await connection.close()
    shop, choice = Shop(server, seed), random.Random(seed)
    async with asyncio.TaskGroup() as clients, asyncio.timeout(4 * PATIENCE_S):
        for partition in range(_PARTITIONS):
            clients.create_task(shop.run(partition))
        for _ in range(_KILLS):
            goal = shop.committed + _PROGRESS
            while shop.committed < goal:
                await asyncio.sleep(0.02)
            await FAULTS[what](server, choice)
        shop.stopped.set()
    await eventually(lambda: _is_moved(server), "an empty outbox")
    connection = await asyncpg.connect(server.dsn)
    log = await connection.fetch(
        "SELECT partition, payload::text::int AS number FROM queen.messages WHERE queue = 'shop'"
        " ORDER BY partition, off"
    )
    orders = await connection.fetch("SELECT 'p' || part AS partition, number FROM orders ORDER BY part, number")
    await connection.close()
    print(f"{len(orders)} orders")
    assert len(orders) >= shop.committed
    assert [tuple(row) for row in log] == [tuple(row) for row in orders]


async def _is_moved(server: Server) -> bool:
    try:
        connection = await asyncpg.connect(server.dsn)
        waits = await connection.fetchval("SELECT EXISTS (SELECT 1 FROM queen.outbox)")
        await connection.close()
    except _BROKEN:
        return False
    return not waits


@checks("G-OUT-1", level=Level.FAULTS)
def test_another_worker_moves_when_the_leader_was_killed() -> None:
    """The lead outlives its worker by up to 15 s. All are killed, so that no new one has it."""
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
        for pid in server.workers():
            os.kill(pid, signal.SIGKILL)
        server.wait_until_all_are_healthy(2)
        asyncio.run(_push_without_leader(server))


async def _push_without_leader(server: Server) -> None:
    connection = await asyncpg.connect(server.dsn)
    for number in range(3):
        await connection.execute(
            "UPDATE queen.service_leader SET holder = gen_random_uuid(),"
            " expires_at = clock_timestamp() + interval '15 s'"
        )
        began = time.monotonic()
        await connection.execute("SELECT queen.push('shop', to_jsonb($1::int))", number)
        await eventually(lambda: _is_moved(server), "an empty outbox")
        seconds = time.monotonic() - began
        print(f"moved after {seconds:.3f} s")
        assert seconds < (5 if number == 0 else 2)
    await connection.close()
