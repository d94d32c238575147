"""The move of due timers against a database in memory that loses answers, beside a second mover and cancels."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError
from queen.engine.context import Context, ignore_notification
from queen.engine.handlers.timers import change_timers
from queen.engine.ports import Moved, PartitionName, PushOptions, TimerMessage, TimersRead
from queen.engine.timers import Timers
from queen.log.append import AppendBatch
from queen.log.requests import TimerChange, TimerVerdict
from queen.log.segment import encode_entry
from spec.guarantees import Level, checks

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class Memory:
    """Timers and a log as ``sql/procedures/timers`` keeps them; calls are lost with a probability."""

    def __init__(self, choice: random.Random, lost: float) -> None:
        self._choice, self._lost = choice, lost
        self.now = BEGIN
        self.waiting: dict[int, TimerMessage] = {}
        self.log: list[int] = []
        self._seq = 0

    def seconds(self) -> float:
        return (self.now - BEGIN).total_seconds()

    def add(self, delay_s: int) -> None:
        self._seq += 1
        entry = encode_entry(b"%d" % self._seq, str(self._seq), None, None)
        due = self.now + timedelta(seconds=delay_s)
        self.waiting[self._seq] = TimerMessage(due, self._seq, 1, "q", "p", str(self._seq), entry)

    async def read(
        self, since: datetime | None, messages: int, _size: int, _ahead_s: float, _held: object, _limit_s: object
    ) -> TimersRead:
        await self._may_fail()
        due = [each for each in self.waiting.values() if (since or BEGIN) <= each.deliver_at <= self.now]
        return TimersRead(sorted(due, key=lambda each: (each.deliver_at, each.seq))[: min(messages, 3)], None)

    async def move(self, timers: Sequence[TimerMessage], batch: AppendBatch, limit_s: float | None) -> Moved:
        del limit_s
        await self._may_fail()
        if any(timer.seq not in self.waiting for timer in timers):
            return Moved(False, (), False)
        if self._choice.random() < 0.1:
            return Moved(False, (), True)
        assert sum(batch.n) == len(timers)
        for timer in timers:
            del self.waiting[timer.seq]
            self.log.append(timer.seq)
        if self._choice.random() < self._lost:
            raise OutcomeUnknownError("broken")
        return Moved(True, (), False)

    async def _may_fail(self) -> None:
        await asyncio.sleep(0)
        if self._choice.random() < self._lost:
            raise DatabaseUnavailableError("down")


def context_of(database: Any) -> Context:
    async def partitions(keys: set[tuple[str, str]], *, create: bool) -> dict[tuple[str, str], int]:
        return dict.fromkeys(keys, 1)

    async def names(part_ids: Sequence[int]) -> dict[int, PartitionName]:
        return {part_id: PartitionName(part_id, 1, "q", "p") for part_id in part_ids}

    cache: Any = SimpleNamespace(
        known_push_options=PushOptions(0, frozenset(), {}), partitions=partitions, names=names,
        forget_push_options=lambda: None, forget_partitions=lambda _unknown: None,
    )  # fmt: skip
    nothing: Any = SimpleNamespace()
    return Context(database, nothing, cache, ignore_notification, retry_timeout_s=60)


@checks("G-TIM-1", "G-TIM-2", level=Level.MODEL)
@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_two_movers_fire_each_timer_once_in_the_order_of_times(lost: float) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    asyncio.run(_simulate(random.Random(seed), lost))


async def _simulate(choice: random.Random, lost: float) -> None:
    memory = Memory(choice, lost)

    def mover() -> Timers:
        return Timers(context_of(None), memory, lambda: True, memory.seconds)

    movers = [mover(), mover()]

    async def move(number: int) -> None:
        try:
            await movers[number].move()
        except DatabaseUnavailableError:
            movers[number] = mover()

    due: dict[int, datetime] = {}
    cancelled: set[int] = set()
    for _ in range(300):
        memory.now += timedelta(seconds=choice.choice((0, 1)))
        if choice.random() < 0.5:
            memory.add(choice.randrange(1, 20))
            due |= {seq: timer.deliver_at for seq, timer in memory.waiting.items()}
        if memory.waiting and choice.random() < 0.1:
            gone = choice.choice(sorted(memory.waiting))
            del memory.waiting[gone]
            cancelled.add(gone)
        await asyncio.gather(*[move(number) for number in (0, 1) if choice.random() < 0.5])
        assert all(due[seq] <= memory.now for seq in memory.log)
    memory.now += timedelta(seconds=100)
    while memory.waiting:
        await move(0)
    assert sorted(memory.log) == sorted(due.keys() - cancelled)
    assert memory.log == sorted(memory.log, key=lambda seq: (due[seq], seq))


class Lossy:
    """A database that answers each of its calls as given: with verdicts, or not at all."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    async def change_timers(self, _changes: object, _version: int) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@checks("G-TIM-1", level=Level.MODEL)
@pytest.mark.parametrize("lost", [(), (OutcomeUnknownError("broken"),), (DatabaseUnavailableError("down"),)])
def test_a_cancel_that_finds_nothing_is_unknown_only_if_its_own_first_sending_may_have_cancelled(
    lost: tuple[Exception, ...],
) -> None:
    verdicts = [TimerVerdict("absent", None, None), TimerVerdict("cancelled", "t", BEGIN)]
    context = context_of(Lossy(*lost, [], verdicts) if not lost else Lossy(*lost, verdicts))
    requests = [[TimerChange("cancel", "q", "a")], [TimerChange("cancel", "q", "b")]]
    first, second = asyncio.run(change_timers(context, requests))
    unknown = any(isinstance(each, OutcomeUnknownError) for each in lost)
    assert isinstance(first, OutcomeUnknownError) is unknown
    assert not isinstance(second, Exception)
