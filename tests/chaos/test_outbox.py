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
from tests.chaos.test_kill import FAULTS, keep_killing
from tests.support.clock import eventually
from tests.support.processes import PATIENCE_S, Server, open_folder, serving

_PARTITIONS = 4
_KILLS = 4
#: PostgreSQL is down, or a connection was killed.
BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
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
            except BROKEN:
                await asyncio.sleep(0.05)  # PostgreSQL is down
                continue
            try:
                await self._order(connection, partition, choice)
            except BROKEN:
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
        await keep_killing(FAULTS[what], server, choice, done=lambda: shop.committed, step=_PROGRESS, kills=_KILLS)
        shop.stopped.set()
    await eventually(lambda: is_moved(server), "an empty outbox")
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


async def is_moved(server: Server) -> bool:
    """Whether nothing waits in the outbox."""
    try:
        connection = await asyncpg.connect(server.dsn)
        waits = await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM queen.outbox) OR EXISTS (SELECT 1 FROM queen.outbox_held)"
        )
        await connection.close()
    except BROKEN:
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
        await eventually(lambda: is_moved(server), "an empty outbox")
        seconds = time.monotonic() - began
        print(f"moved after {seconds:.3f} s")
        assert seconds < (5 if number == 0 else 2)
    await connection.close()


@checks("G-OUT-1", "G-OUT-2", level=Level.FAULTS)
def test_a_prepared_transaction_is_moved_when_it_is_committed() -> None:
    """Also after a restart of PostgreSQL, and nothing waits for it."""
    with open_folder() as folder, serving(folder / "data", "--workers", "1") as server:
        assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
        asyncio.run(_prepare_transactions(server))


async def _prepare_transactions(server: Server) -> None:
    await _execute(server, "ALTER SYSTEM SET max_prepared_transactions = 2")
    await _restart(server)
    for name, number in (("commits", 1), ("rolls back", 2)):
        await _execute(server, f"BEGIN; SELECT queen.push('shop', '{number}'); PREPARE TRANSACTION '{name}'")
    await _execute(server, "SELECT queen.push('shop', '3')")
    assert await _moved(server, 1) == [3]
    await _restart(server)
    await _execute(server, "SELECT queen.push('shop', '4')")
    assert await _moved(server, 2) == [3, 4]
    await _execute(server, "COMMIT PREPARED 'commits'")
    await _execute(server, "ROLLBACK PREPARED 'rolls back'")
    await _execute(server, "SELECT queen.push('shop', '5')")
    assert sorted(await _moved(server, 4)) == [1, 3, 4, 5]


async def _restart(server: Server) -> None:
    killed = server.postmaster()
    killed.kill()
    killed.wait()
    await eventually(lambda: is_moved(server), "PostgreSQL")


async def _execute(server: Server, sql: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(sql)
    await connection.close()


async def _moved(server: Server, number: int) -> list[int]:
    """The payloads in the log, when there are so many."""

    async def look() -> list[int]:
        connection = await asyncpg.connect(server.dsn)
        rows = await connection.fetch(
            "SELECT payload::text::int AS n FROM queen.messages WHERE queue = 'shop' ORDER BY off"
        )
        await connection.close()
        return [row["n"] for row in rows] if len(rows) >= number else []

    return await eventually(look, f"{number} messages")
