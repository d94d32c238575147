"""Pushing with SQL while processes are killed: the log has exactly what the application's table has."""

import asyncio
import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from queen.embedded.server import EmbeddedPostgres
from spec.guarantees import Level, checks
from tests.chaos.test_kill import FAULTS, keep_killing
from tests.mutants.mutant import mutant
from tests.mutants.run import mutated
from tests.support.clock import eventually
from tests.support.nightly import mostly_at_night
from tests.support.processes import PATIENCE_S, Server, open_folder, serving
from tests.support.servers import serving_database
from tests.support.standby import Pair, pair
from tests.support.stepping import SteppingClock, stepping_postgres

_PARTITIONS = 4
_KILLS = 4
#: PostgreSQL is down, or a connection was killed.
BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
#: Orders between two kills.
_PROGRESS = 60


class Shop:
    """Clients that insert an order and push a message about it in one transaction, or roll both back."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn, self._seed = dsn, seed
        self.committed, self.stopped = 0, asyncio.Event()

    async def run(self, partition: int) -> None:
        """Numbers orders per partition. One whose outcome is unknown is looked up, as the next number depends on it."""
        choice = random.Random(f"{self._seed}/{partition}")
        while not self.stopped.is_set():
            try:
                connection = await asyncpg.connect(self._dsn)
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
@pytest.mark.parametrize("what", mostly_at_night(FAULTS, ["the postmaster"]))
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
    shop, choice = Shop(server.dsn, seed), random.Random(seed)
    async with asyncio.TaskGroup() as clients, asyncio.timeout(4 * PATIENCE_S):
        for partition in range(_PARTITIONS):
            clients.create_task(shop.run(partition))
        await keep_killing(FAULTS[what], server, choice, done=lambda: shop.committed, step=_PROGRESS, kills=_KILLS)
        shop.stopped.set()
    connection = await eventually(lambda: _connected(server.dsn), "a PostgreSQL that has started again")
    await _compare(server.dsn, shop, connection)
    await connection.close()


async def _compare(dsn: str, shop: Shop, connection: "asyncpg.Connection[Any]") -> None:
    """Table and log are equal."""
    await eventually(lambda: is_moved(dsn), "an empty outbox")
    log = await connection.fetch(
        "SELECT partition, payload::text::int AS number FROM queen.messages WHERE queue = 'shop'"
        " ORDER BY partition, off"
    )
    orders = await connection.fetch("SELECT 'p' || part AS partition, number FROM orders ORDER BY part, number")
    print(f"{len(orders)} orders")
    assert len(orders) >= shop.committed
    assert [tuple(row) for row in log] == [tuple(row) for row in orders]


async def _connected(dsn: str) -> "asyncpg.Connection[Any] | None":
    try:
        return await asyncpg.connect(dsn)
    except BROKEN:
        return None


async def is_moved(dsn: str) -> bool:
    """Whether nothing waits in the outbox."""
    try:
        connection = await asyncpg.connect(dsn)
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
        await eventually(lambda: is_moved(server.dsn), "an empty outbox")
        seconds = time.monotonic() - began
        print(f"moved after {seconds:.3f} s")
        assert seconds < (5 if number == 0 else 2)
    await connection.close()


@pytest.mark.nightly
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
    assert await _moved(server.dsn, 1) == [3]
    await _restart(server)
    await _execute(server, "SELECT queen.push('shop', '4')")
    assert await _moved(server.dsn, 2) == [3, 4]
    await _execute(server, "COMMIT PREPARED 'commits'")
    await _execute(server, "ROLLBACK PREPARED 'rolls back'")
    await _execute(server, "SELECT queen.push('shop', '5')")
    assert sorted(await _moved(server.dsn, 4)) == [1, 3, 4, 5]


async def _restart(server: Server) -> None:
    killed = server.postmaster()
    killed.kill()
    killed.wait()
    await eventually(lambda: is_moved(server.dsn), "PostgreSQL")


async def _execute(server: Server, sql: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(sql)
    await connection.close()


async def _moved(dsn: str, number: int) -> list[int]:
    """The payloads in the log, when there are so many."""

    async def look() -> list[int]:
        connection = await asyncpg.connect(dsn)
        rows = await connection.fetch(
            "SELECT payload::text::int AS n FROM queen.messages WHERE queue = 'shop' ORDER BY off"
        )
        await connection.close()
        return [row["n"] for row in rows] if len(rows) >= number else []

    return await eventually(look, f"{number} messages")


@pytest.mark.nightly
@checks("G-OUT-1", "G-OUT-2", level=Level.FAULTS)
def test_a_transaction_that_stays_open_for_an_hour_holds_nothing_up() -> None:
    with (
        open_folder() as folder,
        stepping_postgres(folder) as (postgres, clock),
        serving_database(postgres.dsn, folder, "--workers", "1") as server,
    ):
        assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
        asyncio.run(_stay_open(postgres.dsn, clock))


async def _stay_open(dsn: str, clock: SteppingClock) -> None:
    holder, connection = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    push = "SELECT queen.push('shop', to_jsonb($1::int), partition => $2)"
    await connection.execute("SET synchronous_commit = off")
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute(push, 0, "p0")
    await connection.execute(push, 1, "p0")
    pushed = [1]
    assert await _moved(dsn, 1) == pushed
    for hours in (0.5, 1.0):
        clock.ahead(3600 * hours)
        # Other transactions, as of an hour.
        await connection.execute(
            "DO $$ BEGIN FOR n IN 1..10000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )
        began, number = time.monotonic(), int(10 * hours)
        await connection.execute(push, number, "p0")
        pushed.append(number)
        assert await _moved(dsn, len(pushed)) == pushed
        print(f"after {hours} h: {time.monotonic() - began:.3f} s")
    await holder.execute(push, 11, "p0")
    await transaction.commit()
    assert await _moved(dsn, 5) == [*pushed, 0, 11]
    await holder.close()
    await connection.close()


async def _is_in_the_log(dsn: str, payloads: list[int]) -> bool:
    return await _moved(dsn, 0) == payloads


@pytest.mark.nightly
@checks("G-OUT-1", "G-OUT-2", level=Level.FAULTS)
def test_a_replica_that_is_promoted_moves_what_waits() -> None:
    """Something is moved, something waits, something is held back, and a transaction is open when the primary dies."""
    with (
        open_folder() as folder,
        pair(folder / "pair") as both,
        serving_database(both.dsn, folder, "--workers", "1", DB_PATIENCE_MS="200000") as server,
    ):
        assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
        asyncio.run(_fail_over(both))


async def _fail_over(both: Pair) -> None:
    push = "SELECT queen.push('shop', to_jsonb($1::int))"
    connection, open_one, locker = [await asyncpg.connect(both.dsn_of("one")) for _ in range(3)]
    await connection.execute(push, 0)
    await eventually(partial(_is_in_the_log, both.dsn, [0]), "a message in the log")
    await open_one.execute("BEGIN")
    await open_one.execute(push, -1)
    await locker.execute("BEGIN; SELECT 1 FROM queen.outbox_position FOR UPDATE")
    for number in range(1, 51):
        await connection.execute(push, number)
    assert await connection.fetchval("SELECT count(*) FROM queen.outbox") == 50
    for each in (connection, open_one, locker):
        each.terminate()
    await asyncio.to_thread(both.fail_over)
    both.sql("two", "SELECT queen.push('shop', '51')")
    await eventually(partial(_is_in_the_log, both.dsn, list(range(52))), "52 messages in the log")


#: A worker that dies before and after each call of the mover, once each.
_DYING = """

class Dying:
    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        async def call(*arguments):
            _die(f"before {name}")
            answer = await getattr(self._store, name)(*arguments)
            if answer or name == "postpone_held":
                _die(f"after {name}")
            return answer

        return call


def _die(step):
    import os, signal
    try:
        os.close(os.open(os.path.join(os.environ["DEATHS"], step), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
"""
_STEPS = {f"{when} {what}" for when in ("before", "after")
          for what in ("read", "move", "read_held", "move_held", "postpone_held", "let_go")}  # fmt: skip
#: Those that need a partition that was held back and can be moved.
_STEPS_UNLOCKED = {"after move_held", "before let_go", "after let_go"}
#: Locks a partition, which is held back for as long.
_LOCKED = """SELECT true FROM queen.partition_locks AS l JOIN queen.partitions AS p ON p.id = l.part_id
WHERE p.name = 'p0' FOR UPDATE OF l"""
_STORE = "queen/postgres/outbox_store.py"
_LAST_LINE = "        return int(row[0])\n"
DYING = mutant(
    "G-OUT-1", "a worker dies between any two steps",
    (_STORE, _LAST_LINE, _LAST_LINE + _DYING),
    ("queen/main.py", "Outbox(context, OutboxStore(replaying)", "Outbox(context, Dying(OutboxStore(replaying))"),
    ("queen/main.py", "import OutboxStore", "import Dying, OutboxStore"),
)  # fmt: skip


@checks("G-OUT-1", "G-OUT-2", "G-OUT-3", level=Level.FAULTS)
def test_a_worker_that_dies_between_any_two_steps_of_the_mover_loses_and_doubles_nothing() -> None:
    with open_folder() as folder, EmbeddedPostgres(folder / "data") as postgres, mutated(DYING) as tree:
        deaths = folder / "deaths"
        deaths.mkdir()
        environment = {"DEATHS": str(deaths), "PYTHONPATH": str(tree)}
        with serving_database(postgres.dsn, folder, "--workers", "2", root=tree, **environment) as server:
            assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
            asyncio.run(_trade_until_all_have_died(postgres.dsn, deaths))


async def _trade_until_all_have_died(dsn: str, deaths: Path) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE orders (part int, number int, PRIMARY KEY (part, number))")
    shop = Shop(dsn, 0)

    async def have_died(steps: set[str]) -> bool:
        return steps <= set(await asyncio.to_thread(os.listdir, deaths))

    async with asyncio.TaskGroup() as clients, asyncio.timeout(4 * PATIENCE_S):
        for partition in range(2):
            clients.create_task(shop.run(partition))
        async with connection.transaction():
            await eventually(partial(connection.fetchval, _LOCKED), "a partition that can be locked")
            await eventually(partial(have_died, _STEPS - _STEPS_UNLOCKED), "deaths while a partition is locked")
        await eventually(partial(have_died, _STEPS), "deaths after it")
        shop.stopped.set()
    await _compare(dsn, shop, connection)
    await connection.close()
