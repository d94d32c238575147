"""Timers of partitions that are held back: their order afterwards, and how long the next pause is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from queen.engine import timers
from queen.engine.ports import TimerMessage, TimersRead
from queen.engine.timers import Timers
from spec.guarantees import Level, checks

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class Store:
    """Timers by their second, a lock on a partition while it is in ``locked``, and what entered the log."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[tuple[float, str]] = []
        self.locked: set[str] = set()
        self.log: list[tuple[float, str]] = []

    async def read(
        self, since: datetime | None, most: int, _bytes: int, _ahead: float, held: Sequence[tuple[int, str]]
    ) -> TimersRead:
        begin = -1.0 if since is None else (since - BEGIN).total_seconds()
        due = [each for each in sorted(self.waiting) if begin <= each[0] <= self.now and (1, each[1]) not in held]
        messages = [
            TimerMessage(BEGIN + timedelta(seconds=at), round(at * 10), 1, "q", place, str(at), b"{}")
            for at, place in due[:most]
        ]
        return TimersRead(messages, None)

    async def move(self, messages: Sequence[TimerMessage]) -> bool:
        if self.locked & {message.partition for message in messages}:
            raise TimeoutError("locked")
        moved = [((message.deliver_at - BEGIN).total_seconds(), message.partition) for message in messages]
        self.log += moved
        self.waiting = [each for each in self.waiting if each not in moved]
        return True


class Moving(Timers):
    """Without layout and a log."""

    async def _move(self, messages: Sequence[TimerMessage]) -> bool:
        return await self._store.move(messages)

    def __init__(self, store: Store) -> None:
        nothing: Any = None
        database: Any = store
        super().__init__(nothing, database, lambda: True, lambda: store.now)
        self._store = store


async def run(store: Store, moving: Timers, seconds: float) -> None:
    for _ in range(round(seconds * 20)):
        store.now += 0.05
        while await moving.move():
            pass


@checks("G-TIM-2", level=Level.MODEL)
async def test_timers_keep_their_order_after_their_partition_was_held_back() -> None:
    store = Store()
    moving = Moving(store)
    store.waiting = [(tenth / 10, place) for tenth in range(40) for place in ("p", "other")]
    await run(store, moving, 0.45)
    store.locked = {"p"}
    await run(store, moving, 0.3)
    store.locked = set()
    await run(store, moving, 4)
    assert store.waiting == []
    for place in ("p", "other"):
        assert [at for at, where in store.log if where == place] == [tenth / 10 for tenth in range(40)]


@checks("G-TIM-2", level=Level.MODEL)
async def test_the_pause_begins_anew_after_a_partition_was_moved() -> None:
    store = Store()
    moving = Moving(store)
    for _ in range(5):
        begin = round(store.now, 2)
        store.waiting, store.locked = [(begin, "p")], {"p"}
        await run(store, moving, 0.1)
        store.locked = set()
        await run(store, moving, timers._HELD_S + 0.2)
        assert store.waiting == []
