"""Timers of partitions that are held back: their order afterwards, and how long the next pause is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from queen.core.errors import TooSlowError
from queen.engine import timers
from queen.engine.ports import PushOptions, TimerMessage, TimersRead
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
        self.moves: list[list[str]] = []
        self.read_s, self.read_limits = 0.0, list[float | None]()
        self.move_s = dict[str, float]()

    async def read(
        self,
        since: datetime | None,
        most: int,
        _bytes: int,
        _ahead: float,
        held: Sequence[tuple[int, str]],
        limit_s: float | None,
    ) -> TimersRead:
        self.read_limits.append(limit_s)
        if (limit_s or 4.0) < self.read_s:
            raise TooSlowError("the read")
        begin = -1.0 if since is None else (since - BEGIN).total_seconds()
        due = [each for each in sorted(self.waiting) if begin <= each[0] <= self.now and (1, each[1]) not in held]
        messages = [
            TimerMessage(
                BEGIN + timedelta(seconds=at),
                round(at * 10),
                1,
                "secret" if place[0] == "s" else "q",
                place,
                str(at),
                b"{}",
            )
            for at, place in due[:most]
        ]
        return TimersRead(messages, None)

    async def move(self, messages: Sequence[TimerMessage], limit_s: float | None) -> bool:
        if self.locked & {message.partition for message in messages}:
            raise TimeoutError("locked")
        if any(self.move_s.get(message.partition, 0.0) > (limit_s or 4.0) for message in messages):
            raise TooSlowError("the move")
        self.moves.append([message.partition for message in messages])
        moved = [((message.deliver_at - BEGIN).total_seconds(), message.partition) for message in messages]
        self.log += moved
        self.waiting = [each for each in self.waiting if each not in moved]
        return True


class Moving(Timers):
    """Without layout and a log."""

    async def _move(self, messages: Sequence[TimerMessage], limit_s: float | None = None) -> bool:
        return await self._store.move(messages, limit_s)

    def __init__(self, store: Store) -> None:
        cache = SimpleNamespace(known_push_options=PushOptions(1, frozenset({"secret"}), {}))
        self.context: Any = SimpleNamespace(keys=None, cache=cache)
        database: Any = store
        super().__init__(self.context, database, lambda: True, lambda: store.now)
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


@checks("G-TIM-2", level=Level.MODEL)
async def test_timers_without_a_key_leave_the_others_together_and_in_order() -> None:
    store = Store()
    moving = Moving(store)
    store.now = 10.0
    store.waiting = [(number / 10, f"{kind}{number}") for number in range(40) for kind in ("p", "s")]
    await run(store, moving, 0.05)
    assert store.moves == [[f"p{number}" for number in range(40)]]
    await run(store, moving, 5)
    assert len(store.moves) == 1
    moving.context.keys = "a key"
    await run(store, moving, 2 * timers._HELD_MAX_S)
    assert store.moves[1:] == [[f"s{number}" for number in range(40)]]


@checks("G-TIM-1", level=Level.MODEL)
async def test_a_large_timer_gets_more_time_at_each_try_and_delays_no_other_for_long() -> None:
    store = Store()
    moving = Moving(store)
    store.waiting, store.move_s = [(0.0, "large"), (0.1, "other"), (9.0, "other")], {"large": 30.0}
    await run(store, moving, 60)
    assert store.waiting == []
    assert [place for _, place in store.log] == ["other", "large", "other"]


@checks("G-TIM-1", level=Level.MODEL)
async def test_a_read_of_a_large_timer_gets_more_time_at_each_try() -> None:
    store = Store()
    moving = Moving(store)
    store.waiting, store.read_s = [(0.0, "large")], 30.0
    for _ in range(3):
        with pytest.raises(TooSlowError):
            await moving.move()
    assert await moving.move() == 1
    store.read_s = 0.0
    await moving.move()
    assert store.read_limits == [None, 8.0, 16.0, 32.0, None]
