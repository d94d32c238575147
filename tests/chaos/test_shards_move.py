"""Partitions move under load, and the mover, workers and databases die meanwhile: the command is repeated."""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from queen.core.errors import QueenError
from queen.core.placement import with_added, with_drained
from queen.postgres import moves
from queen.postgres.dsn import Target, parse
from queen.shards import moving
from queen.shards.setup import change
from spec.guarantees import Level, checks
from tests.support.outage import FragilePostgres, fragile_postgres
from tests.support.processes import open_folder
from tests.support.shards import serving_shards
from tests.support.traffic import Traffic

NAMES = ("a", "b", "c")
PARTITIONS = [f"p{number}" for number in range(12)]
#: The step before which the mover dies, and what dies with it.
DEATHS = (("bring", "source"), ("bring", "target"), ("forget", "worker"), ("forget", "target"), ("expect", None))


class _DeathError(Exception):
    """The mover has died."""


@pytest.fixture
def databases() -> Iterator[tuple[Path, dict[str, FragilePostgres]]]:
    with open_folder() as folder, ExitStack() as stack:
        yield folder, {name: stack.enter_context(fragile_postgres(folder / name)) for name in NAMES}


async def move(targets: dict[str, Target], step: str | None = None) -> moving.Moved | None:
    """Moves what is to be moved; ``None``: the mover has died before a step."""
    if step is None:
        return await moving.move(targets, moving.Wanted(), lambda _moved: None)
    whole: Callable[..., Any] = getattr(moves, step)

    async def die(*_arguments: object) -> None:
        raise _DeathError

    setattr(moves, step, die)
    try:
        return await moving.move(targets, moving.Wanted(), lambda _moved: None)
    except _DeathError:
        return None
    finally:
        setattr(moves, step, whole)


async def move_at_last(targets: dict[str, Target]) -> moving.Moved:
    """Repeats the command until it is done."""
    async with asyncio.timeout(240):
        while True:
            try:
                moved = await move(targets)
            except QueenError as problem:  # a database that has just begun
                print(f"move: {problem}")
                await asyncio.sleep(0.2)
                continue
            assert moved is not None
            if not moved.left:
                return moved
            print(f"left: {moved.left}")


async def places(urls: dict[str, str], queue: str) -> dict[str, str]:
    """The databases of the partitions of a queue."""
    found: dict[str, str] = {}
    for name, url in urls.items():
        connection = await asyncpg.connect(url)
        try:
            for row in await connection.fetch(
                "SELECT p.name FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id"
                " WHERE q.name = $1",
                queue,
            ):
                assert row[0] not in found, f"{row[0]} is in {found[row[0]]} and in {name}"
                found[row[0]] = name
        finally:
            await connection.close()
    return found


@checks("G-SHARD-8", "G-SHARD-1", level=Level.FAULTS)
def test_partitions_move_while_everything_dies(databases: tuple[Path, dict[str, FragilePostgres]]) -> None:
    seed = int(os.environ.get("QUEEN_SEED", random.SystemRandom().randrange(10**6)))
    print(f"QUEEN_SEED={seed}")
    choice = random.Random(seed)
    folder, fragile = databases
    urls = {name: postgres.dsn for name, postgres in fragile.items()}
    targets = {name: parse(url, "test", 5000) for name, url in urls.items()}
    with serving_shards({name: urls[name] for name in ("a", "b")}, folder / "first"):
        pass  # the list has two shards
    with serving_shards(urls, folder / "server", "--workers", "2") as server:
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"moved-{seed}", seed)
        options = {"leaseTime": 5, "retryLimit": 7}
        assert server.request("POST", "/api/v1/configure", {"queue": traffic.queue, "options": options})[0] == 200

        async def disturb() -> None:
            await change(targets, lambda known: with_added(known, "c"))
            for number, (step, dies) in enumerate(choice.sample(DEATHS, len(DEATHS))):
                if number == 2:
                    await move_at_last(targets)
                    await change(targets, lambda known: with_drained(known, "b"))
                assert await move(targets, step) is None or number
                if dies == "worker":
                    os.kill(choice.choice(sorted(server.workers())), signal.SIGKILL)
                elif dies is not None:
                    name = "c" if dies == "target" else choice.choice(("a", "b"))
                    fragile[name].kill()
                    await asyncio.sleep(choice.random())
                    fragile[name].start()
                await traffic.progress(50)
            await move_at_last(targets)
            found = await places(urls, traffic.queue)
            assert found.keys() >= set(PARTITIONS)
            assert set(found.values()) == {"a", "c"}

        asyncio.run(traffic.run(disturb, PARTITIONS, consumers=4))
        asyncio.run(traffic.judge(*urls.values()))
        print(asyncio.run(places(urls, traffic.queue)))
