"""Tries of what is held back in the outbox, and the mover beside them."""

import asyncio
from typing import Any

from queen.core.errors import TooSlowError
from queen.engine.outbox_held import HeldOutbox
from queen.engine.ports import HeldRead, OutboxPartition
from spec.guarantees import Level, checks


class Database:
    """Answers reads of what is held back from a list, of partitions without messages, so that nothing is appended."""

    def __init__(self, *reads: HeldRead | Exception | None) -> None:
        self.reads = list(reads)
        self.was_moving: list[bool] = []
        self.moving = asyncio.Lock()

    async def read_held(self, messages: int, size: int) -> HeldRead | None:
        read = self.reads.pop(0) if self.reads else None
        if isinstance(read, Exception):
            raise read
        return read

    async def let_go(self) -> int:
        self.was_moving.append(not self.moving.locked())
        return 1


def read(*, tries: int) -> HeldRead:
    """A partition without messages."""
    return HeldRead(OutboxPartition(1, "q", "p", [], [], []), tries, 0, 0, True)


async def looks(database: Any, number: int) -> None:
    """So many looks."""
    rests = 0

    async def sleep(seconds: float) -> None:
        nonlocal rests
        rests += 1
        if rests == number:
            held.cancel()

    unused: Any = None
    held = asyncio.ensure_future(HeldOutbox(unused, database, database.moving, sleep).keep_retrying())
    await asyncio.wait([held])
    assert held.cancelled()


@checks("G-OUT-3", level=Level.MODEL)
async def test_a_look_that_fails_stops_neither_the_mover_nor_the_next_look() -> None:
    database = Database(TooSlowError("slow"), RuntimeError("odd"), None)
    await looks(database, 3)
    assert database.reads == []
    assert len(database.was_moving) == 1


@checks("G-OUT-3", level=Level.MODEL)
async def test_the_mover_pauses_while_the_last_messages_of_a_partition_are_moved() -> None:
    """Or one to which messages come all the time would be held back for ever."""
    database = Database(read(tries=0), None, read(tries=0), None)
    await looks(database, 1)
    assert (database.reads, database.was_moving) == ([], [False])


@checks("G-OUT-3", level=Level.MODEL)
async def test_the_mover_pauses_also_if_more_comes_than_the_tries_can_move() -> None:
    """But not until all is moved: others wait for it."""
    database = Database(*[read(tries=0)] * 220)
    await looks(database, 1)
    assert (database.reads, database.was_moving) == ([], [False, False])


@checks("G-OUT-3", level=Level.MODEL)
async def test_the_mover_does_not_pause_for_a_partition_that_failed() -> None:
    """Its next try may take long."""
    failed = read(tries=1)
    database = Database(read(tries=0), None, failed, failed)
    await looks(database, 1)
    assert database.reads == [failed]
