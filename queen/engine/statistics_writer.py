"""Adds what a worker counts, and its state, to the statistics in the database; refreshes those of queues."""

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import psutil

from queen.core.errors import DatabaseUnavailableError, TooSlowError
from queen.core.metrics import Connected, Levels, Sample, Worker, WorkerState
from queen.core.statistics import ClockState
from queen.engine.administration import Statistics
from queen.engine.listening_port import LISTENING_PORT
from queen.engine.queue_counters import QueueCounters
from queen.metrics import messages

log = logging.getLogger("queen.engine")

#: How often the levels of the worker and the lag of its loop are measured.
_TICK_S = 1.0
#: A report of connected consumers counts for this many intervals, if no other comes.
_REPORT_INTERVALS = 3
#: A refresh of statistics takes at most this share of the time: after a long one the next comes later.
_REFRESH_SHARE = 0.05


def this_worker() -> Worker:
    """The current process; it may have been forked after this module was imported."""
    return Worker(socket.gethostname(), os.getpid(), LISTENING_PORT.number)


async def write_counts(counters: QueueCounters, statistics: Statistics) -> None:
    """Stores the counts of a worker; gives them back if that fails."""
    counted = counters.take()
    if not counted:
        return
    try:
        await statistics.record_queues(this_worker(), counted)
    except Exception:
        counters.give_back(counted)
        raise
    messages.count(each.counts for each in counted)


class StatisticsWriter:
    """Writes for one worker.

    Args:
        counters: of the worker.
        statistics: stores them.
        state: the current state of the worker.
        interval_s: seconds between two writes.
        keep: statistics of workers older than this are removed.

    Attributes:
        clock: the state of PostgreSQL's clock at the last write.
    """

    def __init__(
        self,
        counters: QueueCounters,
        statistics: Statistics,
        state: Callable[[], WorkerState],
        interval_s: float,
        keep: timedelta,
    ) -> None:
        self._counters, self._statistics, self._state = counters, statistics, state
        self._interval_s, self._keep = interval_s, keep
        self.clock = ClockState()
        self._process = psutil.Process()
        self._cpu = self._process.cpu_times()
        self._jobs = self._db_errors = 0
        self._lag_s = 0.0
        self._levels = Levels()
        self._measured = self._cpu, -math.inf
        self._tasks: list[asyncio.Task[None]] = []
        self._reported = False

    def start(self) -> None:
        """Starts, in the engine's loop."""
        self._measured = self._process.cpu_times(), asyncio.get_running_loop().time()
        self._tasks = [asyncio.create_task(work()) for work in (self._watch, self._write_regularly, self._refresh)]

    async def stop(self) -> None:
        """Stops, and stores the last counts if PostgreSQL is reachable."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await write_counts(self._counters, self._statistics)
            await self._report([])
        except (DatabaseUnavailableError, TooSlowError) as problem:
            log.warning("The last statistics of this worker are lost: %s", problem)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._lag_s = max(self._lag_s, loop.time() - due)
            if loop.time() - self._measured[1] > _TICK_S / 2:  # over less time, the share of CPU says nothing
                self._measure(loop.time())

    def _measure(self, now: float) -> None:
        cpu, memory, state = self._process.cpu_times(), self._process.memory_info(), self._state()
        before, since = self._measured
        self._measured = cpu, now
        percent = 100 / (now - since)
        self._levels.add(
            (cpu.user - before.user) * percent, (cpu.system - before.system) * percent, memory.rss, memory.vms,
            state.pool_size, state.pool_idle, state.pool_size - state.pool_idle, state.queued, state.waiting,
        )  # fmt: skip

    async def _write_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._quietly(self._write())

    async def _write(self) -> None:
        state = self._state()
        for queue, waiting in state.by_queue().items():
            self._counters.parked(queue, waiting)
        await write_counts(self._counters, self._statistics)
        await self._report(state.connected())
        if not self._levels.seconds:
            self._measure(asyncio.get_running_loop().time())
        await self._statistics.record_worker(this_worker(), self._sample(state), self._keep)
        self.clock = await self._statistics.clock()

    async def report(self) -> None:
        """Stores the connected consumers of this worker."""
        await self._report(self._state().connected())

    async def _report(self, connected: Sequence[Connected]) -> None:
        if connected or self._reported:
            self._reported = True
            await self._statistics.record_consumers(this_worker(), connected, _REPORT_INTERVALS * self._interval_s)
            self._reported = bool(connected)

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._quietly(self._refresh_all())
            await asyncio.sleep(max(self._interval_s, (loop.time() - began) / _REFRESH_SHARE))

    async def _refresh_all(self) -> None:
        after: int | None = 0
        while after is not None:
            after = (await self._statistics.refresh_page(after, wait=False)).last

    async def _quietly(self, work: Awaitable[object]) -> None:
        try:
            await work
        except (DatabaseUnavailableError, TooSlowError) as problem:
            log.debug("Statistics cannot be stored at the moment: %s", problem)
        except Exception:
            log.exception("Storing statistics failed; the next attempt follows")

    def _sample(self, state: WorkerState) -> Sample:
        cpu, memory = self._process.cpu_times(), self._process.memory_info()
        sample = Sample(
            minute=self._counters.minute,
            jobs=self._counters.requests - self._jobs,
            db_errors=self._counters.db_errors - self._db_errors,
            loop_lag_ms=self._lag_s * 1000,
            cpu_user_ms=(cpu.user - self._cpu.user) * 1000,
            cpu_system_ms=(cpu.system - self._cpu.system) * 1000,
            rss_bytes=memory.rss,
            virtual_bytes=memory.vms,
            pool_size=state.pool_size,
            pool_idle=state.pool_idle,
            queued=state.queued,
            waiting=state.waiting,
            levels=self._levels,
        )
        self._levels = Levels()
        self._cpu, self._jobs, self._db_errors = cpu, self._counters.requests, self._counters.db_errors
        self._lag_s = 0.0
        return sample
