"""Messages of the outbox that cannot go into the log yet hold back only their own partitions."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from queen.postgres.outbox_store import by_partition
from spec.guarantees import Level, checks
from tests.integration.test_outbox import blocks, popped, push
from tests.integration.test_outbox import moved as moved  # noqa: PLC0414 - a fixture
from tests.support.api import Api
from tests.support.clock import eventually
from tests.support.processes import Server, run

_PARTITIONS = ["a", "b", "c", "d"]


async def _held(database: "asyncpg.Connection[Any]", queue: str) -> list[Any]:
    return await database.fetch(
        "SELECT h.partition, h.reason, h.tries FROM queen.outbox_held_partitions AS h"
        " JOIN queen.queues AS q ON q.id = h.queue_id WHERE q.name = $1 ORDER BY h.partition",
        queue,
    )


@asynccontextmanager
async def locked(server: Server, queue: str, partition: str) -> AsyncIterator[None]:
    """Another transaction has locked a partition."""
    connection = await asyncpg.connect(server.dsn)
    try:
        async with connection.transaction():
            await connection.fetchval(
                "SELECT l.part_id FROM queen.partition_locks AS l JOIN queen.partitions AS p ON p.id = l.part_id"
                " JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = $1 AND p.name = $2 FOR UPDATE OF l",
                queue, partition,
            )  # fmt: skip
            yield
    finally:
        await connection.close()


@checks("G-OUT-1", "G-OUT-2", "G-OUT-3", level=Level.LIVE)
async def test_a_locked_partition_holds_nothing_else_back(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    await push(database, queue, 0, partition="locked")
    assert await popped(api, queue, 1) == [0]
    async with locked(server, queue, "locked"):
        async with database.transaction():
            await push(database, queue, 1, partition="locked")
            await push(database, queue, 10, partition="free")
        assert await popped(api, queue, 1) == [10]
        for number in range(2, 5):
            await push(database, queue, number, partition="locked")
            await push(database, queue, 10 * number, partition="free")
            assert await popped(api, queue, 1) == [10 * number]

        async def is_tried() -> bool:
            return [row["partition"] for row in await _held(database, queue) if row["tries"]] == ["locked"]

        await eventually(is_tried, "tries of the locked partition")
        metrics = (await api.http.get("/metrics/prometheus")).text
        assert "queen_outbox_messages 4.0" in metrics
        assert "queen_outbox_held_partitions 1.0" in metrics
        assert re.search(r"^queen_outbox_oldest_age_seconds [\d.]*[1-9]", metrics, re.MULTILINE)
        doctor = await asyncio.to_thread(run, "doctor", DATABASE_URL=server.dsn)
        assert "1 partitions are held back (too_slow)" in doctor.stdout, doctor.stdout
        assert not await database.fetchval("SELECT EXISTS (SELECT FROM queen.outbox)")
    assert await popped(api, queue, 4) == [1, 2, 3, 4]
    await push(database, queue, 5, partition="locked")
    assert await popped(api, queue, 1) == [5]

    async def is_let_go() -> bool:
        return not await _held(database, queue)

    await eventually(is_let_go, "the end of holding back")


@checks("G-OUT-3", level=Level.LIVE)
async def test_a_partition_to_which_messages_come_all_the_time_is_let_go(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    await push(database, queue, 0, partition="busy")
    assert await popped(api, queue, 1) == [0]
    number, done = 0, asyncio.Event()

    async def keep_pushing() -> None:
        nonlocal number
        connection = await asyncpg.connect(server.dsn)
        while not done.is_set():
            number += 1
            await push(connection, queue, number, partition="busy")
        await connection.close()

    pushing = asyncio.create_task(keep_pushing())
    try:
        async with locked(server, queue, "busy"):

            async def is_held() -> bool:
                return bool(await _held(database, queue))

            await eventually(is_held, "a partition that is held back")

        async def is_let_go() -> bool:
            return not await _held(database, queue)

        await eventually(is_let_go, "the end of holding back")
    finally:
        done.set()
        await pushing
    assert await popped(api, queue, number) == list(range(1, number + 1))


@checks("G-OUT-3", level=Level.LIVE)
async def test_a_queue_without_a_key_holds_no_other_one_back(
    api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    await api.configure(f"{queue}-other")
    set_encrypted = (
        "SELECT queen.configure_queue_v1($1, '', '', 0, 300, 3, 0, 0, 0, NULL, NULL, false, 0, 0, 0, 0, 0, $2, 1000)"
    )
    await database.execute(set_encrypted, queue, True)
    for number in range(3):
        async with database.transaction():
            await push(database, queue, number)
            await push(database, f"{queue}-other", number)
        assert await popped(api, f"{queue}-other", 1) == [number]

    async def is_held() -> bool:
        return [row["reason"].split(":")[0] for row in await _held(database, queue)] == ["no_encryption_key"]

    await eventually(is_held, "a partition that is held back")
    await database.execute(set_encrypted, queue, False)
    assert await popped(api, queue, 3) == [0, 1, 2]


async def test_held_back_messages_of_a_deleted_queue_are_dropped(
    server: Server, api: Api, database: "asyncpg.Connection[Any]", queue: str
) -> None:
    await api.configure(queue)
    await push(database, queue, 0, partition="p")
    assert await popped(api, queue, 1) == [0]
    async with locked(server, queue, "p"):
        await push(database, queue, 1, partition="p")

        async def is_held() -> bool:
            return bool(await _held(database, queue))

        await eventually(is_held, "a partition that is held back")
    await database.execute("UPDATE queen.outbox_held_partitions SET queue_id = -1, retry_at = clock_timestamp()")
    await database.execute("UPDATE queen.outbox_held SET queue_id = -1")

    async def is_gone() -> bool:
        return not await database.fetchval(
            "SELECT EXISTS (SELECT FROM queen.outbox_held) OR EXISTS (SELECT FROM queen.outbox_held_partitions)"
        )

    await eventually(is_gone, "nothing held back")


# ------------------------------------------------------------------ the procedures alone

_NO_WAITERS = "NULL, NULL, NULL, NULL, NULL"
_NOTHING = "gen_random_uuid(), '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 0"


async def move(connection: "asyncpg.Connection[Any]", messages: int, hold: list[str]) -> list[tuple[str, int]]:
    """One move that holds some partitions back, without the log; partition and payload of what was moved."""
    rows = await connection.fetch("SELECT * FROM queen.read_outbox_v1($1, 1000000)", messages)
    if not rows:
        return []
    first, last = rows[0], rows[-1]
    arguments = (
        first["moves"], first["target"], last["done"], last["xid"], last["seq"], len(rows),
        [first["queue_id"]] * len(hold), hold, "a test",
    )  # fmt: skip
    sql = f"SELECT moved FROM queen.move_outbox_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, {_NOTHING}, {_NO_WAITERS})"
    assert await connection.fetchval(sql, *arguments)
    assert not await connection.fetchval(sql, *arguments)
    return [
        (each.partition, int(payload))
        for each in by_partition(rows)
        if not each.held and each.partition not in hold
        for payload in each.payloads
    ]


async def retry(
    connection: "asyncpg.Connection[Any]", messages: int, *, succeeds: bool
) -> list[tuple[str, int]] | None:
    """A try of what is due, whenever that is; what was moved. ``None``: nothing is held back."""
    await connection.execute(
        "UPDATE queen.outbox_held_partitions SET retry_at = clock_timestamp() - random() * interval '1 s'"
    )
    rows = await connection.fetch("SELECT * FROM queen.read_held_outbox_v1($1, 1000000)", messages)
    if not rows:
        return None
    last = rows[-1]
    if not succeeds:
        await connection.execute(
            "SELECT queen.postpone_held_outbox_v1($1, $2, 'a test')", last["queue_id"], last["partition"]
        )
        return []
    found = [(row["partition"], int(row["payload"])) for row in rows if row["seq"] is not None]
    if found:
        arguments = last["queue_id"], last["partition"], last["moved_seq"], last["seq"]
        sql = f"SELECT moved FROM queen.move_held_outbox_v1($1, $2, $3, $4, {_NOTHING})"
        assert await connection.fetchval(sql, *arguments)
        assert not await connection.fetchval(sql, *arguments)
    await connection.fetchval("SELECT queen.let_go_outbox_v1()")
    return found


@checks("G-OUT-3", level=Level.LIVE)
async def test_many_partitions_are_let_go_with_one_move(moved: str) -> None:
    """Each one by itself would outdate what the mover has read, again and again."""
    connection = await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    await connection.execute(
        "INSERT INTO queen.outbox_held_partitions (queue_id, partition, reason)"
        " SELECT q.id, n::text, 'a test' FROM queen.queues AS q, generate_series(1, 50) AS n"
    )
    await connection.execute(
        "INSERT INTO queen.outbox_held (queue_id, partition, payload, pushed_at)"
        " SELECT id, '7', '1', clock_timestamp() FROM queen.queues"
    )
    moves = await connection.fetchval("SELECT moves FROM queen.outbox_position")
    assert await connection.fetchval("SELECT queen.let_go_outbox_v1()") == 49
    assert await connection.fetchval("SELECT queen.let_go_outbox_v1()") == 0
    assert await connection.fetchval("SELECT moves FROM queen.outbox_position") == moves + 1
    assert [row["partition"] for row in await connection.fetch("SELECT * FROM queen.outbox_held_partitions")] == ["7"]
    await connection.close()


@checks("G-OUT-1", "G-OUT-2", "G-OUT-3", level=Level.LIVE)
async def test_what_is_held_back_is_moved_once_and_in_order(moved: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    choice = random.Random(seed)
    connection = await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")
    pushed: list[tuple[str, int]] = []
    found: list[tuple[str, int]] = []
    numbers = iter(range(10_000))
    for _ in range(300):
        call = [
            (choice.choice(_PARTITIONS[: choice.randint(1, 4)]), next(numbers)) for _ in range(choice.randint(1, 3))
        ]
        pushed += call
        await connection.execute(
            "SELECT queen.push_many('q', $1::jsonb[], $2)",
            [str(number) for _, number in call], [partition for partition, _ in call],
        )  # fmt: skip
        if choice.random() < 0.3:
            hold = [partition for partition in _PARTITIONS if choice.random() < 0.2]
            found += await move(connection, choice.randint(1, 6), hold)
        if choice.random() < 0.3:
            found += await retry(connection, choice.randint(1, 4), succeeds=choice.random() < 0.5) or []
    while more := await move(connection, 5, []):
        found += more
    while (more_held := await retry(connection, 5, succeeds=True)) is not None:
        found += more_held
    while more := await move(connection, 5, []):
        found += more
    await connection.close()
    assert len(found) == len(pushed)
    for partition in _PARTITIONS:
        assert [each for each in found if each[0] == partition] == [each for each in pushed if each[0] == partition]


@checks("G-COST-1", level=Level.LIVE)
async def test_what_is_held_back_makes_no_look_dearer(moved: str) -> None:
    connection = await asyncpg.connect(moved)
    await connection.execute("INSERT INTO queen.queues (name) VALUES ('q')")

    async def looks() -> list[int]:
        await push(connection, "q", 1, partition="other")
        found = [await blocks(connection, "read_outbox_v1(1000, 1000000)")]
        await move(connection, 1000, [])
        return [*found, await blocks(connection, "read_held_outbox_v1(1000, 1000000)")]

    await looks()
    few = await looks()
    await connection.execute(
        "INSERT INTO queen.outbox_held_partitions (queue_id, partition, reason, retry_at)"
        " SELECT 1, 'p' || n, 'a test', clock_timestamp() + interval '30 s' FROM generate_series(1, 5000) AS n"
    )
    await connection.execute(
        "INSERT INTO queen.outbox_held (queue_id, partition, payload, pushed_at)"
        " SELECT 1, 'p' || n % 5000, '1', clock_timestamp() FROM generate_series(1, 20000) AS n"
    )
    many = await looks()
    await connection.close()
    assert all(after <= 2 * before + 10 for before, after in zip(few, many, strict=True)), (few, many)
