"""The reports of a worker: it measures itself every second, and stores minima, maxima and sums."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

from queen.core.metrics import Sample, WorkerState
from queen.core.statistics import ClockState
from queen.engine.queue_counters import QueueCounters
from queen.engine.statistics_writer import StatisticsWriter
from tests.support import virtual_time


class Stored:
    """Keeps the samples that a worker writes."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    async def record_queues(self, *_: object) -> None:
        """Nothing was counted."""

    async def record_worker(self, _worker: object, sample: Sample, _keep: timedelta) -> None:
        self.samples.append(sample)

    async def record_consumers(self, *_: object) -> None:
        """None is connected."""

    async def clock(self) -> ClockState:
        return ClockState()

    async def refresh_page(self, _after: int, *, wait: bool) -> Any:
        assert not wait
        await asyncio.Event().wait()


async def report_for(seconds: float, interval_s: float, waiting: Iterator[int]) -> list[Sample]:
    stored: Any = Stored()

    def state() -> WorkerState:
        return WorkerState(pool_size=4, pool_idle=3, waiting=next(waiting))

    writer = StatisticsWriter(QueueCounters(), stored, state, interval_s, timedelta(days=1))
    writer.start()
    await asyncio.sleep(seconds)
    await writer.stop()
    return list(stored.samples)


def test_every_second_is_measured_between_two_reports() -> None:
    first, second = virtual_time.run(report_for(20.5, 10.2, count()))
    assert (first.levels.seconds, second.levels.seconds) == (10, 10)
    # The report itself takes the value in between.
    assert (first.levels.waiting.low, first.levels.waiting.high, first.levels.waiting.last) == (0, 9, 9)
    assert first.levels.waiting.total == sum(range(10))
    assert (second.levels.waiting.low, second.levels.waiting.high) == (11, 20)
    assert (first.levels.pool_active.low, first.levels.pool_active.high) == (1, 1)
    assert 0 <= first.levels.cpu_user.low <= first.levels.cpu_user.high
    assert first.levels.rss_bytes.low > 10**6


def test_a_report_before_the_first_second_has_one_measurement() -> None:
    samples = virtual_time.run(report_for(0.9, 0.25, count()))
    assert [sample.levels.seconds for sample in samples] == [1, 1, 1]
