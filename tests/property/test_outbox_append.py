"""What a move of the outbox appends, what it gives to waiting long polls, and how often the mover looks."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from queen.core.errors import OutcomeUnknownError
from queen.core.job_type import JobType
from queen.engine.context import Context
from queen.engine.job import Job
from queen.engine.metadata_cache import MetadataCache
from queen.engine.offer import Offer
from queen.engine.outbox import Outbox
from queen.engine.outbox_append import append, push_of
from queen.engine.ports import (
    Given,
    Moved,
    Notification,
    OutboxPartition,
    OutboxRead,
    PartitionName,
    PushOptions,
    Subscription,
    WaitingColumns,
)
from queen.log.append import AppendBatch, Appended
from queen.log.requests import QUEUE_MODE, Pop, Popped
from queen.log.segment import decode_entries
from spec.guarantees import Level, checks

AT = datetime(2026, 11, 25, tzinfo=UTC)


class Database:
    """The queue ``q`` has number 2, and its partition ``p`` number 5."""

    async def read_push_options(self) -> PushOptions:
        return PushOptions(1, frozenset(), {})

    async def resolve_partitions(self, names: Sequence[tuple[str, str]], *, create: bool) -> list[tuple[int, int]]:
        assert create
        return [(2, 5) for _ in names]

    async def describe_partitions(self, part_ids: Sequence[int]) -> list[PartitionName]:
        return [PartitionName(part_id, 2, "q", "p") for part_id in part_ids]


class Cache(MetadataCache):
    """Knows queue mode, as group 7 of the queue ``q``."""

    def __init__(self, database: Any) -> None:
        super().__init__(database, 100)
        self._remember_group("q", QUEUE_MODE, Subscription(2, 7, True, None))


class LongPolls:
    """One waits, and takes two messages."""

    def __init__(self) -> None:
        self.job = Job(JobType.POP, Pop("q", batch=2), asyncio.get_running_loop().create_future())
        self.served: list[Popped] = []
        self.waiting: list[Job] = []

    def offer(self, messages: Mapping[str, int], size: int) -> Offer:
        assert size > 0
        return Offer([self.job], messages)

    def take_back(self, offer: Offer) -> None:
        self.served += [popped for _, popped in offer.served]
        self.waiting += offer.jobs


class World:
    """A context, and what it was notified of."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        database: Any = Database()
        self.context = Context(database, database, Cache(database), self.notifications.append, retry_timeout_s=1)


@checks("G-OUT-1", level=Level.MODEL)
async def test_messages_of_a_deleted_queue_are_not_appended_to_its_successor() -> None:
    """Its options may be others: it may not encrypt."""
    moves: list[AppendBatch] = []

    async def move(batch: AppendBatch, waiting: WaitingColumns | None) -> Moved:
        assert waiting is None
        moves.append(batch)
        return Moved(True, (), False)

    world = World()
    push = push_of([OutboxPartition(1, "q", "p", [None], [None], [b"1"])])
    assert not await append(world.context, push, {"q": 1}, move)
    assert moves == []
    assert await append(world.context, push, {"q": 2}, move)
    assert len(moves) == 1


@checks("G-OUT-1", level=Level.MODEL)
@pytest.mark.parametrize("number", [2, 3])
async def test_a_long_poll_gets_what_the_move_has_leased_to_it(number: int) -> None:
    world, long_polls, layouts = World(), LongPolls(), 0

    async def move(batch: AppendBatch, waiting: WaitingColumns | None) -> Moved:
        nonlocal layouts
        layouts += 1
        if number == 3 and layouts == 1:
            return Moved(False, (), True)
        if number == 3:
            # Whoever was an argument of a call is none of another one.
            assert waiting is None
            return Moved(True, (), False)
        assert waiting is not None
        assert (waiting.grp, waiting.batch) == ([7], [2])
        return Moved(True, (), False, [Appended(5, 10, AT, None, None)], [Given(1, 5, 10, 11, -1, 1)])

    payloads = [b"%d" % each for each in range(number)]
    push = push_of([OutboxPartition(2, "q", "p", [None] * number, [None] * number, payloads)])
    assert await append(world.context, push, {"q": 2}, move, long_polls)
    [notification] = world.notifications
    if number == 3:
        assert (long_polls.waiting, long_polls.served, notification.served) == ([long_polls.job], [], ())
        return
    [popped] = long_polls.served
    [piece] = popped.claims[0].slices
    assert (piece.first, piece.created_at, popped.claims[0].upto) == (10, AT, 11)
    assert decode_entries(piece.data, piece.ends, piece.start) == payloads
    assert (long_polls.waiting, notification.served) == ([], (QUEUE_MODE,))


@checks("G-OUT-1", level=Level.MODEL)
async def test_what_a_lost_move_may_have_leased_is_released() -> None:
    world, long_polls = World(), LongPolls()

    async def move(_batch: AppendBatch, _waiting: WaitingColumns | None) -> Moved:
        raise OutcomeUnknownError("lost")

    push = push_of([OutboxPartition(2, "q", "p", [None], [None], [b"1"])])
    with pytest.raises(OutcomeUnknownError):
        await append(world.context, push, {"q": 2}, move, long_polls)
    assert [orphan.queue for orphan in world.context.orphans.take()] == ["q"]
    assert (long_polls.waiting, long_polls.served) == ([long_polls.job], [])


class Mover:
    """A mover whose moves are in vain, at a time in seconds; what it reads, and its looks and pauses."""

    def __init__(self, at: float, read: OutboxRead | None) -> None:
        self.at, self._read = at, read
        self.looks: list[tuple[int, int]] = []
        self.pauses: list[float] = []
        procedures: Any = self
        self.outbox = Outbox(World().context, procedures, LongPolls(), lambda: True, lambda: self.at, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def read(self, _messages: int, _size: int, pause_ms: int, looks: int) -> OutboxRead | None:
        self.looks.append((pause_ms, looks))
        return self._read

    async def move(self, *_arguments: Any) -> Moved:
        return Moved(False, (), False)


async def test_the_longer_no_message_comes_the_rarer_the_mover_looks() -> None:
    mover = Mover(0, None)
    for since in (0.0, 0.001, 0.01, 0.03, 0.1, 1, 59, 60):
        mover.at = since - 60
        assert await mover.outbox.move() == 0
    assert mover.looks == [(1, 10), (1, 10), (1, 10), (3, 3), (12, 1), (25, 1), (25, 1), (250, 1)]
    assert mover.pauses == []


async def test_a_move_in_vain_is_followed_by_a_pause() -> None:
    """Another worker moves: what waits is there at each look."""
    messages = OutboxPartition(2, "q", "p", [None], [None], [b"1"])
    mover = Mover(-60, OutboxRead(1, "1:2:", True, "1", 1, 1, [messages]))
    assert await mover.outbox.move() == 0
    assert mover.pauses == [0.001]
